"""A wall that cannot be had: what is mandatory is a refusal that names it, the rest is told.

The kernel's lack is made here, by a filter around the executor that answers one system call with
ENOSYS, as a kernel without it would; or by a cgroup that cannot be written.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from executor.backends import docker_controls, namespace_controls
from executor.backends.base import Control
from executor.backends.docker_body import Placing, create_body
from executor.cell import cgroup
from executor.job import Enforce, Sandbox
from tests.crash.programs import PROGRAM, after, emit, ended
from tests.support import Workspace, bash
from tests.unit.cell.conftest import a_job

SECCOMP, LANDLOCK_CREATE, UNSHARE, MOUNT_SETATTR = 317, 444, 272, 442
"""Numbers on x86_64."""
LACKING = """
import ctypes, struct
libc = ctypes.CDLL(None, use_errno=True)
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, {number}), (6, 0, 0, 0x50000 | 38), (6, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(rules), ctypes.addressof(code)))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
"""

on_x86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers of x86_64")


@pytest.fixture
def sandbox(available: dict[str, str | None]) -> str:
    """The kernel below a container is asked by the engine's processes, not by ours."""
    if available["namespace"] is not None:
        pytest.skip(available["namespace"])
    return "namespace"


@on_x86_64
@pytest.mark.namespace
@pytest.mark.parametrize(
    ("number", "named"),
    [(SECCOMP, "seccomp"), (UNSHARE, "cgroup"), (MOUNT_SETATTR, "root /usr")],
    ids=["seccomp", "cgroup namespace", "read-only mounts"],
)
def test_a_missing_wall_runs_nothing_and_is_named(
    workspace: Workspace, sandbox: str, number: int, named: str
) -> None:
    workspace.hooks({"tool_call": [bash("echo has-run")]})
    words = after(LACKING.format(number=number), emit(workspace, sandbox))
    answer = ended(words, workspace.path)
    assert answer.returncode in {1, 3}, answer.stderr
    assert "has-run" not in answer.stdout
    assert named in answer.stdout + answer.stderr


@on_x86_64
@pytest.mark.namespace
def test_without_landlock_it_runs_and_every_report_says_so(
    workspace: Workspace, sandbox: str
) -> None:
    workspace.hooks({"tool_call": [bash("echo ran")]})
    lacking = LACKING.format(number=LANDLOCK_CREATE)
    answer = ended(after(lacking, emit(workspace, sandbox)), workspace.path)
    assert answer.returncode == 0, answer.stderr
    (run,) = json.loads(answer.stdout)["runs"]
    assert run["stdout"] == "ran\n"
    assert any("Landlock" in note for note in run["notes"])
    doctor = [*PROGRAM, "doctor", "--isolation", "--json", "--sandbox", sandbox]
    answer = ended(after(lacking, doctor), workspace.path)
    assert answer.returncode == 0, answer.stderr
    (landlock,) = [one for one in controls_of(answer.stdout) if one["name"] == "landlock"]
    assert (landlock["in_force"], landlock["mandatory"]) == (False, False)


def controls_of(text: str) -> list[dict[str, object]]:
    (backend,) = json.loads(text)["backends"]
    controls: list[dict[str, object]] = backend["controls"]
    return controls


# ------------------------------------------------------------------- what the reports are read from

