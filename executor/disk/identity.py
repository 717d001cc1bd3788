"""Who do hooks run as?

Never host root (SPEC section 3). An ordinary user's hooks run as that user. Root's run as the
workspace's owner, or, where that is root too, as a dedicated id: the configured one, the system
user ``hook-executor``, or a private id that no passwd or subuid entry covers.
"""

from __future__ import annotations

import os
import pwd
import struct
from pathlib import Path

from executor.errors import InvalidConfig
from executor.plan import Identity

SYSTEM_USER = "hook-executor"
_PRIVATE_IDS = range(2_113_000_000, 2_113_000_256)
"""Far above login, system, container and subordinate ranges, below 2**31."""

_ACL = "system.posix_acl_access"
_ACL_HEADER, _ACL_ENTRY = struct.Struct("<I"), struct.Struct("<HHI")
_ACL_USER, _ACL_GROUP_OBJECT, _ACL_GROUP, _ACL_MASK = 0x02, 0x04, 0x08, 0x10


def identity_for(owner: os.stat_result, configured: str) -> Identity:
    """The ids for hooks of a workspace with this owner; ``configured`` is ``[sandbox] uid``.

    Raises InvalidConfig where the configured id is unknown, or root.
    """
    if os.geteuid() != 0:
        return Identity(os.geteuid(), os.getegid())
    if owner.st_uid != 0:
        return Identity(owner.st_uid, owner.st_gid or _primary_group(owner.st_uid))
    if configured:
        return _configured(configured)
    try:
        entry = pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        private = _private_id()
        return Identity(private, private)
    if entry.pw_uid == 0:
        raise InvalidConfig(f'the system user "{SYSTEM_USER}" has uid 0; hooks never run as root')
    return Identity(entry.pw_uid, entry.pw_gid or entry.pw_uid)


def may(identity: Identity, descriptor: int, permission: int) -> bool:
    """Whether the identity alone, without any capability, has this permission (4 read, 2 write,
    1 search) on an open file or directory: owner, group, POSIX ACL, others (acl(5))."""
    status = os.fstat(descriptor)
    mode = status.st_mode
    if status.st_uid == identity.uid:
        return mode >> 6 & permission == permission
    entries = _acl(descriptor)
    if entries is not None:
        return _acl_grants(entries, identity, status.st_gid, mode, permission)
    if status.st_gid == identity.gid:
        return mode >> 3 & permission == permission
    return mode & permission == permission


def may_read(identity: Identity, descriptor: int, path: str) -> bool:
    """Whether the identity could have opened this file itself: its own permission, and the way
    there. ``path`` is where the descriptor stands."""
    if not may(identity, descriptor, 4):
        return False
    for parent in Path(path).parents:
        try:
            directory = os.open(parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            if not may(identity, directory, 1):
                return False
        finally:
            os.close(directory)
    return True


def _configured(name: str) -> Identity:
    if name.isdecimal():
        uid = int(name)
        gid = _primary_group(uid)
    else:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            raise InvalidConfig(f'[sandbox] uid: there is no user "{name}" here') from None
        uid, gid = entry.pw_uid, entry.pw_gid
    if uid == 0 or gid == 0 or uid >= 2**32 - 1:
        raise InvalidConfig("[sandbox] uid: hooks never run as root or in root's group")
    return Identity(uid, gid)


def _primary_group(uid: int) -> int:
    try:
        return pwd.getpwuid(uid).pw_gid or uid
    except KeyError:
        return uid


def _private_id() -> int:
    taken = {entry.pw_uid for entry in pwd.getpwall()}
    ranges = []
    for name in ("/etc/subuid", "/etc/subgid"):
        try:
            lines = Path(name).read_text(encoding="utf-8").splitlines()
        except OSError:
            continue
        for line in lines:
            _, _, numbers = line.partition(":")
            first, _, count = numbers.partition(":")
            if first.isdecimal() and count.isdecimal():
                ranges.append(range(int(first), int(first) + int(count)))
    for candidate in _PRIVATE_IDS:
        if candidate not in taken and not any(candidate in ids for ids in ranges):
            return candidate
    raise InvalidConfig("no private id is free; set [sandbox] uid in config.toml")


def _acl(descriptor: int) -> list[tuple[int, int, int]] | None:
    try:
        # The path form serves O_PATH descriptors, for which fgetxattr gives EBADF.
        raw = os.getxattr(f"/proc/self/fd/{descriptor}", _ACL)
    except OSError:
        return None
    return [_ACL_ENTRY.unpack_from(raw, at) for at in range(_ACL_HEADER.size, len(raw), 8)]


def _acl_grants(
    entries: list[tuple[int, int, int]], identity: Identity, group: int, mode: int, permission: int
) -> bool:
    mask = next((allowed for tag, allowed, _ in entries if tag == _ACL_MASK), 7)
    for tag, allowed, who in entries:
        if tag == _ACL_USER and who == identity.uid:
            return allowed & mask & permission == permission
    groups = [
        allowed
        for tag, allowed, who in entries
        if (tag == _ACL_GROUP and who == identity.gid)
        or (tag == _ACL_GROUP_OBJECT and group == identity.gid)
    ]
    if groups:
        return any(allowed & mask & permission == permission for allowed in groups)
    return mode & permission == permission
