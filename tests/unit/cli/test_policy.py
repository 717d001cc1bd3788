"""``policy`` and ``images``: what is there, in words and as data."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from executor import images
from executor.images import Image
from executor.policy import WITHOUT_EFFECT, parse_policy
from tests.support import Workspace
from tests.unit.cli.conftest import Call


def test_list_names_the_shipped_and_the_workspaces_own(call: Call, workspace: Workspace) -> None:
    workspace.policy("mine", 'extends = "audit"\n')
    listed = {
        one["name"]: one["shipped"] for one in call("policy", "list", "--json").json["policies"]
    }
    assert listed == {
        "audit": True, "default": True, "mine": False, "notify": True, "strict": True,
    }  # fmt: skip
    assert "mine" in call("policy", "list").out


def test_show_prints_a_policy_file_with_everything_inherited(
    call: Call, workspace: Workspace
) -> None:
    workspace.policy("mine", 'extends = "audit"\n[limits]\npids = 9\n')
    shown = call("policy", "show", "mine")
    parse_policy(shown.out.encode(), where="policies/mine.toml")
    values = tomllib.loads(shown.out)
    assert values["limits"]["pids"] == 9
    assert values["filesystem"]["write"] == ["/var/log/prx"]
    assert call("policy", "show", "mine", "--json").json["limits"]["pids"] == 9


def test_explain_says_what_it_means_and_whom_it_binds(call: Call, workspace: Workspace) -> None:
    workspace.hooks({"tool_call": [{"command": "a"}], "error": [{"command": "b"}]})
    workspace.settings('[[bind]]\nevents = ["tool_call"]\npolicy = "notify"\n')
    answer = call("policy", "explain", "notify")
    assert "tool_call a" in answer.out
    assert "error b" not in answer.out
    assert "limits.memory" in answer.out
    assert call("policy", "explain", "notify", "--json").json["hooks"] == ["tool_call a"]


def test_a_repository_of_policies_is_not_refused_for_its_own(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(__file__).resolve().parents[3]
    assert call("policy", "list", "--workspace", str(root)).code == 0


def test_images_are_listed_with_what_is_old(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Path("/nonexistent")
    image = Image(
        "python", "ab" * 32, place, place, place, ("a=1",), "2026-01-01T00:00:00Z", "", "x"
    )
    monkeypatch.setattr(images, "find", lambda name: image if name == "python" else None)
    monkeypatch.setattr(images, "outdated", lambda _: ("a 1 → 2",))
    answer = call("images", "list")
    assert "not built" in answer.out
    assert "older than security updates of a 1 → 2" in answer.err
    assert "images build --force python" in answer.err
    listed = {one["name"]: one for one in call("images", "list", "--json").json["images"]}
    assert listed["base"]["digest"] is None
    assert listed["python"]["outdated"] == ["a 1 → 2"]


def test_an_image_that_is_not_defined_is_an_error(call: Call) -> None:
    answer = call("images", "build", "nope")
    assert answer.code == 1
    assert "nope" in answer.err


def test_explain_does_not_praise_what_has_no_effect(call: Call, workspace: Workspace) -> None:
    """Of every key that this version only reads."""
    for section, key in WITHOUT_EFFECT:
        workspace.policy("mine", f'extends = "default"\n[{section}]\n{key} = 3\n')
        warning = f"{section}.{key} is set, and has no effect in this version"
        assert f"warning: {warning}" in call("policy", "explain", "mine").out
        assert call("policy", "explain", "mine", "--json").json["warnings"] == [warning]
        assert "3" not in "".join(call("policy", "explain", "mine", "--json").json["means"][1:4])
    assert "warning" not in call("policy", "explain", "default").out
