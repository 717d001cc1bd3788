"""What do executors leave on this host? Everything that belongs to one state directory.

Looked for in what the kernel and the engine say, not in what the executor believes: processes,
cgroups, mounts, containers, and the files that exist only while somebody works.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from executor.backends.docker_body import LABEL_INSTANCE
from executor.backends.docker_engine import Engine
from executor.disk import scratch
from executor.disk.instance import Instance

END_SECONDS = 20.0
"""Within this, whatever belonged to a process that was killed has ended by itself."""
ENGINE_SECONDS = 60.0
"""The same in a container: the engine has to notice, too."""


class Traces:
    """What there is of the executors with this state directory (XDG_STATE_HOME).

    ``mark`` is a word that stands in the command line of every hook of theirs.
    """

    def __init__(self, state: Path, mark: str, engine: Engine | None = None) -> None:
        self._state = state
        self._mark = mark.encode()
        self._engine = engine
        directory = state / "hook-executor" / "instances"
        instance = Instance.open(directory)
        self.realm = instance.realm
        instance.close()

    def processes(self) -> dict[int, str]:
        """Hooks and cells of theirs, by host pid."""
        return dict(self._processes())

    def left(self) -> list[str]:
        """Everything that should not be there when no executor runs."""
        return [
            *(f"process {pid}: {words}" for pid, words in self._processes()),
            *(f"cgroup {path}" for path in self._cgroups()),
            *(f"mount {line}" for line in self._mounts()),
            *(f"file {path}" for path in self._files()),
            *(f"container {name}" for name in self.containers()),
        ]

    def containers(self) -> list[str]:
        """Names and states of their containers."""
        if self._engine is None:
            return []
        return [
            f"{found['Names'][0]} {found['State']}"
            for found in self._engine.labelled(LABEL_INSTANCE)
            if found["Labels"][LABEL_INSTANCE].startswith(f"{self.realm}-")
        ]

    def await_end(self, seconds: float = END_SECONDS) -> list[str]:
        """Until no process of theirs is left, or so long; those that are."""
        deadline = time.monotonic() + seconds
        while (found := self.processes()) and time.monotonic() < deadline:
            await_exit(next(iter(found)), deadline)
        return [f"process {pid}: {words}" for pid, words in found.items()]

    def _processes(self) -> Iterator[tuple[int, str]]:
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes()
                groups = (entry / "cgroup").read_text()
                own = int(entry.name) == os.getpid()
                if not own and (self._mark in words or self.realm in groups):
                    text = words.replace(b"\0", b" ").decode(errors="replace").strip()
                    yield int(entry.name), text or "(ending)"

    def _cgroups(self) -> Iterator[str]:
        for directory, names, _ in os.walk("/sys/fs/cgroup"):
            yield from (f"{directory}/{name}" for name in names if self.realm in name)

    def _mounts(self) -> Iterator[str]:
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            if str(self._state) in line:
                yield line

    def _files(self) -> Iterator[str]:
        for pattern in (f"{self.realm}-*.lock", f"{scratch.PREFIX}*"):
            yield from map(str, self._state.rglob(pattern))


def await_exit(pid: int, deadline: float) -> bool:
    """Until a process has ended (its status may not be taken yet); False at the deadline."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        left = max(0.0, deadline - time.monotonic())
        return bool(select.select([descriptor], [], [], left)[0])
    finally:
        os.close(descriptor)


def eventually(holds: Callable[[], bool], seconds: float) -> bool:
    """Ask until it holds, at most so long. For what tells nobody that it has changed."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
