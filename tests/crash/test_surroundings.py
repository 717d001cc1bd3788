"""Whoever starts us may have left us anything, and the machine may be out of everything.

Where the executor can work it must; where it cannot it says so with an exit code, in words, never
with a traceback, and nothing stays or hangs.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from executor.cell.cgroup import locate
from tests.crash.programs import after, emit, ended
from tests.crash.traces import ENGINE_SECONDS, Traces, eventually
from tests.support import Workspace, bash

HARMLESS = {
    "nobody waits for children": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "every signal is blocked": "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))",
    "signals are ignored": (
        "for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):\n"
        "    signal.signal(one, signal.SIG_IGN)"
    ),
    "stdin is closed": "os.close(0)",
    "stdout is closed": "os.close(1)",
    "stderr is closed": "os.close(2)",
    "no standard stream is open": "os.closerange(0, 3)",
    "a hundred strange descriptors": (
        "for _ in range(100): os.set_inheritable(os.open('/dev/null', os.O_RDWR), True)"
    ),
    # Root may use what it made below any; whoever is not has no directory of its own below 0o777.
    "an odd umask": "os.umask(0o777 if os.geteuid() == 0 else 0o077)",
    "a directory that is gone": "os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')",
    "small files only": "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 20))",
    "little stack": "resource.setrlimit(resource.RLIMIT_STACK, (1 << 19, 1 << 23))",
    "an empty environment but for the state": (
        "state = os.environ['XDG_STATE_HOME']; cache = os.environ.get('HOME', '/')\n"
        "os.environ.clear(); os.environ.update(XDG_STATE_HOME=state, HOME=cache)"
    ),
}


def slowly(*values: int) -> list[ParameterSet]:
    """More of the same, for the slow tests."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


@pytest.fixture
def writing_hook(workspace: Workspace, mark: str) -> Path:
    """A hook that proves, in a file, that it ran; its own script comes out of the store."""
    out = workspace.granted("out")
    workspace.policy_for_all('[filesystem]\nwrite = ["out"]\n')
    workspace.script("hook.sh", f"cat > out/{mark}")
    workspace.hooks({"tool_call": [{"command": "./hook.sh", "stdin_json": True}]})
    return out / mark


@pytest.mark.parametrize("preparation", HARMLESS.values(), ids=HARMLESS)
def test_odd_surroundings_change_nothing(
    workspace: Workspace, sandbox: str, traces: Traces, writing_hook: Path, preparation: str
) -> None:
    answer = ended(after(preparation, emit(workspace, sandbox)), workspace.path)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(writing_hook.read_text())["event"] == "tool_call"
    assert traces.left() == []


@pytest.mark.parametrize("descriptors", [10, 16, *slowly(8, 12, 14, 20, 24, 32)])
def test_without_descriptors_it_says_so_and_leaves_nothing(
    workspace: Workspace, sandbox: str, traces: Traces, writing_hook: Path, descriptors: int
) -> None:
    limit = f"resource.setrlimit(resource.RLIMIT_NOFILE, ({descriptors}, {descriptors}))"
    answer = ended(after(limit, emit(workspace, sandbox)), workspace.path)
    assert answer.returncode in {0, 1, 3, 4}, answer.stderr
    assert writing_hook.exists() == (answer.returncode == 0)
    # Python itself may not come up with so few; what it says then is not ours.
    assert "hook-executor: " in answer.stderr or "runs" in answer.stdout or descriptors < 10
    nothing_stays(workspace, sandbox, traces)


@pytest.fixture
def few_processes() -> Iterator[Path]:
    """A cgroup for an executor, whose ``pids.max`` a test sets."""
    places = dict(
        locate(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text())
    )
    own = Path(places.get("pids", places.get("", "/none")))
    place = own / f"crash-test-{secrets.token_hex(4)}"
    try:
        place.mkdir()
    except OSError as failure:
        pytest.skip(f"no cgroup can be made here: {failure}")
    if not (place / "pids.max").exists():
        place.rmdir()
        pytest.skip(f"{own} does not limit processes")
    yield place
    assert eventually(lambda: (place / "cgroup.procs").read_text() == "", ENGINE_SECONDS)
    for leaf in place.glob("*/"):
        leaf.rmdir()
    place.rmdir()


@pytest.mark.parametrize("processes", [2, 6, *slowly(1, 3, 4, 5, 8, 10)])
def test_without_processes_it_says_so_and_leaves_nothing(
    workspace: Workspace,
    sandbox: str,
    traces: Traces,
    writing_hook: Path,
    few_processes: Path,
    processes: int,
) -> None:
    (few_processes / "pids.max").write_text(str(processes))
    enter = f"open({str(few_processes / 'cgroup.procs')!r}, 'w').write('0')"
    answer = ended(after(enter, emit(workspace, sandbox)), workspace.path)
    assert answer.returncode in {0, 1, 3, 4}, answer.stderr
    assert "Traceback" not in answer.stderr
    assert list(few_processes.glob("hook-executor-*")) == []
    nothing_stays(workspace, sandbox, traces)


@pytest.fixture
def small_disk(private_state: Path) -> Iterator[Path]:
    """The state directory, on a file system of 64 KiB and 24 files."""
    options = "size=64k,nr_inodes=24,mode=700"
    command = ["mount", "-t", "tmpfs", "-o", options, "small", str(private_state)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {answer.stderr.strip()}")
    yield private_state
    subprocess.run(["umount", str(private_state)], check=True)


def fill(disk: Path) -> None:
    """Not a byte fits any more."""
    with contextlib.suppress(OSError), (disk / "ballast").open("wb") as ballast:
        while True:
            ballast.write(b"x" * 4096)
            ballast.flush()


def test_a_full_disk_is_said_and_what_needs_none_still_runs(
    small_disk: Path, workspace: Workspace, sandbox: str, mark: str
) -> None:
    fill(small_disk)
    workspace.script("hook.sh", f": {mark}")
    workspace.hooks({"tool_call": [{"command": "./hook.sh"}, bash(f": {mark}; echo ran")]})
    answer = ended(emit(workspace, sandbox), workspace.path)
    assert answer.returncode == 1, answer.stderr
    stored, bare = json.loads(answer.stdout)["runs"]
    assert (stored["status"], stored["cause"]) == ("error", "setup"), stored
    assert "No space left" in stored["reason"]
    assert (bare["status"], bare["stdout"]) == ("ok", "ran\n")
    assert not [path for path in small_disk.rglob("*") if path.name.startswith((".new-", "lock"))]


def test_a_disk_without_room_for_files_is_a_refusal(
    small_disk: Path, workspace: Workspace, sandbox: str
) -> None:
    workspace.hooks({"tool_call": [{"command": "true"}]})
    with contextlib.suppress(OSError):
        for number in range(100):
            (small_disk / str(number)).touch()
    answer = ended(emit(workspace, sandbox), workspace.path)
    assert answer.returncode == 3, answer.stderr
    assert "No space left" in answer.stderr


def nothing_stays(workspace: Workspace, sandbox: str, traces: Traces) -> None:
    """At the latest after the next start."""
    assert traces.await_end(ENGINE_SECONDS) == []
    answer = ended(emit(workspace, sandbox), workspace.path)
    assert answer.returncode == 0, answer.stderr
    assert traces.left() == []
