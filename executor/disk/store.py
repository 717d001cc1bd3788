"""Which bytes run?

A command file is read once, through one descriptor, and kept by its sha256. The sandbox binds
the copy, so what was hashed is what runs, whatever happens to the original meanwhile (a bind of
the original taken before a rename-save would go on running the old bytes). Entries are immutable
and shared; the directory is the executor's alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path

from executor.disk import scratch
from executor.errors import Unavailable

MAX_COMMAND_BYTES = 256 * 1024 * 1024
_KEEP_SECONDS = 30 * 24 * 3600
_SETTLED_NANOSECONDS = 2_000_000_000
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Stored:
    """One immutable copy. ``path`` is on the host."""

    path: str
    sha256: str
    device: int
    inode: int


class CommandTooLarge(ValueError):
    """A command file above MAX_COMMAND_BYTES."""


class Store:
    """The copies below one directory; safe to use from threads and processes at once."""

    def __init__(self, directory: Path) -> None:
        """Create the directory (0700). Raises Unavailable where it could not serve."""
        self._directory = directory
        self._seen: dict[tuple[int, ...], Stored] = {}
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            scratch.sweep(directory)
            if os.statvfs(directory).f_flag & os.ST_NOEXEC:
                raise Unavailable(
                    f"{directory} is on a file system mounted noexec; hooks could not run from it",
                    remedy="set [state] dir in config.toml to a directory on another file system",
                )
        except OSError as error:
            raise Unavailable(
                f"the state directory {directory} cannot be used: {error.strerror}",
                remedy="set XDG_STATE_HOME, or [state] dir in config.toml, to one you may write",
            ) from error

    def put(self, descriptor: int) -> Stored:
        """Keep the bytes of an open regular file. Raises OSError, CommandTooLarge.

        The copy is executable exactly if the original is executable for anyone.
        """
        status = os.fstat(descriptor)
        key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        known = self._seen.get(key)
        if known is not None and os.path.exists(known.path):
            return known
        stored = self._copy(descriptor, executable=bool(status.st_mode & 0o111))
        # A file changed within the clock's granularity keeps its times; trust only settled ones.
        if time.time_ns() - status.st_ctime_ns > _SETTLED_NANOSECONDS:
            self._seen[key] = stored
        return stored

    def prune(self) -> int:
        """Remove copies that nothing asked for in 30 days; how many."""
        removed = 0
        oldest = time.time() - _KEEP_SECONDS
        for entry in os.scandir(self._directory):
            with contextlib.suppress(OSError):
                if entry.stat(follow_symlinks=False).st_mtime < oldest:
                    os.unlink(entry.path)
                    removed += 1
        return removed

    def _copy(self, descriptor: int, *, executable: bool) -> Stored:
        digest = hashlib.sha256()
        size = 0
        with scratch.unfinished(self._directory) as temporary:
            with open(temporary, "wb") as target:
                while chunk := os.pread(descriptor, _CHUNK, size):
                    size += len(chunk)
                    if size > MAX_COMMAND_BYTES:
                        raise CommandTooLarge
                    digest.update(chunk)
                    target.write(chunk)
                os.fchmod(target.fileno(), 0o555 if executable else 0o444)
            name = f"{digest.hexdigest()}{'' if executable else '.plain'}"
            path = self._directory / name
            self._settle(temporary, path, size)
        with contextlib.suppress(OSError):
            os.utime(path)
        status = os.stat(path)
        return Stored(str(path), digest.hexdigest(), status.st_dev, status.st_ino)

    def _settle(self, temporary: str, path: Path, size: int) -> None:
        """Give the copy its name, unless somebody was first: a run may already stand on that
        inode, and a rename over it would take it away."""
        if self._intact(path, size):
            return
        try:
            os.link(temporary, path)
        except FileExistsError:
            if not self._intact(path, size):
                os.replace(temporary, path)

    @staticmethod
    def _intact(path: Path, size: int) -> bool:
        try:
            status = os.stat(path, follow_symlinks=False)
        except OSError:
            return False
        return stat.S_ISREG(status.st_mode) and status.st_size == size
