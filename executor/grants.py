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
from collections.abc import Callable, Sequence

from executor.admission import PROTECTED_NAMES, leaves

KERNEL = ("/proc", "/sys", "/dev")
SOCKETS = ("/run", "/var/run")
SYSTEM = ("/usr", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/boot")
KEEPERS = (
    "/var/spool/cron",
    "/var/lib/docker",
    "/var/lib/containers",
    "/var/lib/containerd",
    "/var/lib/systemd",
)

_BAD_CHARACTER = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_MAX_CHARACTERS = 4096


def path_fault(path: str) -> str | None:
    """Why this text is no path that a policy could name, or ``None``."""
    for wrong, message in (
        (not path, "is empty"),
        (len(path) >= _MAX_CHARACTERS, f"is longer than {_MAX_CHARACTERS - 1} characters"),
        (_BAD_CHARACTER.search(path), "holds NUL, control characters or lone surrogates"),
        (path.startswith("~"), "starts with ~, which nothing expands: write the whole path"),
        (
            path.startswith("/") and ".." in path.split("/"),
            "holds ..: write the path that is meant",
        ),
        (leaves(path), "leaves the workspace by ..: write the absolute path if that is meant"),
    ):
        if wrong:
            return message
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
    fault = _place_fault(place, writable=writable)
    if fault is None and writable:
        fault = _workspace_fault(place, workspace)
    if fault is not None:
        return fault
    for one in protected:
        if _meets(place, _absolute(one, workspace)):
            return f"is, holds or lies in {one}, which is protected"
    return None


def inside(path: str, directory: str) -> bool:
    """Whether ``path`` is ``directory`` or lies below it. Both are normalised, of one kind."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _place_fault(place: str, *, writable: bool) -> str | None:
    if place in _EXACT:
        return _EXACT[place]
    for paths, meets, message in (*_NEVER_SHOWN, *(_NEVER_WRITTEN if writable else ())):
        for one in paths:
            if meets(place, one):
                return message.format(one)
    return None


def _workspace_fault(place: str, workspace: str) -> str | None:
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


_Rule = tuple[tuple[str, ...], Callable[[str, str], bool], str]

_EXACT = {
    "/": "is the whole file system: name what is needed",
    "/tmp": "is /tmp, which is private in the sandbox: name a directory in it",  # noqa: S108
    "/home": "holds the homes of all users: name what is needed",
}
_NEVER_SHOWN: tuple[_Rule, ...] = (
    (KERNEL, inside, "lies in {}, which belongs to the kernel: the sandbox has its own"),
    # Pathname sockets work through read-only binds and across network namespaces.
    (SOCKETS, _meets, "holds or lies in {}, where the sockets of services are"),
)
_NEVER_WRITTEN: tuple[_Rule, ...] = (
    (SYSTEM, inside, "lies in {}, which belongs to the system"),
    (KEEPERS, _meets, "holds or lies in {}, from where the host runs programs"),
)
