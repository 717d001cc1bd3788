"""``kill -9`` of the executor, at any moment: nothing stays, at the latest after the next start.

The victim has hooks in every stage at once: some that begin and end all the time (set-up, run,
tear-down), one that is in its grace, one with children in sessions of their own, one that writes a
large payload's worth into its granted directory. So a random moment hits all of them.
"""

from __future__ import annotations

import random

import pytest

from tests.crash.conftest import Nursery
from tests.crash.traces import END_SECONDS, ENGINE_SECONDS, Traces
from tests.support import Workspace, bash

SEED = 20260728
"""Moments differ by the machine's load; their plan can be repeated."""
SPAN_SECONDS = {"namespace": 0.35, "docker": 2.5}
"""From a victim's beginning until every stage has begun several times."""


@pytest.fixture
def hooks_in_all_stages(workspace: Workspace, mark: str) -> None:
    workspace.granted("out")
    workspace.policy_for_all('[filesystem]\nwrite = ["out"]\n')
    workspace.script("hook.sh", f"# {mark}\ncat > /tmp/copy; echo $$")
    workspace.hooks(
        {
            "tool_call": [
                bash(f": {mark}"),
                {"command": "./hook.sh", "stdin_json": True},
                bash(f": {mark}; cat > out/$$; rm out/$$", stdin_json=True),
            ],
            "turn_complete": [
                bash(f": {mark}; trap '' TERM; while :; do sleep 1; done", timeout_ms=40),
                bash(f": {mark}; setsid sh -c 'sleep 600; : {mark}' & sleep 600", timeout_ms=100),
                bash(f": {mark}; head -c 300000 /dev/zero; sleep 600", timeout_ms=60_000),
            ],
        }
    )


def kill_and_look(nursery: Nursery, traces: Traces, sandbox: str, times: int) -> None:
    moments = random.Random(f"{SEED} {sandbox}")
    patience = ENGINE_SECONDS if sandbox == "docker" else END_SECONDS
    for number in range(times):
        moment = moments.uniform(0, SPAN_SECONDS[sandbox])
        nursery.kill_one(moment)
        where = f"kill {number} at {moment:.3f} s"
        assert traces.await_end(patience) == [], where
        sweep(nursery, traces, where)


def sweep(nursery: Nursery, traces: Traces, where: str) -> None:
    nursery.let_one_live()
    assert traces.left() == [], where


@pytest.mark.usefixtures("hooks_in_all_stages")
def test_a_few_kills_leave_nothing(nursery: Nursery, traces: Traces, sandbox: str) -> None:
    kill_and_look(nursery, traces, sandbox, 15 if sandbox == "namespace" else 3)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("hooks_in_all_stages")
def test_many_kills_leave_nothing(nursery: Nursery, traces: Traces, sandbox: str) -> None:
    kill_and_look(nursery, traces, sandbox, 200 if sandbox == "namespace" else 20)
