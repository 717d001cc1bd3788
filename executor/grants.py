"""Which paths may a policy grant at all?

The rules of SPEC section 3 (Writing) that need no disk. They are asked twice: of the words in a
policy, and by ``resolve`` of the real path that the words lead to.

Rules for editors: a grant is refused for what it *is below* and for what it *holds*: whoever can
write a directory can rename what is in it, so a read-only mount on a protected name inside would
protect nothing.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

from executor.admission import PROTECTED_NAMES, leaves

KERNEL = ("/proc", "/sys", "/dev")
SOCKETS = ("/run", "/var/run")
"""Pathname sockets work through read-only binds and across network namespaces."""
SYSTEM = ("/usr", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/boot")
KEEPERS = (
    "/var/spool/cron",
    "/var/lib/docker",
    "/var/lib/containers",
    "/var/lib/containerd",
    "/var/lib/systemd",
)
"""Whoever writes here runs code outside of the sandbox."""

_BAD_CHARACTER = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_MAX_CHARACTERS = 4096


def path_fault(path: str) -> str | None:
    """Why this text is no path that a policy could name, or ``None``."""
    if not path:
        return "is empty"
    if len(path) >= _MAX_CHARACTERS:
        return f"is longer than {_MAX_CHARACTERS - 1} characters"
    if _BAD_CHARACTER.search(path):
        return "holds NUL, control characters or lone surrogates"
    if path.startswith("~"):
        return "starts with ~, which nothing expands: write the whole path"
    if path.startswith("/") and ".." in path.split("/"):
        return "holds ..: write the path that is meant"
    if leaves(path):
        return "leaves the workspace by ..: write the absolute path if that is meant"
    return None


def grant_fault(
    path: str, *, workspace: str, protected: Sequence[str], writable: bool = True
) -> str | None:
    """Why the path must not be granted, or ``None``.

    Paths are absolute or relative to ``workspace`` ("" where there is none yet: then the rules
    about it do not apply). ``protected`` are paths that a grant may neither hold nor be inside of:
    the configuration, the executor's state, commands of hooks. The message continues the sentence
    "this path …".
    """
    if (fault := path_fault(path)) is not None:
        return fault
    place = _absolute(path, workspace)
    fault = _place_fault(place)
    if fault is None and writable:
        fault = _writable_fault(place, workspace)
    if fault is None:
        for one in protected:
            if _meets(place, _absolute(one, workspace)):
                return f"is, holds or lies in {one}, which is protected"
    return fault


def inside(path: str, directory: str) -> bool:
    """Whether ``path`` is ``directory`` or lies below it. Both are normalised, of one kind."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _place_fault(place: str) -> str | None:
    """What may not even be shown."""
    if place == "/":
        return "is the whole file system: name what is needed"
    for one in KERNEL:
        if inside(place, one):
            return f"lies in {one}, which belongs to the kernel: the sandbox has its own"
    for one in SOCKETS:
        if _meets(place, one):
            return f"holds or lies in {one}, where the sockets of services are"
    if place == "/tmp":  # noqa: S108  (nothing is written there)
        return "is /tmp, which is private in the sandbox: name a directory in it"
    return None


def _writable_fault(place: str, workspace: str) -> str | None:
    for one in SYSTEM:
        if inside(place, one):
            return f"lies in {one}, which belongs to the system"
    for one in KEEPERS:
        if _meets(place, one):
            return f"holds or lies in {one}, from where the host runs programs"
    if place == "/home":
        return "holds the homes of all users: name what is needed"
    if ".git" in place.split("/"):
        return "lies in .git, whose hooks run outside of the sandbox"
    if not workspace:
        return None
    if inside(workspace, place):
        return "is or holds the workspace, which is never writable: name a directory in it"
    for name in PROTECTED_NAMES:
        if inside(place, posixpath.join(workspace, name)):
            return f"is or lies in {name}, which decides what runs"
    return None


def _absolute(path: str, workspace: str) -> str:
    whole = posixpath.normpath(posixpath.join("/", workspace, path))
    return "/" + whole.lstrip("/")


def _meets(one: str, other: str) -> bool:
    return inside(one, other) or inside(other, one)
