"""Is a gate that will not do what was meant noticed before it runs?"""

from __future__ import annotations

import json

import pytest

from executor.configuration import Configuration
from executor.gate.lint import gate_warnings
from executor.hooks import parse_hooks
from executor.settings import parse_settings


def warnings(*matchers: str | None, strategy: str = "first") -> list[str]:
    actions = [
        {"command": "guard"} if one is None else {"command": "guard", "matcher": one}
        for one in matchers
    ]
    return gate_warnings(
        Configuration(
            parse_settings(f'[gate]\nstrategy = "{strategy}"\n'.encode()),
            {},
            parse_hooks(json.dumps({"hooks": {"PreToolUse": actions}}).encode()),
        )
    )


def test_under_first_a_guard_behind_another_hook_is_told() -> None:
    (told,) = warnings(None, "bash")
    assert told.startswith("/hooks/PreToolUse/1: ")
    assert "block-wins" in told
    assert warnings("bash", "write") == []
    assert warnings("ba*", "read|bash") != []
    assert warnings(None, "bash", strategy="block-wins") == []


@pytest.mark.parametrize(
    "matcher", ["mcp__.*", "^bash$", "Edit|Write.+", "mcp__github", "mcp__a_b"]
)
def test_a_matcher_that_matches_nothing_is_told(matcher: str) -> None:
    (told,) = warnings(matcher, strategy="block-wins")
    assert told.startswith("/hooks/PreToolUse/0/matcher: ")


@pytest.mark.parametrize("matcher", ["mcp__github__*", "mcp__github__list", "bash|read_*", "a.b"])
def test_a_matcher_that_can_match_is_not(matcher: str) -> None:
    assert warnings(matcher, strategy="block-wins") == []
