"""What travels between the executor and the cell?

Theory of operation
-------------------
One byte stream in each direction. Everything is a frame: a type byte, the body's length as a
little-endian u32, the body. Structured bodies are fields: a tag byte, a little-endian u32 length,
the value; numbers are little-endian u64; a repeated tag is a list. Unknown frames and tags are an
error on both sides, so that the two ends are always of one version.

To the cell::

    B  build   ``cell --enter`` only, first: the static half (``Sandbox``)
    J  job     once: what to run (``Job``); for PID 1 of a container it is the first frame
    T  term    TERM to the whole tree, KILL after the grace
    K  kill    KILL to the whole tree

From the cell::

    R  ready     the walls stand, waiting for J
    S  started   the hook's process exists; its clock runs
    1  stdout    a captured chunk        2  stderr        E  what the hook wrote to emit
    X  exit      once, the last frame; the cell then waits for the end of its input

The stream to the cell stays open for the whole run: its end is the lifeline, upon which the cell
ends everything by itself. Rules for editors: ``cell.c`` holds the same tables; change both.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from executor.job import Job, Mount, Sandbox

VERSION = 1
HEADER = struct.Struct("<cI")
NUMBER = struct.Struct("<Q")
MAX_FRAME_BYTES = 32 * 1024 * 1024
"""Larger lengths mean a broken stream. Covers the largest payload and the largest argv."""
MAX_REPLY_BYTES = 64 * 1024
"""No frame from the cell is larger (chunks are at most 32 KiB)."""

BUILD, JOB, TERM, KILL = b"B", b"J", b"T", b"K"
READY, STARTED, STDOUT, STDERR, EMITTED, EXIT = b"R", b"S", b"1", b"2", b"E", b"X"

MOUNT_WRITABLE, MOUNT_DIRECTORY = 1, 2
_MOUNT = struct.Struct("<BQQ")


class ProtocolError(Exception):
    """The other end does not speak this protocol. Internal: a backend makes it an Outcome."""


class Kind(IntEnum):
    """How the hook's process ended."""

    EXITED = 0
    SIGNALLED = 1
    NOT_STARTED = 2


class Stopped(IntEnum):
    """What the cell did to end it."""

    NO = 0
    DEADLINE_TERM = 1
    DEADLINE_KILL = 2
    ASKED_TERM = 3
    ASKED_KILL = 4


@dataclass(frozen=True, slots=True)
class Exit:
    """The exit frame. ``number`` is an exit code, a signal, or an errno (NOT_STARTED).

    ``stage`` names the step that failed, "exec" where it is the command itself.
    ``stdout_bytes``/``stderr_bytes`` count all that was written, captured or not.
    ``strays`` counts processes that the hook left behind and the cell killed.
    """

    kind: Kind
    number: int
    stage: str
    stopped: Stopped
    wall_seconds: float
    cpu_seconds: float
    peak_memory_bytes: int
    stdout_bytes: int
    stderr_bytes: int
    strays: int


@dataclass(frozen=True, slots=True)
class Ready:
    """What the cell found: its protocol version, the Landlock ABI (0: none)."""

    version: int
    landlock: int


def frame(kind: bytes, body: bytes = b"") -> bytes:
    """A whole frame."""
    return HEADER.pack(kind, len(body)) + body


def field(tag: bytes, value: bytes | str | int) -> bytes:
    """One field of a structured body. Text travels as the bytes of the file system."""
    if isinstance(value, int):
        value = NUMBER.pack(value)
    elif isinstance(value, str):
        value = value.encode("utf-8", "surrogateescape")
    return HEADER.pack(tag, len(value)) + value


def _mount(mount: Mount, *, with_source: bool) -> bytes:
    flags = MOUNT_WRITABLE * mount.writable | MOUNT_DIRECTORY * mount.directory
    names = (mount.source, mount.target) if with_source else (mount.target,)
    return _MOUNT.pack(flags, mount.device, mount.inode) + b"".join(
        name.encode("utf-8", "surrogateescape") + b"\0" for name in names
    )


def build_frame(
    sandbox: Sandbox, *, tasks: tuple[str, ...] = (), leaf: str = "", network: str = ""
) -> bytes:
    """B. Tags: u uid, g gid, r root ("" host), t tmp bytes, p payload capacity bytes,
    m mount (flags, device, inode, source NUL, target NUL)*, in mount order,
    k a cgroup v1 ``tasks`` file to enter*, l a cgroup v2 directory to be born in,
    n an empty network namespace to enter instead of making one (root's only)."""
    parts = [
        field(b"u", sandbox.uid),
        field(b"g", sandbox.gid),
        field(b"r", sandbox.root),
        field(b"t", sandbox.limits.tmp_bytes),
        field(b"p", sandbox.payload_capacity_bytes),
        *(field(b"m", _mount(mount, with_source=True)) for mount in sandbox.mounts),
        *(field(b"k", path) for path in tasks),
        *((field(b"l", leaf),) if leaf else ()),
        *((field(b"n", network),) if network else ()),
    ]
    return frame(BUILD, b"".join(parts))


