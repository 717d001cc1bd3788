"""What waits, and who takes the next?

A bounded queue for one event loop, made so that ``put`` costs next to nothing: it wakes one
sleeping taker at the most, and whoever wakes up wakes the next while there is more to take. (A
memory stream wakes a receiver for each item, on the emitter's time: ten hooks, ten wake-ups.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

import anyio

Item = TypeVar("Item")


class Closed(Exception):
    """Nothing waits, and nothing will come."""


class Queue(Generic[Item]):
    """First in, first out. ``capacity`` counts what waits, not what was taken."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._items: deque[Item] = deque()
        self._sleepers: deque[anyio.Event] = deque()
        self._idle = 0
        self._closed = False

    def __len__(self) -> int:
        return len(self._items)

    def put(self, items: Sequence[Item]) -> int:
        """How many of the items, from the first on, had room. A taker that sleeps counts as
        room, as it is about to take."""
        if self._closed:
            return 0
        room = max(0, self.capacity + self._idle - len(self._items))
        taken = items if len(items) <= room else items[:room]
        if taken and not self._items:
            self._wake_one()
        self._items.extend(taken)
        return len(taken)

    async def take(self) -> Item:
        """The next item. Raises Closed when there is none and none will come."""
        while not self._items:
            if self._closed:
                raise Closed
            await self._sleep()
        item = self._items.popleft()
        if self._items:
            self._wake_one()
        return item

    def close(self) -> None:
        """Take no more; what waits is still taken."""
        self._closed = True
        for sleeper in self._sleepers:
            sleeper.set()

    def empty(self) -> Iterator[Item]:
        """Take out everything that waits."""
        while self._items:
            yield self._items.popleft()

    async def _sleep(self) -> None:
        sleeper = anyio.Event()
        self._sleepers.append(sleeper)
        self._idle += 1
        try:
            await sleeper.wait()
        except BaseException:
            if sleeper.is_set():  # woken and cancelled at once: the wake-up is another's
                self._wake_one()
            raise
        finally:
            self._idle -= 1
            if sleeper in self._sleepers:
                self._sleepers.remove(sleeper)

    def _wake_one(self) -> None:
        if self._sleepers:
            self._sleepers.popleft().set()
