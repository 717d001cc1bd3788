"""The in-process bus: who gets what, and who is not disturbed by whom."""

from __future__ import annotations

import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from anyio import wait_all_tasks_blocked

from executor import depth
from executor.bus.base import MAX_MESSAGE_BYTES, MAX_WAITING, Drop, Message, Published, worth_a_line
from executor.bus.listener import Listener
from executor.bus.memory import MemoryBus
from executor.errors import InvalidInput

pytestmark = pytest.mark.anyio

TOPIC = "prx.lifecycle.tool_call"


class Lines:
    """A Report that keeps what it is told."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, dict[str, object]]] = []

    def __call__(self, message: str, **details: object) -> None:
        self.kept.append((message, details))


@asynccontextmanager
async def running(report: Lines | None = None) -> AsyncIterator[MemoryBus]:
    bus = MemoryBus(report or Lines())
    async with anyio.create_task_group() as tasks:
        await tasks.start(bus.run)
        try:
            yield bus
        finally:
            bus.close()


def message(number: int = 0, topic: str = TOPIC, *, at: int = 1) -> Message:
    return Message(topic, b'{"n":%d}' % number, at)


async def numbers(listener: Listener, count: int) -> list[object]:
    result: list[object] = []
    with anyio.fail_after(30):
        while len(result) < count:
            body = (await anext(listener)).json()
            assert isinstance(body, dict)
            result.append(body["n"])
    return result


async def test_a_message_reaches_who_listens_and_nobody_else() -> None:
    async with (
        running() as bus,
        bus.subscribe(TOPIC) as exact,
        bus.subscribe("prx.*") as all_of_it,
        bus.subscribe("prx.metrics.*") as other,
    ):
        assert bus.publish(message(1)) is Published.ACCEPTED
        assert bus.publish(message(2, "prx.lifecycle.error")) is Published.ACCEPTED
        assert await numbers(exact, 1) == [1]
        assert await numbers(all_of_it, 2) == [1, 2]
        assert len(exact) == len(other) == 0


async def test_without_listeners_a_message_is_published_all_the_same() -> None:
    async with running() as bus:
        assert bus.publish(message()) is Published.ACCEPTED
        assert bus.counts.published == 1


async def test_a_listener_that_left_gets_nothing_and_a_new_one_gets_only_what_is_new() -> None:
    async with running() as bus:
        async with bus.subscribe("*") as first:
            bus.publish(message(1))
        bus.publish(message(2))
        assert len(first) == 1
        async with bus.subscribe("*") as second:
            bus.publish(message(3))
            assert await numbers(second, 1) == [3]
        assert [m.json() async for m in first] == [{"n": 1}]


async def test_65536_bytes_pass_and_65537_do_not_counted_and_logged() -> None:
    lines = Lines()
    async with running(lines) as bus, bus.subscribe("*") as listener:
        assert bus.publish(Message(TOPIC, b"x" * 65536)) is Published.ACCEPTED
        assert bus.publish(Message(TOPIC, b"x" * 65537)) is Published.TOO_LARGE
        assert len(listener) == 1
    assert MAX_MESSAGE_BYTES == 65536
    assert bus.counts.drops[Drop.SIZE] == 1
    assert [details["bytes"] for _, details in lines.kept] == [65537]


async def test_depth_8_passes_and_depth_9_does_not_counted_and_logged() -> None:
    lines = Lines()
    async with running(lines) as bus:
        assert bus.publish(message(at=8)) is Published.ACCEPTED
        assert bus.publish(message(at=9)) is Published.TOO_DEEP
    assert bus.counts.drops[Drop.DEPTH] == 1
    assert [details["depth"] for _, details in lines.kept] == [9]


async def test_a_full_queue_drops_the_newcomer_keeps_the_order_and_counts() -> None:
    lines = Lines()
    async with running(lines) as bus, bus.subscribe("*", capacity=3) as listener:
        for number in range(13):
            assert bus.publish(message(number)) is Published.ACCEPTED
        assert await numbers(listener, 3) == [0, 1, 2]
        assert listener.dropped == bus.counts.drops[Drop.SLOW] == 10
        bus.publish(message(99))
        assert await numbers(listener, 1) == [99]
    assert [details["missed"] for _, details in lines.kept] == [1, 10]


async def test_a_stuck_listener_holds_bounded_bytes_however_large_the_messages() -> None:
    async with running() as bus, bus.subscribe("*") as stuck:
        for _ in range(1000):
            bus.publish(Message(TOPIC, b"x" * 65536))
        assert len(stuck) == 16 * 1024 * 1024 // 65536
        assert stuck.dropped == 1000 - len(stuck)


async def test_100_000_events_10_subscribers_two_stuck_and_the_others_lose_nothing() -> None:
    events = 100_000
    received = [0] * 8
    async with running() as bus:

        async def read(place: int) -> None:
            async with bus.subscribe("prx.lifecycle.*") as listener:
                ready[place].set()
                expected = 0
                async for each in listener:
                    assert each.data == b'{"n":%d}' % expected
                    expected += 1
                    received[place] = expected
                    if expected == events:
                        return

        ready = [anyio.Event() for _ in range(8)]
        async with bus.subscribe("prx.*") as stuck, bus.subscribe("*") as stuck_too:
            before = sys.getallocatedblocks()
            async with anyio.create_task_group() as readers:
                for place in range(8):
                    readers.start_soon(read, place)
                    await ready[place].wait()
                for number in range(events):
                    bus.publish(message(number))
                    if number % 1000 == 999:
                        await _everybody_caught_up(received, number + 1)
            assert received == [events] * 8
            assert len(stuck) == len(stuck_too) == MAX_WAITING
            assert stuck.dropped == stuck_too.dropped == events - MAX_WAITING
            # A message is a few blocks, shared by both; kept whole they would be 200 000 and more.
            assert sys.getallocatedblocks() - before < 5 * MAX_WAITING


async def _everybody_caught_up(received: list[int], count: int) -> None:
    for _ in range(100_000):
        if min(received) >= count:
            return
        await anyio.lowlevel.checkpoint()
    pytest.fail("the readers stand still")


async def test_publishing_from_many_threads_wakes_readers_and_keeps_each_threads_order() -> None:
    async with running() as bus, bus.subscribe("*") as listener:

        def publish(topic: str) -> None:
            for number in range(500):
                bus.publish(message(number, topic))

        threads = [threading.Thread(target=publish, args=(f"prx.t{n}",)) for n in range(8)]
        for thread in threads:
            thread.start()
        got: dict[str, list[object]] = {}
        with anyio.fail_after(30):
            for _ in range(8 * 500):
                each = await anext(listener)
                body = each.json()
                assert isinstance(body, dict)
                got.setdefault(each.topic, []).append(body["n"])
        for thread in threads:
            await anyio.to_thread.run_sync(thread.join)
    assert got == {f"prx.t{n}": list(range(500)) for n in range(8)}


async def test_publishing_from_a_thread_does_not_wait_for_a_blocked_event_loop() -> None:
    async with running() as bus, bus.subscribe("*") as listener:
        async with anyio.create_task_group() as group:
            got: list[object] = []

            async def read() -> None:
                got.extend(await numbers(listener, 100))

            group.start_soon(read)
            await wait_all_tasks_blocked()
            thread = threading.Thread(
                target=lambda: [bus.publish(message(number)) for number in range(100)]
            )
            thread.start()
            thread.join(30)  # on purpose: the event loop stands still until the thread is done
            assert not thread.is_alive()
        assert got == list(range(100))


async def test_a_callback_runs_off_the_loop_in_order_and_a_crash_is_counted_and_logged() -> None:
    lines = Lines()
    async with running(lines) as bus:
        seen: list[object] = []
        done = threading.Event()
        loop_thread = threading.get_ident()

        def callback(each: Message) -> None:
            assert threading.get_ident() != loop_thread
            seen.append(each.json())
            if len(seen) == 3:
                done.set()
            if len(seen) == 1:
                raise SystemExit("a subscriber's own business")

        await bus.attach("prx.*", callback)
        for number in range(3):
            bus.publish(message(number))
        assert await anyio.to_thread.run_sync(done.wait, 30)
    assert seen == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert bus.counts.crashes == 1
    assert lines.kept[0][1]["error"] == "SystemExit: a subscriber's own business"


async def test_a_stuck_callback_delays_neither_the_others_nor_the_end() -> None:
    release = threading.Event()
    try:
        async with running() as bus:
            await bus.attach("*", lambda _: release.wait(60))
            async with bus.subscribe("*") as listener:
                for number in range(100):
                    bus.publish(message(number))
                assert await numbers(listener, 100) == list(range(100))
        assert not release.is_set()
    finally:
        release.set()


async def test_a_cancelled_or_crashing_reader_delays_nobody() -> None:
    async with running() as bus, bus.subscribe("*") as healthy:
        async with anyio.create_task_group() as group:

            async def wait_forever() -> None:
                async with bus.subscribe("*") as listener:
                    await anext(listener)

            group.start_soon(wait_forever)
            await wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        with pytest.raises(ZeroDivisionError):
            async with bus.subscribe("*"):
                raise ZeroDivisionError
        bus.publish(message(7))
        assert await numbers(healthy, 1) == [7]


async def test_what_a_reader_emits_between_two_messages_is_one_deeper() -> None:
    async with running() as bus:
        async with bus.subscribe("*") as listener:
            bus.publish(message(1, at=1))
            bus.publish(message(2, at=6))
            depths = []
            async for _ in listener:
                depths.append(depth.next_depth())
                if len(depths) == 2:
                    break
        assert depths == [2, 7]
        assert depth.next_depth() == 1


async def test_what_a_callback_emits_is_one_deeper_across_its_thread() -> None:
    async with running() as bus:
        done = threading.Event()
        depths = []

        def callback(each: Message) -> None:
            depths.append(each.depth)
            if bus.publish(message(0, at=depth.next_depth())) is Published.TOO_DEEP:
                done.set()

        await bus.attach("*", callback)
        bus.publish(message())
        assert await anyio.to_thread.run_sync(done.wait, 30)
    assert depths == [1, 2, 3, 4, 5, 6, 7, 8]
    assert bus.counts.drops[Drop.DEPTH] == 1


async def test_closing_ends_the_readers_after_what_waits_for_them() -> None:
    async with running() as bus, bus.subscribe("*") as listener:
        bus.publish(message(1))
        bus.close()
        assert bus.publish(message(2)) is Published.CLOSED
        assert [each.json() async for each in listener] == [{"n": 1}]


async def test_two_tasks_cannot_read_one_listener() -> None:
    async with (
        running() as bus,
        bus.subscribe("*") as listener,
        anyio.create_task_group() as group,
    ):
        group.start_soon(anext, listener)
        await wait_all_tasks_blocked()
        with pytest.raises(anyio.BusyResourceError):
            await anext(listener)
        bus.publish(message())


async def test_what_is_no_pattern_is_refused() -> None:
    async with running() as bus:
        with pytest.raises(InvalidInput):
            async with bus.subscribe("prx.*.tool"):
                pass
        with pytest.raises(InvalidInput):
            await bus.attach("tool_*", print)


async def test_a_publisher_that_invents_topics_does_not_fill_memory() -> None:
    async with running() as bus:
        for number in range(10_000):
            bus.publish(message(number, f"prx.t{number}"))
        assert len(bus._routes) <= 4096


def test_a_flood_of_drops_is_no_flood_of_lines() -> None:
    assert [n for n in range(1, 2001) if worth_a_line(n)] == [1, 10, 100, 1000]
