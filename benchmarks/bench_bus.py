"""How fast is the bus, beside the libraries that people use for the same in one process?

blinker and pyee call their receivers inside ``send``/``emit``, in the emitter's time: there is no
queue, no bound, no other thread, and a slow receiver holds up the agent. They are here to show what
those properties cost. ``publish`` is measured twice: in a burst (readers cannot run meanwhile) and
with every reader asleep, as in an agent that emits now and then.

Deliveries count queueing, waking and reading, publisher and readers on one core.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import blinker
import pyee.base

from benchmarks.table import Row, microseconds, paired, print_table, timed
from executor.bus.base import Message, running
from executor.bus.listener import Listener
from executor.bus.memory import MemoryBus
from executor.bus.nats import NatsBus
from executor.settings import BusSettings
from tests.integration.nats_server import nats_server

SUBSCRIBERS = 10
EVENTS = 50_000
BURST = 500
_SERVER_PATH = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"
TOPIC = "prx.lifecycle.tool_call"
MESSAGE = Message(
    TOPIC,
    b'{"event":"tool_call","timestamp":"2026-03-21T08:15:30.123Z","session_id":"sess_1",'
    b'"payload":{"tool":"bash","success":true,"output":"ok"}}',
)


def rows() -> Sequence[Row]:
    """Every measurement; the one over NATS where nats-server is installed."""
    asleep = anyio.run(_publish_to_sleepers)
    ours = anyio.run(_deliver)
    result = []
    for name, send in (("blinker", _blinker()), ("pyee", _pyee())):
        mine, theirs, ratio = anyio.run(_publish_beside, send)
        result.append(
            Row(
                "publish, 10 subscribers, burst",
                microseconds(mine),
                f"{name}: {microseconds(theirs)}",
                ratio,
                "≤ 10 µs",
                mine <= 10e-6,
            )
        )
        rate = _rate(send)
        result.append(
            Row(
                "deliveries a second, 10 subscribers",
                f"{ours:,.0f}",
                f"{name}: {rate:,.0f} calls",
                ours / rate,
                "≥ 100,000",
                ours >= 100_000,
            )
        )
    result.append(
        Row(
            "publish, 10 subscribers asleep",
            microseconds(asleep),
            goal="≤ 10 µs",
            met=asleep <= 10e-6,
        )
    )
    if shutil.which("nats-server", path=_SERVER_PATH):
        rate = _over_nats()
        result.append(
            Row(
                "events a second over NATS, one agent",
                f"{rate:,.0f}",
                goal="≥ 5,000",
                met=rate >= 5000,
            )
        )
    return result


async def _publish_beside(send: Callable[[], object]) -> tuple[float, float, float]:
    bus = MemoryBus()
    rounds = []
    async with running(bus), AsyncExitStack() as stack:
        listeners = [await stack.enter_async_context(bus.subscribe("prx.*")) for _ in range(10)]
        for _ in range(20):
            rounds.append(paired(partial(bus.publish, MESSAGE), send, times=BURST))
            for listener in listeners:
                await listener.batch()
    mine, theirs, ratio = (statistics.median(column) for column in zip(*rounds, strict=True))
    return mine, theirs, ratio


async def _publish_to_sleepers() -> float:
    bus = MemoryBus()
    seconds = []
    async with running(bus), AsyncExitStack() as stack:
        listeners = [await stack.enter_async_context(bus.subscribe("prx.*")) for _ in range(10)]
        async with anyio.create_task_group() as readers:
            for listener in listeners:
                readers.start_soon(_read_all, listener)
            for _ in range(2000):
                while not all(listener.asleep for listener in listeners):
                    await anyio.lowlevel.checkpoint()
                seconds.append(timed(partial(bus.publish, MESSAGE)))
                while any(map(len, listeners)):
                    await anyio.lowlevel.checkpoint()
            readers.cancel_scope.cancel()
    return statistics.median(seconds)


async def _deliver() -> float:
    bus = MemoryBus()
    async with running(bus), AsyncExitStack() as stack:
        listeners = [await stack.enter_async_context(bus.subscribe("prx.*")) for _ in range(10)]
        began = time.perf_counter()
        async with anyio.create_task_group() as readers:
            for listener in listeners:
                readers.start_soon(_read, listener, EVENTS)
            for number in range(EVENTS):
                bus.publish(MESSAGE)
                if number % BURST == 0:
                    while max(map(len, listeners)) > BURST:
                        await anyio.lowlevel.checkpoint()
        seconds = time.perf_counter() - began
        if any(listener.dropped for listener in listeners):
            raise RuntimeError("a reader missed messages: the rate would be a lie")
    return EVENTS * SUBSCRIBERS / seconds


async def _nats(url: str) -> float:
    settings = BusSettings(url=url)
    agent, other = NatsBus(settings), NatsBus(settings)
    async with running(agent), running(other):
        await agent.connected(10)
        await other.connected(10)
        async with other.subscribe("prx.*") as listener:
            began = time.perf_counter()
            with anyio.fail_after(60):  # a message that is missing
                async with anyio.create_task_group() as group:
                    group.start_soon(_read, listener, EVENTS)
                    for number in range(EVENTS):
                        agent.publish(MESSAGE)
                        if number % BURST == 0:
                            while agent.waiting > BURST:
                                await anyio.lowlevel.checkpoint()
            return EVENTS / (time.perf_counter() - began)


async def _read(listener: Listener, count: int) -> None:
    for _ in range(count):
        await anext(listener)


async def _read_all(listener: Listener) -> None:
    async for _ in listener:
        pass


def _blinker() -> Callable[[], object]:
    signal = blinker.Signal()
    for _ in range(SUBSCRIBERS):
        signal.connect(partial(_receive, []), weak=False)
    return partial(signal.send, MESSAGE)


def _pyee() -> Callable[[], object]:
    emitter = pyee.base.EventEmitter()
    for _ in range(SUBSCRIBERS):
        emitter.add_listener(TOPIC, partial(_receive, []))
    return partial(emitter.emit, TOPIC, MESSAGE)


def _receive(seen: list[Any], message: Message) -> None:
    seen.append(message)


def _rate(send: Callable[[], object]) -> float:
    began = time.perf_counter()
    for _ in range(EVENTS):
        send()
    return EVENTS * SUBSCRIBERS / (time.perf_counter() - began)


def _over_nats() -> float:
    with nats_server() as server:
        return anyio.run(_nats, server.url)


if __name__ == "__main__":
    print_table(rows())
