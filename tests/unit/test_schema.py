"""Are the schemas in ``schemas/`` current, and do they say what the parsers do?"""

from __future__ import annotations

import contextlib
import json
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from executor.errors import InvalidConfig
from executor.events import make_event
from executor.hooks import parse_hooks
from executor.schema import MAKERS, render, schema

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_the_checked_in_schema_is_current(kind: str) -> None:
    """To renew it: ``hook-executor schema KIND > schemas/KIND.schema.json``."""
    stored = (ROOT / "schemas" / f"{kind}.schema.json").read_text(encoding="utf-8")
    assert stored == render(kind)


@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_every_schema_is_a_schema(kind: str) -> None:
    jsonschema_rs.meta.validate(schema(kind))


def agrees(document: Any) -> bool:
    """What the schema says; the parser must not say otherwise."""
    valid: bool = jsonschema_rs.validator_for(schema("hooks")).is_valid(document)
    parsed = False
    with contextlib.suppress(InvalidConfig):
        parse_hooks(json.dumps(document).encode())
        parsed = True
    assert parsed is valid
    return valid


@pytest.mark.parametrize(
    "document",
    [
        {"hooks": {}},
        {"$schema": "x", "hooks": {"error": [{"command": "python3", "args": ["a;b"]}]}},
        {"hooks": {"tool_call": [{"command": "/a b", "matcher": "x*|y", "env": {"A": "1"}}]}},
        {"hooks": {"error": [{"command": "x", "id": "hook_01", "enabled": False, "cwd": "a"}]}},
        {"hooks": {"PreToolUse": [{"command": "x", "protocol": "claude", "timeout_ms": 1}]}},
    ],
)
def test_the_hooks_schema_accepts_what_the_parser_accepts(document: object) -> None:
    assert agrees(document)


@pytest.mark.parametrize(
    "document",
    [
        {},
        [],
        {"hooks": []},
        {"hooks": {}, "x": 1},
        {"hooks": {"toolcall": []}},
        {"hooks": {"error": {}}},
        {"hooks": {"error": [{}]}},
        *(
            {"hooks": {"error": [{"command": "x", **wrong}]}}
            for wrong in (
                {"command": ""},
                {"command": "a;b"},
                {"command": "~/a"},
                {"command": "a]b"},
                {"command": "a\\b"},
                {"command": "a\nb"},
                {"command": 3},
                {"args": "x"},
                {"args": ["a\0"]},
                {"env": {"1A": "x"}},
                {"env": {"A": 1}},
                {"env": {"A": "\0"}},
                {"timeout_ms": 0},
                {"timeout_ms": 300_001},
                {"timeout_ms": True},
                {"stdin_json": 1},
                {"matcher": "x"},
                {"protocol": "x"},
                {"protocol": "claude"},
                {"id": "a b"},
                {"cwd": None},
                {"comand": "x"},
            )
        ),
    ],
)
def test_the_hooks_schema_refuses_what_the_parser_refuses(document: object) -> None:
    assert not agrees(document)


def test_the_shipped_policies_fit_their_schema_as_they_are_written() -> None:
    validator = jsonschema_rs.validator_for(schema("policy"))
    for path in (ROOT / "policies").glob("*.toml"):
        validator.validate(tomllib.loads(path.read_text(encoding="utf-8")))
    assert not validator.is_valid({"name": "x", "limit": {}})
    assert not validator.is_valid({"name": "x", "limits": {"memory": "1MB"}})
    assert not validator.is_valid({})


def test_an_envelope_fits_its_schema() -> None:
    validator = jsonschema_rs.validator_for(schema("event"))
    payload = {"tool": "bash", "success": True, "output": "ok", "extra": 1}
    event = make_event("tool_call", payload, session_id="s", now=datetime.now(UTC))
    envelope = json.loads(event.envelope)
    validator.validate(envelope)
    assert not validator.is_valid({**envelope, "event": "error"})
    assert not validator.is_valid({**envelope, "x": 1})
    assert not validator.is_valid({**envelope, "payload": {"tool": 1}})
