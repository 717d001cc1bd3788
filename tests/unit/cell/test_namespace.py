"""The namespace backend, through its own interface, on real kernels."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from executor.backends.namespace import NamespaceBackend
from executor.cell import cgroup, launch
from executor.cell.probe import explain
from executor.disk.instance import Instance
from executor.errors import Unavailable
from executor.job import Enforce
from executor.outcome import Cause, Stage, Status
from tests.unit.cell.conftest import RunArgv, a_job, a_mount, reachable

pytestmark = [pytest.mark.anyio, pytest.mark.namespace]


def traces() -> set[str]:
    """What runs leave while they last: cells, and cgroup leaves."""
    found = set()
    cell = str(launch.cell_path())
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if entry.read_bytes().split(b"\0")[0].decode(errors="replace") == cell:
                parent = (entry.parent / "stat").read_text().rpartition(")")[2].split()[1]
                found.add(f"{entry.parent.name} of {parent}")
        except OSError:
            continue
    return found


@pytest.fixture(autouse=True)
def nothing_is_left(native: None) -> Iterator[None]:
    yield
    mine = {trace for trace in traces() if trace.endswith(f" of {os.getpid()}")}
    assert not mine


async def test_a_run_ends_in_an_outcome(run: RunArgv) -> None:
    outcome = await run("sh", "-c", "cat; echo no >&2; exit 3", stdin=True)
    assert (outcome.status, outcome.cause, outcome.exit_code) == (Status.FAILED, Cause.EXIT, 3)
    assert (outcome.stdout, outcome.stderr) == (b"{}\n", b"no\n")
    assert outcome.usage.cpu_seconds is not None
    assert outcome.duration_seconds > 0


async def test_many_runs_at_once_do_not_meet(backend: NamespaceBackend) -> None:
    seen: dict[int, bytes] = {}

    async def one(number: int) -> None:
        job = a_job(
            "sh",
            "-c",
            f"echo {number} > /tmp/x; sleep 0.05; cat /tmp/x; ls /proc | grep -c '^[0-9]'",
        )
        seen[number] = (await backend.run(job)).stdout

    async with anyio.create_task_group() as group:
        for number in range(12):
            group.start_soon(one, number)
    for number, output in seen.items():
        first, processes = output.split()
        assert int(first) == number
        assert int(processes) <= 4


async def test_a_deadline_is_ours_to_decide(run: RunArgv) -> None:
    outcome = await run("sleep", "1000", timeout=0.1)
    assert (outcome.status, outcome.cause, outcome.stage) == (
        Status.TIMEOUT, Cause.WALL_CLOCK, Stage.TERM,
    )  # fmt: skip


async def test_a_cancelled_run_is_torn_down_before_it_is_over(backend: NamespaceBackend) -> None:
    with anyio.move_on_after(0.2) as scope:
        await backend.run(a_job("sh", "-c", "trap '' TERM; sleep 1000", grace=0.1))
    assert scope.cancelled_caught


async def test_closing_stops_what_still_runs(backend: NamespaceBackend) -> None:
    outcomes = []

    async def one() -> None:
        outcomes.append(await backend.run(a_job("sleep", "1000")))

    async with anyio.create_task_group() as group:
        group.start_soon(one)
        await anyio.wait_all_tasks_blocked()
        await backend.close()
    assert [outcome.status for outcome in outcomes] == [Status.INTERRUPTED]


async def test_too_much_memory_is_told_as_such(backend: NamespaceBackend) -> None:
    if not cgroup.discover().complete:
        pytest.skip("no cgroup to write")
    outcome = await backend.run(a_job("python3", "-c", "bytearray(1 << 30)", memory=64 << 20))
    assert (outcome.status, outcome.cause) == (Status.OOM, Cause.MEMORY)
    script = "head -c 12M /dev/zero > /tmp/a; head -c 60M /dev/zero | tail -c 50M | wc -c; exit 4"
    outcome = await backend.run(a_job("sh", "-c", script, memory=32 << 20))
    assert outcome.status is Status.OOM


async def test_a_bomb_of_processes_hits_its_limit(run: RunArgv) -> None:
    code = "import os, signal\nwhile True:\n  if os.fork() == 0: signal.pause()"
    outcome = await run("python3", "-c", code, pids=8)
    assert outcome.status is Status.FAILED
    assert outcome.cause in (Cause.PIDS, Cause.EXIT)  # no counter without a cgroup
    assert outcome.killed_strays >= 5


async def test_a_large_payload_takes_nothing_of_the_memory(run: RunArgv) -> None:
    payload = b"x" * (16 << 20)
    outcome = await run("sh", "-c", "wc -c", payload=payload, stdin=True, memory=16 << 20)
    assert outcome.stdout.strip() == str(16 << 20).encode()


async def test_every_wall_stands_as_read_back(backend: NamespaceBackend, place: Path) -> None:
    controls = await backend.inspect(a_job("true", mounts=(a_mount(place),)))
    assert len(controls) > 20
    assert [control for control in controls if control.mandatory and not control.in_force] == []
    assert f"{place} read-only" in {control.name for control in controls}


async def test_inspecting_what_cannot_be_built_is_unavailable(
    backend: NamespaceBackend, place: Path
) -> None:
    mount = a_mount(place)
    (place / "file").unlink()
    place.rmdir()
    with pytest.raises(Unavailable, match="mount"):
        await backend.inspect(a_job("true", mounts=(mount,)))


async def test_without_a_cgroup_best_says_so_and_cgroup_refuses(backend: NamespaceBackend) -> None:
    lacking = dict.fromkeys(cgroup.CONTROLLERS, "not writable")
    backend._hierarchies = cgroup.Hierarchies({}, "", frozenset(), lacking)
    outcome = await backend.run(a_job("bash", "-c", "ulimit -d; ulimit -u", pids=9))
    assert outcome.status is Status.OK
    assert len(outcome.notes) == 3
    assert b"131072" in outcome.stdout
    outcome = await backend.run(a_job("true", enforce=Enforce.CGROUP))
    assert (outcome.status, outcome.cause) == (Status.REFUSED, Cause.POLICY)
    assert "Delegate=yes" in (outcome.reason or "")


def another_executor(directory: Path) -> subprocess.Popen[bytes]:
    """A process of its own whose hook writes to ``directory/up`` and stays."""
    code = (
        "import anyio, sys\n"
        "from pathlib import Path\n"
        "from executor.backends.namespace import NamespaceBackend\n"
        "from executor.disk.instance import Instance\n"
        "from tests.unit.cell.conftest import a_job, a_mount\n"
        'script = \'trap "" TERM; echo up > "$1/up"; sleep 1000\'\n'
        "mounts = (a_mount(Path(sys.argv[1]), writable=True),)\n"
        "job = a_job('sh', '-c', script, 'sh', sys.argv[1], mounts=mounts)\n"
        "anyio.run(NamespaceBackend(instance=Instance.open()).run, job)\n"
    )
    return subprocess.Popen([sys.executable, "-c", code, str(directory)])


async def test_what_a_killed_executor_leaves_ends_and_is_swept(
    backend: NamespaceBackend, private_state: Path, tmp_path: Path
) -> None:
    reachable(tmp_path)
    tmp_path.chmod(0o777)
    os.mkfifo(tmp_path / "up")
    (tmp_path / "up").chmod(0o666)
    victim = another_executor(tmp_path)
    with await anyio.to_thread.run_sync((tmp_path / "up").open) as up:
        assert up.read() == "up\n"
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    where = cgroup.discover()
    removed = await backend.sweep()
    assert removed == (1 if where.complete else 0)
    assert await backend.sweep() == 0


def test_a_failed_probe_names_a_remedy() -> None:
    import errno

    assert "max_user_namespaces" in explain("namespaces", errno.ENOSPC).remedy
    assert "container" in explain("proc", errno.EPERM).remedy


def test_the_instance_is_the_callers() -> None:
    instance = Instance.open()
    NamespaceBackend(instance=instance).probe()
    instance.close()
