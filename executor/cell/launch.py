"""How does a contained process start natively?

Theory of operation
-------------------
``posix_spawn``: no fork of a threaded Python, no ``preexec_fn``, callable from any thread. The
child gets an empty environment, its own session, and one end of a socketpair as its descriptors 0
and 1; the cell closes everything else itself, goes to ``/`` and resets its signals (posix_spawn
would leave two of them ignored, see ``cell.c``). Our end is the lifeline. The child is held by a
pidfd, never by its number, which may have been given away when the surrounding program reaps
children of its own.
"""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import anyio

from executor.errors import Unavailable

_RECEIVE_BYTES = 65536


@cache
def cell_path() -> Path:
    """The cell's binary for this machine. Raises Unavailable where it is missing."""
    machine = platform.machine()
    path = Path(__file__).resolve().parent / "bin" / f"cell-{machine}"
    if not path.is_file():
        raise Unavailable(
            f"the sandbox's first process, {path}, is missing",
            remedy="in a checkout: python scripts/build_cell.py; else install a wheel for Linux "
            f"on {machine}",
        )
    return path


class SocketStreams:
    """Both streams of a cell in one socket."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock

    async def receive(self) -> bytes:
        """Some bytes; ``b""`` at the end."""
        while True:
            try:
                return self._socket.recv(_RECEIVE_BYTES)
            except BlockingIOError:
                await anyio.wait_readable(self._socket)

    async def send(self, data: bytes) -> None:
        """All of it."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._socket)

    def close(self) -> None:
        """End the lifeline."""
        self._socket.close()


@dataclass(frozen=True, slots=True)
class Launched:
    """A child process and our end of its streams."""

    pid: int
    pidfd: int
    sock: socket.socket

    def kill(self) -> None:
        """SIGKILL; to one that has ended, nothing."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    async def ended(self) -> None:
        """Wait until it has."""
        await anyio.wait_readable(self.pidfd)

    def forget(self) -> None:
        """After the end: take its status, unless somebody else did, and let go of it."""
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOHANG)
        os.close(self.pidfd)


def start(*arguments: str, program: Path | None = None) -> Launched:
    """Start a contained process, by default the cell.

    Raises OSError where it cannot be started, Unavailable where there is no cell.
    """
    path = str(program or cell_path())
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            pid = os.posix_spawn(
                path,
                [path, *arguments],
                {},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
                    (os.POSIX_SPAWN_DUP2, 0, 1),
                    (os.POSIX_SPAWN_OPEN, 2, "/dev/null", os.O_RDWR, 0),
                ],
                setsid=True,
            )
        except BaseException:
            ours.close()
            raise
    try:
        return Launched(pid, os.pidfd_open(pid), ours)
    except BaseException:
        ours.close()  # its end is the child's end
        raise
