"""Who deletes the containers, when nobody waits for it any more?

A few plain threads: a deletion must also happen when the run was cancelled, when the event loop
is ending, and some time after the engine came back. Retries are bounded; what outlasts them is
found by the next executor's sweep.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from executor.backends.docker_engine import EngineLost, EngineRefusal

if TYPE_CHECKING:
    from collections.abc import Callable

_PAUSES = (0.2, 1.0, 2.0, 5.0, 10.0, 20.0)
"""Seconds between attempts."""


class Remover:
    """``remove(name)`` deletes a container, and tells whether there was one."""

    def __init__(self, remove: Callable[[str], bool]) -> None:
        self._remove = remove
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="container-removal")
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._pending: set[Future[bool]] = set()

    def submit(self, name: str, *, expected: bool = False) -> None:
        """Delete that container soon. ``expected``: it may yet appear, created late."""
        try:
            future = self._threads.submit(self._delete, name, expected)
        except RuntimeError:  # closed: it comes from a call that outlived us
            threading.Thread(target=self._delete, args=(name, expected)).start()
            return
        with self._lock:
            self._pending.add(future)
        future.add_done_callback(self._forget)

    def drain(self, seconds: float) -> bool:
        """Block until all is deleted or given up, at most so long; whether it is."""
        with self._lock:
            pending = set(self._pending)
        return not wait(pending, seconds).not_done

    def close(self, seconds: float) -> bool:
        """As ``drain``; the pauses are cut short, and one last attempt is made."""
        self._closing.set()
        done = self.drain(seconds)
        self._threads.shutdown(wait=False, cancel_futures=True)
        return done

    def _forget(self, future: Future[bool]) -> None:
        with self._lock:
            self._pending.discard(future)

    def _delete(self, name: str, expected: bool) -> bool:  # noqa: FBT001
        for pause in (*_PAUSES, None):
            last = self._closing.is_set() or pause is None
            try:
                if self._remove(name) or not expected:
                    return True
            except (EngineLost, EngineRefusal):
                pass
            if last:
                return False
            self._closing.wait(pause)
        return False
