"""Does the road hold from an event to its records, whatever the backend does?"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from executor import Cause, Executor, InvalidConfig, InvalidEvent, Outcome, Status
from executor.backends.base import Backend
from executor.job import Job
from executor.testing import SAMPLE_PAYLOADS, FakeBackend
from tests.support import TOOL_CALL, Workspace

pytestmark = pytest.mark.anyio


class Gate(FakeBackend):
    """A backend whose runs wait until the test lets them go."""

    def __init__(self) -> None:
        super().__init__()
        self.started = 0
        self.most = 0
        self.running = 0
        self.open = anyio.Event()
        self.changed = anyio.Event()

    async def run(self, job: Job) -> Outcome:
        self.started += 1
        self.running += 1
        self.most = max(self.most, self.running)
        self.changed.set()
        try:
            await self.open.wait()
        finally:
            self.running -= 1
        return await super().run(job)


class Broken(FakeBackend):
    """A backend with a fault of ours in it."""

    async def run(self, job: Job) -> Outcome:
        raise RuntimeError("a bug of ours")


def backends(backend: Backend) -> dict[str, Backend]:
    return {"fake": backend}


async def test_each_event_runs_its_own_hooks_in_configured_order(workspace: Workspace) -> None:
    workspace.hooks(
        {
            "tool_call": [{"command": "a"}, {"command": "b"}, {"command": "c", "enabled": False}],
            "error": [{"command": "d"}],
        }
    )
    fake = FakeBackend()
    async with Executor.open(workspace.path, backends=backends(fake)) as executor:
        for name, payload in SAMPLE_PAYLOADS.items():
            receipt = executor.emit(name, payload, session_id="s")
            records = await receipt.wait()
            expected = {"tool_call": ["hook_01", "hook_02"], "error": ["hook_04"]}.get(name, [])
            assert [record.hook for record in records] == expected
    assert sorted(job.command for job in fake.jobs) == ["a", "b", "d"]


async def test_an_invalid_event_raises_and_runs_nothing(workspace: Workspace) -> None:
    workspace.hooks({"tool_call": [{"command": "a"}]})
    fake = FakeBackend()
    async with Executor.open(workspace.path, backends=backends(fake)) as executor:
        with pytest.raises(InvalidEvent):
            executor.emit("tool_call", {"tool": "bash", "success": 1, "output": ""})
        with pytest.raises(InvalidEvent):
            executor.emit("tool_cal", TOOL_CALL)
    assert fake.jobs == []


@pytest.mark.parametrize("payload", [{}, {"tool_name": "bash", "input": {}}])
async def test_a_gate_event_cannot_be_emitted(
    workspace: Workspace, payload: dict[str, object]
) -> None:
    backend = FakeBackend()
    workspace.hooks({"PreToolUse": [{"command": "guard"}]})
    async with Executor.open(workspace.path, backends={"fake": backend}) as executor:
        with pytest.raises(InvalidEvent, match="PreToolUse is asked, not emitted") as refusal:
            executor.emit("PreToolUse", payload)
        assert len(refusal.value.faults) == 1
        with pytest.raises(InvalidEvent, match="tool_call is emitted, not asked"):
            await executor.ask("tool_call", payload)
    assert backend.jobs == []


async def test_a_fault_of_ours_is_an_outcome_and_the_next_event_runs(workspace: Workspace) -> None:
    workspace.hooks({"tool_call": [{"command": "a"}]})
    async with Executor.open(workspace.path, backends=backends(Broken())) as executor:
        for _ in range(2):
            (record,) = await executor.emit("tool_call", TOOL_CALL).wait()
            assert record.outcome.status is Status.ERROR
            assert "a bug of ours" in (record.outcome.reason or "")


async def test_concurrency_is_bounded_and_the_rest_waits(workspace: Workspace) -> None:
    workspace.hooks({"tool_call": [{"command": "a"}] * 10})
    workspace.settings("[limits]\nmax_concurrency = 3\n")
    gate = Gate()
    async with Executor.open(workspace.path, backends=backends(gate)) as executor:
        receipt = executor.emit("tool_call", TOOL_CALL)
        while gate.running < 3:
            await gate.changed.wait()
            gate.changed = anyio.Event()
        gate.open.set()
        records = await receipt.wait()
    assert gate.most == 3
    assert all(record.outcome.ok for record in records)


async def test_a_full_queue_drops_counts_and_never_blocks(workspace: Workspace) -> None:
    workspace.hooks({"tool_call": [{"command": "a"}]})
    workspace.settings("[limits]\nmax_concurrency = 1\nmax_queue = 2\n")
    gate = Gate()
    async with Executor.open(workspace.path, backends=backends(gate)) as executor:
        receipts = [executor.emit("tool_call", TOOL_CALL)]
        await gate.changed.wait()
        receipts += [executor.emit("tool_call", TOOL_CALL) for _ in range(5)]
        gate.open.set()
        await executor.drain()
        outcomes = [(await receipt.wait())[0].outcome for receipt in receipts]
        dropped = [outcome for outcome in outcomes if outcome.status is Status.DROPPED]
        assert len(dropped) == 3
        assert {outcome.cause for outcome in dropped} == {Cause.QUEUE}
        assert executor.metrics.value("prx_hook_drops_total", reason="queue") == 3


async def test_an_event_above_the_size_limit_is_dropped_and_the_receipt_says_so(
    workspace: Workspace,
) -> None:
    workspace.hooks({"tool_call": [{"command": "a"}]})
    workspace.settings("[limits]\nmax_payload_bytes = 1024\n")
    fake = FakeBackend()
    async with Executor.open(workspace.path, backends=backends(fake)) as executor:
        receipt = executor.emit("tool_call", {**TOOL_CALL, "output": "x" * 2000})
        assert not receipt.accepted
        assert "1024" in (receipt.reason or "")
        assert await receipt.wait() == ()
        assert executor.metrics.value("prx_hook_drops_total", reason="size") == 1
    assert fake.jobs == []


async def test_leaving_the_block_runs_what_is_queued(workspace: Workspace) -> None:
    workspace.hooks({"turn_complete": [{"command": "a"}]})
    fake = FakeBackend()
    async with Executor.open(workspace.path, backends=backends(fake)) as executor:
        receipts = [executor.emit("turn_complete", {}) for _ in range(20)]
    assert len(fake.jobs) == 20
    for receipt in receipts:
        (record,) = await receipt.wait()
        assert record.outcome.ok


async def test_cancelling_interrupts_what_runs_and_what_waits(workspace: Workspace) -> None:
    workspace.hooks({"turn_complete": [{"command": "a"}]})
    workspace.settings("[limits]\nmax_concurrency = 1\n")
    gate = Gate()
    receipts = []
    with anyio.CancelScope() as scope:
        async with Executor.open(workspace.path, backends=backends(gate)) as executor:
            receipts = [executor.emit("turn_complete", {}) for _ in range(3)]
            await gate.changed.wait()
            scope.cancel()
            await anyio.sleep_forever()
    for receipt in receipts:
        (record,) = await receipt.wait()
        assert record.outcome.status is Status.INTERRUPTED


async def test_a_broken_file_is_an_error_at_start(workspace: Workspace) -> None:
    workspace.file("hooks.json", '{"hooks": {"tool_cal": []}}')
    with pytest.raises(InvalidConfig, match="tool_call"):
        async with Executor.open(workspace.path, backends=backends(FakeBackend())):
            pass


async def test_a_file_that_others_may_write_is_refused(workspace: Workspace) -> None:
    workspace.hooks({})
    (workspace.path / "hooks.json").chmod(0o666)
    with pytest.raises(InvalidConfig, match="chmod go-w"):
        async with Executor.open(workspace.path, backends=backends(FakeBackend())):
            pass


async def test_the_record_prints_as_the_specification_shows(workspace: Workspace) -> None:
    workspace.hooks({"tool_call": [{"command": "a"}]})

    def respond(job: Job) -> Outcome:
        return Outcome(
            Status.OK, Cause.EXIT, exit_code=0, stdout=b"out\xff", duration_seconds=0.0123
        )

    async with Executor.open(workspace.path, backends=backends(FakeBackend(respond))) as executor:
        receipt = executor.emit("tool_call", TOOL_CALL, session_id="sess_1")
        await receipt.wait()
        printed = receipt.as_json()
    assert printed["bus"] == {"topic": "prx.lifecycle.tool_call", "published": True}
    assert printed["runs"] == [
        {
            "hook": "hook_01",
            "backend": "shell",
            "sandbox": "fake",
            "status": "ok",
            "cause": "exit",
            "exit_code": 0,
            "signal": None,
            "duration_ms": 12.3,
            "stdout": "out\ufffd",
            "stderr": "",
            "truncated": False,
            "reason": None,
        }
    ]


async def test_emit_works_from_another_thread(workspace: Workspace) -> None:
    workspace.hooks({"turn_complete": [{"command": "a"}]})
    fake = FakeBackend()
    async with Executor.open(workspace.path, backends=backends(fake)) as executor:
        receipt = await anyio.to_thread.run_sync(
            lambda: executor.emit("turn_complete", {}, session_id="s")
        )
        (record,) = await receipt.wait()
        assert record.outcome.ok


def test_a_program_without_a_loop_has_the_same_verbs(workspace: Workspace) -> None:
    workspace.hooks({"turn_complete": [{"command": "a"}]})
    fake = FakeBackend()
    with Executor.open_blocking(workspace.path, backends=backends(fake)) as executor:
        receipt = executor.emit("turn_complete", {})
        (record,) = executor.wait(receipt)
        assert record.outcome.ok
        threads = [threading.Thread(target=_emit_ten(executor.emit)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        executor.drain()
    assert len(fake.jobs) == 41


def _emit_ten(emit: Callable[..., object]) -> Callable[[], None]:
    def body() -> None:
        for _ in range(10):
            emit("turn_complete", {}, session_id="s")

    return body


async def test_the_state_is_never_kept_where_hooks_can_read(
    workspace: Workspace, tmp_path: Path
) -> None:
    workspace.hooks({"turn_complete": [{"command": "a"}]})
    (tmp_path / "link").symlink_to(workspace.path)
    for place in (workspace.path / "state", tmp_path / "link" / "state"):
        workspace.settings(f'[state]\ndir = "{place}"\n')
        with pytest.raises(InvalidConfig, match="inside the workspace"):
            async with Executor.open(workspace.path, backends=backends(FakeBackend())):
                pass
