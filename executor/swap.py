"""How does a file replace another without losing a third one's work?

``replace_if`` puts new bytes in the place of a file, provided that the file is still what the
caller read; whoever reads meanwhile finds one or the other, whole. The two names are exchanged in
one system call (renameat2(2), RENAME_EXCHANGE), and only then is looked at what came out: if it is
not what was read, somebody saved in between, and the exchange is undone. A read lease (fcntl(2),
F_SETLEASE) tells of writers that have the old file open and would go on writing into it.

Rules for editors: a crash between any two steps must leave a whole file under the name, so the
new bytes are synced before they get it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import secrets
import signal
from collections.abc import Iterator
from dataclasses import dataclass

_RENAME_EXCHANGE = 2
_UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.ENOTTY, errno.EOPNOTSUPP)
_UNDO_TRIES = 64

_libc = ctypes.CDLL(None, use_errno=True)


class Changed(Exception):
    """Somebody else changed the file, or is writing to it; nothing was replaced."""


@dataclass(frozen=True, slots=True)
class Found:
    """A file as it was read; ``None`` in its place where there was no file."""

    data: bytes
    device: int
    inode: int
    mode: int
    uid: int
    gid: int


def read(directory: int, name: str, limit: int) -> Found | None:
    """The file's bytes, at most ``limit`` + 1, links not followed. Raises OSError."""
    try:
        descriptor = os.open(
            name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory
        )
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        return Found(
            file.read(limit + 1),
            status.st_dev,
            status.st_ino,
            status.st_mode & 0o7777,
            status.st_uid,
            status.st_gid,
        )


def replace_if(
    directory: int, name: str, before: Found | None, data: bytes, *, mode: int, owner: int
) -> None:
    """Put ``data`` in the place of ``before``, with its mode and owner; a new file gets these.

    Raises Changed where the file is no longer ``before``, OSError where it cannot be written.
    """
    temporary = f".{name}.{secrets.token_hex(8)}.tmp"
    try:
        _write(directory, temporary, before, data, mode, owner)
        if before is None:
            _create(directory, temporary, name)
        else:
            _exchange(directory, temporary, name, before)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=directory)
    os.fsync(directory)


def sweep(directory: int, name: str) -> None:
    """Remove what a killed writer left. The caller knows that nobody else is writing."""
    for entry in os.listdir(directory):
        if entry.startswith(f".{name}.") and entry.endswith(".tmp"):
            with contextlib.suppress(OSError):
                os.unlink(entry, dir_fd=directory)


def _write(
    directory: int, temporary: str, before: Found | None, data: bytes, mode: int, owner: int
) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(temporary, flags, 0o600, dir_fd=directory), "wb") as file:
        uid, gid = (owner, -1) if before is None else (before.uid, before.gid)
        status = os.fstat(file.fileno())
        if uid != status.st_uid or gid not in (-1, status.st_gid):
            os.fchown(file.fileno(), uid, gid)
        os.fchmod(file.fileno(), mode if before is None else before.mode)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _create(directory: int, temporary: str, name: str) -> None:
    try:
        os.link(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except FileExistsError:
        raise Changed from None


def _exchange(directory: int, temporary: str, name: str, before: Found) -> None:
    with _unwritten(directory, name) as lease:
        if not _is(directory, name, before):
            raise Changed
        if not _swap_names(directory, temporary, name):
            os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
            return
        if _is(directory, temporary, before) and _held(lease):
            return
        ours = _identity(directory, name)
        # What came out is newer than what was read: it goes back. If yet another save came in
        # between, that one comes out instead of ours, and is the newest: it goes back again.
        for _ in range(_UNDO_TRIES):
            _swap_names(directory, temporary, name)
            out = _identity(directory, temporary)
            if out == ours:
                break
            ours = _identity(directory, name)
        raise Changed


@contextlib.contextmanager
def _unwritten(directory: int, name: str) -> Iterator[int | None]:
    """A lease on the file while nobody has it open for writing; None where there are no leases.

    Raises Changed where somebody has.
    """
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except FileNotFoundError:
        raise Changed from None
    try:
        # The kernel tells of a breaking lease by a signal; SIGIO would end the process.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as failure:
        if failure.errno == errno.EAGAIN:
            os.close(descriptor)
            raise Changed from None
        with os.fdopen(descriptor):
            yield None
        return
    with os.fdopen(descriptor):
        yield descriptor


def _held(lease: int | None) -> bool:
    return lease is None or fcntl.fcntl(lease, fcntl.F_GETLEASE) == fcntl.F_RDLCK


def _is(directory: int, name: str, before: Found) -> bool:
    found = read(directory, name, len(before.data))
    return found is not None and (found.data, found.device, found.inode) == (
        before.data,
        before.device,
        before.inode,
    )


def _identity(directory: int, name: str) -> tuple[int, int]:
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    return status.st_dev, status.st_ino


def _swap_names(directory: int, one: str, other: str) -> bool:
    """Whether the file system could do it."""
    result = _libc.renameat2(
        directory, os.fsencode(one), directory, os.fsencode(other), _RENAME_EXCHANGE
    )
    if result == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    if number == errno.ENOENT:
        raise Changed
    raise OSError(number, os.strerror(number))
