"""Why did a run end? Every status and cause that a hook can bring about (SPEC section 3, Outcome).

The number that a process leaves proves nothing: beside each cause stands a hook that gives the
same number by itself, and is told apart.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field

import anyio
import pytest

from executor import Cause, Executor, Outcome, Status
from executor.outcome import Stage
from tests.support import Run, Workspace, bash, python

pytestmark = pytest.mark.anyio

EAT = "x = bytearray(1 << 30)"
LIMITS = (
    '[filesystem]\nwrite = ["out"]\n'
    '[limits]\nmemory = "48MiB"\npids = 12\nfile_size = "64KiB"\nopen_files = 64\n'
)
FORK = "import os, signal\nfor _ in range(100):\n    if os.fork() == 0: signal.pause()"
SYSTEM_CALL = "import ctypes; ctypes.CDLL(None).syscall({})"
OLD_ABI = (
    "import ctypes, mmap\n"
    "page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)\n"
    r"page.write(b'\xb8\x14\x00\x00\x00\xcd\x80\xc3')" + "\n"
    "start = ctypes.addressof(ctypes.c_char.from_buffer(page))\n"
    "ctypes.CFUNCTYPE(ctypes.c_int)(start)()\n"
)


@dataclass(frozen=True)
class Case:
    """A hook, and what is to be told of its end."""

    name: str
    action: Mapping[str, object]
    status: Status
    cause: Cause
    exit_code: int | None = None
    signal: int | None = None
    stage: Stage | None = None
    reason: str = ""
    limits_needed: bool = field(default=False, kw_only=True)
    """Only a cgroup can tell."""


CASES = (
    Case("ok", bash("exit 0"), Status.OK, Cause.EXIT, 0),
    Case("failed", bash("exit 1"), Status.FAILED, Cause.EXIT, 1, reason="exit code 1"),
    Case("137 of its own", bash("exit 137"), Status.FAILED, Cause.EXIT, 137),
    Case("124 of its own", bash("exit 124"), Status.FAILED, Cause.EXIT, 124),
    Case("killed by itself", bash("kill -9 $$"), Status.SIGNALLED, Cause.SIGNAL, signal=9),
    Case("crashed", bash("kill -SEGV $$"), Status.SIGNALLED, Cause.SIGNAL, signal=11),
    Case(
        "late, ended by TERM",
        bash("exec sleep 60", timeout_ms=200),
        Status.TIMEOUT,
        Cause.WALL_CLOCK,
        signal=15,
        stage=Stage.TERM,
    ),
    Case(
        "late, and then content",
        bash("trap 'exit 0' TERM; sleep 60 & wait", timeout_ms=200),
        Status.TIMEOUT,
        Cause.WALL_CLOCK,
        0,
        stage=Stage.TERM,
    ),
    Case(
        "late, ended by KILL",
        bash("trap '' TERM; sleep 60; sleep 60", timeout_ms=200),
        Status.TIMEOUT,
        Cause.WALL_CLOCK,
        signal=9,
        stage=Stage.KILL,
    ),
    Case(
        "memory, the hook itself",
        python(EAT),
        Status.OOM,
        Cause.MEMORY,
        signal=9,
        reason="memory limit",
        limits_needed=True,
    ),
    Case(
        "memory, a child, and the hook fails",
        bash(f"python3 -c '{EAT}'; exit 7"),
        Status.OOM,
        Cause.MEMORY,
        7,
        limits_needed=True,
    ),
    Case(
        "memory, a child, and the hook copes",
        bash(f"python3 -c '{EAT}'; exit 0"),
        Status.OK,
        Cause.EXIT,
        0,
    ),
    Case("pids", python(FORK), Status.FAILED, Cause.PIDS, 1, limits_needed=True),
    Case(
        "file size",
        bash("exec head -c 100000 /dev/zero > out/big"),
        Status.SIGNALLED,
        Cause.FILE_SIZE,
        signal=25,
    ),
    Case(
        "file size, a child",
        bash("head -c 100000 /dev/zero > out/big; exit $?"),
        Status.FAILED,
        Cause.FILE_SIZE,
        153,
    ),
    Case(
        "a system call of x32",
        python(SYSTEM_CALL.format(0x40000000 + 39)),
        Status.SIGNALLED,
        Cause.SECCOMP,
        signal=31,
    ),
    Case("a system call of i386", python(OLD_ABI), Status.SIGNALLED, Cause.SECCOMP, signal=31),
    Case(
        "an unknown system call",
        python(SYSTEM_CALL.format(1023)),
        Status.OK,
        Cause.EXIT,
        0,
    ),
    Case("no such name", {"command": "no-such"}, Status.ERROR, Cause.NOT_FOUND, reason="PATH"),
    Case("127 of its own", bash("exit 127"), Status.FAILED, Cause.EXIT, 127),
    Case("no such file", {"command": "./none.sh"}, Status.ERROR, Cause.NOT_FOUND, reason="none.sh"),
    Case(
        "no interpreter",
        {"command": "./uninterpreted"},
        Status.ERROR,
        Cause.NOT_FOUND,
        reason="interpreter",
    ),
    Case(
        "no execute bit", {"command": "./data"}, Status.ERROR, Cause.NOT_EXECUTABLE, reason="chmod"
    ),
    Case("no program", {"command": "./text"}, Status.ERROR, Cause.NOT_EXECUTABLE, reason="#!"),
    Case("a directory", {"command": "./directory"}, Status.ERROR, Cause.NOT_EXECUTABLE),
    Case("126 of its own", bash("exit 126"), Status.FAILED, Cause.EXIT, 126),
)


@pytest.fixture
def place(workspace: Workspace) -> None:
    workspace.granted("out")
    workspace.policy_for_all(LIMITS)
    workspace.file("uninterpreted", "#!/opt/none\n", mode=0o755)
    workspace.file("data", "#!/bin/sh\n", mode=0o644)
    (workspace.path / "directory").mkdir()
    workspace.file("text", "no program\n", mode=0o755)


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_the_cause_is_exact(run: Run, case: Case) -> None:
    if case.name.startswith("a system call of") and platform.machine() != "x86_64":
        pytest.skip("this machine has one kind of system call")
    outcome: Outcome = (await run(case.action)).outcome
    if case.limits_needed and any("limited" in note for note in outcome.notes):
        pytest.skip("no cgroup to write: nobody counts")
    assert (outcome.status, outcome.cause) == (case.status, case.cause), outcome
    assert (outcome.exit_code, outcome.signal) == (case.exit_code, case.signal), outcome
    assert outcome.stage is case.stage
    assert case.reason in (outcome.reason or "")
    assert (outcome.reason is None) == (outcome.status is Status.OK)


async def test_an_executor_that_is_left_by_force_interrupts(
    workspace: Workspace, sandbox: str
) -> None:
    workspace.hooks({"turn_complete": [bash("sleep 60")] * 2})
    workspace.settings("[limits]\nmax_concurrency = 1\n")
    with anyio.CancelScope() as scope:
        async with Executor.open(workspace.path, sandbox=sandbox) as executor:
            receipt = executor.emit("turn_complete", {})
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
            await anyio.sleep_forever()
    outcomes = [record.outcome for record in receipt.records if record is not None]
    assert [(outcome.status, outcome.cause) for outcome in outcomes] == [
        (Status.INTERRUPTED, Cause.STOPPED)
    ] * 2


async def test_what_a_run_took_is_told_apart(workspace: Workspace, sandbox: str) -> None:
    """Waiting, preparing and running; CPU seconds; memory at its peak; bytes."""
    code = (
        "import sys, time\n"
        "memory = bytearray(40 << 20)\n"
        "end = time.process_time() + 0.3\n"
        "while time.process_time() < end: pass\n"
        "sys.stdout.write('o' * 70000); sys.stderr.write('e' * 5)\n"
    )
    workspace.hooks({"turn_complete": [python(code)] * 2})
    workspace.settings("[limits]\nmax_concurrency = 1\n")
    async with Executor.open(workspace.path, sandbox=sandbox) as executor:
        records = await executor.emit("turn_complete", {}).wait()
    first, second = (record.outcome for record in records)
    for outcome in (first, second):
        usage = outcome.usage
        assert outcome.ok, outcome
        assert usage.cpu_seconds is not None
        assert usage.cpu_seconds >= 0.3
        assert usage.peak_memory_bytes is not None
        assert 40 << 20 <= usage.peak_memory_bytes <= 128 << 20
        assert (usage.stdout_bytes, usage.stderr_bytes) == (70000, 5)
        assert usage.start_seconds > 0
        assert outcome.duration_seconds >= 0.3
    assert first.usage.queue_seconds < second.usage.queue_seconds
    # The second waited for all of the first, and its own time does not say so.
    assert second.usage.queue_seconds >= first.duration_seconds
    said = json.loads(json.dumps(records[1].as_run()))
    assert said["duration_ms"] == pytest.approx(second.duration_seconds * 1000, abs=1)
