"""How does a file appear whole or not at all, also when we are killed meanwhile?

It is written under a passing name and then renamed. While somebody writes, that file is locked;
one whose lock is free was left by a process that died, and the next that opens the directory
removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = ".new-"
_ATTEMPTS = 16


@contextlib.contextmanager
def unfinished(directory: Path) -> Iterator[str]:
    """The path of an empty file, for the block to fill and rename; else it is removed.

    Raises OSError. The lock is on a descriptor that only reads: what was renamed can be executed.
    """
    descriptor, path = _locked(directory)
    try:
        yield path
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
        os.close(descriptor)


def sweep(directory: Path) -> int:
    """Remove what dead processes were writing; how many files. Never raises OSError."""
    removed = 0
    with contextlib.suppress(OSError):
        for entry in os.scandir(directory):
            if entry.name.startswith(PREFIX):
                removed += _remove_if_free(entry.path)
    return removed


def _locked(directory: Path) -> tuple[int, str]:
    for _ in range(_ATTEMPTS):
        writer, path = tempfile.mkstemp(prefix=PREFIX, dir=directory)
        os.close(writer)
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # A sweeper may have come before the lock, and removed it.
            if os.fstat(descriptor).st_nlink:
                return descriptor, path
            os.close(descriptor)
    raise FileNotFoundError(f"no file can be kept in {directory}")


def _remove_if_free(path: str) -> bool:
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)
        finally:
            os.close(descriptor)
        return True
    return False
