"""The bus over a real nats-server, and the same patterns on both buses."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from executor import Executor
from executor.bus.base import Bus, Drop, Execute, Message, Published, running
from executor.bus.listener import Listener
from executor.bus.memory import MemoryBus
from executor.bus.nats import NatsBus
from executor.errors import InvalidConfig, Unavailable
from executor.settings import BusSettings
from executor.testing import FakeBackend
from tests.integration.nats_server import NatsServer, nats_server
from tests.support import TOOL_CALL, Workspace

pytestmark = pytest.mark.anyio

PATTERNS = [
    ("prx.lifecycle.tool_call", "prx.lifecycle.tool_call", True),
    ("prx.lifecycle.tool_call", "prx.lifecycle.tool_call_start", False),
    ("prx.lifecycle.tool_call", "prx.lifecycle.tool_call.x", False),
    ("prx.lifecycle.tool_call", "prx.lifecycle", False),
    ("prx.lifecycle.*", "prx.lifecycle.error", True),
    ("prx.lifecycle.*", "prx.lifecycle.a.b", True),
    ("prx.lifecycle.*", "prx.lifecycle", False),
    ("prx.lifecycle.*", "prx.lifecycles.x", False),
    ("prx.*", "prx.lifecycle.error", True),
    ("prx.*", "prx.metrics.a.b.c", True),
    ("prx.**", "prx.metrics.a.b.c", True),
    ("prx.*", "prx", False),
    ("prx.*", "other.x", False),
    ("*", "prx.lifecycle.error", True),
    ("*", "single", True),
    ("**", "a.b.c.d", True),
    ("prx.metrics.x-1_y", "prx.metrics.x-1_y", True),
    ("prx.Metrics.x", "prx.metrics.x", False),
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with nats_server() as running_server:
        yield running_server


class Lines:
    """A Report that keeps what it is told, in the event loop, and can be waited for."""

    def __init__(self) -> None:
        self.kept: list[str] = []
        self._more = anyio.Event()

    def __call__(self, message: str, **details: object) -> None:
        self.kept.append(f"{message} {details}")
        self._more.set()
        self._more = anyio.Event()

    async def wait(self, words: str) -> None:
        with anyio.fail_after(60):
            while not any(words in line for line in self.kept):
                await self._more.wait()


@asynccontextmanager
async def connected(
    url: str, lines: Lines | None = None, *, capacity: int = 8192, **settings: Any
) -> AsyncIterator[NatsBus]:
    bus = NatsBus(BusSettings(url=url, **settings), lines or Lines(), capacity=capacity)
    async with running(bus):
        await bus.connected(30)
        yield bus


def numbered(number: int, topic: str = "prx.metrics.x", *, depth: int = 1) -> Message:
    return Message(topic, b'{"n":%d}' % number, depth)


async def take(listener: Listener, count: int) -> list[Message]:
    result: list[Message] = []
    with anyio.fail_after(60):
        while len(result) < count:
            result.append(await anext(listener))
    return result


@pytest.mark.parametrize("kind", ["memory", "nats"])
async def test_both_buses_read_patterns_alike(kind: str, request: pytest.FixtureRequest) -> None:
    last = Message("the.last", b"{}")
    async with _two_ends(kind, request) as (sender, receiver):
        for pattern, topic, wanted in PATTERNS:
            async with receiver.subscribe(pattern) as some, receiver.subscribe("the.last") as end:
                sender.publish(Message(topic, b'{"x":1}'))
                sender.publish(last)
                await take(end, 1)
                got = [message.topic for message in await some.batch()] if len(some) else []
                assert (topic in got) is wanted, (pattern, topic)


@asynccontextmanager
async def _two_ends(kind: str, request: pytest.FixtureRequest) -> AsyncIterator[tuple[Bus, Bus]]:
    if kind == "memory":
        bus = MemoryBus()
        async with running(bus):
            yield bus, bus
    else:
        url = request.getfixturevalue("server").url
        async with connected(url) as sender, connected(url) as receiver:
            yield sender, receiver


@pytest.mark.parametrize("form", ["native", "cloudevents"])
async def test_a_message_arrives_whole_with_its_depth_and_in_order(
    server: NatsServer, form: str
) -> None:
    async with (
        connected(server.url, format=form) as sender,
        connected(server.url) as receiver,
        receiver.subscribe("prx.*") as messages,
    ):
        sent = [
            Message("prx.lifecycle.error", '{"event":"error","ü":"\\u2028€"}'.encode(), 3),
            Message("prx.metrics.x", b'{"n":1}', 1, Execute.WORKERS),
            *(numbered(n) for n in range(2000)),
        ]
        for message in sent:
            assert sender.publish(message) is Published.ACCEPTED
        got = await take(messages, len(sent))
        assert [(m.topic, m.json(), m.depth, m.execute) for m in got] == [
            (m.topic, m.json(), m.depth, m.execute) for m in sent
        ]
        assert receiver.counts.received == len(sent)


async def test_nobody_hears_its_own_message_twice(server: NatsServer) -> None:
    async with (
        connected(server.url) as here,
        connected(server.url) as there,
        here.subscribe("prx.*") as own,
        there.subscribe("prx.*") as other,
    ):
        here.publish(numbered(1))
        there.publish(numbered(2))
        assert [m.json() for m in await take(other, 2)] in (
            [{"n": 1}, {"n": 2}],
            [{"n": 2}, {"n": 1}],
        )
        assert [m.json() for m in await take(own, 2)] == [{"n": 1}, {"n": 2}]
        here.publish(numbered(3))
        assert [m.json() for m in await take(other, 1)] == [{"n": 3}]
        assert [m.json() for m in await take(own, 1)] == [{"n": 3}]


async def test_one_of_a_group_gets_each_message(server: NatsServer) -> None:
    async with connected(server.url) as sender:
        got: list[list[object]] = [[], [], []]
        everything = anyio.Event()

        def deliver_to(place: int) -> Any:
            def deliver(message: Message) -> None:
                got[place].append(message.json())
                if sum(map(len, got)) == 900:
                    everything.set()

            return deliver

        async with (
            connected(server.url) as one,
            connected(server.url) as two,
            connected(server.url) as three,
        ):
            for place, bus in enumerate((one, two, three)):
                await bus.want("prx.work.*", deliver_to(place), group="g")
            for number in range(900):
                sender.publish(numbered(number, "prx.work.x"))
            with anyio.fail_after(60):
                await everything.wait()
    assert sorted(each["n"] for part in got for each in part) == list(range(900))  # type: ignore[index]
    assert all(len(part) > 100 for part in got)


async def test_what_is_no_message_is_counted_and_left_out(server: NatsServer) -> None:
    from nats.aio.client import Client

    foreign = Client()
    await foreign.connect(server.url)
    async with connected(server.url) as bus, bus.subscribe("*") as messages:
        bad: list[tuple[bytes, dict[str, str] | None]] = [
            (b"no json", None),
            (b"[1]", None),
            (b"\xff", None),
            (b'{"x":"' + b"y" * 70_000 + b'"}', None),
            (b"{}", {"Prx-Depth": "0"}),
            (b"{}", {"Prx-Depth": "-1"}),
            (b"{}", {"Prx-Depth": "1.0"}),
            (b"{}", {"Prx-Execute": "everybody"}),
            (b"{}", {"Content-Type": "application/cloudevents+json"}),
            (b'{"data":{},"prxdepth":true}', {"Content-Type": "application/cloudevents+json"}),
        ]
        for body, headers in bad:
            await foreign.publish("prx.x", body, headers=headers)
        await foreign.publish("prx.too$odd", b"{}")
        await foreign.publish("prx.x", b"{}", headers={"Prx-Depth": "9"})
        await foreign.publish("prx.x", b'{"depth":9}')
        (message,) = await take(messages, 1)
        assert (message.data, message.depth) == (b'{"depth":9}', 1)
        assert bus.counts.drops[Drop.MALFORMED] == len(bad) + 1
        assert bus.counts.drops[Drop.DEPTH] == 1
    await foreign.close()


async def test_an_agent_never_waits_for_a_server_that_is_away_and_it_comes_back() -> None:
    lines, other_lines = Lines(), Lines()
    with nats_server() as server:
        async with (
            connected(server.url, lines, capacity=100) as bus,
            connected(server.url, other_lines) as other,
            bus.subscribe("prx.answer") as answers,
            other.subscribe("prx.question") as questions,
        ):
            bus.publish(numbered(0, "prx.question"))
            assert [m.json() for m in await take(questions, 1)] == [{"n": 0}]
            server.stop()
            await lines.wait("no connection")
            await other_lines.wait("no connection")
            results = [bus.publish(numbered(n, "prx.question")) for n in range(1, 151)]
            assert results == [Published.ACCEPTED] * 100 + [Published.FULL] * 50
            assert bus.counts.drops[Drop.SERVER] == 50
            assert [line for line in lines.kept if "buffer is full" in line]
            server.start()
            await other.connected(30)
            await bus.connected(30)
            # Those were sent before the other was back, perhaps: heard or not, but never twice.
            heard: list[Any] = []
            with anyio.fail_after(60):
                while bus.publish(numbered(999, "prx.question")) is Published.FULL:
                    await anyio.lowlevel.checkpoint()
                while {"n": 999} not in heard:
                    heard.append((await anext(questions)).json())
            assert [each["n"] for each in heard] == sorted({each["n"] for each in heard})
            other.publish(numbered(7, "prx.answer"))
            assert [m.json() for m in await take(answers, 1)] == [{"n": 7}]


async def test_what_was_sent_and_not_confirmed_is_counted_and_not_sent_again() -> None:
    lines = Lines()
    with nats_server() as server:
        async with connected(server.url, lines) as bus:
            server.pause()
            for number in range(5):
                bus.publish(numbered(number))
            with anyio.fail_after(60):
                while len(bus._outbox):
                    await anyio.lowlevel.checkpoint()
            server.stop()
            await lines.wait("never confirmed")
            assert bus.counts.drops[Drop.UNCONFIRMED] == 5
            server.start()
            await bus.connected(30)
            assert len(bus._outbox) == 0


async def test_closing_sends_what_is_in_the_outbox(server: NatsServer) -> None:
    async with connected(server.url) as receiver, receiver.subscribe("prx.*") as messages:
        async with connected(server.url) as sender:
            for number in range(1000):
                sender.publish(numbered(number))
        assert [m.json() for m in await take(messages, 1000)] == [{"n": n} for n in range(1000)]


async def test_without_a_server_an_executor_opens_runs_its_hooks_and_closes(
    workspace: Workspace,
) -> None:
    with nats_server() as server:
        url = server.url
    workspace.hooks({"tool_call": [{"command": "a"}]})
    workspace.settings(f'[bus]\nurl = "{url}"\n')
    fake = FakeBackend()
    async with Executor.open(workspace.path, backends={"fake": fake}) as executor:
        receipt = executor.emit("tool_call", TOOL_CALL)
        assert len(await receipt.wait()) == 1
        with pytest.raises(Unavailable, match="Connect call failed"):
            await executor.bus.connected(0.5)  # type: ignore[attr-defined]
        assert executor.publish("prx.metrics.x", {})
    assert len(fake.jobs) == 1


async def test_with_workers_an_agent_runs_nothing_but_what_is_too_large_for_the_bus(
    workspace: Workspace, server: NatsServer
) -> None:
    workspace.hooks({"tool_call": [{"command": "a"}]})
    workspace.settings(f'[bus]\nurl = "{server.url}"\nexecute = "workers"\n')
    fake = FakeBackend()
    async with (
        connected(server.url) as other,
        other.subscribe("prx.lifecycle.*") as messages,
        Executor.open(workspace.path, backends={"fake": fake}) as executor,
    ):
        small = executor.emit("tool_call", TOOL_CALL)
        large = executor.emit("tool_call", {**TOOL_CALL, "output": "x" * 70_000})
        assert await small.wait() == ()
        assert [record.outcome.ok for record in await large.wait()] == [True]
        assert (small.published, large.published) == (True, False)
        (message,) = await take(messages, 1)
        assert message.execute is Execute.WORKERS
        assert message.data == small.event.envelope
    assert len(fake.jobs) == 1


async def test_workers_without_an_address_are_a_mistake(workspace: Workspace) -> None:
    workspace.settings('[bus]\nexecute = "workers"\n')
    with pytest.raises(InvalidConfig, match="url"):
        async with Executor.open(workspace.path, backends={"fake": FakeBackend()}):
            pass


def test_an_agent_without_a_loop_hears_other_machines(
    workspace: Workspace, server: NatsServer
) -> None:
    workspace.settings(f'[bus]\nurl = "{server.url}"\n')
    heard: list[str] = []
    enough = threading.Event()

    def hear(message: Message) -> None:
        heard.append(message.topic)
        enough.set()

    fake = FakeBackend()
    with (
        Executor.open_blocking(workspace.path, backends={"fake": fake}) as one,
        Executor.open_blocking(workspace.path, backends={"fake": fake}) as two,
    ):
        one._portal.call(one._executor.bus.connected, 30)  # type: ignore[attr-defined]
        two._portal.call(two._executor.bus.connected, 30)  # type: ignore[attr-defined]
        with two.subscribe("prx.lifecycle.*", hear):
            one.emit("turn_complete", {})
            assert enough.wait(30)
    assert heard == ["prx.lifecycle.turn_complete"]


async def test_passwords_tokens_and_nkeys_come_from_files(tmp_path: Path) -> None:
    nkeys: Any = pytest.importorskip("nkeys", reason="nkeys: the library of signing is not here")

    seed = nkeys.encode_seed(bytes(range(32)), nkeys.PREFIX_BYTE_USER)
    public = nkeys.from_seed(seed).public_key.decode()
    (tmp_path / "password").write_text("s3cret\n")
    (tmp_path / "token").write_text("t0ken\n")
    (tmp_path / "seed").write_bytes(seed + b"\n")
    (tmp_path / "wrong").write_text("wrong\n")
    nkey_config = tmp_path / "nkey.conf"
    nkey_config.write_text(f"authorization {{ users = [ {{ nkey: {public} }} ] }}\n")
    password = {"user": "u", "password_file": str(tmp_path / "password")}
    cases: list[tuple[list[str], dict[str, Any], dict[str, Any]]] = [
        (
            ["--user", "u", "--pass", "s3cret"],
            password,
            {**password, "password_file": str(tmp_path / "wrong")},
        ),
        (
            ["--auth", "t0ken"],
            {"credentials": str(tmp_path / "token")},
            {"credentials": str(tmp_path / "wrong")},
        ),
        (["--config", str(nkey_config)], {"nkey": str(tmp_path / "seed")}, {}),
    ]
    for options, good, bad in cases:
        with nats_server(*options) as server:
            async with connected(server.url, **good) as bus, bus.subscribe("*"):
                pass
            refused = NatsBus(BusSettings(url=server.url, **bad), Lines())
            async with running(refused):
                with pytest.raises(Unavailable, match="Authorization"):
                    await refused.connected(1)


async def test_a_missing_file_of_credentials_is_an_error_at_the_start() -> None:
    bus = NatsBus(BusSettings(url="nats://127.0.0.1:1", credentials="/nowhere/x"), Lines())
    with pytest.raises(InvalidConfig, match="/nowhere/x"):
        async with running(bus):
            pass


async def test_tls_is_verified_and_never_left_out(tmp_path: Path, server: NatsServer) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    names = ("-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1")
    files = ("-keyout", str(key), "-out", str(certificate))
    await anyio.run_process([*command.split(), *names, *files])
    options = ("--tls", "--tlscert", str(certificate), "--tlskey", str(key))
    with nats_server(*options) as encrypted:
        async with connected(encrypted.url, tls=str(certificate)) as bus, bus.subscribe("*"):
            pass
        untrusted = NatsBus(BusSettings(url=encrypted.url.replace("nats://", "tls://")), Lines())
        async with running(untrusted):
            with pytest.raises(Unavailable, match="certificate"):
                await untrusted.connected(1)
    stripped = NatsBus(BusSettings(url=server.url, tls=str(certificate)), Lines())
    async with running(stripped):
        with pytest.raises(Unavailable, match="does not require TLS"):
            await stripped.connected(1)
