"""Which files make up a workspace's configuration, and did one of them change?

A mark is what stat(2) says of a file, symlinks followed; equal marks mean that nothing needs to be
read. The directories to watch are those in which a change could show: the workspace, ``policies``
and ``plugins`` with their folders, and wherever a symlink of the configuration leads on its way
(Kubernetes swaps a link in the middle of it).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from executor.configuration import HOOKS_FILE, POLICIES_DIRECTORY, SETTINGS_FILE
from executor.disk.workspace import Workspace

PLUGINS = "plugins"
_MAX_STEPS = 1024
_MAX_FOLDERS = 256
_MAX_FILES = 4096
_TICK_NANOSECONDS = 50_000_000


@dataclass(frozen=True, slots=True)
class Mark:
    """One file as stat(2) sees it; ``path`` relative to the workspace."""

    path: str
    device: int
    inode: int
    mode: int
    owner: int
    size: int
    modified: int
    changed: int


Marks = Mapping[str, tuple[Mark, ...] | None]
"""The parts of the configuration; None where there is nothing."""


def marks_of(workspace: Workspace) -> Marks:
    """Blocking, some microseconds a file."""
    return {
        SETTINGS_FILE: _file(workspace, SETTINGS_FILE),
        HOOKS_FILE: _file(workspace, HOOKS_FILE),
        POLICIES_DIRECTORY: _tree(workspace, POLICIES_DIRECTORY, deeper=False),
        PLUGINS: _tree(workspace, PLUGINS, deeper=True),
    }


def settled(marks: Marks) -> bool:
    """Whether a later change would surely show in the marks, however coarse the clock is."""
    youngest = max((mark.changed for part in marks.values() for mark in part or ()), default=0)
    return time.time_ns() - youngest > _TICK_NANOSECONDS


def directories(workspace: Workspace) -> tuple[str, ...]:
    """Absolute paths of the directories to watch; all exist at this moment."""
    found = dict.fromkeys([workspace.path])
    for name in (SETTINGS_FILE, HOOKS_FILE, POLICIES_DIRECTORY, PLUGINS):
        found |= dict.fromkeys(_on_the_way(os.path.join(workspace.path, name)))
    for name, deeper in ((POLICIES_DIRECTORY, False), (PLUGINS, True)):
        place = os.path.join(workspace.path, name)
        if not os.path.isdir(place):
            continue
        found[os.path.realpath(place)] = None
        for entry in _entries(place):
            if entry.is_symlink():
                found |= dict.fromkeys(_on_the_way(entry.path))
            if deeper and entry.is_dir():
                found[os.path.realpath(entry.path)] = None
    return tuple(path for path in list(found)[:_MAX_FOLDERS] if os.path.isdir(path))


def _file(workspace: Workspace, name: str) -> tuple[Mark, ...] | None:
    mark = _mark(workspace, name)
    return None if mark is None else (mark,)


def _tree(workspace: Workspace, name: str, *, deeper: bool) -> tuple[Mark, ...] | None:
    top = _mark(workspace, name)
    if top is None:
        return None
    found = [top]
    for path in _below(os.path.join(workspace.path, name), deeper=deeper):
        mark = _mark(workspace, os.path.relpath(path, workspace.path))
        if mark is not None:
            found.append(mark)
        if len(found) > _MAX_FILES:
            break
    return tuple(sorted(found, key=lambda mark: mark.path))


def _below(place: str, *, deeper: bool) -> Iterator[str]:
    for entry in _entries(place):
        yield entry.path
        if deeper and entry.is_dir():
            yield from (below.path for below in _entries(entry.path))


def _entries(place: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(place) as entries:
            return list(entries)
    except OSError:
        return []


def _mark(workspace: Workspace, path: str) -> Mark | None:
    try:
        status = os.stat(path, dir_fd=workspace.descriptor)
    except OSError:
        return None
    return Mark(
        path,
        status.st_dev,
        status.st_ino,
        status.st_mode,
        status.st_uid,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def _on_the_way(path: str) -> Iterator[str]:
    """The directory of each link between a path and what it means."""
    here, ahead = "/", path.split("/")[::-1]
    for _ in range(_MAX_STEPS):
        if not ahead:
            return
        part = ahead.pop()
        if part == "..":
            here = os.path.dirname(here)
            continue
        if part in ("", "."):
            continue
        entry = os.path.join(here, part)
        try:
            target = os.readlink(entry)
        except OSError:
            here = entry
            continue
        yield here
        here = "/" if target.startswith("/") else here
        ahead += target.split("/")[::-1]
