"""``run``: whose exit code is it, and what may run."""

from __future__ import annotations

import pytest

from executor.cli.run import own_code
from executor.job import Job
from executor.outcome import Cause, Outcome, Status, refused
from executor.testing import FakeBackend
from tests.support import Workspace
from tests.unit.cli.conftest import Call


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (Outcome(Status.OK, Cause.EXIT, exit_code=0), 0),
        (Outcome(Status.FAILED, Cause.EXIT, exit_code=7), 7),
        (Outcome(Status.SIGNALLED, Cause.SIGNAL, signal=9), 137),
        (Outcome(Status.SIGNALLED, Cause.SECCOMP, signal=31), 159),
        (Outcome(Status.TIMEOUT, Cause.WALL_CLOCK, exit_code=0), 125),
        (Outcome(Status.TIMEOUT, Cause.WALL_CLOCK, signal=15), 125),
        (Outcome(Status.OOM, Cause.MEMORY, signal=9), 125),
        (Outcome(Status.ERROR, Cause.NOT_FOUND), 125),
        (Outcome(Status.INTERRUPTED, Cause.STOPPED), 125),
        (refused("no"), 125),
    ],
)
def test_the_code_is_the_hooks_own_or_125(outcome: Outcome, code: int) -> None:
    assert own_code(outcome) == code


def test_the_command_runs_literally_under_the_bound_policy(call: Call, fake: FakeBackend) -> None:
    assert call("run", "--", "printf", "%s", "--json", "a b").code == 0
    (job,) = fake.jobs
    assert job.argv == ("printf", "%s", "--json", "a b")
    assert dict(job.env)["ZERO_HOOK_EVENT"] == "tool_call"
    assert job.stdin


def test_output_passes_through_as_it_is(call: Call, fake: FakeBackend) -> None:
    def respond(job: Job) -> Outcome:
        return Outcome(Status.FAILED, Cause.EXIT, exit_code=4, stdout=b"out\n", stderr=b"err\n")

    fake._respond = respond
    answer = call("run", "--", "x")
    assert (answer.code, answer.out, answer.err) == (4, "out\n", "err\n")


def test_a_policy_is_chosen_by_hand(call: Call, fake: FakeBackend, workspace: Workspace) -> None:
    workspace.policy("tiny", 'extends = "default"\n[limits]\npids = 3\n')
    assert call("run", "--policy", "tiny", "--", "true").code == 0
    assert fake.jobs[0].sandbox.limits.pids == 3
    answer = call("run", "--policy", "tiy", "--", "true")
    assert answer.code == 125
    assert 'did you mean "tiny"?' in answer.err


def test_the_workspaces_own_hooks_do_not_run(
    call: Call, fake: FakeBackend, workspace: Workspace
) -> None:
    workspace.hooks({"tool_call": [{"command": "other"}]})
    assert call("run", "--", "mine").code == 0
    assert [job.command for job in fake.jobs] == ["mine"]


def test_what_a_grant_holds_stays_protected_from_a_run_by_hand(
    call: Call, fake: FakeBackend, workspace: Workspace
) -> None:
    workspace.granted("data")
    workspace.script("data/hook.sh", "true")
    workspace.hooks({"tool_call": [{"command": "data/hook.sh"}]})
    workspace.policy("writes", 'extends = "default"\n[filesystem]\nwrite = ["data"]\n')
    answer = call("run", "--policy", "writes", "--", "true")
    assert answer.code == 125
    assert "protected" in answer.err
    assert fake.jobs == []


def test_a_refused_command_is_125_with_the_reason(call: Call, fake: FakeBackend) -> None:
    answer = call("run", "--", "a;b")
    assert answer.code == 125
    assert "metacharacters" in answer.err
    assert fake.jobs == []


def test_event_and_payload_are_checked_first(call: Call, fake: FakeBackend) -> None:
    assert call("run", "--event", "nope", "--", "true").code == 125
    assert call("run", "--payload", "{}", "--", "true").code == 125
    assert call("run", "--event", "error", "--", "true").code == 0
