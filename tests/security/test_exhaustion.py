"""Can one hook use up what others need? Each attempt runs beside a quiet neighbour. (section I)"""

from __future__ import annotations

import json
import resource
from typing import Any

import pytest

from tests.security.stage import Ran, Stage

LIMITS = '[limits]\nmemory = "96MiB"\npids = 32\n[filesystem]\nwrite = ["out"]\ntmp = "200MiB"\n'
NEIGHBOUR = "sleep 0.3; echo fine"


def beside(stage: Stage, hook: dict[str, Any]) -> Ran:
    """Run it beside a neighbour, who must not notice."""
    stage.policy(LIMITS)
    ((ran, neighbour),) = stage.emit(hook, stage.bash(NEIGHBOUR))
    assert (neighbour.status, neighbour.text) == ("ok", "fine\n"), neighbour
    return ran


def has_cgroup(ran: Ran) -> bool:
    """Whether memory is limited for all processes together."""
    return not any("memory is limited for each" in note for note in ran.notes)


@pytest.mark.probe("I67", "a fork bomb", "the limit of processes")
def test_a_fork_bomb(stage: Stage) -> None:
    code = (
        "import os, time\n"
        "made = 0\n"
        "try:\n"
        "    while made < 5000:\n"
        "        if os.fork() == 0: time.sleep(60)\n"
        "        made += 1\n"
        "except OSError as error: print(made, error.errno, flush=True)\n"
        "raise SystemExit(1)"
    )
    ran = beside(stage, stage.python_hook(code, timeout_ms=20_000))
    made, error = map(int, ran.text.split())
    assert (made < 40, error) == (True, 11)
    assert ran.cause == "pids" or not has_cgroup(ran), ran


@pytest.mark.probe("I67b", "the classic fork bomb in bash", "the limit of processes, the deadline")
def test_a_fork_bomb_in_bash(stage: Stage) -> None:
    ran = beside(stage, stage.bash(":(){ :|:& };:; wait; sleep 60", timeout_ms=1000))
    assert ran.status in {"timeout", "failed"}, ran


@pytest.mark.probe("I68", "a bomb of threads", "the limit of processes")
def test_a_bomb_of_threads(stage: Stage) -> None:
    code = (
        "import threading, time, os\n"
        "for made in range(5000):\n"
        "    try: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "    except RuntimeError: break\n"
        "print(made, flush=True); os._exit(1)"
    )
    ran = beside(stage, stage.python_hook(code, timeout_ms=20_000))
    assert int(ran.text) < 40, ran


@pytest.mark.probe("I69", "a gigabyte of memory", "the limit of memory")
def test_a_gigabyte_of_memory(stage: Stage) -> None:
    ran = beside(stage, stage.python_hook("x = bytearray(1 << 30); x[::4096] = b'1' * (1 << 18)"))
    if has_cgroup(ran):
        assert (ran.status, ran.cause) == ("oom", "memory"), ran
    else:
        assert (ran.status, b"MemoryError" in ran.stderr) == ("failed", True), ran


@pytest.mark.probe(
    "I72b", "memory without an owner: tmpfs, memfd, System V segments", "memory limit"
)
def test_memory_that_belongs_to_no_process(stage: Stage) -> None:
    if stage.user.name == "user":
        pytest.skip("without a cgroup, only each process's own memory is limited; reports say so")
    ways = (
        "open(f'/tmp/f{n}', 'wb').write(block)",
        "os.write(os.memfd_create('x'), block)",
        "ctypes.memset(libc.shmat(libc.shmget(0, len(block), 0o1600), None, 0), 1, len(block))",
    )
    front = (
        "import os, ctypes\nlibc = ctypes.CDLL(None); libc.shmat.restype = ctypes.c_void_p\n"
        "block = b'x' * (8 << 20)\n"
    )
    stage.policy(LIMITS)
    hooks = [
        stage.python_hook(f"{front}for n in range(20): {way}\nprint('all of it')") for way in ways
    ]
    (answers,) = stage.emit(*hooks, stage.bash(NEIGHBOUR))
    *greedy, neighbour = answers
    assert [(ran.status, ran.cause, ran.text) for ran in greedy] == [("oom", "memory", "")] * 3
    assert neighbour.text == "fine\n"


@pytest.mark.probe(
    "I75", "floods on both streams, large and byte by byte (75, 76)", "drained, counted"
)
def test_floods_are_drained_in_bounded_memory(stage: Stage) -> None:
    stage.policy(LIMITS)
    size = 60_000_000
    request = stage.request(
        [
            stage.bash(f"head -c {size} /dev/zero; head -c {size} /dev/zero >&2; exit 7"),
            stage.python_hook(
                "import os\nfor _ in range(5_000): os.write(1, b'o'); os.write(2, b'e')"
            ),
            stage.bash(NEIGHBOUR),
        ]
    )
    before = stage.watch.host_state()
    program = stage.start(request)
    output, errors = program.communicate(timeout=100)
    assert program.returncode == 0, errors
    assert stage.watch.settled(before) == []
    flood, drops, neighbour = (Ran.read(told) for told in json.loads(output)[0])
    assert (flood.exit_code, flood.truncated) == (7, True)
    assert (flood.stdout_bytes, flood.stderr_bytes) == (size, size)
    assert (drops.stdout_bytes, drops.stderr_bytes, drops.truncated) == (5_000, 5_000, False)
    assert (neighbour.status, neighbour.text) == ("ok", "fine\n")
    # The largest child of this process so far, in KiB: nobody kept a flood.
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 500_000


@pytest.mark.probe("I77", "four loops that never rest", "the quota of cpu time")
def test_loops_get_no_more_than_their_quota(stage: Stage) -> None:
    if stage.user.name == "user":
        pytest.skip("without a cgroup cpu time is not limited; reports say so")
    stage.policy("[limits]\ncpus = 0.5\n")
    code = "for i in 1 2 3 4; do while :; do :; done & done; wait"
    ((spin, neighbour),) = stage.emit(stage.bash(code, timeout_ms=1500), stage.bash(NEIGHBOUR))
    assert spin.status == "timeout", spin
    assert neighbour.text == "fine\n"
    assert spin.cpu_seconds is not None
    # Half a core, the first period's burst, and the time until all have ended.
    assert spin.cpu_seconds < 0.5 * (spin.seconds + 0.5) + 0.3, spin


@pytest.mark.probe("I79b", "many small hooks, one after the other", "nothing is kept")
def test_many_hooks_leave_no_descriptor(stage: Stage) -> None:
    runs = 8 if stage.sandbox == "docker" else 50
    answers = stage.emit(stage.bash("exit 0"), times=runs)
    assert [ran.status for (ran,) in answers] == ["ok"] * runs
