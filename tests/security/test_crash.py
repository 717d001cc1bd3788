"""What is left when the executor, or a sandbox, is killed in the middle of a run?"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from anyio import to_thread

from executor import Executor
from tests.security.host import HostState, eventually
from tests.security.stage import SECRET, Stage
from tests.support import TOOL_CALL, Workspace

STUBBORN = (
    "trap '' TERM; echo started > out/started;(setsid sleep 300 &); sleep 300 & sleep 300; sleep 9"
)
STARTED_SECONDS = 20.0


def processes_with(mark: str) -> list[int]:
    """Whoever carries it in the environment, as the host counts."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if mark.encode() in Path(entry.path, "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


@pytest.mark.probe("G58", "kill -9 of the executor in the middle of a run (46, 57, 58)", "lifeline")
def test_nothing_outlives_a_killed_executor(stage: Stage) -> None:
    stage.policy('[filesystem]\nwrite = ["out"]\n')
    detached = (
        "import ctypes, os, time; ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)\n"
        "open('out/detached', 'x').close(); time.sleep(300)"
    )
    request = stage.request([stage.bash(STUBBORN), stage.python_hook(detached)])
    before = stage.watch.host_state()
    program = stage.start(request)
    try:
        both = [stage.out / "started", stage.out / "detached"]
        assert eventually(lambda: all(path.exists() for path in both), STARTED_SECONDS)
        assert _running(stage, before)
    finally:
        program.kill()
        program.communicate()
    # Locks, leaves and containers that nobody was left to remove are for the next start.
    seconds = 1.0 if stage.sandbox == "namespace" else 5.0
    assert eventually(lambda: not _running(stage, before), seconds), _running(stage, before)
    assert not [line for line in stage.watch.host_state().beyond(before) if "payload" in line]
    program = stage.start(stage.request([stage.bash("exit 0")]))
    assert program.communicate(timeout=60)[1] == b""
    assert [line for line in stage.watch.settled(before) if "hooks.json" not in line] == []


def _running(stage: Stage, before: HostState) -> list[str]:
    now = stage.watch.host_state().beyond(before)
    return [line for line in now if line.startswith(("processes: +", "mounts: +"))]


@pytest.mark.probe("H61b", "who a hook is, as the host sees it", "an unprivileged id")
def test_the_host_sees_no_root_and_no_privilege(stage: Stage) -> None:
    stage.policy('[filesystem]\nwrite = ["out"]\n')
    hook = stage.bash("echo started > out/started; exec sleep 20")
    program = stage.start(stage.request([hook]))
    try:
        assert eventually((stage.out / "started").exists, STARTED_SECONDS)
        seen = [
            dict(
                line.split(":\t", 1)
                for line in Path(f"/proc/{pid}/status").read_text().splitlines()
            )
            for pid in processes_with(stage.watch.mark)
            if pid != program.pid
        ]
    finally:
        program.kill()
        program.communicate()
    # What nobody was left to remove is for the next start.
    program = stage.start(stage.request([stage.bash("exit 0")]))
    assert program.communicate(timeout=60)[1] == b""
    assert seen
    for status in seen:
        ids = set(status["Uid"].split()) | set(status["Gid"].split())
        assert "0" not in ids
        assert len(ids) == 1
        assert {int(status[name], 16) for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
        assert (status["NoNewPrivs"], status["Seccomp"][0]) == ("1", "2")


@pytest.mark.probe("L96", "the sandbox's first process killed from outside", "an error, no orphan")
@pytest.mark.anyio
async def test_a_killed_cell_is_an_error_and_leaves_nothing(
    workspace: Workspace, sandbox: str
) -> None:
    out = workspace.granted("out")
    workspace.policy_for_all('[filesystem]\nwrite = ["out"]\n')
    mark = f"mark-{workspace.path}"
    code = "echo started > out/started; sleep 300 & sleep 300"
    action = {"command": "bash", "args": ["-c", code], "env": {"SECURITY_MARK": mark}}
    workspace.hooks({"tool_call": [action]})
    async with Executor.open(workspace.path, sandbox=sandbox) as executor:
        receipt = executor.emit("tool_call", TOOL_CALL)
        assert await to_thread.run_sync(eventually, (out / "started").exists, STARTED_SECONDS)
        hook = min(processes_with(mark))
        os.kill(_parent(hook), signal.SIGKILL)
        (record,) = await receipt.wait()
    assert record.outcome.status.value in {"error", "oom"}, record
    assert eventually(lambda: not processes_with(mark), 1.0)


def _parent(process: int) -> int:
    stat = Path(f"/proc/{process}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


@pytest.mark.docker
@pytest.mark.probe("E45b", "secrets and payload in the engine's records", "nothing is handed to it")
def test_the_engines_records_hold_nothing_of_a_run(stage: Stage) -> None:
    if stage.sandbox != "docker":
        pytest.skip("only an engine keeps records")
    stage.policy('[filesystem]\nwrite = ["out"]\n')
    hook = stage.bash("echo started > out/started; exec sleep 20")
    hook["env"]["TOKEN"] = SECRET
    payload = {"tool": SECRET, "success": True, "output": SECRET}
    program = stage.start(stage.request([hook], payload))
    try:
        assert eventually((stage.out / "started").exists, STARTED_SECONDS)
        names = [line.split()[0] for line in stage.watch.host_state().containers]
        records = subprocess.run(
            ["docker", "inspect", *names], capture_output=True, text=True, check=True
        ).stdout
    finally:
        program.kill()
        program.communicate()
    assert len(json.loads(records)) == 1
    assert SECRET not in records
    assert stage.watch.mark not in records
