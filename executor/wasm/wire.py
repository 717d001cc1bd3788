"""How do the executor and its WASM processes talk?

Frames over one stream socket: two lengths, a JSON object, and bytes that JSON would only bloat (the
envelope, captured output, a stored value). One question at a time; while a guest runs, its process
may ask back (``ask``: a key-value store lives with the executor).

    executor → worker   {"do": "start", …}                  once; descriptors of granted directories
                        {"do": "load", "id": …, …}          with the descriptor of the native code
                        {"do": "call", "id": …, …} envelope
                        {"found": …} value                  the answer to ``ask``
    worker → executor   {"ready": …} | {"loaded": …}
                        {"ask": …, "key": …} value
                        {"end": …, …} output

Rules for editors: a guest may have broken out of wasmtime, so the executor's side trusts no length
and no type. What is too long or no object is ``Garbled``, and the worker is killed.
"""

from __future__ import annotations

import array
import json
import socket
import struct
from collections.abc import Mapping, Sequence
from enum import StrEnum

HEAD = struct.Struct(">II")
MAX_META_BYTES = 1024 * 1024
MAX_MESSAGE_BYTES = 4096
"""Of a guest's error message; the rest is cut and counted."""

Meta = dict[str, object]
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class End(StrEnum):
    """How a call ended, as the worker saw it."""

    OK = "ok"
    """``Ok`` of on-event; of on-gate where ``message`` is None, else it said something."""
    ERR = "err"
    TRAP = "trap"
    LATE = "late"
    """The epoch deadline."""
    MEMORY = "memory"
    REJECTED = "rejected"
    """The component could not be instantiated."""


class Garbled(ValueError):
    """Bytes that are no frame."""


def pack(meta: Mapping[str, object], blob_bytes: int = 0) -> bytes:
    """The head and the JSON of a frame; the blob follows on the stream."""
    text = _encode(meta).encode("utf-8", "replace")
    return HEAD.pack(len(text), blob_bytes) + text


def lengths(head: bytes, max_blob_bytes: int) -> tuple[int, int]:
    """The two lengths of a frame. Raises Garbled where one is above its limit."""
    meta, blob = HEAD.unpack(head)
    if meta > MAX_META_BYTES or blob > max_blob_bytes:
        raise Garbled("a frame is too long")
    return meta, blob


def unpack(text: bytes) -> Meta:
    """The JSON object of a frame. Raises Garbled where it is none."""
    try:
        meta = json.loads(text)
    except (ValueError, RecursionError):
        raise Garbled("a frame holds no JSON") from None
    if not isinstance(meta, dict):
        raise Garbled("a frame holds no object")
    return meta


class Channel:
    """A worker's end: blocking, one frame at a time. Raises EOFError when the executor is gone."""

    def __init__(self, sock: socket.socket, max_blob_bytes: int) -> None:
        self._socket = sock
        self._max_blob_bytes = max_blob_bytes
        self.descriptors: list[int] = []

    def read(self) -> tuple[Meta, bytes]:
        """The next frame; descriptors that came with it are appended to ``descriptors``."""
        size, blob_size = lengths(self._head(), self._max_blob_bytes)
        return unpack(self._exactly(size)), self._exactly(blob_size)

    def write(self, meta: Mapping[str, object], blob: bytes = b"") -> None:
        data = pack(meta, len(blob))
        self._socket.sendall(data + blob if len(blob) < HEAD.size * 8192 else data)
        if len(blob) >= HEAD.size * 8192:
            self._socket.sendall(blob)

    def _head(self) -> bytes:
        """Descriptors ride on the first byte of a frame (unix(7))."""
        room = socket.CMSG_SPACE(16 * array.array("i").itemsize)
        data, ancillary, _, _ = self._socket.recvmsg(HEAD.size, room)
        for level, kind, raw in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                numbers = array.array("i")
                numbers.frombytes(raw[: len(raw) - len(raw) % numbers.itemsize])
                self.descriptors += numbers
        if not data:
            raise EOFError
        return data + self._exactly(HEAD.size - len(data))

    def _exactly(self, size: int) -> bytes:
        if size == 0:
            return b""
        parts = bytearray(size)
        view = memoryview(parts)
        got = 0
        while got < size:
            read = self._socket.recv_into(view[got:])
            if read == 0:
                raise EOFError
            got += read
        return bytes(parts)


def text_of(meta: Mapping[str, object], key: str) -> str:
    """A string of a frame. Raises Garbled where it is none."""
    value = meta.get(key)
    if not isinstance(value, str):
        raise Garbled(f"a frame has no text {key}")
    return value


def number_of(meta: Mapping[str, object], key: str) -> float:
    """A number of a frame. Raises Garbled where it is none."""
    value = meta.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Garbled(f"a frame has no number {key}")
    return value


def texts_of(meta: Mapping[str, object], key: str) -> Sequence[str]:
    """A list of strings of a frame. Raises Garbled where it is none."""
    value = meta.get(key)
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise Garbled(f"a frame has no list {key}")
    return value
