"""What did a hook leave in a directory that it could write?

The walls keep setuid bits, devices and file capabilities out of a granted directory (seccomp
refuses the modes, nodev and no-new-privileges the rest). This is the look that proves it after
each run with a ``write`` grant: whatever is found all the same is reported, with its path.

The walk goes by descriptor, follows no link (a hook may have made it), stays on its file system,
and is bounded: what it did not reach is said too.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Generator, Iterable, Iterator

from executor.job import Mount

MAX_ENTRIES = 20_000
MAX_FINDINGS = 20
_MAX_DEPTH = 64
_CAPABILITIES = "security.capability"
_KINDS = {
    stat.S_IFBLK: "a block device",
    stat.S_IFCHR: "a character device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFIFO: "a FIFO",
}


def residue(mounts: Iterable[Mount]) -> tuple[str, ...]:
    """Notes on what should not be in the writable mounts. Blocking; never raises OSError."""
    findings: list[str] = []
    left = MAX_ENTRIES
    for mount in mounts:
        if not mount.writable:
            continue
        for path, found in _walk(mount):
            left -= 1
            if found is not None and len(findings) < MAX_FINDINGS:
                findings.append(f"{path} is {found}; look at it before anything uses it")
            if left <= 0:
                findings.append(
                    f"{mount.source} holds more than {MAX_ENTRIES} entries; "
                    "the rest was not looked at for setuid bits and special files"
                )
                return tuple(findings)
    return tuple(findings)


def _walk(mount: Mount) -> Iterator[tuple[str, str | None]]:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(mount.source, flags)
    except OSError as failure:
        yield mount.source, f"unreadable ({failure.strerror})"
        return
    if os.fstat(descriptor).st_ino != mount.inode:
        os.close(descriptor)
        yield mount.source, "not the directory that was granted (it was replaced meanwhile)"
        return
    with contextlib.closing(_below(descriptor, mount.source, mount.device, 0)) as entries:
        yield from entries


def _below(
    descriptor: int, path: str, device: int, depth: int
) -> Generator[tuple[str, str | None], None, None]:
    """Takes the descriptor."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.scandir(descriptor) as entries:
            for entry in entries:
                place = f"{path}/{entry.name}"
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                yield place, _suspicion(descriptor, entry.name, status)
                if not stat.S_ISDIR(status.st_mode) or status.st_dev != device:
                    continue
                if depth >= _MAX_DEPTH:
                    yield place, "deeper than this looks"
                    continue
                try:
                    below = os.open(entry.name, flags, dir_fd=descriptor)
                except OSError as failure:
                    yield place, f"a directory that cannot be looked into ({failure.strerror})"
                    continue
                yield from _below(below, place, device, depth + 1)
    finally:
        os.close(descriptor)


def _suspicion(directory: int, name: str, status: os.stat_result) -> str | None:
    kind = _KINDS.get(stat.S_IFMT(status.st_mode))
    if kind is not None:
        return kind
    if not stat.S_ISREG(status.st_mode):
        return None
    if status.st_mode & (stat.S_ISUID | stat.S_ISGID):
        return "a file with a setuid or setgid bit"
    with contextlib.suppress(OSError):
        os.getxattr(f"/proc/self/fd/{directory}/{name}", _CAPABILITIES, follow_symlinks=False)
        return "a file with capabilities"
    return None
