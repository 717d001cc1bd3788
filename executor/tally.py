"""How many events were in the hands of a worker that was killed?

Nobody else can know: NATS forgets a message once it has handed it over. So each worker keeps two
numbers, events taken and events ended, in a file that is mapped into memory: the kernel keeps what
was written when the process dies, and writing costs no system call. The file is locked while its
worker lives. Whoever finds one unlocked counts the difference as lost, once, and removes it.

The directory must be local, as for every lock here; the count is per machine and user.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from executor.errors import Unavailable

_NUMBERS = struct.Struct("<QQ")
_SUFFIX = ".tally"


class Tally:
    """One worker's numbers; made by ``open``."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.taken = 0
        self.ended = 0
        self._memory = mmap.mmap(descriptor, _NUMBERS.size)

    @classmethod
    @contextmanager
    def open(cls, directory: Path) -> Iterator[Tally]:
        """Keep count while the block lasts. Raises Unavailable where no file can be kept."""
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = directory / f"{secrets.token_hex(8)}{_SUFFIX}"
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as failure:
            raise Unavailable(
                f"a worker cannot keep count in {directory}: {failure.strerror}",
                remedy="set XDG_STATE_HOME to a directory that you may write",
            ) from failure
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.truncate(descriptor, _NUMBERS.size)
            self = cls(path, descriptor)
            yield self
            self._memory.close()
            if self.taken == self.ended:
                path.unlink(missing_ok=True)
        finally:
            os.close(descriptor)

    def take(self) -> None:
        """One more event is in our hands."""
        self.taken += 1
        self._write()

    def end(self) -> None:
        """One of them has ended, well or badly."""
        self.ended += 1
        self._write()

    def collect(self) -> int:
        """How many events the dead took with them; each is told to one worker, once."""
        return sum(
            _collect(path) for path in self.path.parent.glob(f"*{_SUFFIX}") if path != self.path
        )

    def _write(self) -> None:
        _NUMBERS.pack_into(self._memory, 0, self.taken, self.ended)


def read(path: Path) -> tuple[int, int]:
    """Events taken and ended, as a file says now; nothing where it is gone or half made."""
    with suppress(FileNotFoundError):
        data = path.read_bytes()
        if len(data) == _NUMBERS.size:
            taken, ended = _NUMBERS.unpack(data)
            return int(taken), int(ended)
    return 0, 0


def _collect(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_size != _NUMBERS.size or not path.exists():
            return 0  # its worker is about to lock it, or somebody else was quicker
        taken, ended = read(path)
        path.unlink(missing_ok=True)
        return max(0, taken - ended)
    except BlockingIOError:
        return 0
    finally:
        os.close(descriptor)
