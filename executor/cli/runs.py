"""How does a person read what became of some runs?"""

from __future__ import annotations

from collections.abc import Iterable

from executor.cli.output import print_table
from executor.outcome import Outcome
from executor.record import Record

HEADINGS = ("hook", "sandbox", "policy", "status", "cause", "code", "ms", "what it said")
_LINES = 6


def print_runs(records: Iterable[Record]) -> None:
    """A table with one row a run."""
    print_table(HEADINGS, (row(record) for record in records))


def row(record: Record) -> tuple[str, ...]:
    """The cells below ``HEADINGS``."""
    outcome = record.outcome
    return (
        record.hook,
        record.sandbox or "",
        record.policy,
        outcome.status.value,
        outcome.cause.value,
        code(outcome),
        f"{outcome.duration_seconds * 1000:.1f}",
        said(outcome),
    )


def code(outcome: Outcome) -> str:
    """The exit code, or the signal that ended it; nothing where it never ran."""
    if outcome.signal is not None:
        return f"signal {outcome.signal}"
    return "" if outcome.exit_code is None else str(outcome.exit_code)


def said(outcome: Outcome) -> str:
    """Our reason, then the beginning of what the hook wrote."""
    parts = [] if outcome.reason is None else [outcome.reason]
    for data, mark in ((outcome.stdout, ""), (outcome.stderr, "stderr: ")):
        lines = data.decode("utf-8", "replace").strip().splitlines()
        parts += [mark + line for line in lines[:_LINES]]
        if len(lines) > _LINES:
            parts.append(f"… {len(lines) - _LINES} more lines")
    if outcome.truncated:
        parts.append("(output cut at the policy's limit)")
    return "\n".join([*parts, *outcome.notes])
