"""Who on this machine would notice, if a hook got out to a network?

Listeners of the tests' own, on loopback, on Unix sockets, and in a network namespace that is made
for it. They count whoever reaches them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

from executor.errors import ExecutorError

_CLONE_NEWNET = 0x40000000
_NETWORK = "192.0.2"
"""TEST-NET-1 (RFC 5737): belongs to nobody. Four addresses of it for each process of the tests."""


class Canary:
    """Sockets that should stay silent."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._lock = threading.Lock()
        self._seen: list[str] = []
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ, "wake")
        self._thread = threading.Thread(target=self._listen, name="canary", daemon=True)
        self._thread.start()

    def listen(self, name: str, listener: socket.socket) -> None:
        """One more; it is closed with the canary."""
        listener.setblocking(False)
        if listener.type is socket.SOCK_STREAM:
            listener.listen(16)
        self._selector.register(listener, selectors.EVENT_READ, name)
        self._wake.send(b"w")

    def tcp(self, name: str, address: str, family: int = socket.AF_INET) -> int:
        """Listen at a free TCP port, and at the UDP port of the same number."""
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.bind((address, 0))
        port = int(listener.getsockname()[1])
        datagrams = socket.socket(family, socket.SOCK_DGRAM)
        datagrams.bind((address, port))
        self.listen(f"{name} tcp", listener)
        self.listen(f"{name} udp", datagrams)
        return port

    def unix(self, name: str, path: str | bytes) -> None:
        """Listen at a path, or with a NUL in front at an abstract name."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(path)
        if isinstance(path, str):
            os.chmod(path, 0o777)
        self.listen(name, listener)

    def seen(self) -> tuple[str, ...]:
        """Which of them was reached, in order."""
        with self._lock:
            return tuple(self._seen)

    def close(self) -> None:
        """Close all."""
        self._wake.close()
        self._thread.join()

    def _listen(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data == "wake" and self._woken.recv(64) == b"":
                    self._end()
                    return
                if key.data != "wake":
                    self._note(key.data, key.fileobj)

    def _note(self, name: str, listener: object) -> None:
        assert isinstance(listener, socket.socket)
        with contextlib.suppress(BlockingIOError):
            if listener.type is socket.SOCK_STREAM:
                listener.accept()[0].close()
            else:
                listener.recvfrom(64)
            with self._lock:
                self._seen.append(name)

    def _end(self) -> None:
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()


@contextlib.contextmanager
def test_host(canary: Canary) -> Iterator[tuple[str, int] | None]:
    """A host beyond this one: a network namespace with one link; its address and port.

    None where that cannot be made (no root, no ip).
    """
    name, first = f"hs{os.getpid()}", os.getpid() % 63 * 4
    ours, theirs = f"{_NETWORK}.{first + 1}", f"{_NETWORK}.{first + 2}"
    try:
        subprocess.run(["ip", "netns", "add", name], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        yield None
        return
    try:
        for line in (
            f"link add {name}a type veth peer name {name}b netns {name}",
            f"addr add {ours}/30 dev {name}a",
            f"link set {name}a up",
            f"-n {name} addr add {theirs}/30 dev {name}b",
            f"-n {name} link set {name}b up",
            f"-n {name} link set lo up",
        ):
            subprocess.run(["ip", *line.split()], check=True, capture_output=True)
        ports: list[int] = []
        maker = threading.Thread(target=lambda: ports.append(_listen_in(name, theirs, canary)))
        maker.start()
        maker.join()
        yield theirs, ports[0]
    except subprocess.CalledProcessError:
        yield None
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def _listen_in(name: str, address: str, canary: Canary) -> int:
    """A thread moves into the namespace, makes its sockets there, and ends."""
    with Path(f"/run/netns/{name}").open("rb") as namespace:
        if ctypes.CDLL(None).setns(namespace.fileno(), _CLONE_NEWNET) != 0:
            raise ExecutorError("setns")
    return canary.tcp("test host", address)
