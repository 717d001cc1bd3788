"""How did a run end?

Status says who is to be looked at (the hook, or us), Cause says why. Both are closed sets
(SPEC section 3, Outcome). An Outcome is a value; nothing that a hook does becomes an exception.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Status(StrEnum):
    """Who or what ended the run."""

    OK = "ok"
    FAILED = "failed"
    SIGNALLED = "signalled"
    TIMEOUT = "timeout"
    OOM = "oom"
    REFUSED = "refused"
    DROPPED = "dropped"
    ERROR = "error"
    INTERRUPTED = "interrupted"


class Cause(StrEnum):
    """Why it ended, as told by the cell and the kernel's counters."""

    EXIT = "exit"
    SIGNAL = "signal"
    WALL_CLOCK = "wall_clock"
    MEMORY = "memory"
    PIDS = "pids"
    FILE_SIZE = "file_size"
    SECCOMP = "seccomp"
    NOT_FOUND = "not_found"
    NOT_EXECUTABLE = "not_executable"
    SETUP = "setup"
    ENGINE_LOST = "engine_lost"
    STOPPED = "stopped"
    CANCELLED = "cancelled"
    POLICY = "policy"
    QUEUE = "queue"
    DEPTH = "depth"
    SIZE = "size"


class Stage(StrEnum):
    """Which signal ended a run that passed its deadline."""

    TERM = "term"
    KILL = "kill"


@dataclass(frozen=True, slots=True)
class Usage:
    """What a run took. Times in seconds, sizes in bytes; ``None`` where nothing could tell."""

    queue_seconds: float = 0.0
    start_seconds: float = 0.0
    cpu_seconds: float | None = None
    peak_memory_bytes: int | None = None
    stdout_bytes: int = 0
    stderr_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one run. ``stdout``/``stderr`` are what was captured, at most the cap each."""

    status: Status
    cause: Cause
    exit_code: int | None = None
    signal: int | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    truncated: bool = False
    duration_seconds: float = 0.0
    reason: str | None = None
    stage: Stage | None = None
    killed_strays: int = 0
    usage: Usage = field(default_factory=Usage)
    notes: tuple[str, ...] = ()
    """What a reader of the report must know: a control that is weaker here than elsewhere,
    setuid bits found in a granted directory, …"""

    @property
    def ok(self) -> bool:
        return self.status is Status.OK


def refused(reason: str, cause: Cause = Cause.POLICY) -> Outcome:
    """Policy, trust or validation said no; nothing was started."""
    return Outcome(Status.REFUSED, cause, reason=reason)


def dropped(reason: str, cause: Cause) -> Outcome:
    """The queue, the depth or the size of the event said no; nothing was started."""
    return Outcome(Status.DROPPED, cause, reason=reason)


def error(reason: str, cause: Cause = Cause.SETUP) -> Outcome:
    """Our own failure: the sandbox or the command could not start."""
    return Outcome(Status.ERROR, cause, reason=reason)
