"""A hook that may emit events does it through its own descriptor, on every backend alike."""

from __future__ import annotations

import pytest

from executor import Executor, Record
from executor.bus.base import Drop
from tests.support import TOOL_CALL, Run, Workspace, bash, python

pytestmark = pytest.mark.anyio

MAY_EMIT = "[bus]\nemit = true\n"
EVENT = '{"event": "error", "payload": {"component": "hook", "message": "m"}}'


async def test_what_a_hook_writes_is_an_event_of_its_session_one_level_deeper(
    workspace: Workspace, sandbox: str
) -> None:
    workspace.policy_for_all(MAY_EMIT)
    workspace.hooks({"tool_call": [bash(f"echo '{EVENT}' >&$ZERO_HOOK_EMIT_FD; echo out")]})
    async with (
        Executor.open(workspace.path, sandbox=sandbox) as executor,
        executor.subscribe("prx.lifecycle.error") as errors,
    ):
        receipt = executor.emit("tool_call", TOOL_CALL, session_id="sess_7")
        (record,) = await receipt.wait()
        assert record.outcome.stdout == b"out\n"
        assert not any("event" in note for note in record.outcome.notes)
        message = await anext(errors)
    body = message.json()
    assert isinstance(body, dict)
    assert (body["session_id"], message.depth) == ("sess_7", 2)
    assert body["payload"] == {"component": "hook", "message": "m"}


async def test_an_event_is_heard_while_the_hook_still_runs(
    workspace: Workspace, sandbox: str
) -> None:
    workspace.policy_for_all(MAY_EMIT)
    code = f"echo '{EVENT}' >&3; sleep 60"
    workspace.hooks({"tool_call": [bash(code, timeout_ms=3000)]})
    async with (
        Executor.open(workspace.path, sandbox=sandbox) as executor,
        executor.subscribe("prx.lifecycle.error") as errors,
    ):
        receipt = executor.emit("tool_call", TOOL_CALL)
        await anext(errors)
        assert receipt.records == [None]
        (record,) = await receipt.wait()
        assert record.outcome.status == "timeout"


async def test_a_hook_that_emits_what_fires_it_stops_after_depth_8(
    workspace: Workspace, sandbox: str
) -> None:
    workspace.policy_for_all(MAY_EMIT)
    lie = '{"event": "turn_complete", "depth": 0, "payload": {"depth": 0}}'
    code = f"export ZERO_HOOK_DEPTH=0; echo '{lie}' >&3"
    workspace.hooks({"turn_complete": [bash(code)]})
    records: list[Record] = []

    class Sink:
        def append(self, record: Record) -> None:
            records.append(record)

    async with Executor.open(workspace.path, sandbox=sandbox, sinks=(Sink(),)) as executor:
        executor.emit("turn_complete", {})
        await executor.drain()
        assert executor.metrics.value("prx_hook_drops_total", reason="depth") == 1
        assert executor.bus.counts.drops[Drop.DEPTH] == 0
    assert len(records) == 8
    assert all(record.outcome.ok for record in records)


async def test_nine_parallel_hooks_do_not_add_up(workspace: Workspace, sandbox: str) -> None:
    workspace.policy_for_all(MAY_EMIT)
    workspace.hooks({"turn_complete": [bash(f"echo '{EVENT}' >&3")] * 9})
    async with (
        Executor.open(workspace.path, sandbox=sandbox) as executor,
        executor.subscribe("prx.lifecycle.error") as errors,
    ):
        executor.emit("turn_complete", {})
        await executor.drain()
        assert [(await anext(errors)).depth for _ in range(9)] == [2] * 9


async def test_without_the_grant_there_is_no_descriptor_and_no_variable(run: Run) -> None:
    code = 'echo "[$ZERO_HOOK_EMIT_FD]"; ls /proc/self/fd | wc -l; : >&3'
    record = await run(bash(code))
    assert record.outcome.stdout.split()[0] == b"[]"
    assert b"Bad file descriptor" in record.outcome.stderr


async def test_a_flood_is_cut_counted_and_hurts_nobody(workspace: Workspace, sandbox: str) -> None:
    workspace.policy_for_all(MAY_EMIT)
    flood = python(
        "import os\n"
        'line = b\'{"event": "error", "payload": {"component": "c", "message": "m"}}\\n\'\n'
        "for _ in range(400):\n"
        "    data = line * 128\n"
        "    while data: data = data[os.write(3, data):]\n"
        "print('done')"
    )
    workspace.hooks({"turn_complete": [flood]})
    async with (
        Executor.open(workspace.path, sandbox=sandbox) as executor,
        executor.subscribe("prx.lifecycle.error") as errors,
    ):
        (record,) = await executor.emit("turn_complete", {}).wait()
        assert record.outcome.stdout == b"done\n"
        assert len(errors) == 100
    notes = " ".join(record.outcome.notes)
    assert "more than 100 events" in notes
    assert "1048576 bytes" in notes
