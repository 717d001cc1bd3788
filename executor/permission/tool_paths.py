"""Does a rule's path pattern mean the file that a tool is to touch?

Pure text: relative paths are the workspace's, ``~`` is the home directory, ``..``, ``.`` and
repeated slashes go away. Symbolic links are *not* resolved (the answer would be stale before the
tool runs, and this module does no I/O): only the tool's own sandbox can keep it from being led
elsewhere. Because ``link/..`` may be anywhere, an allow rule never vouches for a path with ``..``
after a name.

In patterns ``*`` stands for any characters, ``/`` included; ``**/`` for any directories or none.
Deny and ask rules are read generously: what lies below a denied path is denied too.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass

from executor.globs import glob_matches

PATH_FIELDS = (
    *("path", "file_path", "filePath", "filepath", "filename", "file", "absolute_path"),
    *("notebook_path", "target_file", "directory", "dir", "paths", "files"),
    *("source", "destination", "old_path", "new_path"),
)
"""The fields of a tool's input that hold paths; a list of paths counts for each."""


@dataclass(frozen=True, slots=True)
class ToolPath:
    """A path as a tool was given it, made absolute. ``certain``: no ``..`` after a name."""

    text: str
    certain: bool


@dataclass(frozen=True, slots=True)
class Ground:
    """Where relative paths and ``~`` begin; both absolute, ``home`` empty where not known."""

    workspace: str
    home: str = ""


def paths_of(tool_input: Mapping[str, object], ground: Ground) -> tuple[ToolPath | None, ...]:
    """Every path in the input; ``None`` stands for one that cannot be read as a path."""
    found: list[ToolPath | None] = []
    for field in PATH_FIELDS:
        value = tool_input.get(field)
        if value is None:
            continue
        found += (
            absolute(one, ground) if isinstance(one, str) and one else None
            for one in (value if isinstance(value, (list, tuple)) else (value,))
        )
    return tuple(found)


def absolute(path: str, ground: Ground) -> ToolPath | None:
    """The path from the root, or ``None`` where text alone cannot say it."""
    if "\x00" in path:
        return None
    if path.startswith("~"):
        if path != "~" and not path.startswith("~/"):
            return None
        if not ground.home:
            return None
        path = ground.home + path[1:]
    names = [part for part in path.split("/") if part not in ("", ".")]
    leading = 0
    while leading < len(names) and names[leading] == "..":
        leading += 1
    certain = ".." not in names[leading:]
    full = posixpath.normpath(posixpath.join(ground.workspace, path))
    return ToolPath("/" + full.lstrip("/"), certain)


class PathPattern:
    """One compiled pattern. ``prefix`` begins every path that it can match, ``piece`` is in it."""

    def __init__(self, text: str, ground: Ground) -> None:
        if text.startswith("~/") and ground.home:
            text = ground.home + text[1:]
        if not text.startswith(("/", "*")):
            text = f"{ground.workspace.rstrip('/')}/{text.removeprefix('./')}"
        elif text.startswith("*"):
            text = f"{ground.workspace.rstrip('/')}/{text}"
        text = _tidied(text)
        wide = text.replace("**/", "*/").replace("**", "*")
        narrow = text.replace("**/", "").replace("**", "*")
        self._patterns = tuple(dict.fromkeys((wide, narrow)))
        generous = [*self._patterns, *(one.rstrip("/") + "/*" for one in self._patterns)]
        generous += [one.removesuffix("/*") for one in self._patterns if len(one) > 2]
        self._generous = tuple(dict.fromkeys(one for one in generous if one))
        self.piece = next(
            (one for part in reversed(wide.split("*")) if (one := part.strip("/"))), ""
        )
        self.prefix = posixpath.commonprefix([one.split("*")[0] for one in self._generous])

    def strictly(self, path: ToolPath) -> bool:
        """Whether an allow rule with this pattern vouches for the path."""
        return path.certain and any(glob_matches(one, path.text) for one in self._patterns)

    def generously(self, path: ToolPath) -> bool:
        """Whether a deny or ask rule with this pattern is about the path."""
        return any(glob_matches(one, path.text) for one in self._generous)


def _tidied(pattern: str) -> str:
    """Without ``..``, ``.`` and repeated slashes; stars are names like others here."""
    return "/" + posixpath.normpath(pattern).lstrip("/")
