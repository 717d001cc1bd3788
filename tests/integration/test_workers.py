"""Workers share the events that agents publish: each once, whoever dies."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import anyio
import anyio.abc
import anyio.lowlevel
import pytest

from executor import Executor
from executor.bus.base import Execute, Message
from executor.bus.nats import NatsBus
from executor.errors import InvalidInput
from executor.events import Event, make_event
from executor.settings import BusSettings
from executor.tally import Tally, read
from executor.testing import FakeBackend
from executor.worker import event_of
from tests.integration.nats_server import NatsServer, nats_server
from tests.support import Workspace

pytestmark = pytest.mark.anyio

SCRIPT = Path(__file__).parent / "worker_process.py"
RUNS_AT_ONCE = 8


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def server() -> Iterator[NatsServer]:
    with nats_server() as one:
        yield one


class WorkerProcess:
    """A worker's process; what it says arrives in ``ran`` and ``notes``."""

    def __init__(self, process: anyio.abc.Process) -> None:
        self.process = process
        self.ran: list[int] = []
        self.notes: list[str] = []
        self.totals: dict[str, int] = {}
        self.tally = Path()
        self._changed = anyio.Event()

    async def listen(self) -> None:
        assert self.process.stdout is not None
        rest = b""
        async for chunk in self.process.stdout:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._hear(line.decode())
        self._ring()

    async def until(self, what: str) -> None:
        """Until ``ready``, ``ran N`` of that many events, or a note with these words."""
        with anyio.fail_after(60):
            while not self._is(what):
                await self._changed.wait()

    async def let_run(self, events: int | None = None) -> None:
        """Let this many runs go on; without a number all, for ever."""
        assert self.process.stdin is not None
        if events is None:
            await self.process.stdin.aclose()
        else:
            await self.process.stdin.send(b"x" * events)

    async def end(self) -> int:
        with anyio.fail_after(60):
            return await self.process.wait()

    def _is(self, what: str) -> bool:
        if what == "ready":
            return self.tally != Path()
        if what.startswith("ran "):
            return len(self.ran) >= int(what[4:])
        return any(what in line for line in self.notes)

    def _hear(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "ran":
            self.ran.append(int(rest))
        elif word == "ready":
            self.tally = Path(rest)
        elif word == "totals":
            self.totals = json.loads(rest)
        else:
            self.notes.append(line)
        self._ring()

    def _ring(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


@asynccontextmanager
async def workers(url: str, workspace: Workspace, count: int) -> AsyncIterator[list[WorkerProcess]]:
    workspace.hooks({"agent_end": [{"command": "a"}]})
    tallies = workspace.path.parent / "tallies"
    arguments = [sys.executable, str(SCRIPT), url, str(workspace.path), str(tallies)]
    async with AsyncExitStack() as stack, anyio.create_task_group() as listening:
        started = []
        for _ in range(count):
            process = await anyio.open_process(
                arguments, stderr=None, cwd=Path(__file__).parents[2]
            )
            await stack.enter_async_context(process)
            stack.callback(_kill, process)
            one = WorkerProcess(process)
            listening.start_soon(one.listen)
            started.append(one)
        for one in started:
            await one.until("ready")
        yield started
        for one in started:
            _kill(one.process)


def _kill(process: anyio.abc.Process) -> None:
    if process.returncode is None:
        process.kill()


@asynccontextmanager
async def agent(
    url: str, tmp_path: Path, name: str = "agent", execute: str = "workers"
) -> AsyncIterator[Executor]:
    directory = tmp_path / name
    directory.mkdir(mode=0o755)
    settings = BusSettings(url=url, execute=execute)  # type: ignore[arg-type]
    backends = {"fake": FakeBackend()}
    async with Executor.open(directory, backends=backends, bus=settings) as executor:
        assert isinstance(executor.bus, NatsBus)
        await executor.bus.connected(30)
        yield executor


def emit(executor: Executor, number: int) -> None:
    receipt = executor.emit("agent_end", {"success": True, "messages_count": number})
    assert (receipt.published, receipt.accepted) == (True, True)


async def test_three_workers_run_3000_events_of_two_agents_each_once_and_share_them(
    server: NatsServer, workspace: Workspace, tmp_path: Path
) -> None:
    async with (
        workers(server.url, workspace, 3) as three,
        agent(server.url, tmp_path, "one") as one,
        agent(server.url, tmp_path, "two") as two,
    ):
        for each in three:
            await each.let_run()
        for number in range(1500):
            emit(one, number)
            emit(two, 1500 + number)
        with anyio.fail_after(60):
            while sum(len(each.ran) for each in three) < 3000:
                await _any_change(three)
        for each in three:
            each.process.send_signal(signal.SIGTERM)
        assert [await each.end() for each in three] == [0, 0, 0]
        await _until_totals(three)
    assert sorted(number for each in three for number in each.ran) == list(range(3000))
    assert all(len(each.ran) > 500 for each in three)
    assert [each.totals["ended"] for each in three] == [len(each.ran) for each in three]
    assert sum(each.totals["taken"] for each in three) == 3000
    assert all(each.totals["lost"] == 0 for each in three)


async def test_a_worker_that_is_killed_loses_what_it_had_counted_and_nothing_runs_twice(
    server: NatsServer, workspace: Workspace, tmp_path: Path
) -> None:
    async with workers(server.url, workspace, 3) as three, agent(server.url, tmp_path) as one:
        victim, *others = three
        await victim.let_run(100)
        for each in others:
            await each.let_run()
        for number in range(3000):
            emit(one, number)
        await victim.until("ran 100")
        # Every event has reached a worker's hands: now it is known whose it is.
        with anyio.fail_after(60):
            while sum(read(each.tally)[0] for each in three) < 3000:
                await anyio.lowlevel.checkpoint()
        taken, _ = read(victim.tally)
        assert taken > 500
        victim.process.kill()
        await victim.end()
        taken, ended = read(victim.tally)
        for number in range(3000, 3100):
            emit(one, number)
        with anyio.fail_after(60):
            while sum(len(each.ran) for each in others) < 3100 - taken:
                await _any_change(others)
        for each in others:
            each.process.send_signal(signal.SIGTERM)
        assert [await each.end() for each in others] == [0, 0]
        await _until_totals(others)
    executed = [number for each in three for number in each.ran]
    assert len(set(executed)) == len(executed)
    assert set(range(3000, 3100)) <= {number for each in others for number in each.ran}
    lost = sum(each.totals["lost"] for each in others)
    assert lost == taken - ended
    assert 0 <= len(executed) + lost - 3100 <= RUNS_AT_ONCE  # said to have run, not yet ended


async def test_the_server_goes_and_comes_back_and_so_do_workers_while_agents_never_wait(
    server: NatsServer, workspace: Workspace, tmp_path: Path
) -> None:
    async with workers(server.url, workspace, 2) as two, agent(server.url, tmp_path) as one:
        for each in two:
            await each.let_run()
        emit(one, 0)
        with anyio.fail_after(60):
            while not any(each.ran for each in two):
                await _any_change(two)
        server.stop()
        for each in two:
            await each.until("no connection")
        for number in range(1, 101):
            emit(one, number)
        server.start()
        for each in two:
            await each.until("the bus is back")
        assert isinstance(one.bus, NatsBus)
        await one.bus.connected(30)
        for number in range(1000, 1100):
            emit(one, number)
        with anyio.fail_after(60):
            while len([n for each in two for n in each.ran if n >= 1000]) < 100:
                await _any_change(two)
        executed = [number for each in two for number in each.ran]
        assert len(set(executed)) == len(executed)


async def test_a_worker_told_to_stop_takes_no_more_runs_what_it_has_and_exits_0(
    server: NatsServer, workspace: Workspace, tmp_path: Path
) -> None:
    async with workers(server.url, workspace, 2) as two, agent(server.url, tmp_path) as one:
        leaving, staying = two
        await staying.let_run()
        for number in range(200):
            emit(one, number)
        with anyio.fail_after(60):
            while sum(read(each.tally)[0] for each in two) < 200:
                await anyio.lowlevel.checkpoint()
        in_hand, _ = read(leaving.tally)
        leaving.process.send_signal(signal.SIGTERM)
        await anyio.lowlevel.checkpoint()
        await leaving.let_run()
        assert await leaving.end() == 0
        for number in range(200, 300):
            emit(one, number)
        with anyio.fail_after(60):
            while len(staying.ran) + len(leaving.ran) < 300:
                await _any_change(two)
        await _until_totals([leaving])
    assert in_hand == len(leaving.ran) == leaving.totals["ended"] == leaving.totals["taken"]
    assert not leaving.tally.exists()


async def test_what_others_execute_is_left_alone_and_what_is_no_event_is_no_trouble(
    server: NatsServer, workspace: Workspace, tmp_path: Path
) -> None:
    async with (
        workers(server.url, workspace, 1) as (one,),
        agent(server.url, tmp_path, "local", "local") as local,
        agent(server.url, tmp_path) as remote,
    ):
        await one.let_run()
        emit(local, 1)
        local.bus.publish(Message("prx.lifecycle.error", b"{}", 1, Execute.WORKERS))
        local.bus.publish(Message("prx.lifecycle.PreToolUse", b"{}", 1, Execute.WORKERS))
        assert isinstance(local.bus, NatsBus)
        with anyio.fail_after(60):
            while len(local.bus._outbox):
                await anyio.lowlevel.checkpoint()
        await one.until("no event")
        emit(remote, 2)
        await one.until("ran 1")
        one.process.send_signal(signal.SIGTERM)
        assert await one.end() == 0
        await _until_totals([one])
    assert one.ran == [2]
    assert (one.totals["left_alone"], one.totals["malformed"]) == (1, 2)
    assert (one.totals["taken"], one.totals["ended"]) == (3, 3)


@pytest.mark.parametrize("depth", [1, 8])
def test_an_event_is_the_same_on_the_other_side(depth: int) -> None:
    event = make_event(
        "agent_end",
        {"success": True, "messages_count": 1.5e300, "x": "\ud800\u2028ü", "depth": 99},
        session_id="s",
        now=_now(),
        depth=depth,
    )
    other: Event = event_of(Message("prx.lifecycle.agent_end", event.envelope, depth))
    assert other.envelope == event.envelope
    assert other == event


@pytest.mark.parametrize(
    "data",
    [
        b"[]",
        b"{",
        b'{"event":"error","timestamp":"2026-03-21T08:15:30.123Z","session_id":"s","payload":{}}',
        b'{"event":"agent_end","timestamp":"x","session_id":"s","payload":{}}',
        b'{"event":"agent_end","timestamp":"2026-03-21T08:15:30","session_id":"s","payload":{}}',
        b'{"event":"agent_end","timestamp":"2026-03-21T08:15:30.123Z","payload":{}}',
        b'{"event":"agent_end","timestamp":"2026-03-21T08:15:30.123Z","session_id":"s"}',
    ],
)
def test_what_is_no_envelope_of_its_topics_event_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput):
        event_of(Message("prx.lifecycle.agent_end", data))


def test_a_tally_outlives_a_worker_and_is_told_once(tmp_path: Path) -> None:
    with Tally.open(tmp_path) as living:
        dead = tmp_path / "dead.tally"
        with Tally.open(tmp_path) as other:
            for _ in range(5):
                other.take()
            other.end()
            assert living.collect() == 0  # it lives
            dead.write_bytes(other.path.read_bytes())
        other.path.unlink()
        assert living.collect() == 4
        assert living.collect() == 0
    assert list(tmp_path.iterdir()) == []


def _now() -> datetime:

    return datetime(2026, 3, 21, 8, 15, 30, 123000, tzinfo=UTC)


async def _any_change(processes: list[WorkerProcess]) -> None:
    async with anyio.create_task_group() as group:

        async def wait(one: WorkerProcess) -> None:
            await one._changed.wait()
            group.cancel_scope.cancel()

        for one in processes:
            group.start_soon(wait, one)


async def _until_totals(processes: list[WorkerProcess]) -> None:
    with anyio.fail_after(60):
        while not all(each.totals for each in processes):
            await _any_change(processes)
