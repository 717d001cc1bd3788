"""Do the guards hold on the road from an event to its records?"""

from __future__ import annotations

from collections import Counter

import anyio
import anyio.lowlevel
import pytest

from executor import Cause, Executor, Outcome, Status
from executor.guards import FAILURES
from executor.job import Job
from executor.outcome import error
from executor.testing import FakeBackend
from tests.support import TOOL_CALL, Workspace

pytestmark = pytest.mark.anyio


class Counting(FakeBackend):
    """How many runs of each command went on at once, at most; they wait for ``go``."""

    def __init__(self) -> None:
        super().__init__()
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.go = anyio.Event()
        self.quick_done = anyio.Event()

    async def run(self, job: Job) -> Outcome:
        self.now[job.command] += 1
        self.most[job.command] = max(self.most[job.command], self.now[job.command])
        if job.command == "slow":
            await self.go.wait()
        else:
            self.quick_done.set()
        self.now[job.command] -= 1
        return await super().run(job)


async def test_a_slow_hook_with_a_limit_of_its_own_holds_up_nobody(workspace: Workspace) -> None:
    workspace.hooks({"tool_call": [{"command": "slow"}], "turn_complete": [{"command": "quick"}]})
    workspace.settings("[limits]\nmax_concurrency = 4\nmax_concurrency_per_hook = 2\n")
    backend = Counting()
    async with Executor.open(workspace.path, backends={"fake": backend}) as executor:
        receipts = [executor.emit("tool_call", TOOL_CALL, session_id=f"{n}") for n in range(10)]
        executor.emit("turn_complete", {}, session_id="q")
        with anyio.fail_after(30):
            await backend.quick_done.wait()
        assert executor.dispatcher.waiting == 8
        backend.go.set()
        for receipt in receipts:
            (record,) = await receipt.wait()
            assert record.outcome.ok
    assert backend.most["slow"] == 2
    assert len(backend.jobs) == 11


async def test_what_waits_aside_is_interrupted_when_the_executor_is_torn_down(
    workspace: Workspace,
) -> None:
    workspace.hooks({"tool_call": [{"command": "slow"}]})
    workspace.settings("[limits]\nmax_concurrency_per_hook = 1\n")
    receipts = []
    with anyio.CancelScope() as scope:
        async with Executor.open(workspace.path, backends={"fake": Counting()}) as executor:
            receipts = [executor.emit("tool_call", TOOL_CALL, session_id=f"{n}") for n in range(4)]
            while executor.dispatcher.waiting != 3 or not len(executor.flights):
                await anyio.lowlevel.checkpoint()
            scope.cancel()
    causes = [record.outcome.cause for one in receipts for record in one.records if record]
    assert causes == [Cause.STOPPED] * 4


async def test_beyond_its_rate_a_hook_is_dropped_and_others_are_not(workspace: Workspace) -> None:
    workspace.hooks({"tool_call": [{"command": "a"}], "turn_complete": [{"command": "b"}]})
    workspace.settings("[limits]\nmax_runs_per_minute_per_hook = 3\n")
    backend = FakeBackend()
    async with Executor.open(workspace.path, backends={"fake": backend}) as executor:
        receipts = [executor.emit("tool_call", TOOL_CALL, session_id="s") for _ in range(5)]
        other = executor.emit("turn_complete", {}, session_id="s")
        outcomes = [(await receipt.wait())[0].outcome for receipt in receipts]
        assert (await other.wait())[0].outcome.ok
        assert executor.metrics.value("prx_hook_drops_total", reason="queue") == 2
    assert [one.status for one in outcomes].count(Status.DROPPED) == 2
    assert len(backend.jobs) == 4


async def test_a_hook_whose_sandbox_does_not_start_is_paused_and_shown(
    workspace: Workspace,
) -> None:
    workspace.hooks({"tool_call": [{"command": "a"}], "turn_complete": [{"command": "b"}]})
    backend = FakeBackend(lambda job: error("no cgroup") if job.command == "a" else _fine())
    async with Executor.open(workspace.path, backends={"fake": backend}) as executor:
        reasons = []
        for _ in range(FAILURES + 3):
            receipt = executor.emit("tool_call", TOOL_CALL, session_id="s")
            (record,) = await receipt.wait()
            assert record.outcome.status is Status.ERROR
            reasons.append(record.outcome.reason or "")
        assert len(backend.jobs) == FAILURES
        assert ["paused" in reason for reason in reasons] == [False] * FAILURES + [True] * 3
        assert executor.metrics.value("prx_hook_paused") == 1
        assert executor.metrics.value("prx_hook_pauses_total") == 1
        other = executor.emit("turn_complete", {}, session_id="s")
        assert (await other.wait())[0].outcome.ok
        # A change of the configuration may have mended it.
        workspace.hooks({"tool_call": [{"command": "a", "args": ["x"]}]})
        await executor.reloader.refresh()
        receipt = executor.emit("tool_call", TOOL_CALL, session_id="s")
        await receipt.wait()
        assert len(backend.jobs) == FAILURES + 2


def _fine() -> Outcome:
    return Outcome(Status.OK, Cause.EXIT, exit_code=0)
