"""What may one connection do before it is a request?

uvicorn's protocol, with what it lacks against people who only want to occupy us: a request's head
must have come within ``HEAD_SECONDS``, connections are counted and bounded, and on a Unix socket
the kernel says who is at the other end (SO_PEERCRED, unix(7)).
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0
MAX_CONNECTIONS = 1024

_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)


class Connection(H11Protocol):
    """One client."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.connections) >= MAX_CONNECTIONS:
            transport.write(_FULL)
            transport.close()
            # The base class never learns of it: nothing of it has been set up.
            self.transport = transport
            self._refused = True
            return
        super().connection_made(transport)
        self.app_state = {**self.app_state, "trusted_peer": _trusted(transport)}
        self._expect_head()

    _refused = False

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        if not self._refused:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._forget()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # Between two requests uvicorn's keep-alive timer runs until the first byte, ours from it.
        if not self.transport.is_closing() and self.conn.their_state is h11.IDLE:
            self._expect_head()

    def _expect_head(self) -> None:
        self._forget()
        self._late = self.loop.call_later(HEAD_SECONDS, self._hang_up)

    def _hang_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.abort()

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def _trusted(transport: Any) -> bool:
    """Whether the kernel says that the peer is our own user or root."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family != socket.AF_UNIX:
        return False
    size = struct.calcsize("3i")
    _pid, uid, _gid = struct.unpack(
        "3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    )
    return uid in (0, os.geteuid())
