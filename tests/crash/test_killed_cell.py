"""``kill -9`` of the cell, from the host: the run is an error, its processes are gone at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from executor import Cause, Executor, Status
from tests.crash.programs import await_up
from tests.crash.traces import Traces
from tests.support import TOOL_CALL, Workspace, bash

pytestmark = pytest.mark.anyio


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def first_process(hook: int) -> int:
    """PID 1 of the hook's namespace, as the host counts."""
    return parent(hook)


def outer_process(hook: int) -> int:
    """What the executor, or the engine, has started."""
    return parent(parent(hook))


def hook_of(traces: Traces, mark: str) -> int:
    """The hook's own process: its parent is the cell."""
    (found,) = (
        pid
        for pid, words in traces.processes().items()
        if mark in words and Path(f"/proc/{parent(pid)}/comm").read_text() == "cell\n"
    )
    return found


@pytest.mark.parametrize("which", [first_process, outer_process], ids=["inner", "outer"])
async def test_a_killed_cell_is_an_error_and_takes_its_hook_along(
    workspace: Workspace, sandbox: str, traces: Traces, mark: str, which: Callable[[int], int]
) -> None:
    if sandbox == "docker" and which is outer_process:
        pytest.skip("the outer process is the engine's shim")
    out = workspace.granted("out")
    os.mkfifo(out / "up")
    (out / "up").chmod(0o666)
    workspace.policy_for_all('[filesystem]\nwrite = ["out"]\n')
    hook = bash(f": {mark}; trap '' TERM; setsid sleep 600 & echo up >out/up; sleep 600; :")
    workspace.hooks({"turn_complete": [hook], "tool_call": [bash(f": {mark}; echo ran")]})
    async with Executor.open(workspace.path, sandbox=sandbox) as executor:
        receipt = executor.emit("turn_complete", {})
        await anyio.to_thread.run_sync(await_up, out / "up")
        hook_pid = hook_of(traces, mark)
        os.kill(which(hook_pid), signal.SIGKILL)
        with anyio.fail_after(60):
            (record,) = await receipt.wait()
        assert record.outcome.status is Status.ERROR, record.outcome
        assert record.outcome.cause in {Cause.SETUP, Cause.ENGINE_LOST}
        assert record.outcome.exit_code is None
        assert record.outcome.reason
        assert await anyio.to_thread.run_sync(traces.await_end) == []
        (again,) = await executor.emit("tool_call", TOOL_CALL).wait()
        assert again.outcome.stdout == b"ran\n"
    assert traces.left() == []
