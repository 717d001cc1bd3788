"""What keeps one hook from hurting the others?

Three guards, each by hook. *Slots*: at most so many runs at once; the rest wait aside, in order,
and occupy no worker. *Rate*: at most so many a minute, with as many at once after a quiet minute;
the rest are dropped. *Breaker*: a hook whose sandbox failed to start several times in a row is
paused, longer each time; then one run tries, and the hook resumes by itself when a sandbox starts.

The first two are off unless config.toml says otherwise. All belong to the event loop's thread.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from executor.outcome import Cause, Outcome, Status, error

FAILURES = 5
"""In a row, until a hook is paused."""
FIRST_PAUSE_SECONDS = 10.0
LONGEST_PAUSE_SECONDS = 300.0
_MINUTE = 60.0

_STARTS = frozenset({Cause.SETUP, Cause.ENGINE_LOST})
_SAYS_NOTHING = frozenset({Status.REFUSED, Status.DROPPED, Status.INTERRUPTED})
"""Ends that tell nothing of whether a sandbox can start."""

Clock = Callable[[], float]
Item = TypeVar("Item")


class Slots(Generic[Item]):
    """Who runs and who waits aside, for each hook that has a limit."""

    def __init__(self) -> None:
        self._running: dict[str, int] = {}
        self._aside: dict[str, deque[Item]] = {}
        self.waiting = 0

    def enter(self, hook: str, item: Item, limit: int) -> bool:
        """Whether it may run now; else it waits aside, and some ``leave`` will return it."""
        running = self._running.get(hook, 0)
        if running >= limit:
            self._aside.setdefault(hook, deque()).append(item)
            self.waiting += 1
            return False
        self._running[hook] = running + 1
        return True

    def leave(self, hook: str) -> Item | None:
        """A run ended: the next one that takes its slot, if any waits."""
        aside = self._aside.get(hook)
        if aside:
            self.waiting -= 1
            item = aside.popleft()
            if not aside:
                del self._aside[hook]
            return item
        self._running[hook] -= 1
        if not self._running[hook]:
            del self._running[hook]
        return None

    def empty(self) -> Iterator[Item]:
        """Take out everything that waits aside."""
        for aside in self._aside.values():
            yield from aside
        self._aside.clear()
        self.waiting = 0


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float


class Rate:
    """A bucket of runs for each hook, refilled steadily."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}

    def admits(self, hook: str, per_minute: int) -> bool:
        """Whether one more run is within the limit; it is counted."""
        now = self._clock()
        bucket = self._buckets.get(hook)
        if bucket is None:
            bucket = self._buckets[hook] = _Bucket(per_minute, now)
        refilled = bucket.left + (now - bucket.at) * per_minute / _MINUTE
        bucket.left, bucket.at = min(per_minute, refilled), now
        if bucket.left < 1:
            return False
        bucket.left -= 1
        return True

    def forget(self, known: frozenset[str]) -> None:
        """Keep only the hooks that there still are."""
        self._buckets = {hook: one for hook, one in self._buckets.items() if hook in known}


@dataclass(slots=True)
class Pause:
    """One hook's trouble. ``until`` None: it is not paused (yet)."""

    failures: int = 0
    seconds: float = FIRST_PAUSE_SECONDS
    until: float | None = None
    trying: bool = False
    reason: str = ""


class Breaker:
    """Pauses hooks whose sandbox keeps failing to start. ``trips`` counts the pauses."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._troubled: dict[str, Pause] = {}
        self.trips = 0

    def refusal(self, hook: str) -> Outcome | None:
        """Why the hook may not run now. Where a pause is over, one run may try."""
        pause = self._troubled.get(hook)
        if pause is None or pause.until is None:
            return None
        left = pause.until - self._clock()
        if left <= 0 and not pause.trying:
            pause.trying = True
            return None
        return error(
            f"the hook is paused, because its sandbox failed to start {pause.failures} times in a "
            f"row; the next try is in {max(left, 0):.0f} s. The last failure: {pause.reason}"
        )

    def note(self, hook: str, outcome: Outcome) -> None:
        """How a run ended that was not refused here."""
        pause = self._troubled.get(hook)
        if outcome.status in _SAYS_NOTHING:
            if pause is not None:
                pause.trying = False
            return
        if outcome.status is not Status.ERROR or outcome.cause not in _STARTS:
            self._troubled.pop(hook, None)
            return
        if pause is None:
            pause = self._troubled[hook] = Pause()
        pause.failures += 1
        pause.reason = (outcome.reason or "")[:300]
        if pause.failures < FAILURES:
            return
        if pause.trying:
            pause.seconds = min(pause.seconds * 2, LONGEST_PAUSE_SECONDS)
        if pause.until is None or pause.trying:
            self.trips += 1
        pause.until, pause.trying = self._clock() + pause.seconds, False

    def paused(self) -> dict[str, Pause]:
        """The hooks that are paused now."""
        return {hook: one for hook, one in self._troubled.items() if one.until is not None}

    def clear(self) -> None:
        """The configuration changed: whoever was paused may try at once."""
        self._troubled.clear()
