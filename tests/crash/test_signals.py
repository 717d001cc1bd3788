"""SIGTERM and SIGINT: hooks are interrupted, nothing stays, and the program ends with 128 + signal.

A program of one's own that holds an ``Executor`` decides itself: it leaves the block, which runs
what is queued; or is cancelled, which interrupts it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.crash.conftest import ROOT
from tests.crash.programs import SECONDS, after, await_up, emit, ended
from tests.crash.traces import Traces
from tests.support import Workspace, bash

HOLDER = """
import signal, sys
import anyio
from executor import Executor

async def main():
    with anyio.open_signal_receiver(signal.SIGTERM) as signals:
        async with Executor.open(sys.argv[1], sandbox=sys.argv[2]) as executor:
            receipt = executor.emit("turn_complete", {})
            async for _ in signals:
                break
    print([record.outcome.status.value for record in receipt.records])

anyio.run(main)
"""


@pytest.fixture
def up(workspace: Workspace) -> Path:
    """A FIFO by which a hook says that it runs; opening it waits for that."""
    out = workspace.granted("out")
    workspace.policy_for_all('[filesystem]\nwrite = ["out"]\n')
    os.mkfifo(out / "up")
    (out / "up").chmod(0o666)
    return out / "up"


@contextmanager
def program(words: Sequence[str], up: Path) -> Iterator[subprocess.Popen[str]]:
    """The running program, once its hook runs."""
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        try:
            await_up(up)
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["TERM", "INT"]
)
@pytest.mark.parametrize("trap", ["", "trap '' TERM; "], ids=["polite", "stubborn"])
def test_emit_ends_with_its_hooks_and_leaves_nothing(
    workspace: Workspace,
    sandbox: str,
    traces: Traces,
    mark: str,
    up: Path,
    number: int,
    code: int,
    trap: str,
) -> None:
    workspace.hooks({"turn_complete": [bash(f"{trap}: {mark}; echo up >out/up; sleep 600; :")]})
    with program(emit(workspace, sandbox, "turn_complete"), up) as emitting:
        emitting.send_signal(number)
        out, err = emitting.communicate(timeout=SECONDS)
    assert emitting.returncode == code, err
    assert out == ""
    assert "Traceback" not in err
    assert traces.left() == []


def test_a_second_signal_ends_it_at_once_and_the_next_start_sweeps(
    workspace: Workspace, sandbox: str, traces: Traces, mark: str, up: Path
) -> None:
    stubborn = bash(f"trap 'echo up >out/up' TERM; : {mark}; echo up >out/up; while :; do :; done")
    workspace.hooks({"turn_complete": [stubborn], "tool_call": [{"command": "true"}]})
    with program(emit(workspace, sandbox, "turn_complete"), up) as emitting:
        emitting.send_signal(signal.SIGTERM)
        await_up(up)  # it has been asked to end
        emitting.send_signal(signal.SIGTERM)
        emitting.communicate(timeout=SECONDS)
    assert emitting.returncode == -signal.SIGTERM
    assert traces.await_end(SECONDS) == []
    assert ended(emit(workspace, sandbox), workspace.path).returncode == 0
    assert traces.left() == []


def test_blocked_signals_are_heard_all_the_same(
    workspace: Workspace, sandbox: str, traces: Traces, mark: str, up: Path
) -> None:
    workspace.hooks({"turn_complete": [bash(f": {mark}; echo up >out/up; sleep 600; :")]})
    block = "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))"
    with program(after(block, emit(workspace, sandbox, "turn_complete")), up) as emitting:
        emitting.send_signal(signal.SIGTERM)
        emitting.communicate(timeout=SECONDS)
    assert emitting.returncode == 143
    assert traces.left() == []


def test_a_program_that_leaves_the_block_on_sigterm_drains_first(
    workspace: Workspace, sandbox: str, traces: Traces, mark: str, up: Path
) -> None:
    running = bash(f": {mark}; echo up >out/up; read -r line <out/up; echo $line")
    queued = bash(f": {mark}; echo queued")
    workspace.hooks({"turn_complete": [running, queued]})
    workspace.settings('[[bind]]\npolicy = "test"\n[limits]\nmax_concurrency = 1\n')
    words = [sys.executable, "-c", HOLDER, str(workspace.path), sandbox]
    with program(words, up) as holding:
        holding.send_signal(signal.SIGTERM)
        up.write_text("go on\n")
        out, err = holding.communicate(timeout=SECONDS)
    assert holding.returncode == 0, err
    assert json.loads(out.replace("'", '"')) == ["ok", "ok"]
    assert traces.left() == []


def test_a_program_that_sigterm_kills_leaves_nothing_after_the_next_start(
    workspace: Workspace, sandbox: str, traces: Traces, mark: str, up: Path
) -> None:
    hook = bash(f"trap '' TERM; : {mark}; echo up >out/up; sleep 600; :")
    workspace.hooks({"turn_complete": [hook], "tool_call": [{"command": "true"}]})
    words = [sys.executable, "-c", HOLDER.replace("SIGTERM", "SIGUSR1"), str(workspace.path)]
    with program([*words, sandbox], up) as holding:
        holding.send_signal(signal.SIGTERM)
        holding.communicate(timeout=SECONDS)
    assert holding.returncode == -signal.SIGTERM
    assert traces.await_end(SECONDS) == []
    assert ended(emit(workspace, sandbox), workspace.path).returncode == 0
    assert traces.left() == []
