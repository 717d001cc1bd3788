"""What does a worker give up before it meets a guest?

wasmtime is the wall; these are the ones behind it, for the day it has a hole. A worker is one
process that needs no network, no file but what it was handed, no other process and no identity. In
this order: its user, its namespaces, its files (Landlock), its system calls (the filter that hooks
have), its memory. What this kernel refuses is reported and not fatal: SPEC section 4 rests on
wasmtime, and a report must say which of the others are in force.

Rules for editors: everything that is imported lazily must have been imported before, for no file
can be opened afterwards; and there must be one thread only (unshare(2), landlock(7)).
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP = 1, 4, 38, 22
SECCOMP_MODE_FILTER = 2
SIGKILL = 9
CLONE_NEWUSER, CLONE_NEWNET, CLONE_NEWIPC, CLONE_NEWUTS = (
    0x10000000,
    0x40000000,
    0x08000000,
    0x04000000,
)
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_LANDLOCK_VERSION = 1
_LANDLOCK_BENEATH = 1
_FS_READ = 1 << 2 | 1 << 3
"""READ_FILE and READ_DIR of landlock(7)."""
_FS_WRITE = _FS_READ | 1 << 1 | sum(1 << bit for bit in (4, 5, 7, 8, 12))
"""And WRITE_FILE, REMOVE_DIR, REMOVE_FILE, MAKE_DIR, MAKE_REG, MAKE_SYM: no devices, no sockets."""
_FS_RIGHTS_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_TRUNCATE_ABI, _REFER_ABI, _SCOPE_ABI = 3, 2, 6
_NET_ABI = 4
_IOCTL_DEV_BIT = 15

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Opened:
    """A directory that is open here: what a guest may reach."""

    descriptor: int
    writable: bool


@dataclass(frozen=True, slots=True)
class Orders:
    """What the executor tells a worker to give up."""

    uid: int
    gid: int
    data_bytes: int
    open_files: int
    seccomp: bytes
    directories: Sequence[Opened] = ()
    readable: Sequence[int] = ()
    with_parent: bool = True
    """End with the thread that started it: not where that thread is one of a pool."""


def confine(orders: Orders) -> list[str]:
    """Give it up. What could not be, each with its reason; empty where all is in force."""
    steps: tuple[tuple[str, Callable[[], None]], ...] = (
        ("limits", lambda: _limits(orders)),
        ("network", lambda: _namespaces(orders)),
        ("files", lambda: _landlock(orders)),
        ("system calls", lambda: _seccomp(orders.seccomp)),
    )
    missing = []
    for name, step in steps:
        try:
            step()
        except OSError as failure:
            missing.append(f"{name}: {failure.strerror or failure}")
    return missing


def _limits(orders: Orders) -> None:
    for kind, limit in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_DATA, orders.data_bytes),
        (resource.RLIMIT_NOFILE, orders.open_files),
    ):
        hard = resource.getrlimit(kind)[1]
        value = limit if hard < 0 else min(limit, hard)
        resource.setrlimit(kind, (value, value))


def _namespaces(orders: Orders) -> None:
    """A network without even a loopback that is up; root then becomes somebody else for good."""
    spaces = CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS
    if os.geteuid() == 0:
        failure = _attempt(_libc.unshare, spaces)
        os.setgroups([])
        os.setresgid(orders.gid, orders.gid, orders.gid)
        os.setresuid(orders.uid, orders.uid, orders.uid)
    else:
        failure = _attempt(_libc.unshare, CLONE_NEWUSER | spaces)
    # A change of identity resets the first two (prctl(2)).
    _prctl(PR_SET_DUMPABLE, 0)
    if orders.with_parent:
        _prctl(PR_SET_PDEATHSIG, SIGKILL)
    _prctl(PR_SET_NO_NEW_PRIVS, 1)
    if failure is not None:
        raise failure


def _landlock(orders: Orders) -> None:
    version = _call(_LANDLOCK_CREATE, None, 0, _LANDLOCK_VERSION)
    rights = (1 << _FS_RIGHTS_BY_ABI.get(version, 16)) - 1
    network = 0b11 if version >= _NET_ABI else 0
    scope = 0b11 if version >= _SCOPE_ABI else 0
    attributes = struct.pack("=QQQ", rights, network, scope)
    size = 24 if version >= _SCOPE_ABI else 16 if version >= _NET_ABI else 8
    ruleset = _call(_LANDLOCK_CREATE, ctypes.c_char_p(attributes), size, 0)
    try:
        written = _FS_WRITE
        if version >= _TRUNCATE_ABI:
            written |= 1 << 14
        rules = [
            (one.descriptor, written if one.writable else _FS_READ) for one in orders.directories
        ]
        rules += [(descriptor, _FS_READ) for descriptor in orders.readable]
        for descriptor, allowed in rules:
            rule = struct.pack("=Qi", allowed & rights, descriptor)
            _call(_LANDLOCK_ADD, ruleset, _LANDLOCK_BENEATH, ctypes.c_char_p(rule), 0)
        _prctl(PR_SET_NO_NEW_PRIVS, 1)
        _call(_LANDLOCK_RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)


def _seccomp(program: bytes) -> None:
    """Install a compiled filter (struct sock_filter[]), as seccomp(2) wants it."""
    if not program:
        raise OSError(0, f"there is no filter for {platform.machine()}")
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    _prctl(PR_SET_NO_NEW_PRIVS, 1)
    _prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.c_char_p(header))


def _prctl(option: int, *arguments: object) -> None:
    failure = _attempt(_libc.prctl, option, *arguments, *([0] * (4 - len(arguments))))
    if failure is not None:
        raise failure


def _attempt(function: Callable[..., int], *arguments: object) -> OSError | None:
    converted = [ctypes.c_ulong(one) if isinstance(one, int) else one for one in arguments]
    if function(*converted) < 0:
        code = ctypes.get_errno()
        return OSError(code, os.strerror(code))
    return None


def _call(number: int, *arguments: object) -> int:
    converted = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    result = int(_libc.syscall(ctypes.c_long(number), *converted))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
