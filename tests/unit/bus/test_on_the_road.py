"""The bus as agents see it: every event on its topic, and depth along the whole road."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import pytest

from executor import Executor, InvalidEvent, Outcome, Receipt
from executor.bus.base import Message
from executor.errors import InvalidInput
from executor.job import Job
from executor.testing import SAMPLE_PAYLOADS, FakeBackend, succeed
from tests.support import TOOL_CALL, Workspace

pytestmark = pytest.mark.anyio


class Emitting(FakeBackend):
    """Hooks that emit, as through their emit channel: each run calls ``say``."""

    def __init__(self) -> None:
        super().__init__(self._respond)
        self.say: Callable[[], Receipt | None] = lambda: None
        self.receipts: list[Receipt] = []

    def _respond(self, job: Job) -> Outcome:
        receipt = self.say()
        if receipt is not None:
            self.receipts.append(receipt)
        return succeed(job)


async def test_every_event_is_on_its_topic_with_and_without_hooks(workspace: Workspace) -> None:
    workspace.hooks({"error": [{"command": "a"}]})
    async with (
        Executor.open(workspace.path, backends={"fake": FakeBackend()}) as executor,
        executor.subscribe("prx.lifecycle.*") as events,
    ):
        for name, payload in SAMPLE_PAYLOADS.items():
            receipt = executor.emit(name, payload, session_id="s")
            assert receipt.published
            message = await anext(events)
            assert message.topic == f"prx.lifecycle.{name}"
            assert message.data == receipt.event.envelope


async def test_what_is_too_large_for_the_bus_still_reaches_the_hook(workspace: Workspace) -> None:
    workspace.hooks({"tool_call": [{"command": "a"}]})
    fake = FakeBackend()
    async with (
        Executor.open(workspace.path, backends={"fake": fake}) as executor,
        executor.subscribe("*") as events,
    ):
        empty = executor.emit("tool_call", {**TOOL_CALL, "output": ""}, session_id="s")
        room = 65536 - len(empty.event.envelope)
        fits, too_large = (
            executor.emit("tool_call", {**TOOL_CALL, "output": "x" * size}, session_id="s")
            for size in (room, room + 1)
        )
        assert [len(each.event.envelope) for each in (fits, too_large)] == [65536, 65537]
        assert [each.published for each in (fits, too_large)] == [True, False]
        await executor.drain()
        assert len(events) == 2
        assert executor.metrics.value("prx_bus_drops_total", reason="size") == 1
    assert len(fake.jobs) == 3
    assert too_large.event.envelope + b"\n" in [job.payload for job in fake.jobs]


async def test_other_topics_are_for_everybody_and_those_of_events_are_not(
    workspace: Workspace,
) -> None:
    async with (
        Executor.open(workspace.path, backends={"fake": FakeBackend()}) as executor,
        executor.subscribe("prx.metrics.*") as metrics,
    ):
        assert executor.publish("prx.metrics.tokens", {"used": 3, "of": "ü"})
        assert (await anext(metrics)).data == '{"used":3,"of":"ü"}'.encode()
        for topic in ("prx.lifecycle.tool_call", "prx.lifecycle.x", "prx.lifecycle", "a b", ""):
            with pytest.raises(InvalidInput):
                executor.publish(topic, {})
        bad: list[Any] = [[], {"x": object()}, {"x": float("nan")}]
        for payload in bad:
            with pytest.raises(InvalidInput):
                executor.publish("prx.x", payload)
        assert not executor.publish("prx.x", {"x": "y" * 70_000})


async def test_nine_parallel_hooks_on_one_event_do_not_add_up(workspace: Workspace) -> None:
    workspace.hooks({"turn_complete": [{"command": "a"}] * 9})
    workspace.settings("[limits]\nmax_concurrency = 9\n")
    hooks = Emitting()
    async with Executor.open(workspace.path, backends={"fake": hooks}) as executor:
        hooks.say = lambda: executor.emit("error", {"component": "c", "message": "m"})
        outermost = executor.emit("turn_complete", {})
        await executor.drain()
    assert outermost.event.depth == 1
    assert [receipt.event.depth for receipt in hooks.receipts] == [2] * 9
    assert all(receipt.accepted for receipt in hooks.receipts)


async def test_a_hook_that_emits_what_fires_it_stops_after_depth_8(
    workspace: Workspace, capfd: pytest.CaptureFixture[str]
) -> None:
    workspace.hooks({"turn_complete": [{"command": "a"}]})
    hooks = Emitting()
    async with Executor.open(workspace.path, backends={"fake": hooks}) as executor:
        hooks.say = lambda: executor.emit("turn_complete", {})
        executor.emit("turn_complete", {})
        await executor.drain()
        assert executor.metrics.value("prx_hook_drops_total", reason="depth") == 1
        assert executor.emit("turn_complete", {}).event.depth == 1
        await executor.drain()
    assert [receipt.event.depth for receipt in hooks.receipts[:8]] == list(range(2, 10))
    assert [receipt.accepted for receipt in hooks.receipts[:8]] == [True] * 7 + [False]
    assert len(hooks.jobs) == 16
    assert "depth 9 is beyond 8" in capfd.readouterr().err


async def test_a_depth_in_the_payload_changes_nothing(workspace: Workspace) -> None:
    workspace.hooks({"turn_complete": [{"command": "a", "env": {"ZERO_HOOK_DEPTH": "0"}}]})
    hooks = Emitting()
    lies = {"depth": 0, "Prx-Depth": 1, "prxdepth": 1}
    async with Executor.open(workspace.path, backends={"fake": hooks}) as executor:
        hooks.say = lambda: executor.emit("turn_complete", lies)
        executor.emit("turn_complete", lies)
        await executor.drain()
    assert len(hooks.jobs) == 8
    assert all("ZERO_HOOK_DEPTH" not in dict(job.env) for job in hooks.jobs)


async def test_a_subscriber_that_emits_what_it_hears_stops_after_depth_8(
    workspace: Workspace,
) -> None:
    async with (
        Executor.open(workspace.path, backends={"fake": FakeBackend()}) as executor,
        executor.subscribe("prx.*") as messages,
    ):
        executor.emit("turn_complete", {})
        depths = []
        async for message in messages:
            depths.append(message.depth)
            if len(depths) % 2:
                accepted = executor.publish("prx.echo", {})
            else:
                accepted = executor.emit("turn_complete", {}).accepted
            if not accepted:
                break
    assert depths == [1, 2, 3, 4, 5, 6, 7, 8]


async def test_emitting_from_a_thread_does_not_wait_for_a_blocked_event_loop(
    workspace: Workspace,
) -> None:
    workspace.hooks({"turn_complete": [{"command": "a"}]})
    fake = FakeBackend()
    receipts: list[Receipt] = []
    async with Executor.open(workspace.path, backends={"fake": fake}) as executor:

        def emit() -> None:
            receipts.extend(executor.emit("turn_complete", {}) for _ in range(100))
            with pytest.raises(InvalidEvent):
                executor.emit("turn_complet", {})

        thread = threading.Thread(target=emit)
        thread.start()
        thread.join(30)  # on purpose: the event loop stands still meanwhile
        assert not thread.is_alive()
        assert all(receipt.published for receipt in receipts)
        for receipt in receipts:
            assert len(await receipt.wait()) == 1
    assert len(fake.jobs) == 100


async def test_what_a_thread_emitted_last_is_still_run_when_the_block_ends(
    workspace: Workspace,
) -> None:
    workspace.hooks({"turn_complete": [{"command": "a"}]})
    fake = FakeBackend()
    async with Executor.open(workspace.path, backends={"fake": fake}) as executor:
        thread = threading.Thread(target=lambda: executor.emit("turn_complete", {}))
        thread.start()
        thread.join(30)
    assert len(fake.jobs) == 1
    late = executor.emit("turn_complete", {})
    assert not late.accepted
    assert await late.wait() == ()


def test_an_agent_without_a_loop_is_called_back(workspace: Workspace) -> None:
    with Executor.open_blocking(workspace.path, backends={"fake": FakeBackend()}) as executor:
        heard: list[Message] = []
        enough = threading.Event()

        def hear(message: Message) -> None:
            heard.append(message)
            if len(heard) == 3:
                enough.set()

        with executor.subscribe("prx.*", hear) as listener:
            executor.emit("turn_complete", {})
            executor.publish("prx.metrics.x", {"n": 1})
            executor.emit("error", {"component": "c", "message": "m"})
            assert enough.wait(30)
            assert listener.dropped == 0
        executor.publish("prx.metrics.x", {"n": 2})
    assert [message.topic for message in heard] == [
        "prx.lifecycle.turn_complete",
        "prx.metrics.x",
        "prx.lifecycle.error",
    ]


async def test_a_callback_may_emit_and_is_one_level_deeper(workspace: Workspace) -> None:
    async with Executor.open(workspace.path, backends={"fake": FakeBackend()}) as executor:
        depths: list[int] = []
        end = threading.Event()

        def hear(message: Message) -> None:
            depths.append(message.depth)
            if not executor.emit("turn_complete", {}).accepted:
                end.set()

        await executor.bus.attach("prx.lifecycle.turn_complete", hear)
        executor.emit("turn_complete", {})
        with anyio.fail_after(30):
            await anyio.to_thread.run_sync(end.wait)
    assert depths == [1, 2, 3, 4, 5, 6, 7, 8]


async def test_an_error_in_the_callers_block_leaves_as_it_came(workspace: Workspace) -> None:
    with pytest.raises(ZeroDivisionError):
        async with (
            Executor.open(workspace.path, backends={"fake": FakeBackend()}) as executor,
            executor.subscribe("*"),
        ):
            raise ZeroDivisionError
