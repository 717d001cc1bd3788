"""``gate`` and ``permission explain``: the verdict is the exit code, and nothing else is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from executor.outcome import Cause, Outcome, Status
from executor.testing import FakeBackend
from tests.support import Workspace
from tests.unit.cli.conftest import Call

LS = '{"tool_name":"bash","input":{"command":"ls"}}'
RM = '{"tool_name":"bash","input":{"command":"ls; rm -rf /"}}'
SAID = Outcome(Status.OK, Cause.EXIT, exit_code=0, stdout=b"said\n")


@pytest.fixture(autouse=True)
def one_hook(workspace: Workspace, fake: FakeBackend) -> None:
    workspace.hooks({"PreToolUse": [{"command": "guard"}]})
    workspace.settings(
        '[permission]\nrules = [{effect = "deny", tool = "bash", command = "rm -rf *"}]\n'
    )


@pytest.mark.parametrize(
    ("status", "exits", "code", "message"),
    [
        (Status.OK, 0, 0, ""),
        (Status.FAILED, 1, 1, "said"),
        (Status.FAILED, 2, 2, "said"),
        (Status.FAILED, 7, 1, "exited with 7"),
    ],
)
def test_the_exit_code_is_the_verdict(
    call: Call, fake: FakeBackend, status: Status, exits: int, code: int, message: str
) -> None:
    fake._respond = lambda job: replace(SAID, status=status, exit_code=exits)
    answer = call("gate", "PreToolUse", "--payload", LS)
    assert answer.code == code
    assert list(answer.json) == ["exit_code", "message"]
    assert answer.json["exit_code"] == code
    assert message in answer.json["message"]


def test_a_denial_runs_no_hook(call: Call, fake: FakeBackend) -> None:
    answer = call("gate", "PreToolUse", "--payload", RM, "--json")
    assert answer.code == 1
    assert answer.json["decider"] == "permission:0"
    assert fake.jobs == []


@pytest.mark.parametrize(
    "words",
    [
        ["PreToolUse", "--payload", "{}"],
        ["PreToolUse", "--payload", "{"],
        ["tool_call", "--payload", "{}"],
        ["PreToolUse", "--no-such-option"],
        [],
    ],
)
def test_no_failure_of_ours_looks_like_a_verdict(call: Call, words: list[str]) -> None:
    assert call("gate", *words).code >= 64


def test_a_broken_configuration_is_no_verdict(call: Call, workspace: Workspace) -> None:
    workspace.settings('[permission]\nrules = [{effect = "deny", command = ""}]\n')
    answer = call("gate", "PreToolUse", "--payload", LS)
    assert answer.code >= 64
    assert "/permission/rules/0/command" in answer.err


def test_explain_names_the_rule_and_what_was_read(call: Call) -> None:
    text = '{"command": "FOO=1 sudo rm -rf $X"}'
    told = call("permission", "explain", "bash", "--input", text, "--json").json
    assert (told["effect"], told["rule"]) == ("deny", 0)
    assert told["commands"] == ["rm -rf …", "sudo rm -rf …"]
    assert told["caveats"] == ["it sets FOO"]
    answer = call("permission", "explain", "bash", "--input", text)
    assert answer.code == 0
    assert answer.out.startswith("deny: rule 0")
    assert call("permission", "explain", "bash", "--input", "[]").code == 2


@pytest.mark.parametrize("payload", [[], ["--payload", "{}"], ["--payload", LS]])
def test_the_wrong_verb_is_told_before_anything_of_the_payload(
    call: Call, payload: list[str]
) -> None:
    asked = call("gate", "tool_call", *payload)
    assert asked.code == 64
    assert "tool_call is emitted, not asked: use hook-executor emit" in asked.err
    emitted = call("emit", "PreToolUse", *payload)
    assert emitted.code == 2
    assert "PreToolUse is asked, not emitted: use hook-executor gate" in emitted.err
    assert "is required" not in asked.err + emitted.err


def test_an_unknown_event_is_neither(call: Call) -> None:
    for words in (("gate", "tool_cal"), ("emit", "PreTool")):
        assert "is no known event; did you mean" in call(*words).err
