"""Can a hook outlive its deadline, or hold up whoever waits for it? (sections J and K)"""

from __future__ import annotations

import time
from typing import Any

import pytest

from executor import Executor
from tests.security.stage import Stage
from tests.support import TOOL_CALL, Workspace

GRACE_SECONDS = 5.0
LATEST_SECONDS = 25.0
"""After the deadline: the grace, and what a busy machine takes until the kernel is done."""

TRAPPED = "trap '' TERM; sleep 60; sleep 60"
STUBBORN: dict[str, tuple[str, str]] = {
    "a trap": ("bash", TRAPPED),
    "a mask": (
        "python3",
        "import signal, time; signal.pthread_sigmask(0, range(1, 65)); time.sleep(60)",
    ),
    "a tree": (
        "bash",
        "trap '' TERM; (trap '' TERM; setsid sleep 60 & sleep 60) & sleep 60; sleep 9",
    ),
    "a parent that waits": (
        "python3",
        f"import os, signal; signal.signal(15, 1); os.spawnvp(0, 'sh', ['sh', '-c', {TRAPPED!r}])",
    ),
}


@pytest.mark.probe(
    "J81", "ignoring or masking SIGTERM, a whole tree (81, 82, 86)", "SIGKILL to all"
)
def test_whoever_ignores_term_ends_after_the_grace(stage: Stage) -> None:
    # Long enough for each to have begun to ignore it, also on a busy machine.
    hooks = [
        stage.hook(command, "-c", code, timeout_ms=4000) for command, code in STUBBORN.values()
    ]
    (answers,) = stage.emit(*hooks)
    for name, ran in zip(STUBBORN, answers, strict=True):
        assert (ran.status, ran.cause, ran.stage) == ("timeout", "wall_clock", "kill"), (name, ran)
        assert 4 + GRACE_SECONDS <= ran.seconds <= 4 + LATEST_SECONDS, (name, ran)


@pytest.mark.probe(
    "J83", "daemons: setsid, double fork, closed or held streams (83, 84)", "SIGKILL"
)
def test_what_is_left_behind_is_killed_and_delays_nothing(stage: Stage) -> None:
    daemon = (
        "import os, time\n"
        "if os.fork(): print('ok', flush=True); os._exit(0)\n"
        "os.setsid()\n"
        "if os.fork(): os._exit(0)\n"
        "time.sleep(60)"
    )
    (answers,) = stage.emit(
        stage.bash("setsid sh -c 'sleep 60 &'; echo ok"),
        stage.bash("(sleep 60 &) ; (setsid sleep 60 >/dev/null 2>&1 <&- &); echo ok"),
        stage.bash("sleep 60 & sleep 60 & echo ok; exit 0"),
        stage.python_hook(daemon),
    )
    assert [(ran.status, ran.text) for ran in answers] == [("ok", "ok\n")] * 4
    assert all(ran.seconds < 30 for ran in answers)
    assert answers[2].strays >= 2


@pytest.mark.probe("J85", "stopping oneself, and everybody", "SIGCONT after SIGTERM")
def test_whoever_stops_is_woken_and_ends(stage: Stage) -> None:
    (answers,) = stage.emit(
        stage.bash("kill -STOP $$; sleep 60", timeout_ms=300),
        stage.bash("sleep 60 & kill -STOP -1; kill -STOP 0; sleep 60", timeout_ms=300),
        stage.bash("kill -STOP $PPID; kill -STOP 1; echo still here", timeout_ms=5000),
    )
    assert [ran.status for ran in answers] == ["timeout", "timeout", "ok"]
    assert all(ran.stage == "term" for ran in answers[:2])


@pytest.mark.probe("G51", "kill -9 -1: everything that can be reached", "process-id namespace")
def test_killing_everything_kills_the_hook_alone(stage: Stage) -> None:
    ran = stage.run(stage.bash("kill -9 -1; echo alone"))
    assert (ran.status, ran.text) in {("ok", "alone\n"), ("signalled", "")}, ran


@pytest.mark.probe(
    "J87", "deadlines of 0, of a millisecond, and beyond all numbers", "refused at load"
)
@pytest.mark.anyio
async def test_odd_deadlines(workspace: Workspace, sandbox: str) -> None:
    for wrong in (0, -1, 2**63, 2**31, 1.5, "300", True):
        workspace.hooks({"tool_call": [{"command": "true", "timeout_ms": wrong}]})
        with pytest.raises(Exception, match="timeout_ms"):
            async with Executor.open(workspace.path, sandbox=sandbox):
                pass
    workspace.hooks({"tool_call": [{"command": "sleep", "args": ["9"], "timeout_ms": 1}]})
    async with Executor.open(workspace.path, sandbox=sandbox) as executor:
        (record,) = await executor.emit("tool_call", TOOL_CALL).wait()
    assert record.outcome.status.value == "timeout"


@pytest.mark.probe("J88", "the wall clock set back and forth during a run", "a monotonic clock")
@pytest.mark.anyio
async def test_the_wall_clock_does_not_matter(
    workspace: Workspace, sandbox: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Never earlier than it is: others would take such a container for one that outlived its time.
    steps = iter(range(1_000_000))
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + next(steps) % 2 * 3600)
    hooks: list[dict[str, Any]] = [
        {"command": "sleep", "args": ["60"], "timeout_ms": 300},
        {"command": "sleep", "args": ["0.2"], "timeout_ms": 20_000},
    ]
    workspace.hooks({"tool_call": hooks})
    async with Executor.open(workspace.path, sandbox=sandbox) as executor:
        records = await executor.emit("tool_call", TOOL_CALL).wait()
    assert [record.outcome.status.value for record in records] == ["timeout", "ok"]


@pytest.mark.probe(
    "K90", "a large payload: never read, closed, read to its end (90 to 93)", "a file"
)
def test_no_way_to_use_stdin_hangs(stage: Stage) -> None:
    payload = {"tool": "b", "success": True, "output": "x" * 4_000_000}
    (answers,) = stage.emit(
        stage.bash("exit 3", stdin_json=True),
        stage.bash("exec <&-; sleep 0.1; exit 4", stdin_json=True),
        stage.bash("IFS= read -r line && [ ${#line} -gt 4000000 ]", stdin_json=True),
        stage.bash("wc -c; wc -c", stdin_json=True),
        stage.bash("cat | wc -c; read -r x || echo end"),
        payload=payload,
    )
    assert [ran.exit_code for ran in answers] == [3, 4, 0, 0, 0], answers
    assert int(answers[3].text.split()[0]) > 4_000_000
    assert answers[4].text.split() == ["0", "end"]
