"""How does a run end, and what is told of it? (SPEC section 3)"""

from __future__ import annotations

import pytest

from executor import Cause, Executor, Status
from executor.outcome import Stage
from tests.support import TOOL_CALL, Run, Workspace, bash, python

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("code", "status", "cause", "exit_code", "signal"),
    [
        ("exit 0", Status.OK, Cause.EXIT, 0, None),
        ("exit 1", Status.FAILED, Cause.EXIT, 1, None),
        ("exit 127", Status.FAILED, Cause.EXIT, 127, None),
        ("exit 137", Status.FAILED, Cause.EXIT, 137, None),
        ("kill -9 $$", Status.SIGNALLED, Cause.SIGNAL, None, 9),
        ("kill -TERM $$", Status.SIGNALLED, Cause.SIGNAL, None, 15),
        ("kill -SEGV $$", Status.SIGNALLED, Cause.SIGNAL, None, 11),
    ],
)
async def test_exit_codes_and_signals(
    run: Run, code: str, status: Status, cause: Cause, exit_code: int | None, signal: int | None
) -> None:
    outcome = (await run(bash(code))).outcome
    assert (outcome.status, outcome.cause) == (status, cause), outcome
    assert (outcome.exit_code, outcome.signal) == (exit_code, signal)


async def test_output_is_captured_apart(run: Run) -> None:
    outcome = (await run(bash("echo out; echo err >&2; exit 3"))).outcome
    assert (outcome.stdout, outcome.stderr) == (b"out\n", b"err\n")
    assert not outcome.truncated


async def test_output_beyond_the_cap_is_drained_counted_and_never_blocks(run: Run) -> None:
    code = "head -c 300000 /dev/zero; head -c 200000 /dev/zero >&2; exit 4"
    outcome = (await run(bash(code))).outcome
    assert outcome.exit_code == 4
    assert (len(outcome.stdout), len(outcome.stderr)) == (65536, 65536)
    assert outcome.truncated
    assert (outcome.usage.stdout_bytes, outcome.usage.stderr_bytes) == (300000, 200000)


async def test_exactly_the_cap_is_not_truncated(run: Run) -> None:
    outcome = (await run(bash("head -c 65536 /dev/zero"))).outcome
    assert len(outcome.stdout) == 65536
    assert not outcome.truncated


async def test_an_unknown_bare_name_is_not_found_inside_the_sandbox(run: Run) -> None:
    outcome = (await run({"command": "no-such-program"})).outcome
    assert (outcome.status, outcome.cause) == (Status.ERROR, Cause.NOT_FOUND)
    assert outcome.reason is not None
    assert "PATH" in outcome.reason


async def test_a_missing_script_names_its_path(run: Run) -> None:
    outcome = (await run({"command": "hooks/none.sh"})).outcome
    assert (outcome.status, outcome.cause) == (Status.ERROR, Cause.NOT_FOUND)
    assert outcome.reason is not None
    assert "hooks/none.sh" in outcome.reason


async def test_a_script_without_the_execute_bit_names_the_remedy(
    run: Run, workspace: Workspace
) -> None:
    workspace.file("hook.sh", "#!/bin/sh\nexit 0\n", mode=0o644)
    outcome = (await run({"command": "./hook.sh"})).outcome
    assert (outcome.status, outcome.cause) == (Status.ERROR, Cause.NOT_EXECUTABLE)
    assert outcome.reason is not None
    assert "chmod +x" in outcome.reason


async def test_a_script_whose_interpreter_is_missing_says_so(
    run: Run, workspace: Workspace
) -> None:
    workspace.script("hook.sh", "exit 0", interpreter="/opt/none/interpreter")
    outcome = (await run({"command": "./hook.sh"})).outcome
    assert (outcome.status, outcome.cause) == (Status.ERROR, Cause.NOT_FOUND)
    assert outcome.reason is not None
    assert "interpreter" in outcome.reason


async def test_a_polite_hook_ends_at_term(run: Run, workspace: Workspace) -> None:
    outcome = (await run(bash("trap 'exit 0' TERM; sleep 60 & wait", timeout_ms=300))).outcome
    assert (outcome.status, outcome.cause) == (Status.TIMEOUT, Cause.WALL_CLOCK)
    assert outcome.stage is Stage.TERM


@pytest.mark.parametrize(
    "code",
    [
        "trap '' TERM; sleep 60; sleep 60",
        "trap '' TERM; (trap '' TERM; setsid sleep 60 & sleep 60) & sleep 60; sleep 60",
    ],
)
async def test_a_hook_that_ignores_term_is_killed_with_its_whole_tree(run: Run, code: str) -> None:
    outcome = (await run(bash(code, timeout_ms=200))).outcome
    assert (outcome.status, outcome.stage) == (Status.TIMEOUT, Stage.KILL)
    assert 5.0 <= outcome.duration_seconds < 20


async def test_a_stopped_hook_is_woken_and_ends(run: Run) -> None:
    outcome = (await run(bash("kill -STOP $$; sleep 60", timeout_ms=300))).outcome
    assert (outcome.status, outcome.stage) == (Status.TIMEOUT, Stage.TERM)


async def test_children_left_behind_are_killed_and_delay_nothing(run: Run) -> None:
    outcome = (await run(bash("sleep 600 & setsid sleep 600 & echo ok; exit 0"))).outcome
    assert outcome.ok, outcome
    assert outcome.stdout == b"ok\n"
    assert outcome.killed_strays >= 2
    assert outcome.duration_seconds < 30


async def test_memory_is_told_apart_from_a_kill(run: Run) -> None:
    outcome = (
        await run(python("x = bytearray(1 << 30); x[::4096] = b'1' * len(x[::4096])"))
    ).outcome
    if any("memory is limited for each process" in note for note in outcome.notes):
        assert outcome.status is Status.FAILED
        assert b"MemoryError" in outcome.stderr
    else:
        assert (outcome.status, outcome.cause) == (Status.OOM, Cause.MEMORY), outcome


async def test_a_file_beyond_the_limit_is_its_own_cause(run: Run, workspace: Workspace) -> None:
    workspace.granted("out")
    workspace.policy_for_all('[filesystem]\nwrite = ["out"]\n[limits]\nfile_size = "64KiB"\n')
    code = "exec head -c 1000000 /dev/zero > out/big"
    outcome = (await run({"command": "bash", "args": ["-c", code]})).outcome
    assert (outcome.status, outcome.cause) == (Status.SIGNALLED, Cause.FILE_SIZE), outcome
    assert (workspace.path / "out/big").stat().st_size == 65536


async def test_actions_of_one_event_run_at_the_same_time(
    workspace: Workspace, sandbox: str
) -> None:
    workspace.hooks({"tool_call": [{"command": "sleep", "args": ["1"]}] * 4})
    async with Executor.open(workspace.path, sandbox=sandbox) as executor:
        receipt = executor.emit("tool_call", TOOL_CALL)
        records = await receipt.wait()
    assert [record.hook for record in records] == ["hook_01", "hook_02", "hook_03", "hook_04"]
    latest_start = max(record.started_at for record in records)
    assert latest_start < min(record.ended_at for record in records)