STATUS = """Uid:\t{uid}\t{uid}\t{uid}\t{uid}
Gid:\t{uid}\t{uid}\t{uid}\t{uid}
Groups:\t
CapInh:\t0000000000000000
CapPrm:\t0000000000000000
CapEff:\t0000000000000000
CapBnd:\t0000000000000000
CapAmb:\t0000000000000000
NoNewPrivs:\t1
Seccomp:\t2
Seccomp_filters:\t2
"""
MOUNTS = """1 0 0:1 / / ro,nosuid,nodev - tmpfs root rw
2 1 0:2 / /tmp rw,nosuid,nodev,noexec - tmpfs tmp rw
3 1 0:3 / /proc rw,nosuid,nodev,noexec - proc proc rw,subset=pid
"""
LIMITS = "Max file size 16777216 16777216 bytes\nMax open files 256 256 files\n"
SPACES = ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc in which 100 started 101, PID 1, whose hook is 102; everything is as it should be."""
    uid = a_job("true").sandbox.uid
    for pid, child in (("100", "101"), ("101", "102"), ("102", "")):
        place = tmp_path / "proc" / pid
        (place / "task" / pid).mkdir(parents=True)
        (place / "task" / pid / "children").write_text(child)
        (place / "status").write_text(STATUS.format(uid=uid))
        (place / "mountinfo").write_text(MOUNTS)
        (place / "limits").write_text(LIMITS)
        (place / "cgroup").write_text("")
    for pid in ("102", "self"):
        (tmp_path / "proc" / pid / "ns").mkdir(parents=True)
        for space in SPACES:
            (tmp_path / "proc" / pid / "ns" / space).symlink_to(f"{space}:[{pid}]")
    (tmp_path / "proc" / "self" / "mountinfo").write_text("")
    return tmp_path / "proc"


def a_leaf(directory: Path, sandbox: Sandbox, **changes: str) -> cgroup.Leaf:
    """A version 2 leaf with the limits that are asked for, or others."""
    directory.mkdir()
    files = {
        "cgroup.procs": "101\n102\n",
        "memory.max": str(sandbox.limits.memory_bytes),
        "memory.swap.max": "0",
        "pids.max": str(sandbox.limits.pids),
        "cpu.max": f"{round(sandbox.limits.cpus * 100000)} 100000",
    } | {name.replace("_", "."): value for name, value in changes.items()}
    for name, value in files.items():
        (directory / name).write_text(value)
    return cgroup.Leaf({}, str(directory))


def strict() -> Sandbox:
    sandbox = a_job("true").sandbox
    return replace(sandbox, limits=replace(sandbox.limits, enforce=Enforce.CGROUP))


def failing(controls: tuple[Control, ...]) -> list[str]:
    return [one.name for one in controls if one.mandatory and not one.in_force]


BROKEN: tuple[tuple[str, str, str, str], ...] = (
    ("status", "CapBnd:\t0000000000000000", "CapBnd:\t0000000000000400", "no capabilities"),
    ("status", "CapAmb:\t0000000000000000", "CapAmb:\t0000000000000001", "no capabilities"),
    ("status", "NoNewPrivs:\t1", "NoNewPrivs:\t0", "no new privileges"),
    ("status", "Seccomp:\t2", "Seccomp:\t0", "system call filter"),
    ("status", "Uid:\t", "Uid:\t0\t", "unprivileged user"),
    ("mountinfo", "/ ro,", "/ rw,", "read-only root"),
    ("mountinfo", "/tmp rw,nosuid", "/tmp rw", "private /tmp"),
)
Read = Callable[[Path], tuple[Control, ...]]


def on_namespaces(proc: Path) -> tuple[Control, ...]:
    leaf = a_leaf(proc.parent / "leaf", strict())
    return namespace_controls.read_controls(100, strict(), leaf, 7, proc)


def on_an_engine(proc: Path) -> tuple[Control, ...]:
    sandbox = replace(strict(), image="sha256:" + "0" * 64)
    body = create_body(sandbox, Placing("/cell", "1:1", "{}", 2, 0, {}))
    read = docker_controls.read_controls(101, sandbox, body, 7, proc)
    # What no cgroup file system shows is a failing control of its own, tested below.
    return tuple(one for one in read if not one.name.startswith("limit of"))


@pytest.mark.parametrize("read", [on_namespaces, on_an_engine])
def test_a_sandbox_as_it_should_be_has_nothing_failing(proc: Path, read: Read) -> None:
    assert failing(read(proc)) == []


@pytest.mark.parametrize("read", [on_namespaces, on_an_engine])
@pytest.mark.parametrize(("file", "right", "wrong", "name"), BROKEN)
def test_what_the_kernel_says_otherwise_fails_by_name(
    proc: Path, read: Read, file: str, right: str, wrong: str, name: str
) -> None:
    path = proc / "102" / file
    assert right in path.read_text()
    path.write_text(path.read_text().replace(right, wrong))
    assert failing(read(proc)) == [name]


@pytest.mark.parametrize("read", [on_namespaces, on_an_engine])
@pytest.mark.parametrize("space", ["mnt", "pid", "net", "ipc", "uts"])
def test_a_shared_namespace_fails_by_name(proc: Path, read: Read, space: str) -> None:
    link = proc / "102" / "ns" / space
    link.unlink()
    link.symlink_to(os.readlink(proc / "self" / "ns" / space))
    (name,) = failing(read(proc))
    assert "own" in name or "network" in name


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"memory_max": "max"}, "limit of memory"),
        ({"pids_max": "max"}, "limit of pids"),
        ({"cpu_max": "max 100000"}, "limit of cpu"),
        ({"memory_swap_max": "max"}, "no swap"),
        ({"cgroup_procs": "101\n"}, "own cgroup"),
    ],
)
def test_a_limit_that_is_not_kept_fails_by_name(
    proc: Path, change: dict[str, str], name: str
) -> None:
    leaf = a_leaf(proc.parent / "leaf", strict(), **change)
    controls = namespace_controls.read_controls(100, strict(), leaf, 7, proc)
    assert failing(controls) == [name]


def test_limits_that_nobody_can_see_fail_on_an_engine(proc: Path) -> None:
    sandbox = replace(strict(), image="sha256:" + "0" * 64)
    body = create_body(sandbox, Placing("/cell", "1:1", "{}", 2, 0, {}))
    controls = docker_controls.read_controls(101, sandbox, body, 7, proc)
    assert failing(controls) == ["limit of memory", "limit of pids", "limit of cpu"]
