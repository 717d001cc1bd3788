"""Where are a run's memory, processes and cpu limited, and who counts them?

Theory of operation
-------------------
One leaf a run, below the executor's own cgroup (elsewhere it would escape its service's limit), in
every hierarchy that is of use: a version 1 hierarchy each for memory, pids and cpu where they are
mounted, else version 2. (A version 2 tree beside them would only offer ``cgroup.kill``: with PID 1
of its namespace the kernel ends every process of a run, and that one is in the leaf too.)
The leaf exists with all its limits before the first process is in it: the cell enters by itself
(``enter.c`` says how, and why so).

Version 2 allows no processes beside sub-cgroups with controllers: an executor that is alone in its
cgroup moves into a child of it, once. Where that is not possible, or nothing may be written, there
is no leaf, and the reason is kept for the report.

A leaf's name tells its instance, so that what a killed executor left can be swept.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from executor.cell.classify import Counters

PREFIX = "hook-executor-"
MAIN = f"{PREFIX}main"
CONTROLLERS = ("memory", "pids", "cpu")
PERIOD_MICROSECONDS = 100_000
_NAME = re.compile(rf"{PREFIX}(?P<instance>[0-9a-f]+-[0-9a-f]+)-[0-9a-z]+")
REMEDY = (
    "run it as a service with Delegate=yes, or: "
    "systemd-run --user --scope -p Delegate=yes hook-executor …"
)


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """Where leaves are made. ``legacy``: version 1 directories by controller. ``unified``: the
    version 2 directory, ``controllers`` what it can limit. ``lacking``: what nothing limits."""

    legacy: Mapping[str, str]
    unified: str
    controllers: frozenset[str]
    lacking: Mapping[str, str]

    @property
    def complete(self) -> bool:
        """Whether memory, pids and cpu can all be limited."""
        return not self.lacking

    @property
    def reason(self) -> str:
        """Why it is not complete."""
        return "; ".join(f"{name}: {why}" for name, why in self.lacking.items())


@dataclass(frozen=True, slots=True)
class Limit:
    """What one leaf holds its processes to; the cell is among them."""

    memory_bytes: int
    pids: int
    cpus: float


def discover(proc: Path = Path("/proc/self")) -> Hierarchies:
    """Look once, and make ready what version 2 needs."""
    groups = (proc / "cgroup").read_text(encoding="utf-8", errors="surrogateescape")
    mounts = (proc / "mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    places = dict(locate(groups, mounts))
    legacy = {
        name: places[name]
        for name in CONTROLLERS
        if name in places and os.access(places[name], os.W_OK)
    }
    wanted = frozenset(CONTROLLERS) - set(places)
    unified, controllers, why = "", frozenset[str](), "no cgroup file system is mounted"
    if "" in places and wanted:
        unified, controllers, why = _prepare(places[""], wanted)
    lacking = {
        name: why if name in wanted else f"{places[name]} may not be written"
        for name in CONTROLLERS
        if name not in legacy and name not in controllers
    }
    return Hierarchies(legacy, unified, controllers, lacking)


def locate(groups: str, mounts: str) -> Iterator[tuple[str, str]]:
    """Pure: (controller, directory), "" for version 2, of a ``/proc/self/cgroup``."""
    roots: dict[str, tuple[str, str]] = {}
    for line in mounts.splitlines():
        before, separator, after = line.partition(" - ")
        kind, _, options = after.partition(" ")
        root, place = before.split(" ")[3:5] if separator else ("", "")
        if kind == "cgroup2":
            roots.setdefault("", (root, place))
        elif kind == "cgroup":
            for option in options.partition(" ")[2].split(","):
                roots.setdefault(option, (root, place))
    for line in groups.splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            if name in roots and not path.startswith("/.."):
                root, place = roots[name]
                inside = path.removeprefix(root) if root != "/" else path
                yield name, os.path.normpath(f"{place}/{inside}")


def _prepare(own: str, wanted: frozenset[str]) -> tuple[str, frozenset[str], str]:
    """The version 2 directory below which leaves can be made, what it limits, else why not."""
    if os.path.basename(own) == MAIN:
        own = os.path.dirname(own)
    if not os.access(own, os.W_OK):
        return "", frozenset(), f"{own} may not be written"
    try:
        offered = wanted & set(_read(f"{own}/cgroup.controllers").split())
        missing = offered - set(_read(f"{own}/cgroup.subtree_control").split())
        if missing and os.path.exists(f"{own}/cgroup.type"):
            others = set(_read(f"{own}/cgroup.procs").split()) - {str(os.getpid())}
            if others:
                return "", frozenset(), f"{len(others)} other processes are in {own}"
            with contextlib.suppress(FileExistsError):
                os.mkdir(f"{own}/{MAIN}")
            _write(f"{own}/{MAIN}/cgroup.procs", str(os.getpid()))
        if missing:
            _write(f"{own}/cgroup.subtree_control", " ".join(f"+{name}" for name in missing))
    except OSError as error:
        return "", frozenset(), f"{own}: {error.strerror}"
    return (own if offered else ""), frozenset(offered), f"{own} does not offer it"


@dataclass(frozen=True, slots=True)
class Leaf:
    """One run's cgroup, in all its hierarchies. Small blocking calls, all below a millisecond."""

    legacy: Mapping[str, str]
    unified: str

    @classmethod
    def create(cls, where: Hierarchies, name: str, limit: Limit) -> Leaf:
        """Make it, with its limits. Raises OSError, and then leaves nothing."""
        self = cls(
            {key: f"{place}/{name}" for key, place in where.legacy.items()},
            f"{where.unified}/{name}" if where.unified else "",
        )
        try:
            for place in self._places():
                os.mkdir(place, 0o755)
            for key, place in self.legacy.items():
                _limit_legacy(key, place, limit)
            for key in where.controllers:
                _limit_unified(key, self.unified, limit)
        except OSError:
            self.remove()
            raise
        return self

    @property
    def tasks(self) -> tuple[str, ...]:
        """The version 1 files by which the cell enters."""
        return tuple(f"{place}/tasks" for place in self.legacy.values())

    @property
    def directories(self) -> Mapping[str, str]:
        """Controller → where its files are."""
        unified = dict.fromkeys(CONTROLLERS, self.unified) if self.unified else {}
        return unified | dict(self.legacy)

    def counters(self) -> Counters:
        """What the kernel counted so far. Read before the removal, or it is lost."""
        memory, pids = self.legacy.get("memory"), self.legacy.get("pids", self.unified)
        if memory is None:
            events, peak = f"{self.unified}/memory.events", f"{self.unified}/memory.peak"
        else:
            events, peak = f"{memory}/memory.oom_control", f"{memory}/memory.max_usage_in_bytes"
        return Counters(
            oom_kills=_keyed(events, "oom_kill"),
            pids_refused=_keyed(f"{pids}/pids.events", "max"),
            peak_memory_bytes=_number(peak),
        )

    def kill(self) -> None:
        """SIGKILL to everything in it."""
        try:
            _write(f"{self.unified}/cgroup.kill", "1")
        except OSError:  # before Linux 5.14, or no version 2
            for pid in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def processes(self) -> frozenset[int]:
        """Who is in it, as the host counts."""
        found: set[int] = set()
        for place in self._places():
            with contextlib.suppress(OSError):
                found |= {int(line) for line in _read(f"{place}/cgroup.procs").split()}
        return frozenset(found - {0})

    def remove(self) -> bool:
        """Try once; False while a process is still in it."""
        gone = True
        for place in self._places():
            try:
                os.rmdir(place)
            except FileNotFoundError:
                continue
            except OSError:
                gone = False
        return gone

    def _places(self) -> Iterator[str]:
        yield from self.legacy.values()
        if self.unified:
            yield self.unified


