"""How do the daemon and the command line of one workspace find each other?

By a Unix socket in the state directory, whose path may be longer than the 108 bytes that an address
holds (unix(7)): it is reached through the open directory's entry in /proc.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from executor.errors import Refused

SOCKET = "api.sock"
_BACKLOG = 128
_CONNECT_SECONDS = 5.0


@contextmanager
def only_daemon(state: Path) -> Iterator[None]:
    """While the block lasts no other daemon serves this workspace. Raises Refused."""
    descriptor = os.open(state / "daemon.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise Refused("another daemon serves this workspace already") from None
    finally:
        os.close(descriptor)


def listen(path: Path) -> socket.socket:
    """A listening socket that only its owner can use (0600). A dead one in its place is replaced.

    Raises Refused where a living one, or something else, is there; OSError.
    """
    if answers(path):
        raise Refused(f"somebody listens on {path} already")
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.stat(path, follow_symlinks=False).st_mode):
            raise Refused(f"{path} is there, and no socket")
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    before = os.umask(0o177)
    try:
        with _address(path) as address:
            listener.bind(address)
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(before)
    listener.listen(_BACKLOG)
    return listener


def connect(path: Path) -> socket.socket:
    """Raises OSError where nobody listens."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    client.settimeout(_CONNECT_SECONDS)
    try:
        with _address(path) as address:
            client.connect(address)
    except OSError:
        client.close()
        raise
    client.settimeout(None)
    return client


def answers(path: Path) -> bool:
    """Whether somebody listens there."""
    try:
        connect(path).close()
    except OSError:
        return False
    return True


@contextmanager
def _address(path: Path) -> Iterator[str]:
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
