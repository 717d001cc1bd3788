"""How do topics travel inside one process?

Theory of operation
-------------------
``publish`` runs in the emitter's thread: look up who listens to the topic (cached), append to each
listener's queue, and ring the bell once if somebody sleeps. One lock, held for these few
microseconds and never while anything waits, makes one order for all threads. It is reentrant: a
signal handler or finalizer may publish while its own thread is publishing.

``run`` answers the bell in the event loop and wakes the listeners, so that their number costs the
emitter nothing. Callbacks run in threads, one at a time for each listener; a stuck one is left
behind when the bus closes.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.abc
import anyio.to_thread

from executor import depth
from executor.bus.base import (
    MAX_MESSAGE_BYTES,
    MAX_WAITING,
    Counts,
    Drop,
    Message,
    Published,
    Report,
    silent,
    worth_a_line,
)
from executor.bus.bell import Bell
from executor.bus.listener import Callback, Listener
from executor.topics import compiled

_MAX_ROUTES = 4096
"""Topics whose listeners are remembered; a publisher that invents topics must not fill memory."""
_CLOSING_SECONDS = 1.0
"""How long ``close`` lets callbacks finish what waits for them."""


class MemoryBus:
    """The in-process bus; also the local half of the one over NATS."""

    def __init__(self, report: Report = silent) -> None:
        self.counts = Counts()
        self.report = report
        self.lock = threading.RLock()
        self._listeners: tuple[Listener, ...] = ()
        self._outlets: tuple[Listener, ...] = ()
        self._routes: dict[str, tuple[Listener, ...]] = {}
        self._bell = Bell()
        self._rung = False
        self._closed = False
        self._closing = anyio.Event()
        self._callbacks: anyio.abc.TaskGroup | None = None

    def publish(self, message: Message) -> Published:
        """Queue it for everybody who listens, from any thread; waits for nothing."""
        refusal = self.refusal(message)
        if refusal is not None:
            return refusal
        with self.lock:
            self.counts.published += 1
            self.fan_out(message)
        return Published.ACCEPTED

    def refusal(self, message: Message) -> Published | None:
        """Why this message stays off the bus, counted and logged; or ``None``."""
        if self._closed:
            return Published.CLOSED
        if len(message.data) > MAX_MESSAGE_BYTES:
            text = f"a message is larger than {MAX_MESSAGE_BYTES} bytes; it stays off the bus"
            self.drop(Drop.SIZE, text, topic=message.topic, bytes=len(message.data))
            return Published.TOO_LARGE
        if message.depth > depth.MAX_DEPTH:
            text = f"a chain of events is deeper than {depth.MAX_DEPTH}; the message is dropped"
            self.drop(Drop.DEPTH, text, topic=message.topic, depth=message.depth)
            return Published.TOO_DEEP
        return None

    def fan_out(self, message: Message) -> None:
        """Queue it for the local listeners. The caller holds the lock."""
        listeners = self._routes.get(message.topic)
        if listeners is None:
            listeners = self._route(message.topic)
        somebody_sleeps = False
        for listener in listeners:
            if listener.offer(message) and listener.asleep:
                somebody_sleeps = True
        if somebody_sleeps:
            self.ring()

    def ring(self) -> None:
        """Have the sleeping listeners woken, soon. The caller holds the lock."""
        if not self._rung:
            self._rung = self._bell.ring()

    def drop(self, why: Drop, text: str, **details: object) -> None:
        """Count a lost message; say so, ever more rarely."""
        with self.lock:
            self.counts.drops[why] += 1
            count = self.counts.drops[why]
        if worth_a_line(count):
            self.report(text, good=False, total=count, **details)

    @asynccontextmanager
    async def subscribe(
        self, pattern: str, *, capacity: int = MAX_WAITING
    ) -> AsyncIterator[Listener]:
        """Listen while the block lasts. Raises InvalidInput for what is no pattern."""
        listener = self.add(pattern, capacity)
        before = depth.handled_depth()
        try:
            yield listener
        finally:
            self.remove(listener)
            depth.handle(before)

    async def attach(
        self, pattern: str, callback: Callback, *, capacity: int = MAX_WAITING
    ) -> Listener:
        """Call ``callback`` for each message, until ``detach``."""
        listener = self.add(pattern, capacity)
        self.serve(listener, callback)
        return listener

    async def detach(self, listener: Listener) -> None:
        """Call back no more; what waits is forgotten."""
        self.remove(listener)

    def serve(self, listener: Listener, callback: Callback) -> None:
        """Start calling back what the listener gets."""
        if self._callbacks is None:
            raise RuntimeError("the bus does not run yet")
        self._callbacks.start_soon(self._serve, listener, callback)

    def add(self, pattern: str, capacity: int) -> Listener:
        """A new listener, from now on."""
        listener = Listener(compiled(pattern), capacity, self.lock, self.counts, self.report)
        with self.lock:
            self._listeners += (listener,)
            self._routes.clear()
            if self._closed:
                listener.close()
        return listener

    def add_outlet(self, capacity: int) -> Listener:
        """A listener that is woken with the others and fed by its owner alone."""
        every = compiled("*")
        outlet = Listener(every, capacity, self.lock, self.counts, self.report, Drop.SERVER)
        with self.lock:
            self._outlets += (outlet,)
        return outlet

    def remove(self, listener: Listener) -> None:
        """The listener gets nothing any more. In the event loop's thread."""
        listener.close()
        with self.lock:
            self._listeners = tuple(other for other in self._listeners if other is not listener)
            self._routes.clear()

    async def run(
        self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Wake listeners and serve callbacks until ``close``."""
        with self._bell:
            async with anyio.create_task_group() as pump, anyio.create_task_group() as callbacks:
                self._callbacks = callbacks
                pump.start_soon(self._pump)
                task_status.started()
                await self._closing.wait()
                callbacks.cancel_scope.deadline = anyio.current_time() + _CLOSING_SECONDS
                pump.cancel_scope.cancel()

    def close(self) -> None:
        """No more messages; readers get what waits for them, then their end."""
        with self.lock:
            self._closed = True
            for listener in (*self._listeners, *self._outlets):
                listener.close()
        self._closing.set()

    def _route(self, topic: str) -> tuple[Listener, ...]:
        if len(self._routes) >= _MAX_ROUTES:
            self._routes.clear()
        listeners = tuple(each for each in self._listeners if each.pattern.matches(topic))
        self._routes[topic] = listeners
        return listeners

    async def _pump(self) -> None:
        while True:
            self._wake()
            await self._bell.wait()

    def _wake(self) -> None:
        with self.lock:
            self._rung = False
            for listener in (*self._listeners, *self._outlets):
                if listener.asleep and len(listener):
                    listener.wake()

    async def _serve(self, listener: Listener, callback: Callback) -> None:
        limiter = anyio.CapacityLimiter(1)
        while messages := await listener.batch():
            await anyio.to_thread.run_sync(
                self._call, callback, messages, listener, limiter=limiter, abandon_on_cancel=True
            )
        self.remove(listener)

    def _call(self, callback: Callback, messages: list[Message], listener: Listener) -> None:
        """In a thread: one batch. Whatever a callback raises, the next message still comes."""
        for message in messages:
            if listener.closed and not self._closed:
                return
            try:
                with depth.handling(message.depth):
                    callback(message)
            except BaseException as failure:  # noqa: BLE001  (SystemExit, too, is the callback's own)
                with self.lock:
                    self.counts.crashes += 1
                self.report(
                    "a subscriber's callback raised",
                    pattern=listener.pattern.text,
                    topic=message.topic,
                    error=f"{type(failure).__name__}: {failure}",
                )
