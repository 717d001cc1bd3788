"""Which network namespace do root's sandboxes share?

An empty one: not even its loopback is up. Making and ending one for each run costs as much as all
other namespaces together. Nothing is shared by it in fact: it belongs to root's user namespace, so
that no hook has a privilege over it, and the filter leaves no call by which two hooks could meet in
it (sockets of a network, and abstract names, which belong to a network namespace too).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from dataclasses import dataclass

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class EmptyNetwork:
    """Alive as long as its descriptor is open, or a process is in it."""

    descriptor: int

    @property
    def path(self) -> str:
        """Where a process of the same user opens it."""
        return f"/proc/{os.getpid()}/fd/{self.descriptor}"

    def close(self) -> None:
        os.close(self.descriptor)


def make() -> EmptyNetwork | None:
    """A new one; None for an ordinary user, or where the kernel refuses.

    unshare(2) moves only the calling thread: one that lives no longer than this.
    """
    if os.geteuid() != 0:
        return None
    found: list[int] = []

    def work() -> None:
        with contextlib.suppress(OSError):
            if _libc.unshare(_CLONE_NEWNET) == 0:
                flags = os.O_RDONLY | os.O_CLOEXEC
                found.append(os.open("/proc/thread-self/ns/net", flags))

    thread = threading.Thread(target=work, name="network")
    thread.start()
    thread.join()
    return EmptyNetwork(found[0]) if found else None
