"""What does a cold run cost, beside the tool that people would take otherwise?

Namespaces beside bubblewrap with the same mounts, the same seccomp filter and a cgroup leaf with
the same limits; Docker beside `docker run --rm --network none` of the same image.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import anyio.from_thread

from benchmarks.table import Row, milliseconds, paired
from executor import Unavailable
from executor.backends.base import Backend
from executor.cell import cgroup, seccomp
from executor.disk.instance import Instance
from executor.job import Job, Limits, Mount, Sandbox

LIMITS = Limits(
    memory_bytes=128 << 20,
    pids=64,
    cpus=1.0,
    file_size_bytes=16 << 20,
    open_files=256,
    tmp_bytes=16 << 20,
    output_bytes=64 << 10,
)
UID = os.geteuid() or 64123
_serial = itertools.count()


def rows() -> Sequence[Row]:
    instance = Instance.open()
    with tempfile.TemporaryDirectory() as directory, _loop() as portal:
        workspace = Path(directory)
        workspace.chmod(0o755)
        found = [
            _namespace(workspace, instance, portal),
            _docker(workspace, instance, portal),
        ]
    instance.close()
    return found


def _loop() -> contextlib.AbstractContextManager[anyio.from_thread.BlockingPortal]:
    return anyio.from_thread.start_blocking_portal()


def _job(workspace: Path, image: str = "") -> Job:
    status = workspace.stat()
    mount = Mount(str(workspace), str(workspace), status.st_dev, status.st_ino, directory=True)
    return Job(
        run_id="run_bench",
        sandbox=Sandbox(UID, UID, LIMITS, (mount,), image=image, payload_capacity_bytes=1 << 20),
        command="/bin/true",
        argv=("/bin/true",),
        env=(("PATH", "/usr/bin:/bin"),),
        cwd=str(workspace),
        timeout_seconds=10,
        payload=b"{}\n",
    )


def _runner(
    backend: Backend, job: Job, portal: anyio.from_thread.BlockingPortal
) -> Callable[[], None]:
    def once() -> None:
        outcome = portal.call(backend.run, job)
        if not outcome.ok:
            raise RuntimeError(str(outcome))

    return once


def _namespace(
    workspace: Path, instance: Instance, portal: anyio.from_thread.BlockingPortal
) -> Row:
    from executor.backends.namespace import NamespaceBackend

    what, goal = "cold run of /bin/true, namespaces", "≤ 0.7 × bwrap"
    if shutil.which("bwrap") is None:
        return Row(what, "", "bwrap is not installed", goal=goal)
    backend = NamespaceBackend(instance=instance)
    try:
        backend.probe()
    except Unavailable as missing:
        return Row(what, "", str(missing), goal=goal)
    ours = _runner(backend, _job(workspace), portal)
    mine, theirs, ratio = paired(ours, functools.partial(_bwrap, workspace), times=60)
    return Row(
        what, milliseconds(mine), f"bwrap {milliseconds(theirs)}", ratio, goal, met=ratio <= 0.7
    )


def _bwrap(workspace: Path) -> None:
    """The same steps, as far as bubblewrap has them; the cgroup around it is our own."""
    reader, writer = os.pipe()
    os.write(writer, seccomp.hook_program())
    os.close(writer)
    where = cgroup.discover()
    leaf = None
    if where.legacy or where.unified:
        limit = cgroup.Limit(memory_bytes=LIMITS.memory_bytes, pids=LIMITS.pids, cpus=LIMITS.cpus)
        leaf = cgroup.Leaf.create(where, f"bench-{os.getpid()}-{next(_serial)}", limit)
    links = [
        f"/{name}" for name in ("bin", "lib", "lib64", "sbin") if Path(f"/{name}").is_symlink()
    ]
    command = [
        "bwrap", "--unshare-all", "--unshare-user", "--uid", str(UID), "--gid", str(UID),
        "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv",
        "--setenv", "PATH", "/usr/bin:/bin", "--hostname", "hook",
        "--ro-bind", "/usr", "/usr",
        *(word for link in links for word in ("--symlink", os.readlink(link), link)),
        "--ro-bind", "/etc/alternatives", "/etc/alternatives",
        "--ro-bind", "/etc/ld.so.cache", "/etc/ld.so.cache",
        "--dev", "/dev", "--tmpfs", "/tmp", "--ro-bind", str(workspace), str(workspace),
        "--tmpfs", "/run/hook", "--proc", "/proc", "--remount-ro", "/",
        "--seccomp", str(reader), "--chdir", str(workspace), "/bin/true",
    ]  # fmt: skip
    tasks = leaf.tasks if leaf is not None else ()
    enter = ["sh", "-c", f'for f in {" ".join(tasks)}; do echo $$ > $f; done; exec "$@"', "sh"]
    subprocess.run(
        [*(enter if tasks else ()), *command],
        check=True,
        pass_fds=(reader,),
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    os.close(reader)
    if leaf is not None:
        leaf.counters()
        for _ in range(100):
            if leaf.remove():
                break
            time.sleep(0.001)


def _docker(workspace: Path, instance: Instance, portal: anyio.from_thread.BlockingPortal) -> Row:
    from executor.backends.docker import DockerBackend

    what, goal = "cold run of /bin/true, Docker", "≤ 0.45 × docker run --rm"
    if shutil.which("docker") is None:
        return Row(what, "", "the docker command is not installed", goal=goal)
    backend = DockerBackend(instance)
    try:
        portal.call(backend.probe)
        image = portal.call(backend.image, "base").id
    except Unavailable as missing:
        return Row(what, "", str(missing), goal=goal)
    command = ["docker", "run", "--rm", "--network", "none", image, "/bin/true"]
    ours = _runner(backend, _job(workspace, image), portal)
    theirs = functools.partial(subprocess.run, command, check=True, capture_output=True)
    mine, beside, ratio = paired(ours, theirs, times=12, warm_up=2)
    portal.call(backend.close)
    return Row(
        what,
        milliseconds(mine),
        f"docker run {milliseconds(beside)}",
        ratio,
        goal,
        met=ratio <= 0.45,
    )
