"""How does one subscriber get its messages?

A Listener is a bounded queue with one reader. Publishers append to it under the bus's lock, from
any thread; a full queue drops the newcomer, so what was accepted stays in order. The reader is an
``async for``; between two messages it handles the first of them, so that what it emits is one
level deeper (``executor.depth``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import RLock

import anyio
from anyio.lowlevel import checkpoint

from executor import depth
from executor.bus.base import (
    MAX_WAITING,
    MAX_WAITING_BYTES,
    Counts,
    Drop,
    Message,
    Report,
    worth_a_line,
)
from executor.topics import Pattern

Callback = Callable[[Message], object]

_COMPLAINTS = {
    Drop.SLOW: "a subscriber does not keep up; it misses messages",
    Drop.SERVER: "the bus's server is away or slow, and the buffer is full; messages are lost",
}
_TURN = 512
"""Messages between two checkpoints: a reader with a full queue must not hold the loop, and must not
fall behind a connection that delivers some hundred messages in each of its own turns."""


class Listener:
    """An async iterator of messages; ends when the listener or its bus is closed.

    ``dropped`` counts what this listener missed because its queue was full.
    """

    def __init__(
        self,
        pattern: Pattern,
        capacity: int,
        lock: RLock,
        counts: Counts,
        report: Report,
        why: Drop = Drop.SLOW,
        max_bytes: int = MAX_WAITING_BYTES,
    ) -> None:
        self.pattern = pattern
        self.dropped = 0
        self.asleep = False
        """The reader waits for ``wake``. Read and written under the lock."""
        self._capacity = capacity
        self._lock = lock
        self._counts = counts
        self._report = report
        self._why = why
        self._max_bytes = max_bytes
        self._waiting: deque[Message] = deque()
        self._bytes = 0
        self._bell: anyio.Event | None = None
        self._closed = False
        self._until_checkpoint = _TURN

    def __len__(self) -> int:
        """How many messages wait."""
        return len(self._waiting)

    def offer(self, message: Message) -> bool:
        """Queue it, or drop and count it: whether it was queued. The caller holds the lock."""
        size = len(message.data)
        if len(self._waiting) >= self._capacity or self._bytes + size > self._max_bytes:
            self._drop(message)
            return False
        self._waiting.append(message)
        self._bytes += size
        return True

    def deliver(self, message: Message) -> None:
        """Queue it and wake the reader, in the event loop's thread."""
        with self._lock:
            if self.offer(message) and self.asleep:
                self.wake()

    def wake(self) -> None:
        """Let the reader look again (in the event loop's thread)."""
        self.asleep = False
        if self._bell is not None:
            self._bell.set()

    def close(self) -> None:
        """No more messages; what waits can still be read. In the event loop's thread."""
        with self._lock:
            self._closed = True
            self.wake()

    @property
    def closed(self) -> bool:
        return self._closed

    def __aiter__(self) -> Listener:
        return self

    async def __anext__(self) -> Message:
        self._until_checkpoint -= 1
        if self._until_checkpoint <= 0:
            self._until_checkpoint = _TURN
            await checkpoint()
        while not isinstance(message := self._take(), Message):
            await self._sleep(message)
        depth.handle(message.depth)
        return message

    async def batch(self, limit: int = MAX_WAITING) -> list[Message]:
        """What waits, at least one message and at most ``limit``; empty when closed."""
        while True:
            with self._lock:
                if self._waiting:
                    size = min(limit, len(self._waiting))
                    messages = [self._waiting.popleft() for _ in range(size)]
                    self._bytes -= sum(len(message.data) for message in messages)
                    return messages
                if self._closed:
                    return []
                bell = self._prepare_to_sleep()
            await self._sleep(bell)

    def _take(self) -> Message | anyio.Event:
        with self._lock:
            if self._waiting:
                message = self._waiting.popleft()
                self._bytes -= len(message.data)
                return message
            if self._closed:
                raise StopAsyncIteration
            return self._prepare_to_sleep()

    def _prepare_to_sleep(self) -> anyio.Event:
        # Under the lock, together with the look at the queue: else a message could come between.
        if self._bell is not None:
            raise anyio.BusyResourceError("reading from")
        self._bell = anyio.Event()
        self.asleep = True
        return self._bell

    async def _sleep(self, bell: anyio.Event) -> None:
        try:
            await bell.wait()
        finally:
            self._bell = None
            self._until_checkpoint = _TURN

    def _drop(self, message: Message) -> None:
        self.dropped += 1
        self._counts.drops[self._why] += 1
        if worth_a_line(self.dropped):
            self._report(
                _COMPLAINTS[self._why],
                pattern=self.pattern.text,
                topic=message.topic,
                missed=self.dropped,
            )
