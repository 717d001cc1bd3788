"""What does an operator read, one line a run?

structlog to stderr. Everything that a hook could have written is escaped, so that no control
character reaches a terminal and no hook can forge a line.
"""

from __future__ import annotations

import contextlib
import sys
from functools import cached_property
from typing import Any

from executor.outcome import Status
from executor.record import Record

_QUIET = {Status.OK}


def printable(text: str, limit: int = 300) -> str:
    """One line, safe for a terminal: control and format characters escaped, cut at ``limit``."""
    cut = text if len(text) <= limit else text[:limit] + "…"
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in cut
    )


class Log:
    """A Sink that writes the canonical line of each run."""

    @cached_property
    def _logger(self) -> Any:
        # Imported with the first line: a run of the command line that has nothing to tell is
        # done before structlog and what it imports would be loaded.
        import structlog

        return structlog.wrap_logger(
            structlog.PrintLogger(sys.stderr),
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                structlog.processors.KeyValueRenderer(
                    key_order=["timestamp", "level", "event"], sort_keys=False
                ),
            ],
        )

    def append(self, record: Record) -> None:
        outcome = record.outcome
        self._write(
            "info" if outcome.status in _QUIET else "warning",
            "run",
            hook=printable(record.hook),
            on=record.event,
            session=printable(record.session_id),
            sandbox=record.sandbox,
            status=outcome.status.value,
            cause=outcome.cause.value,
            exit_code=outcome.exit_code,
            duration_ms=round(outcome.duration_seconds * 1000, 1),
            reason=None if outcome.reason is None else printable(outcome.reason),
            **({"notes": printable("; ".join(outcome.notes))} if outcome.notes else {}),
        )

    def report(self, message: str, *, good: bool = False, **details: object) -> None:
        """A ``Report``: good news at the level info, everything else as a warning."""
        (self.info if good else self.warning)(message, **details)

    def info(self, message: str, **details: object) -> None:
        self._write("info", printable(message), **details)

    def warning(self, message: str, **details: object) -> None:
        self._write("warning", printable(message), **details)

    def _write(self, level: str, message: str, **details: object) -> None:
        # A full disk, a closed stderr, no descriptor left: a line is lost, and nothing else.
        with contextlib.suppress(OSError, ValueError):
            getattr(self._logger, level)(message, **details)
