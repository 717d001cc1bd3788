"""What does this machine hold, in the eyes of a hook?

The disk's side of ``explain``: answers for what is there now, asked by path and only to be told to
a person. What a run relies on is asked by ``resolve``, by descriptor.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from executor.admission import SAFE_PATH
from executor.disk.identity import may
from executor.grants import inside
from executor.plan import Identity

_HOST_TOPS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_READ, _WRITE, _SEARCH = 4, 2, 1
_SHEBANG_BYTES = 256


class HostLook:
    """``Look`` for one identity and one sandbox root.

    ``root`` is "/" for the host's own /usr, the unpacked root of an image, or None where nobody
    can look into it (an engine's own image).
    """

    def __init__(self, identity: Identity, root: Path | None) -> None:
        self._identity = identity
        self._root = root

    def kind(self, path: str) -> str | None:
        try:
            mode = os.stat(path).st_mode
        except (OSError, ValueError):
            return None
        if stat.S_ISREG(mode):
            return "file"
        return "directory" if stat.S_ISDIR(mode) else "other"

    def readable(self, path: str, below: str) -> bool:
        directories = [below] if below != path else []
        step = below
        for part in Path(path).relative_to(below).parts[:-1] if inside(path, below) else ():
            step = os.path.join(step, part)
            directories.append(step)
        wanted = _READ | _SEARCH if self.kind(path) == "directory" else _READ
        return all(self._may(one, _SEARCH) for one in directories) and self._may(path, wanted)

    def writable(self, path: str) -> bool:
        return self._may(path, _WRITE | _SEARCH)

    def ours(self, path: str) -> bool:
        parent = Path(path).parent
        while not parent.exists():
            parent = parent.parent
        return os.access(parent, os.W_OK | os.X_OK)

    def privileged(self) -> bool:
        return os.geteuid() == 0

    def interpreter(self, path: str) -> str | None:
        try:
            with Path(path).open("rb") as file:
                first = file.read(_SHEBANG_BYTES).split(b"\n", 1)[0]
        except OSError:
            return None
        if not first.startswith(b"#!"):
            return None
        words = first[2:].decode("utf-8", "replace").split()
        if len(words) > 1 and os.path.basename(words[0]) == "env":
            return next((word for word in words[1:] if not word.startswith("-")), words[0])
        return words[0] if words else None

    def offers(self, command: str) -> bool | None:
        if self._root is None:
            return None
        if "/" not in command:
            return any(self._has(f"{directory}/{command}") for directory in SAFE_PATH.split(":"))
        return self._has(command)

    def _has(self, path: str) -> bool:
        root = self._root or Path("/")
        if root == Path("/") and not any(inside(path, top) for top in _HOST_TOPS):
            return False
        # Links in an image's root may be absolute, and would be followed on the host: the name's
        # presence has to do.
        return os.path.lexists(root / path.lstrip("/"))

    def _may(self, path: str, permission: int) -> bool:
        try:
            with _seen(path) as descriptor:
                return may(self._identity, descriptor, permission)
        except OSError:
            return False


@contextmanager
def _seen(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
