"""Where is the workspace?

Opened once, by descriptor: the boundary of everything that a hook may see comes from here, never
from a request.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from executor.disk.beneath import real_path
from executor.errors import InvalidConfig
from executor.grants import grant_fault


@dataclass(frozen=True, slots=True)
class Workspace:
    """The workspace, opened once: the boundary comes from here, never from a request."""

    path: str
    descriptor: int
    device: int
    inode: int

    @property
    def status(self) -> os.stat_result:
        return os.fstat(self.descriptor)

    def close(self) -> None:
        os.close(self.descriptor)


def open_workspace(directory: str | Path) -> Workspace:
    """Open a workspace directory. Raises InvalidConfig where there is none, or where its own
    path could not be shown to a hook."""
    try:
        descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as failure:
        raise InvalidConfig(f"the workspace {directory}: {failure.strerror}") from failure
    path = real_path(descriptor)
    fault = grant_fault(path, workspace="", protected=(), writable=False)
    if fault is not None:
        os.close(descriptor)
        raise InvalidConfig(f"the workspace {path}: {fault}")
    status = os.fstat(descriptor)
    return Workspace(path, descriptor, status.st_dev, status.st_ino)
