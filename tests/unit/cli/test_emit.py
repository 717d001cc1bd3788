"""``emit``: what goes in, what comes out, and which exit code it is."""

from __future__ import annotations

import json

import pytest

from executor.job import Job
from executor.outcome import Cause, Outcome, Status
from executor.testing import FakeBackend
from tests.support import Workspace
from tests.unit.cli.conftest import Call

PAYLOAD = '{"tool":"bash","success":true,"output":"ok"}'


@pytest.fixture(autouse=True)
def one_hook(workspace: Workspace, fake: FakeBackend) -> None:
    workspace.hooks({"tool_call": [{"command": "true"}]})


def answers(fake: FakeBackend, outcome: Outcome) -> None:
    def respond(job: Job) -> Outcome:
        return outcome

    fake._respond = respond


def test_json_is_the_object_of_the_contract(call: Call, fake: FakeBackend) -> None:
    answers(fake, Outcome(Status.OK, Cause.EXIT, exit_code=0, stdout=b"hi\n"))
    answer = call("emit", "tool_call", "--payload", PAYLOAD, "--session", "s", "--json")
    assert answer.code == 0
    assert list(answer.json) == ["event", "bus", "runs"]
    assert list(answer.json["event"]) == ["event", "timestamp", "session_id", "payload"]
    assert answer.json["event"]["payload"] == json.loads(PAYLOAD)
    assert answer.json["bus"] == {"topic": "prx.lifecycle.tool_call", "published": True}
    (run,) = answer.json["runs"]
    assert list(run) == [
        *("hook", "backend", "sandbox", "status", "cause", "exit_code", "signal"),
        *("duration_ms", "stdout", "stderr", "truncated", "reason"),
    ]
    assert (run["hook"], run["backend"], run["stdout"]) == ("hook_01", "shell", "hi\n")


def test_without_a_session_one_is_made(call: Call) -> None:
    answer = call("emit", "tool_call", "--payload", PAYLOAD, "--json")
    assert answer.json["event"]["session_id"].startswith("sess_")


@pytest.mark.parametrize(("strict", "code"), [([], 0), (["--strict"], 1)])
def test_a_failing_hook_is_a_failure_only_when_strict(
    call: Call, fake: FakeBackend, strict: list[str], code: int
) -> None:
    answers(fake, Outcome(Status.FAILED, Cause.EXIT, exit_code=3))
    assert call("emit", "tool_call", "--payload", PAYLOAD, *strict).code == code


def test_strict_is_content_with_hooks_that_end_ok(call: Call) -> None:
    assert call("emit", "tool_call", "--payload", PAYLOAD, "--strict").code == 0


def test_the_payload_may_come_from_a_file_or_from_stdin(call: Call, workspace: Workspace) -> None:
    workspace.file("p.json", PAYLOAD)
    assert call("emit", "tool_call", "--payload-file", "p.json").code == 0
    answer = call("emit", "tool_call", "--payload-file", "-", "--json", stdin=PAYLOAD.encode())
    assert answer.json["event"]["payload"] == json.loads(PAYLOAD)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nope"], "/event: is no known event"),
        (["tool_cal"], 'did you mean "tool_call"?'),
        (["tool_call"], "/payload/tool: is required: a string"),
        (["tool_call", "--payload", '{"tool":1}'], "/payload/tool: must be a string"),
        (["tool_call", "--payload", "{"], "--payload: no valid JSON"),
        (["tool_call", "--payload", "-1"], "--payload: must be an object"),
        (["tool_call", "--payload", "[1]"], "--payload: must be an object, not a list"),
        (["tool_call", "--payload", '{"tool":NaN}'], "--payload: /tool: is no finite number"),
        (["tool_call", "--payload", '{"a":1,"a":2}'], "--payload: /a: stands twice"),
        (["tool_call", "--payload", "{}", "--payload-file", "-"], "not both"),
        (["tool_call", "--payload-file", "/nonexistent"], "No such file"),
        (["turn_complete", "--session", ""], "/session_id: must not be empty"),
        (["PreToolUse", "--payload", '{"tool_name":"b","input":{}}'], "gate"),
    ],
)
def test_a_mistake_is_exit_code_2_with_a_pointer_and_nothing_runs(
    call: Call, fake: FakeBackend, words: list[str], told: str
) -> None:
    answer = call("emit", *words)
    assert answer.code == 2
    assert told in answer.err
    assert answer.out == ""
    assert fake.jobs == []


def test_a_broken_hooks_json_is_exit_code_1(call: Call, workspace: Workspace) -> None:
    workspace.file("hooks.json", '{"hooks": {"tool_cal": []}}')
    answer = call("emit", "tool_call", "--payload", PAYLOAD)
    assert answer.code == 1
    assert "hooks.json: /hooks/tool_cal" in answer.err


def test_a_dropped_event_says_so(call: Call, workspace: Workspace, fake: FakeBackend) -> None:
    workspace.settings("[limits]\nmax_payload_bytes = 1024\n")
    big = json.dumps({"tool": "bash", "success": True, "output": "x" * 2000})
    answer = call("emit", "tool_call", "--payload", big)
    assert answer.code == 0
    assert "dropped" in answer.err
    assert call("emit", "tool_call", "--payload", big, "--strict").code == 1
    assert "dropped" in call("emit", "tool_call", "--payload", big, "--json").json
    assert fake.jobs == []


def test_no_control_character_of_a_hook_reaches_the_terminal(call: Call, fake: FakeBackend) -> None:
    nasty = b"\x1b[2J\x1b]0;owned\x07 \xc2\x9b31m \xe2\x80\xae \x7f \xff"
    answers(fake, Outcome(Status.FAILED, Cause.EXIT, exit_code=1, stdout=nasty, stderr=nasty))
    human = call("emit", "tool_call", "--payload", PAYLOAD)
    assert all(one.isprintable() or one == "\n" for one in human.out)
    answer = call("emit", "tool_call", "--payload", PAYLOAD, "--json")
    assert all(one.isprintable() or one == "\n" for one in answer.out)
    (run,) = answer.json["runs"]
    assert run["stdout"] == nasty.decode("utf-8", "replace")


def test_the_table_tells_the_cause_of_death(call: Call, fake: FakeBackend) -> None:
    answers(fake, Outcome(Status.TIMEOUT, Cause.WALL_CLOCK, signal=9, reason="out of time"))
    answer = call("emit", "tool_call", "--payload", PAYLOAD)
    for word in ("hook_01", "timeout", "wall_clock", "signal 9", "out of time"):
        assert word in answer.out


def test_an_event_without_hooks_says_so(call: Call) -> None:
    assert "no hook reacts" in call("emit", "turn_complete").out
