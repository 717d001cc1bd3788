"""How do bytes travel between the executor and a container's PID 1?

``attach`` turns an HTTP request into the raw connection that the Engine API calls hijacked: what
we write is the container's stdin, what we read are its stdout and stderr in frames of their own
(a stream number, three zero bytes, a big-endian u32 length). The client library's own attach
waits without any limit for the engine's answer, so the request is made here, with a deadline.

The connection is never half-closed: its end is the cell's lifeline (DESIGN section 3), and some
engines close both directions when one ends.
"""

from __future__ import annotations

import socket
import struct
import time

import anyio
from anyio.lowlevel import checkpoint

_HEADER = struct.Struct(">BxxxI")
_STDOUT, _STDERR = 1, 2
_MAX_ANSWER_BYTES = 16 * 1024
_MAX_COMPLAINT_BYTES = 2 * 1024
_CHUNK_BYTES = 64 * 1024


class AttachError(OSError):
    """The engine did not hand over the container's streams."""


class Demultiplexer:
    """Pure: the engine's frames in, the bytes of the container's stdout out.

    The cell writes its protocol to stdout. ``complaint`` is the beginning of what came on stderr
    (the cell's, the runtime's) or as the engine's own words. Raises ``AttachError`` on what is no
    such frame.
    """

    def __init__(self) -> None:
        self._header = bytearray()
        self._stream = 0
        self._missing = 0
        self._complaint = bytearray()

    @property
    def complaint(self) -> str:
        """What was said beside the protocol; at most 2 KiB."""
        return self._complaint.decode("utf-8", "replace").strip()

    def feed(self, data: bytes) -> bytes:
        """The bytes of stdout in ``data``, which may begin and end anywhere in a frame."""
        out = bytearray()
        view = memoryview(data)
        while view:
            if self._missing:
                part, view = view[: self._missing], view[self._missing :]
                self._missing -= len(part)
                self._take(part, out)
                continue
            wanted = _HEADER.size - len(self._header)
            self._header += view[:wanted]
            view = view[wanted:]
            if len(self._header) == _HEADER.size:
                self._stream, self._missing = _HEADER.unpack(self._header)
                if any(self._header[1:4]) or self._stream > 3:
                    raise AttachError(f"no frame of the engine: {bytes(self._header)!r}")
                self._header.clear()
        return bytes(out)

    def _take(self, part: memoryview, out: bytearray) -> None:
        if self._stream == _STDOUT:
            out += part
        else:
            self._complaint += part[: _MAX_COMPLAINT_BYTES - len(self._complaint)]


class ContainerStreams:
    """``cell.session.Streams`` over a hijacked connection."""

    def __init__(self, connection: socket.socket, early: bytes = b"") -> None:
        connection.setblocking(False)
        self._connection = connection
        self._early = early
        self.demultiplexer = Demultiplexer()

    async def receive(self) -> bytes:
        """Bytes of the cell, ``b""`` at the end of the connection."""
        while True:
            data = await self._read()
            if not data:
                return b""
            if out := self.demultiplexer.feed(data):
                return out

    async def _read(self) -> bytes:
        if self._early:
            await checkpoint()
            data, self._early = self._early, b""
            return data
        while True:
            await anyio.wait_readable(self._connection)
            try:
                return self._connection.recv(_CHUNK_BYTES)
            except BlockingIOError:
                continue

    async def send(self, data: bytes) -> None:
        """Write to the cell's stdin."""
        await checkpoint()
        view = memoryview(data)
        while view:
            try:
                view = view[self._connection.send(view) :]
            except BlockingIOError:
                await anyio.wait_writable(self._connection)

    def close(self) -> None:
        """End the cell's lifeline."""
        if self._connection.fileno() >= 0:
            anyio.notify_closing(self._connection)
            self._connection.close()

    def abandon(self) -> None:
        """The same, for a thread that finds nobody waiting for these streams."""
        self._connection.close()


def attach(path: str, api_version: str, container: str, seconds: float) -> ContainerStreams:
    """Blocking: take over the streams of a container that was created and not yet started.

    ``path`` is the engine's socket. Raises ``AttachError`` or another OSError.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        connection.settimeout(seconds)
        connection.connect(path)
        target = f"/v{api_version}/containers/{container}/attach"
        early = _upgrade(connection, target, time.monotonic() + seconds)
    except BaseException:
        connection.close()
        raise
    return ContainerStreams(connection, early)


def _upgrade(connection: socket.socket, target: str, deadline: float) -> bytes:
    """Ask for the raw connection; what the container said together with the answer."""
    connection.sendall(
        f"POST {target}?stream=1&stdin=1&stdout=1&stderr=1 HTTP/1.1\r\nHost: engine\r\n"
        "Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n".encode()
    )
    answer = b""
    while b"\r\n\r\n" not in answer:
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        part = connection.recv(4096)
        answer += part
        if not part or len(answer) > _MAX_ANSWER_BYTES:
            raise AttachError("the engine ended the connection instead of attaching")
    head, _, early = answer.partition(b"\r\n\r\n")
    if head.split(b" ", 2)[1:2] not in ([b"101"], [b"200"]):
        raise AttachError(f"the engine refuses to attach: {answer[:300]!r}")
    return early
