"""Which walls are really in force around a hook in a container?

Read back from the host's ``/proc`` and cgroup files for a hook's process that is held just before
its exec: not what was asked for, but what the kernel does. Where the host cannot see the process
(an engine inside a virtual machine), nothing can be confirmed, and that is what is said.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from executor.backends.base import Control
from executor.cell.cgroup import CONTROLLERS, PERIOD_MICROSECONDS, Leaf, locate

if TYPE_CHECKING:
    from executor.backends.docker_body import Body
    from executor.job import Sandbox

_NAMESPACES = {
    "net": "no network",
    "pid": "own processes",
    "mnt": "own mounts",
    "ipc": "own ipc",
    "uts": "own host name",
    "cgroup": "own cgroup view",
}
_CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")


def leaf_of(pid: int, proc: Path = Path("/proc")) -> Leaf:
    """Blocking: the cgroup that the host's process ``pid`` is in, as far as it can be seen."""
    try:
        groups = (proc / str(pid) / "cgroup").read_text(errors="surrogateescape")
        mounts = (proc / "self/mountinfo").read_text(errors="surrogateescape")
    except OSError:
        return Leaf({}, "")
    places = dict(locate(groups, mounts))
    legacy = {name: places[name] for name in CONTROLLERS if name in places}
    return Leaf(legacy, places.get("", ""))


def read_controls(
    pid: int, sandbox: Sandbox, body: Body, landlock: int, proc: Path = Path("/proc")
) -> tuple[Control, ...]:
    """Blocking: the controls around the first child of the cell ``pid`` (host pids)."""
    try:
        hook = _first_child(proc, pid)
        status = _status(proc / str(hook))
        mounts = (proc / str(hook) / "mountinfo").read_text(errors="surrogateescape")
    except (OSError, ValueError, IndexError) as error:
        return (Control("host view", False, True, f"the hook's process is not visible: {error}"),)
    return (
        *_identity(status, sandbox),
        *_filters(status),
        Control("landlock", landlock > 0, False, f"ABI {landlock}" if landlock else "not offered"),
        *_namespaces(proc, hook),
        *_mounts(mounts, sandbox),
        *_limits(leaf_of(hook, proc), body["HostConfig"]),
    )


def _first_child(proc: Path, pid: int) -> int:
    return int((proc / f"{pid}/task/{pid}/children").read_text(encoding="ascii").split()[0])


def _status(directory: Path) -> Mapping[str, str]:
    lines = (directory / "status").read_text(errors="replace").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _identity(status: Mapping[str, str], sandbox: Sandbox) -> Iterator[Control]:
    uids, gids, groups = (status.get(name, "").split() for name in ("Uid", "Gid", "Groups"))
    kept = set(uids) == {str(sandbox.uid)} and set(gids) == {str(sandbox.gid)}
    yield Control(
        "unprivileged user",
        kept and sandbox.uid != 0 and not set(groups) - {str(sandbox.gid)},
        True,
        f"for the host: uid {' '.join(uids)}, gid {' '.join(gids)}, groups {' '.join(groups)}",
    )
    held = {name: status.get(name, "?") for name in _CAPABILITIES}
    none = all(value.strip("0") == "" for value in held.values())
    yield Control("no capabilities", none, True, ", ".join(f"{k} {v}" for k, v in held.items()))


def _filters(status: Mapping[str, str]) -> Iterator[Control]:
    locked = status.get("NoNewPrivs") == "1"
    yield Control("no new privileges", locked, True, f"NoNewPrivs {status.get('NoNewPrivs')}")
    count = status.get("Seccomp_filters", "?")
    filtered = status.get("Seccomp") == "2" and count != "1"
    yield Control("system call filter", filtered, True, f"{count} filters: the engine's, and ours")


def _namespaces(proc: Path, hook: int) -> Iterator[Control]:
    for name, meaning in _NAMESPACES.items():
        try:
            theirs = os.readlink(proc / f"{hook}/ns/{name}")
            own = theirs != os.readlink(proc / f"self/ns/{name}")
        except OSError as error:
            own, theirs = False, str(error)
        yield Control(meaning, own, name != "cgroup", theirs)


def _mounts(text: str, sandbox: Sandbox) -> Iterator[Control]:
    options = {line.split(" ")[4]: line.split(" ")[5].split(",") for line in text.splitlines()}
    yield Control("read-only root", "ro" in options.get("/", []), True, _said(options, "/"))
    tmp = "/tmp"  # noqa: S108  (the sandbox's)
    closed = {"nosuid", "nodev", "noexec"} <= set(options.get(tmp, []))
    yield Control("private /tmp", closed, True, _said(options, tmp))
    yield Control("no /sys", "ro" in options.get("/sys", []), False, _said(options, "/sys"))
    for mount in sandbox.mounts:
        name = mount.target.replace("\\", "\\134").replace(" ", "\\040")
        kept = mount.writable or "ro" in options.get(name, [])
        meaning = "writable as granted" if mount.writable else "read-only"
        yield Control(f"{mount.target} {meaning}", kept, True, _said(options, name))


def _said(options: Mapping[str, list[str]], place: str) -> str:
    return f"{place} is {','.join(options[place])}" if place in options else f"{place} is no mount"


def _limits(leaf: Leaf, asked: Body) -> Iterator[Control]:
    memory, pids, cpu = (leaf.legacy.get(name, leaf.unified) for name in CONTROLLERS)
    cores = asked["NanoCpus"] / 1e9
    yield _limit("memory", memory, ("memory.max", "memory.limit_in_bytes"), asked["Memory"])
    yield _limit("pids", pids, ("pids.max",), asked["PidsLimit"])
    quota = round(cores * PERIOD_MICROSECONDS)
    yield _limit("cpu", cpu, ("cpu.max", "cpu.cfs_quota_us"), quota)
    # Version 1 counts both together; where a kernel has no swap, it has neither file.
    for name, wanted in (
        ("memory.swap.max", 0),
        ("memory.memsw.limit_in_bytes", asked["MemorySwap"]),
    ):
        if Path(memory, name).exists():
            yield _limit("swap", memory, (name,), wanted)


def _limit(meaning: str, directory: str, names: tuple[str, ...], wanted: int) -> Control:
    for name in names:
        try:
            value = Path(directory, name).read_text(encoding="ascii").split()[0]
        except (OSError, IndexError):
            continue
        kept = value.isdigit() and int(value) <= wanted
        return Control(f"limit of {meaning}", kept, True, f"{directory}/{name} {value}")
    return Control(f"limit of {meaning}", False, True, f"no {' or '.join(names)} is visible")
