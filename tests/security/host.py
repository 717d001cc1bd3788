"""What of a run is on the host, before and after?

A snapshot of everything that a run of ours could leave: containers and cgroups that carry the
executor's instance, processes that carry our mark or the user's id, mounts at our places, files.
Taken of one test's own, so that other executors on the machine do not disturb it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

from executor.backends.docker_body import LABEL_INSTANCE
from executor.backends.docker_engine import Engine
from executor.disk.instance import _realm

PATIENCE_SECONDS = 1.0
"""SPEC: after the end, whatever it was, nothing stays."""
ENGINE_PATIENCE_SECONDS = 20.0
"""A container is deleted by the engine, in its own time."""


@dataclass(frozen=True, slots=True)
class HostState:
    """Names of what is there."""

    containers: frozenset[str]
    cgroups: frozenset[str]
    processes: frozenset[str]
    mounts: frozenset[str]
    files: frozenset[str]

    def beyond(self, before: HostState) -> list[str]:
        """What is there now and was not, or is not any more."""
        return [
            f"{field.name}: {sign}{name}"
            for field in fields(self)
            for sign, names in (
                ("+", getattr(self, field.name) - getattr(before, field.name)),
                ("-", getattr(before, field.name) - getattr(self, field.name)),
            )
            for name in sorted(names)
        ]


@dataclass(frozen=True, slots=True)
class Watch:
    """Whose traces are looked for.

    ``state_home`` is the executor's XDG_STATE_HOME, ``places`` the directories whose files count,
    but for those in ``granted``; ``mark`` stands in the environment of every hook, ``uid`` belongs
    to this test alone.
    """

    state_home: Path
    places: tuple[Path, ...]
    mark: str
    uid: int | None
    granted: Path
    engine: bool

    def host_state(self) -> HostState:
        """Look now."""
        realm = self._realm()
        return HostState(
            containers=frozenset(_containers(realm) if self.engine else ()),
            cgroups=frozenset(_cgroups(realm)),
            processes=frozenset(self._processes(realm)),
            mounts=frozenset(self._mounts()),
            files=frozenset(self._files()),
        )

    def settled(self, before: HostState) -> list[str]:
        """What differs from ``before`` when the patience is over; usually nothing."""
        seconds = ENGINE_PATIENCE_SECONDS if self.engine else PATIENCE_SECONDS
        left: list[str] = []

        def nothing_is_left() -> bool:
            left[:] = self.host_state().beyond(before)
            return not left

        eventually(nothing_is_left, seconds)
        return left

    def _realm(self) -> str:
        place = self.state_home / "hook-executor" / "instances"
        if not place.is_dir():
            return "no executor yet"
        # The realm is a name for this directory; whose it is does not matter to it.
        status = place.stat()
        if status.st_uid == os.geteuid():
            return _realm(place)
        machine = _machine()
        text = f"{machine}:{status.st_dev}:{status.st_ino}"
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    def _processes(self, realm: str) -> Iterator[str]:
        own = {os.getpid(), os.getppid()}
        for entry in os.scandir("/proc"):
            if not entry.name.isdigit() or int(entry.name) in own:
                continue
            with contextlib.suppress(OSError):
                if (seen := self._ours(Path(entry.path), realm)) is not None:
                    yield seen

    def _ours(self, process: Path, realm: str) -> str | None:
        status = dict(
            line.split(":\t", 1) for line in (process / "status").read_text().splitlines()
        )
        if status["State"].startswith("Z") and status["PPid"] == "1":
            return None  # ended; the machine's first process takes its time
        ours = self.uid is not None and str(self.uid) in status["Uid"].split()
        ours = ours or realm in (process / "cgroup").read_text()
        if not ours and self.mark.encode() not in (process / "environ").read_bytes():
            return None
        command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        told = f"{status['State']}, parent {status['PPid']}, {command}"
        return f"{status['Name']} {process.name} ({told})"

    def _mounts(self) -> Iterator[str]:
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            if any(str(place) in line for place in (*self.places, self.state_home)):
                yield line

    def _files(self) -> Iterator[str]:
        for place in self.places:
            yield from tree(place, but=self.granted)
        # What an executor keeps is its own business; locks and payloads end with it.
        yield from (
            line
            for line in tree(self.state_home)
            if "/instances/" in line or "payload" in line.partition(" ")[0]
        )


def _machine() -> str:
    try:
        return Path("/etc/machine-id").read_text().strip() or os.uname().nodename
    except OSError:
        return os.uname().nodename


def tree(top: Path, *, but: Path | None = None) -> Iterator[str]:
    """Every entry below: its name, kind, mode, owner and bytes; nothing below ``but``."""
    for directory, names, files in os.walk(top):
        if Path(directory) == but:
            names.clear()
            continue
        for name in [*names, *files]:
            path = Path(directory) / name
            with contextlib.suppress(FileNotFoundError):
                status = path.lstat()
                kind, seen = _contents(path, status)
                yield f"{path} {kind} {stat.S_IMODE(status.st_mode):o} {status.st_uid} {seen}"


def _contents(path: Path, status: os.stat_result) -> tuple[str, str]:
    if stat.S_ISDIR(status.st_mode):
        return "dir", ""
    if stat.S_ISLNK(status.st_mode):
        return "link", os.readlink(path)
    if stat.S_ISREG(status.st_mode):
        with path.open("rb") as file:
            return "file", hashlib.file_digest(file, "sha256").hexdigest()[:16]
    return "special", f"{status.st_mode:o} {status.st_rdev:x}"


@cache
def _engine() -> Engine:
    return Engine()


def _containers(realm: str) -> Iterator[str]:
    for document in _engine().labelled(LABEL_INSTANCE):
        instance = str(document["Labels"][LABEL_INSTANCE])
        if instance.startswith(f"{realm}-"):
            yield f"{document['Names'][0].lstrip('/')} {instance}"


def _cgroups(realm: str) -> Iterator[str]:
    for directory, names, _ in os.walk("/sys/fs/cgroup"):
        yield from (f"{directory}/{name}" for name in names if realm in name)


def eventually(holds: Callable[[], bool], seconds: float) -> bool:
    """Ask until it holds, at most so long; whether it does."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def as_json(value: object) -> str:
    """For the files that probes read."""
    return json.dumps(value, ensure_ascii=True)
