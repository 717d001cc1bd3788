"""What does a plugin get, of what it asks for?

The intersection of its manifest and the policy that is bound to it (SPEC section 4). The policy's
directories come as ``Mount``: ``resolve`` has looked at each, by descriptor, as for a shell hook.
Pure: what a required permission lacks is a reason to refuse, what an optional one lacks is a note.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass

from executor.grants import inside
from executor.job import Mount
from executor.plugin_job import Granted
from executor.plugin_model import UNSUPPORTED, PermissionsSection

READ, WRITE = "filesystem-read", "filesystem-write"
FILESYSTEM = frozenset({"filesystem", READ, WRITE})


@dataclass(frozen=True, slots=True)
class Permitted:
    """``faults``: why it cannot run under this policy. ``notes``: what it asked for in vain."""

    directories: tuple[Granted, ...]
    environment: bool
    faults: tuple[str, ...]
    notes: tuple[str, ...]


def permitted(
    asked: PermissionsSection, mounts: Sequence[Mount], *, workspace: str, policy: str
) -> Permitted:
    """What is asked for and granted. ``mounts`` are the policy's grants, the workspace included."""
    faults: list[str] = []
    notes: list[str] = []
    for name in dict.fromkeys((*asked.required, *asked.optional)):
        if name in UNSUPPORTED:
            wanted = faults if name in asked.required else notes
            wanted.append(f'the permission "{name}" is not supported: {UNSUPPORTED[name]}')
    names = {*asked.required, *asked.optional}
    directories: list[Granted] = []
    if names & FILESYSTEM:
        lacking = faults if FILESYSTEM & set(asked.required) else notes
        if not asked.filesystem_allowlist:
            lacking.append("asks for files, and names no directory in filesystem_allowlist")
        for path in asked.filesystem_allowlist:
            place = posixpath.normpath(posixpath.join(workspace, path))
            found = _common(place, mounts, writable=WRITE in names)
            directories += found
            if not found:
                key = "write" if WRITE in names else "read"
                lacking.append(
                    f'asks for {place}, which policy "{policy}" does not grant: add it to '
                    f"filesystem.{key} of a policy, and bind the plugin to that"
                )
    unique = {one.path: one for one in directories}
    return Permitted(tuple(unique.values()), "env" in names, tuple(faults), tuple(notes))


def _common(place: str, mounts: Sequence[Mount], *, writable: bool) -> list[Granted]:
    """Where request and grants meet: the request below a grant, else the grants below it.

    For a request to write only writable grants count; one to read gets a writable one read-only.
    """
    usable = [mount for mount in mounts if mount.directory and (mount.writable or not writable)]
    covering = [mount for mount in usable if inside(place, mount.target)]
    if covering:
        nearest = max(covering, key=lambda mount: len(mount.target))
        below = posixpath.relpath(place, nearest.target)
        return [_granted(nearest, place, "" if below == "." else below, writable=writable)]
    return [
        _granted(mount, mount.target, "", writable=writable)
        for mount in usable
        if inside(mount.target, place)
    ]


def _granted(mount: Mount, path: str, below: str, *, writable: bool) -> Granted:
    return Granted(path, mount.source, below, mount.device, mount.inode, writable)
