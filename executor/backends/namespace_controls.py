"""Which walls are really in force around a hook in namespaces?

Read back from the host's ``/proc`` and the cgroup's files for a hook's process that is held just
before its exec: not what was asked for, but what the kernel says.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from executor.backends.base import Control
from executor.job import Enforce

if TYPE_CHECKING:
    from executor.cell.cgroup import Leaf
    from executor.job import Sandbox

_NAMESPACES = {
    "user": "own user namespace",
    "mnt": "own mounts",
    "pid": "own processes",
    "net": "no network",
    "ipc": "own ipc",
    "uts": "own host name",
    "cgroup": "own cgroup view",
}
_CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
_PERIOD_MICROSECONDS = 100_000


def read_controls(
    outer: int, sandbox: Sandbox, leaf: Leaf | None, landlock: int, proc: Path = Path("/proc")
) -> tuple[Control, ...]:
    """Blocking. ``outer`` was started; its child is PID 1, and the hook is that one's."""
    try:
        hook = _child(proc, _child(proc, outer))
        status = _status(proc / str(hook))
        mounts = (proc / f"{hook}/mountinfo").read_text(errors="surrogateescape")
    except (OSError, ValueError, IndexError) as error:
        return (Control("host view", False, True, f"the hook's process is not visible: {error}"),)
    return (
        *_identity(status, sandbox),
        Control("system call filter", status.get("Seccomp") == "2", True, _seen(status, "Seccomp")),
        Control("landlock", landlock > 0, False, f"ABI {landlock}" if landlock else "not offered"),
        *_namespaces(proc, hook),
        *_mounts(mounts, sandbox),
        *_limits(proc, hook, sandbox, leaf),
    )


def _child(proc: Path, pid: int) -> int:
    return int((proc / f"{pid}/task/{pid}/children").read_text(encoding="ascii").split()[0])


def _status(directory: Path) -> Mapping[str, str]:
    lines = (directory / "status").read_text(errors="replace").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _seen(status: Mapping[str, str], *names: str) -> str:
    return ", ".join(f"{name} {' '.join(status.get(name, '?').split())}" for name in names)


def _identity(status: Mapping[str, str], sandbox: Sandbox) -> Iterator[Control]:
    mine = set(status.get("Uid", "").split()) == {str(sandbox.uid)}
    mine = mine and set(status.get("Gid", "").split()) == {str(sandbox.gid)}
    seen = _seen(status, "Uid", "Gid") + ", as the host counts"
    yield Control("unprivileged user", mine and sandbox.uid != 0, True, seen)
    # An ordinary user cannot give groups up inside a user namespace (user_namespaces(7)).
    groups = not set(status.get("Groups", "").split()) - {str(sandbox.gid)}
    yield Control("no other groups", groups, os.geteuid() == 0, _seen(status, "Groups"))
    none = all(status.get(name, "?").strip("0") == "" for name in _CAPABILITIES)
    yield Control("no capabilities", none, True, _seen(status, *_CAPABILITIES))
    locked = status.get("NoNewPrivs") == "1"
    yield Control("no new privileges", locked, True, _seen(status, "NoNewPrivs"))


def _namespaces(proc: Path, hook: int) -> Iterator[Control]:
    for name, meaning in _NAMESPACES.items():
        try:
            theirs = os.readlink(proc / f"{hook}/ns/{name}")
            own = theirs != os.readlink(proc / f"self/ns/{name}")
        except OSError as error:
            own, theirs = False, str(error)
        yield Control(meaning, own, True, theirs)


