"""Which other ways lead to files that nobody may write?

A path rule protects a name. The same file may have others: the name is a symbolic link, and its
target lies elsewhere; or a hard link gave it a second name. Both were made by somebody outside of
the sandbox (a hook's grant is a mount of its own, and no link crosses mounts), and both would let
a hook that may write there change the file.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator


def real_places(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(path, where it really is) of those that a link leads elsewhere."""
    for path in paths:
        real = os.path.realpath(path)
        if real != path:
            yield path, real


def with_second_names(paths: Iterable[str]) -> Iterator[str]:
    """The regular files among them, and directly in the directories among them, with hard links."""
    for path in paths:
        with contextlib.suppress(OSError):
            status = os.stat(path)
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                yield path
            elif stat.S_ISDIR(status.st_mode):
                yield from _in(path)


def _in(directory: str) -> Iterator[str]:
    with os.scandir(directory) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                    yield entry.path
