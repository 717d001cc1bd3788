"""What must anything that turns a Job into an Outcome offer?

The contract suite (``tests/contract``) runs on every implementation; ``testing.FakeBackend`` is
one too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from executor.job import Job
from executor.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Control:
    """One wall, as read back from kernel or daemon for a started sandbox.

    ``mandatory`` and not ``in_force`` is a refusal, never a warning.
    """

    name: str
    in_force: bool
    mandatory: bool
    detail: str


class Backend(Protocol):
    """A kind of sandbox. Opened by ``async with``; ``run`` may be called concurrently."""

    @property
    def name(self) -> str:
        """How reports call it: docker or namespace."""
        ...

    async def run(self, job: Job) -> Outcome:
        """Run one job to its end. Never raises for what the hook, kernel or engine does.

        Cancelling the call stops the run, waits for its tear-down, and re-raises.
        """
        ...

    async def inspect(self, job: Job) -> tuple[Control, ...]:
        """Start the job's sandbox and read back what is really in force."""
        ...

    async def sweep(self) -> int:
        """Remove what dead instances of ours left behind; the number of things removed."""
        ...

    async def close(self) -> None:
        """Stop what still runs, leave nothing behind."""
        ...
