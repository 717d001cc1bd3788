"""How does any thread wake the event loop without waiting for it?

An eventfd (eventfd(2)): ringing is one system call that never blocks, from a thread or a signal
handler alike. (anyio's portals wait for the loop, and so would make an emitter wait for it.)
"""

from __future__ import annotations

import os
import threading
from types import TracebackType
from typing import Self

import anyio


class Bell:
    """Rings before the block begins and after it ended are not heard."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._lock:  # nobody may write to a number that the next file gets
            if self._descriptor is not None:
                os.close(self._descriptor)
            self._descriptor = None

    def ring(self) -> bool:
        """Whether somebody will hear it."""
        with self._lock:
            if self._descriptor is None:
                return False
            os.eventfd_write(self._descriptor, 1)
            return True

    async def wait(self) -> None:
        """Until it rang since the last time (one task at a time)."""
        if self._descriptor is None:
            raise RuntimeError("the bell does not hang yet")
        await anyio.wait_readable(self._descriptor)
        os.eventfd_read(self._descriptor)
