"""How does the program end, whatever happened?

The one place that turns an error into words on stderr and an exit code (SPEC section 10). No
traceback reaches a user. ``run`` and ``gate`` give their hook's own code, so that every failure of
ours has one code of its own there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from executor.errors import (
    ExecutorError,
    InvalidConfig,
    InvalidInput,
    Refused,
    Unavailable,
)

OK, FAILED, USAGE, REFUSED, NO_ENGINE = 0, 1, 2, 3, 4
RUN_FAILED = 125
"""What ``run`` gives where the hook has no code of its own to give."""
GATE_FAILED = 64
"""What ``gate`` gives where there is no verdict: callers block on anything but 0 and 2."""
INTERRUPTED = 130
BROKEN_PIPE = 141
TERMINATED = 143


class Terminated(BaseException):
    """SIGTERM came, and everything has been torn down; as KeyboardInterrupt is for SIGINT."""


_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (InvalidConfig, FAILED),
    (InvalidInput, USAGE),
    (Refused, REFUSED),
    (Unavailable, REFUSED),
    (ExecutorError, FAILED),
    (KeyboardInterrupt, INTERRUPTED),
    (Terminated, TERMINATED),
    (BrokenPipeError, BROKEN_PIPE),
    (OSError, FAILED),
)
_OWN_FAILURE: Mapping[str, int] = {"run": RUN_FAILED, "gate": GATE_FAILED}
_KEPT = (INTERRUPTED, BROKEN_PIPE, TERMINATED)


class UsageError(InvalidInput):
    """The words of the command line do not fit together."""


@contextmanager
def ending(command: str) -> Iterator[None]:
    """Turns whatever leaves the block into SystemExit; ``command`` is the first word."""
    try:
        yield
    except SystemExit:
        raise
    except BaseException as failure:  # noqa: BLE001  (the last line of defence)
        cause = first_cause(failure)
        code = exit_code(cause)
        _say(cause)
        if code not in _KEPT:
            code = _OWN_FAILURE.get(command, code)
        raise SystemExit(code) from None


def exit_code(failure: BaseException) -> int:
    """The exit code of an error; 1 for what nobody foresaw."""
    if isinstance(failure, Unavailable) and failure.engine:
        return NO_ENGINE
    if _is_usage(failure):
        return USAGE
    return next((code for kind, code in _CODES if isinstance(failure, kind)), FAILED)


def first_cause(failure: BaseException) -> BaseException:
    """The first error inside the groups that task groups make."""
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure


def _say(failure: BaseException) -> None:
    """The error's words, line by line, without anything that a terminal would obey."""
    if isinstance(failure, BrokenPipeError):
        # Python would complain again when it flushes stdout at exit (signal(7), SIGPIPE).
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    from executor.cli.output import talk

    for line in _words(failure).splitlines() or [type(failure).__name__]:
        talk(line)


def _words(failure: BaseException) -> str:
    if isinstance(failure, KeyboardInterrupt):
        return "interrupted"
    if isinstance(failure, Terminated):
        return "terminated"
    if isinstance(failure, InvalidInput):
        return "\n".join(
            ": ".join(part for part in (failure.where, fault.pointer, fault.message) if part)
            for fault in failure.faults
        )
    try:
        text = str(failure)
    except Exception:  # noqa: BLE001  (the parser looks for similar commands while it speaks)
        text = "the command line cannot be read"
    if isinstance(failure, (ExecutorError, OSError)) or _is_usage(failure):
        return text
    return f"internal error: {type(failure).__name__}: {text}"


def _is_usage(failure: BaseException) -> bool:
    """Whether the command line parser raised it; without importing the parser for that."""
    parser = sys.modules.get("cyclopts")
    return parser is not None and isinstance(failure, parser.CycloptsError)
