"""How does the executor hold one worker process?

Theory of operation
-------------------
``launch.start`` starts it (posix_spawn, empty environment, its own session, one socket); what it
gives up is in ``confine``. One frame goes out, one comes back, and in between the guest's questions
about its key-value store are answered. Anything else (an end of the stream, a frame that makes no
sense, an answer that does not come) ends the worker: SIGKILL by pidfd, and the pool starts another.

A worker that was asked and not heard to the end is out of step, so cancelling a call kills it too.
"""

from __future__ import annotations

import array
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio

from executor.cell import launch
from executor.wasm.wire import HEAD, Garbled, Meta, lengths, pack, unpack

START_SECONDS = 30.0
PROGRAM = "from executor.wasm.worker import main; main()"
_CHUNK = 64 * 1024

Answering = Callable[[str, str, bytes], tuple[bool, bytes]]


class Lost(Exception):
    """The worker is gone; the message says how."""


class Overdue(Exception):
    """The worker did not answer in time, and was killed."""


@dataclass(frozen=True, slots=True)
class Place:
    """One granted directory, opened: what stands behind the descriptor is what was checked."""

    path: str
    descriptor: int
    writable: bool


@dataclass(frozen=True, slots=True)
class Confinement:
    """What a worker is told to give up. Sizes in bytes."""

    uid: int
    gid: int
    data_bytes: int
    seccomp: bytes
    cache: Path
    open_files: int = 256


class Process:
    """One worker. Not for concurrent use: the pool lends it out."""

    def __init__(self, launched: launch.Launched) -> None:
        self._launched = launched
        self._socket = launched.sock
        self._socket.setblocking(False)
        self._buffer = bytearray()
        self._alive = True
        self.loaded: set[str] = set()
        self.calls = 0
        self.missing: tuple[str, ...] = ()

    @classmethod
    async def start(cls, confinement: Confinement, places: Sequence[Place]) -> Process:
        """A worker that is ready. Raises Lost, OSError."""
        self = cls(launch.start("-I", "-c", PROGRAM, program=Path(sys.executable)))
        try:
            with anyio.fail_after(START_SECONDS):
                await self._introduce(confinement, places)
        except TimeoutError:
            await self.end()
            raise Lost("the worker was not ready in time") from None
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.end()
            raise
        return self

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return self._alive

    @property
    def pid(self) -> int:
        return self._launched.pid

    async def load(self, meta: Mapping[str, object], native: Path) -> str | None:
        """Make it load native code; why it could not, or None. Raises Lost."""
        descriptor = os.open(native, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            answer, _ = await self._asked(meta, b"", (descriptor,), START_SECONDS, 0, None)
        finally:
            os.close(descriptor)
        if answer.get("loaded") is True:
            return None
        return str(answer.get("reason"))[:1000]

    async def call(
        self,
        meta: Mapping[str, object],
        envelope: bytes,
        *,
        limit_seconds: float,
        max_blob_bytes: int,
        answering: Answering,
    ) -> tuple[Meta, bytes]:
        """One event. Raises Overdue after ``limit_seconds``, Lost when the worker ended."""
        self.calls += 1
        return await self._asked(meta, envelope, (), limit_seconds, max_blob_bytes, answering)

    async def end(self) -> None:
        """Kill it and take its status; harmless if repeated."""
        if not self._alive:
            return
        self._alive = False
        self._launched.kill()
        self._socket.close()
        await self._launched.ended()
        self._launched.forget()

    async def _introduce(self, confinement: Confinement, places: Sequence[Place]) -> None:
        meta = {
            "do": "start",
            "uid": confinement.uid,
            "gid": confinement.gid,
            "data_bytes": confinement.data_bytes,
            "open_files": confinement.open_files,
            "directories": [place.path for place in places],
            "writable": [place.path for place in places if place.writable],
        }
        cache = os.open(confinement.cache, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            handed = (cache, *(place.descriptor for place in places))
            await self._send(meta, confinement.seccomp, handed)
        finally:
            os.close(cache)
        answer, _ = await self._receive(0)
        if answer.get("ready") is not True:
            raise Lost("the worker said something else than that it is ready")
        missing = answer.get("missing")
        self.missing = tuple(map(str, missing)) if isinstance(missing, list) else ()

    async def _asked(
        self,
        meta: Mapping[str, object],
        blob: bytes,
        descriptors: Sequence[int],
        limit_seconds: float,
        max_blob_bytes: int,
        answering: Answering | None,
    ) -> tuple[Meta, bytes]:
        heard = False
        try:
            with anyio.CancelScope(deadline=anyio.current_time() + limit_seconds):
                await self._send(meta, blob, descriptors)
                while True:
                    answer, answer_blob = await self._receive(max_blob_bytes)
                    if answering is None or "ask" not in answer:
                        heard = True
                        return answer, answer_blob
                    found, value = answering(
                        str(answer["ask"]), str(answer.get("key")), answer_blob
                    )
                    await self._send({"found": found}, value, ())
            raise Overdue
        except Garbled as garbled:
            raise Lost(f"the worker sent what makes no sense: {garbled}") from None
        except OSError as failure:
            raise Lost(f"the worker is gone: {failure.strerror}") from failure
        finally:
            if not heard:
                with anyio.CancelScope(shield=True):
                    await self.end()

    async def _send(
        self, meta: Mapping[str, object], blob: bytes, descriptors: Sequence[int]
    ) -> None:
        head = pack(meta, len(blob))
        rest = memoryview(head + blob if len(blob) < _CHUNK else head)
        ancillary = (
            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
            if descriptors
            else []
        )
        for part in (rest, memoryview(blob)) if len(blob) >= _CHUNK else (rest,):
            left = part
            while left:
                try:
                    left = left[self._socket.sendmsg((left,), ancillary) :]
                    ancillary = []
                except BlockingIOError:
                    await anyio.wait_writable(self._socket)

    async def _receive(self, max_blob_bytes: int) -> tuple[Meta, bytes]:
        await self._fill(HEAD.size)
        size, blob_size = lengths(bytes(self._buffer[: HEAD.size]), max_blob_bytes)
        whole = HEAD.size + size + blob_size
        await self._fill(whole)
        meta = unpack(bytes(self._buffer[HEAD.size : HEAD.size + size]))
        blob = bytes(self._buffer[HEAD.size + size : whole])
        del self._buffer[:whole]
        return meta, blob

    async def _fill(self, size: int) -> None:
        while len(self._buffer) < size:
            try:
                data = self._socket.recv(max(_CHUNK, size - len(self._buffer)))
            except BlockingIOError:
                await anyio.wait_readable(self._socket)
                continue
            if not data:
                raise Lost("the worker ended by itself")
            self._buffer += data
