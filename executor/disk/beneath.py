"""How is a path opened without ever leaving a directory?

openat2(2) with RESOLVE_BENEATH resolves the whole path in the kernel, in one step, so that no
swap of a component between a check and its use can lead outside (openat2(2), "RESOLVE_BENEATH").
Python has no wrapper for it. Where the kernel lacks it (before 5.6) we refuse; a check in user
space would be a race.
"""

from __future__ import annotations

import ctypes
import errno
import os

from executor.errors import Unavailable

_SYS_OPENAT2 = 437  # the same number on every architecture (all calls since Linux 5.1)
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_ATTEMPTS = 16


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


_libc = ctypes.CDLL(None, use_errno=True)


def open_beneath(directory_fd: int, path: str, flags: int) -> int:
    """Open ``path`` (relative) below the directory; a new descriptor, close-on-exec.

    Raises OSError: EXDEV where the path would leave the directory, ELOOP for a magic link.
    """
    return _openat2(directory_fd, path, flags, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)


def open_unlinked(directory_fd: int, path: str, flags: int) -> int:
    """As ``open_beneath``, with no symbolic link on the way (ELOOP): a hook may have made it."""
    return _openat2(directory_fd, path, flags, _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS)


def open_plain(path: str, flags: int) -> int:
    """Open an absolute path that may contain links, but no magic links (/proc/<pid>/fd/…)."""
    return _openat2(-100, path, flags, _RESOLVE_NO_MAGICLINKS)


def real_path(descriptor: int) -> str:
    """Where an open file or directory stands now, as the kernel tells it."""
    return os.readlink(f"/proc/self/fd/{descriptor}")


def _openat2(directory_fd: int, path: str, flags: int, resolve: int) -> int:
    how = _OpenHow(flags=flags | os.O_CLOEXEC, mode=0, resolve=resolve)
    name = os.fsencode(path)
    for _ in range(_ATTEMPTS):
        result = _libc.syscall(
            _SYS_OPENAT2, directory_fd, name, ctypes.byref(how), ctypes.sizeof(how)
        )
        if result >= 0:
            return int(result)
        code = ctypes.get_errno()
        if code == errno.ENOSYS:
            raise Unavailable(
                "the kernel has no openat2 (Linux 5.6), so paths cannot be confined",
                remedy="run on Linux 5.6 or newer",
            )
        # EAGAIN: a rename somewhere made the kernel unsure that ".." stayed beneath; try again.
        if code not in (errno.EAGAIN, errno.EINTR):
            raise OSError(code, os.strerror(code), path)
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
