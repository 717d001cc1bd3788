"""How is a call to the engine ended that does not end by itself?

A time limit on each read is none on the call: an engine that sends a byte now and then keeps it
going, and its thread keeps the program from ending. So the connection that a thread's call uses is
known while it lasts, and can be cut from another thread.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any, cast

import docker
from docker.transport.unixconn import (
    UnixHTTPAdapter,
    UnixHTTPConnection,
    UnixHTTPConnectionPool,
)

_SCHEME = "http+docker://"
"""What the client library calls the URLs of an engine behind a Unix socket."""
_thread = threading.local()


class Wire:
    """The connection that one call uses at the moment."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._is_cut = False

    @contextlib.contextmanager
    def carrying(self) -> Iterator[None]:
        """What this thread asks the engine inside the block is this call's."""
        _thread.wire = self
        try:
            yield
        finally:
            _thread.wire = None
            with self._lock:
                self._socket = None

    def cut(self) -> None:
        """End the connection, and each that the call yet makes."""
        with self._lock:
            self._is_cut = True
            _shut(self._socket)

    def use(self, connection: socket.socket | None) -> None:
        with self._lock:
            self._socket = connection
            if self._is_cut:
                _shut(connection)


def client(url: str, version: str, *, seconds: int, connections: int) -> docker.APIClient:
    """A low-level client whose connections belong to the wire of the thread that uses them."""
    made = docker.APIClient(url, version=version, timeout=seconds, max_pool_size=connections)
    path = url.removeprefix("unix://")
    made.mount(_SCHEME, _Adapter(path, seconds, max_pool_size=connections))
    return made


class _Connection(UnixHTTPConnection):
    def connect(self) -> None:
        super().connect()
        _carry(self.sock)

    def request(self, *arguments: Any, **options: Any) -> None:
        if self.sock is not None:  # one that was used before
            _carry(self.sock)
        super().request(*arguments, **options)


class _Pool(UnixHTTPConnectionPool):
    def _new_conn(self) -> Any:  # as the library's, whose stubs disagree with its parent's
        return _Connection(self.base_url, self.socket_path, cast("int", self.timeout))


class _Adapter(UnixHTTPAdapter):
    def get_connection(self, url: Any, proxies: Any = None) -> _Pool:  # noqa: ARG002  (its parent's)
        with self.pools.lock:
            pool = self.pools.get(url)
            if pool is None:
                pool = _Pool(url, self.socket_path, self.timeout, maxsize=self.max_pool_size)
                self.pools[url] = pool
        return pool


def _carry(connection: socket.socket | None) -> None:
    wire: Wire | None = getattr(_thread, "wire", None)
    if wire is not None:
        wire.use(connection)


def _shut(connection: socket.socket | None) -> None:
    if connection is not None:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
