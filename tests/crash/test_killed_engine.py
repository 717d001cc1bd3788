"""``kill -9`` of the engine, alone or with the executor: a value, and nothing left after a restart.

The engine is a second one that belongs to these tests; the machine's own is not touched.
"""

from __future__ import annotations

import gc
import os
import random
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from executor import Cause, Executor, Status
from executor.backends.docker_engine import Engine
from tests.crash.conftest import ROOT
from tests.crash.private_engine import PrivateEngine
from tests.crash.programs import SECONDS, await_up, emit, ended
from tests.crash.traces import ENGINE_SECONDS, Traces
from tests.support import TOOL_CALL, Workspace, bash, missing

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.docker,
    pytest.mark.timeout(300),
    # The client library's, where it cannot connect; it is closed when it is collected.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SEED = 20260728
WHAT_MAY_BECOME_OF_A_RUN = {
    (Status.OK, Cause.EXIT),
    (Status.ERROR, Cause.ENGINE_LOST),
    (Status.ERROR, Cause.SETUP),
}


@pytest.fixture
def sandbox(available: dict[str, str | None]) -> str:
    if available["docker"] is not None:
        missing("docker", available["docker"])
    return "docker"


@pytest.fixture(scope="module")
def one_engine() -> Iterator[PrivateEngine]:
    directory = Path(tempfile.mkdtemp(prefix="he-engine-", dir="/tmp"))
    engine = PrivateEngine(directory)
    yield engine
    engine.remove()


@pytest.fixture
def engine(one_engine: PrivateEngine, monkeypatch: pytest.MonkeyPatch) -> PrivateEngine:
    """It answers, and is the one that executors find."""
    if not one_engine.answers():
        one_engine.start()
    monkeypatch.setenv("DOCKER_HOST", one_engine.url)
    return one_engine


@pytest.fixture
def traces(engine: PrivateEngine, private_state: Path, mark: str) -> Iterator[Traces]:
    its_client = Engine(engine.url)
    yield Traces(private_state, mark, its_client)
    its_client.close()
    gc.collect()  # while the warnings about it are ignored


@pytest.fixture
def up(workspace: Workspace) -> Path:
    out = workspace.granted("out")
    workspace.policy_for_all('[filesystem]\nwrite = ["out"]\n')
    os.mkfifo(out / "up")
    (out / "up").chmod(0o666)
    return out / "up"


def a_hook_that_stays(mark: str, *, timeout_ms: int = 60_000) -> dict[str, object]:
    return bash(
        f"trap '' TERM; : {mark}; echo up >out/up; while :; do sleep 1; done", timeout_ms=timeout_ms
    )


async def test_a_killed_engine_is_an_engine_lost_and_the_next_start_sweeps(
    workspace: Workspace, engine: PrivateEngine, traces: Traces, mark: str, up: Path
) -> None:
    workspace.hooks(
        {
            "turn_complete": [a_hook_that_stays(mark, timeout_ms=30_000)],
            "tool_call": [bash(f": {mark}; echo ran")],
        }
    )
    async with Executor.open(workspace.path, sandbox="docker") as executor:
        receipt = executor.emit("turn_complete", {})
        await anyio.to_thread.run_sync(await_up, up)
        engine.kill()
        with anyio.fail_after(SECONDS):
            (lost,) = await receipt.wait()
        assert (lost.outcome.status, lost.outcome.cause) == (Status.ERROR, Cause.ENGINE_LOST)
        assert lost.outcome.reason
        (none,) = await executor.emit("tool_call", TOOL_CALL).wait()
        assert (none.outcome.status, none.outcome.cause) == (Status.ERROR, Cause.ENGINE_LOST)
        engine.start()
        (found,) = await executor.emit("tool_call", TOOL_CALL).wait()
        assert (found.outcome.status, found.outcome.stdout) == (Status.OK, b"ran\n"), found.outcome
    answer = await anyio.to_thread.run_sync(ended, emit(workspace, "docker"), workspace.path)
    assert answer.returncode == 0, answer.stderr
    # What the new engine does not find again ends by its own cell's deadline.
    assert await anyio.to_thread.run_sync(traces.await_end, ENGINE_SECONDS) == []
    assert traces.left() == []


async def test_engine_and_executor_killed_at_once_the_cell_keeps_its_deadline(
    workspace: Workspace, engine: PrivateEngine, traces: Traces, mark: str, up: Path
) -> None:
    workspace.hooks(
        {
            "turn_complete": [a_hook_that_stays(mark, timeout_ms=3000)],
            "tool_call": [{"command": "true"}],
        }
    )
    with subprocess.Popen(  # noqa: ASYNC220  (killed, not waited for)
        emit(workspace, "docker", "turn_complete"), cwd=ROOT, stdout=subprocess.DEVNULL
    ) as executor:
        await anyio.to_thread.run_sync(await_up, up)
        executor.kill()
        engine.kill()
    assert await anyio.to_thread.run_sync(traces.await_end, ENGINE_SECONDS) == []
    engine.start()
    answer = await anyio.to_thread.run_sync(ended, emit(workspace, "docker"), workspace.path)
    assert answer.returncode == 0, answer.stderr
    assert traces.left() == []


async def kill_and_look(
    workspace: Workspace, engine: PrivateEngine, traces: Traces, mark: str, times: int
) -> None:
    """An engine that dies while runs begin and end: each outcome is a value, and all goes on."""
    workspace.hooks({"tool_call": [bash(f": {mark}"), bash(f": {mark}; sleep 0.3")]})
    moments = random.Random(SEED)
    for number in range(times):
        outcomes = []
        async with Executor.open(workspace.path, sandbox="docker") as executor:
            receipts = [executor.emit("tool_call", TOOL_CALL) for _ in range(6)]
            await receipts[0].wait()
            await anyio.sleep(moments.uniform(0, 1.0))
            engine.kill()
            with anyio.fail_after(SECONDS):
                for receipt in receipts:
                    outcomes += [record.outcome for record in await receipt.wait()]
        seen = {(outcome.status, outcome.cause) for outcome in outcomes}
        assert seen <= WHAT_MAY_BECOME_OF_A_RUN, f"kill {number}: {outcomes}"
        engine.start()
        answer = await anyio.to_thread.run_sync(ended, emit(workspace, "docker"), workspace.path)
        assert answer.returncode == 0, answer.stderr
        assert await anyio.to_thread.run_sync(traces.await_end, ENGINE_SECONDS) == []
        assert traces.left() == [], f"kill {number}"


async def test_an_engine_that_dies_at_a_random_moment(
    workspace: Workspace, engine: PrivateEngine, traces: Traces, mark: str
) -> None:
    await kill_and_look(workspace, engine, traces, mark, 2)


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_an_engine_that_dies_at_many_random_moments(
    workspace: Workspace, engine: PrivateEngine, traces: Traces, mark: str
) -> None:
    await kill_and_look(workspace, engine, traces, mark, 20)
