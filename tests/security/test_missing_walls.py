"""What happens where a kernel or an engine cannot give what the walls are made of? (L97, L101)"""

from __future__ import annotations

import json
import platform

import pytest

from executor.cell.seccomp import syscall_numbers
from tests.security.stage import HERE, Ran, Stage

NUMBERS = syscall_numbers(platform.machine())


def run_without(stage: Stage, *calls: str) -> tuple[int, list[Ran], str]:
    """One hook that tries to write, on such a kernel: exit code, outcomes, what was said."""
    if stage.sandbox == "docker":
        pytest.skip("the engine's processes are not ours to take calls from")
    request = stage.request([stage.bash("echo ran; echo x > probe")])
    before = stage.watch.host_state()
    numbers = ",".join(str(NUMBERS[call]) for call in calls)
    front = (stage.python.program, str(HERE / "without.py"), numbers)
    program = stage.start(request, front=front)
    output, errors = program.communicate(timeout=60)
    assert stage.watch.settled(before) == []
    answers = json.loads(output)[0] if output else []
    return program.returncode, [Ran.read(told) for told in answers], errors.decode()


@pytest.mark.probe("L101", "a kernel without seccomp", "refused")
def test_without_seccomp_nothing_runs(stage: Stage) -> None:
    code, answers, errors = run_without(stage, "seccomp")
    assert code == 3 or [ran.status for ran in answers] == ["error"], answers
    assert all(b"ran" not in ran.stdout for ran in answers)
    assert "seccomp" in errors + "".join(ran.reason or "" for ran in answers)


@pytest.mark.probe("L101b", "a kernel without Landlock", "the mounts; the report says so")
def test_without_landlock_the_other_walls_hold(stage: Stage) -> None:
    _, (ran,), _ = run_without(
        stage, "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"
    )
    assert (ran.text, ran.exit_code) == ("ran\n", 1), ran
    assert not (stage.workspace.path / "probe").exists()


@pytest.mark.probe("L101c", "a kernel that lacks calls the sandbox is built with", "refused")
@pytest.mark.parametrize("call", ["open_tree", "move_mount", "mount_setattr", "pivot_root"])
def test_without_a_call_that_builds_the_sandbox_nothing_runs(stage: Stage, call: str) -> None:
    code, answers, _ = run_without(stage, call)
    assert code == 3 or [ran.status for ran in answers] == ["error"], answers
    assert all(b"ran" not in ran.stdout for ran in answers)