def _mounts(text: str, sandbox: Sandbox) -> Iterator[Control]:
    options = {line.split(" ")[4]: line.split(" ")[5].split(",") for line in text.splitlines()}
    kinds = {line.split(" ")[4]: line.partition(" - ")[2] for line in text.splitlines()}
    yield Control("read-only root", "ro" in options.get("/", []), True, _said(options, "/"))
    tmp = "/tmp"  # noqa: S108  (the sandbox's)
    closed = {"nosuid", "nodev", "noexec"} <= set(options.get(tmp, []))
    yield Control("private /tmp", closed, True, _said(options, tmp))
    processes = "subset=pid" in kinds.get("/proc", "")
    yield Control("no kernel in /proc", processes, True, kinds.get("/proc", "no /proc"))
    yield Control("no /sys", "/sys" not in options, True, _said(options, "/sys"))
    for mount in sandbox.mounts:
        name = mount.target.replace("\\", "\\134").replace(" ", "\\040")
        wanted = {"nosuid", "nodev"} | (set() if mount.writable else {"ro"})
        kept = wanted <= set(options.get(name, []))
        meaning = "writable as granted" if mount.writable else "read-only"
        yield Control(f"{mount.target} {meaning}", kept, True, _said(options, name))


def _said(options: Mapping[str, list[str]], place: str) -> str:
    return f"{place} is {','.join(options[place])}" if place in options else f"{place} is no mount"


def _limits(proc: Path, hook: int, sandbox: Sandbox, leaf: Leaf | None) -> Iterator[Control]:
    limits = sandbox.limits
    mandatory = limits.enforce is Enforce.CGROUP
    directories = {} if leaf is None else leaf.directories
    inside = leaf is not None and hook in leaf.processes()
    yield Control("own cgroup", inside, mandatory, "; ".join(sorted(set(directories.values()))))
    quota = round(limits.cpus * _PERIOD_MICROSECONDS)
    for controller, names, wanted in (
        ("memory", ("memory.max", "memory.limit_in_bytes"), limits.memory_bytes),
        ("pids", ("pids.max",), limits.pids),
        ("cpu", ("cpu.max", "cpu.cfs_quota_us"), quota),
    ):
        seen = [f"{directories.get(controller, '')}/{name}" for name in names]
        yield _limit(f"limit of {controller}", seen, wanted, mandatory=mandatory)
    yield _no_swap(directories.get("memory", ""), mandatory=mandatory)
    rlimits = (proc / f"{hook}/limits").read_text(encoding="ascii")
    for name, wanted in (
        ("Max file size", limits.file_size_bytes),
        ("Max open files", limits.open_files),
    ):
        line = next((line for line in rlimits.splitlines() if line.startswith(name)), "")
        hard = line.removeprefix(name).split()[1:2]
        kept = bool(hard) and hard[0].isdigit() and int(hard[0]) <= wanted
        yield Control(f"limit of {name[4:]}", kept, True, " ".join(line.split()))


def _no_swap(directory: str, *, mandatory: bool) -> Control:
    """Version 1 counts memory and swap together; a kernel that has no swap has neither file."""
    swap, both = Path(directory, "memory.swap.max"), Path(directory, "memory.memsw.limit_in_bytes")
    seen, kept = "the kernel accounts none", bool(directory)
    if swap.exists():
        value = swap.read_text(encoding="ascii").strip()
        seen, kept = f"{swap} {value}", value == "0"
    elif both.exists():
        value = both.read_text(encoding="ascii").strip()
        memory = Path(directory, "memory.limit_in_bytes").read_text(encoding="ascii").strip()
        seen, kept = f"{both} {value}", value == memory
    return Control("no swap", kept, mandatory, seen if directory else "no cgroup")


def _limit(meaning: str, paths: list[str], wanted: int, *, mandatory: bool) -> Control:
    for path in paths:
        try:
            value = Path(path).read_text(encoding="ascii").split()[0]
        except (OSError, IndexError):
            continue
        # The cell, and a payload's pages, come on top.
        kept = value.isdigit() and wanted <= int(value) <= 2 * wanted + (64 << 20)
        return Control(meaning, kept, mandatory, f"{path} {value}")
    return Control(meaning, False, mandatory, "no cgroup")