def job_frame(
    job: Job,
    *,
    seccomp: bytes,
    rlimit_pids: int = 0,
    rlimit_data_bytes: int = 0,
    hold: bool = False,
) -> bytes:
    """J. Tags: c command, a argv*, e "NAME=value"*, d cwd, w timeout ms, q grace ms,
    o output cap bytes (each stream), f file size bytes, n open files, i stdin is the payload (0/1),
    v what to verify (flags, device, inode, target NUL)*, s seccomp program (struct sock_filter[]),
    N RLIMIT_NPROC and D RLIMIT_DATA bytes (0: a cgroup takes care of it), h stop the hook just
    before its exec, to be looked at from outside (0/1; S comes then), x emit cap bytes, where the
    hook has that channel, P payload, always last."""
    limits = job.sandbox.limits
    parts = [
        field(b"c", job.command),
        *(field(b"a", argument) for argument in job.argv),
        *(field(b"e", f"{name}={value}") for name, value in job.env),
        field(b"d", job.cwd),
        field(b"w", max(1, round(job.timeout_seconds * 1000))),
        field(b"q", round(job.grace_seconds * 1000)),
        field(b"o", limits.output_bytes),
        field(b"f", limits.file_size_bytes),
        field(b"n", limits.open_files),
        field(b"i", int(job.stdin)),
        *(field(b"v", _mount(mount, with_source=False)) for mount in job.sandbox.mounts),
        field(b"s", seccomp),
        field(b"N", rlimit_pids),
        field(b"D", rlimit_data_bytes),
        field(b"h", int(hold)),
        *((field(b"x", job.emit_bytes),) if job.emit_bytes else ()),
        field(b"P", job.payload),
    ]
    return frame(JOB, b"".join(parts))


class FrameParser:
    """Pure: bytes in, whole frames out. Raises ProtocolError on what no cell would send."""

    def __init__(self, limit: int = MAX_REPLY_BYTES) -> None:
        self._buffer = bytearray()
        self._limit = limit

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        self._buffer += data
        while len(self._buffer) >= HEADER.size:
            kind, length = HEADER.unpack_from(self._buffer)
            if length > self._limit:
                raise ProtocolError(f"frame {kind!r} of {length} bytes")
            end = HEADER.size + length
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[HEADER.size : end])
            del self._buffer[:end]
            yield kind, body


def fields(body: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The fields of a structured body. Raises ProtocolError where they do not add up."""
    position = 0
    while position < len(body):
        if position + HEADER.size > len(body):
            raise ProtocolError("a field's header is cut")
        tag, length = HEADER.unpack_from(body, position)
        position += HEADER.size
        if position + length > len(body):
            raise ProtocolError("a field's value is cut")
        yield tag, body[position : position + length]
        position += length


def _number(values: dict[bytes, bytes], tag: bytes) -> int:
    value = values.get(tag, b"")
    if len(value) != NUMBER.size:
        raise ProtocolError(f"field {tag!r} is missing or no number")
    return int(NUMBER.unpack(value)[0])


def decode_ready(body: bytes) -> Ready:
    """R. Tags: V version, L Landlock ABI."""
    values = dict(fields(body))
    return Ready(version=_number(values, b"V"), landlock=_number(values, b"L"))


def decode_exit(body: bytes) -> Exit:
    """X. Tags: k kind, c number, s stage, x stopped, w wall us, u CPU us, m peak RSS bytes,
    1/2 bytes written to stdout/stderr, z strays."""
    values = dict(fields(body))
    try:
        kind, stopped = Kind(_number(values, b"k")), Stopped(_number(values, b"x"))
    except ValueError as error:
        raise ProtocolError(str(error)) from error
    return Exit(
        kind=kind,
        number=_number(values, b"c"),
        stage=values.get(b"s", b"").decode("utf-8", "replace"),
        stopped=stopped,
        wall_seconds=_number(values, b"w") / 1e6,
        cpu_seconds=_number(values, b"u") / 1e6,
        peak_memory_bytes=_number(values, b"m"),
        stdout_bytes=_number(values, b"1"),
        stderr_bytes=_number(values, b"2"),
        strays=_number(values, b"z"),
    )