def leaf_name(instance: str, run: str) -> str:
    """Of which ``sweep`` can read the instance."""
    return f"{PREFIX}{instance}-{re.sub('[^0-9a-z]', '', run.lower())[:32] or 'run'}"


def left_behind(where: Hierarchies, is_dead: Callable[[str], bool]) -> Iterator[Leaf]:
    """The leaves of dead instances."""
    names: set[str] = set()
    for place in {*where.legacy.values(), where.unified} - {""}:
        with contextlib.suppress(OSError):
            names.update(os.listdir(place))
    for name in sorted(names):
        match = _NAME.fullmatch(name)
        if match is not None and is_dead(match["instance"]):
            legacy = {key: f"{place}/{name}" for key, place in where.legacy.items()}
            yield Leaf(legacy, f"{where.unified}/{name}" if where.unified else "")


def _limit_legacy(controller: str, place: str, limit: Limit) -> None:
    if controller == "memory":
        _write(f"{place}/memory.limit_in_bytes", str(limit.memory_bytes))
        try:
            _write(f"{place}/memory.memsw.limit_in_bytes", str(limit.memory_bytes))
        except OSError:  # the kernel does not account swap
            _write(f"{place}/memory.swappiness", "0")
    elif controller == "pids":
        _write(f"{place}/pids.max", str(limit.pids))
    else:
        _write(f"{place}/cpu.cfs_quota_us", str(round(limit.cpus * PERIOD_MICROSECONDS)))


def _limit_unified(controller: str, place: str, limit: Limit) -> None:
    if controller == "memory":
        _write(f"{place}/memory.max", str(limit.memory_bytes))
        with contextlib.suppress(FileNotFoundError):  # no swap in this kernel
            _write(f"{place}/memory.swap.max", "0")
    elif controller == "pids":
        _write(f"{place}/pids.max", str(limit.pids))
    else:
        quota = round(limit.cpus * PERIOD_MICROSECONDS)
        _write(f"{place}/cpu.max", f"{quota} {PERIOD_MICROSECONDS}")


def _read(path: str) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 65536).decode("ascii")
    finally:
        os.close(descriptor)


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode("ascii"))
    finally:
        os.close(descriptor)


def _keyed(path: str, key: str) -> int | None:
    with contextlib.suppress(OSError):
        for line in _read(path).splitlines():
            name, _, value = line.partition(" ")
            if name == key and value.isdigit():
                return int(value)
    return None


def _number(path: str) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(_read(path))
    return None
