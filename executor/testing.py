"""What do users need to test their hooks' configuration without a sandbox?

``FakeBackend`` takes the place of a real one (``Executor.open(backends={"fake": FakeBackend()})``),
and ``SAMPLE_PAYLOADS`` holds one valid payload for each lifecycle event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from executor.backends.base import Control
from executor.job import Job
from executor.outcome import Cause, Outcome, Status

SAMPLE_PAYLOADS: Mapping[str, Mapping[str, object]] = {
    "agent_start": {"agent": "demo", "session": "sess_demo"},
    "agent_end": {"success": True, "messages_count": 4},
    "llm_request": {"provider": "openai", "model": "gpt-4o", "messages_count": 3},
    "llm_response": {
        "provider": "openai",
        "model": "gpt-4o",
        "duration_ms": 1842,
        "success": True,
    },
    "tool_call_start": {"tool": "bash", "arguments": {"command": "pytest"}},
    "tool_call": {"tool": "bash", "success": True, "output": "5 passed"},
    "turn_complete": {},
    "error": {"component": "provider", "message": "rate limit"},
}


def succeed(job: Job) -> Outcome:
    """The outcome of a hook that exits 0 and says nothing."""
    del job
    return Outcome(Status.OK, Cause.EXIT, exit_code=0)


class FakeBackend:
    """A backend that runs nothing: it keeps the jobs and answers with ``respond(job)``."""

    name = "fake"

    def __init__(self, respond: Callable[[Job], Outcome] = succeed) -> None:
        self._respond = respond
        self.jobs: list[Job] = []

    async def run(self, job: Job) -> Outcome:
        self.jobs.append(job)
        return self._respond(job)

    async def inspect(self, job: Job) -> tuple[Control, ...]:
        del job
        return ()

    async def sweep(self) -> int:
        return 0

    async def close(self) -> None:
        return
