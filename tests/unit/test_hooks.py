"""Is hooks.json read whole or refused whole, with every mistake at its place?"""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from executor.errors import InvalidConfig
from executor.events import EVENTS, GATE
from executor.hooks import (
    MATCHED_EVENTS,
    MAX_FILE_BYTES,
    Action,
    Hook,
    dump_hooks,
    parse_action,
    parse_hooks,
)

COMPLETE = {
    "hooks": {
        "agent_start": [
            {
                "command": "/usr/local/bin/notify",
                "args": ["--channel", "ops", "--title", "Agent Started"],
                "timeout_ms": 3000,
            }
        ],
        "llm_response": [
            {
                "command": "python3",
                "args": ["/opt/hooks/log_latency.py"],
                "stdin_json": True,
                "timeout_ms": 2000,
            }
        ],
        "tool_call": [
            {
                "command": "/opt/hooks/audit_tool_usage.sh",
                "env": {"LOG_DIR": "/var/log/prx/audit"},
                "timeout_ms": 5000,
            }
        ],
        "error": [
            {
                "command": "curl",
                "args": [
                    "-X",
                    "POST",
                    "-H",
                    "Content-Type: application/json",
                    "-d",
                    "@-",
                    "https://hooks.slack.com/services/T00/B00/xxxxx",
                ],
                "stdin_json": True,
                "timeout_ms": 10000,
            }
        ],
    }
}
TRACKER = {
    "hooks": {
        "agent_start": [
            {"command": "/opt/hooks/session_tracker.sh", "args": ["start"], "timeout_ms": 2000}
        ],
        "agent_end": [
            {"command": "/opt/hooks/session_tracker.sh", "args": ["end"], "timeout_ms": 2000}
        ],
    }
}
STRUCTURE = {
    "hooks": {
        "tool_call": [
            {
                "command": "/path/to/script",
                "args": ["--flag", "value"],
                "env": {"CUSTOM_VAR": "value"},
                "cwd": "/working/directory",
                "timeout_ms": 5000,
                "stdin_json": True,
            }
        ]
    }
}


def parse(document: Any, **options: Any) -> tuple[Hook, ...]:
    return parse_hooks(json.dumps(document).encode(), **options)


def one(event: str = "tool_call", **fields: Any) -> dict[str, Any]:
    return {"hooks": {event: [{"command": "x", **fields}]}}


def faults(document: Any, **options: Any) -> dict[str, str]:
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    with pytest.raises(InvalidConfig) as caught:
        parse_hooks(data, **options)
    return {fault.pointer: fault.message for fault in caught.value.faults}


@pytest.mark.parametrize("document", [COMPLETE, TRACKER, STRUCTURE])
def test_the_source_systems_own_files_parse(document: dict[str, Any]) -> None:
    hooks = parse(document)
    assert len(hooks) == sum(len(actions) for actions in document["hooks"].values())


def test_hooks_come_in_file_order_with_their_pointers() -> None:
    hooks = parse(
        {"hooks": {"error": [{"command": "b"}, {"command": "a"}], "agent_end": [{"command": "c"}]}}
    )
    assert [(hook.pointer, hook.event, hook.action.command) for hook in hooks] == [
        ("/hooks/error/0", "error", "b"),
        ("/hooks/error/1", "error", "a"),
        ("/hooks/agent_end/0", "agent_end", "c"),
    ]


def test_what_is_left_out_has_the_defaults_of_the_contract() -> None:
    (hook,) = parse(one())
    action = hook.action
    assert (hook.id, hook.enabled, hook.created_at, hook.updated_at) == (None, True, None, None)
    assert (action.args, action.env, action.cwd) == ((), {}, None)
    assert (action.timeout_ms, action.stdin_json) == (30_000, False)
    assert (action.matcher, action.policy, action.protocol) == (None, None, "native")


def test_no_hooks_and_a_schema_reference_are_fine() -> None:
    assert parse({"hooks": {}}) == ()
    assert parse({"$schema": "./hooks.schema.json", "hooks": {"error": []}}) == ()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b" \n ", "empty"),
        (b"{", "line 1 column 2"),
        (b'{"hooks": {"error": [{"command": "a"}', "no valid JSON"),
        (b"[]", "not a list"),
        (b"null", "not null"),
        (b"3", "not a whole number"),
        (b'"text"', "not a string"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b'{"hooks":{}}\xff', "not UTF-8 at byte 12"),
        ('{"hooks":{}}'.encode("utf-16"), "not UTF-8"),
        (b" " * (MAX_FILE_BYTES + 1), "at most"),
        (b"[" * 1_000_000, "nested deeper"),
        (b'{"a":' * 1_000_000, "nested deeper"),
        (b"[" * 70 + b"]" * 70, "nested deeper"),
        (b'{"hooks":' + b"9" * 5000 + b"}", "too many digits"),
        (b'{"hooks":{}} x', "no valid JSON"),
        (b"{'hooks':{}}", "no valid JSON"),
    ],
)
def test_what_is_no_document_gets_one_clear_fault(data: bytes, reason: str) -> None:
    found = faults(data)
    assert set(found) == {""}
    assert reason in found[""]


@pytest.mark.parametrize(
    ("data", "pointer", "reason"),
    [
        (b'{"hooks":{},"hooks":{}}', "/hooks", "stands twice"),
        (b'{"hooks":{"error":[{"command":"a","command":"b"}]}}', "/hooks/error/0/command", "twice"),
        (
            b'{"hooks":{"error":[{"command":"a","timeout_ms":NaN}]}}',
            "/hooks/error/0/timeout_ms",
            "finite",
        ),
        (
            b'{"hooks":{"error":[{"command":"a","timeout_ms":1e999}]}}',
            "/hooks/error/0/timeout_ms",
            "finite",
        ),
        (b'{"hooks":{"error":[{"command":"\\ud800"}]}}', "/hooks/error/0/command", "surrogate"),
        (
            b'{"hooks":{"error":[{"command":"a","env":{"\\ud800":""}}]}}',
            "/hooks/error/0/env",
            "surrogate",
        ),
        (b'{"hooks":{"a/b~c":[]}}', "/hooks/a~1b~0c", "no known event"),
        (b"{}", "/hooks", "required"),
        (b'{"hooks":[]}', "/hooks", "must be an object, not a list"),
        (b'{"hooks":{},"hoks":1}', "/hoks", 'did you mean "hooks"?'),
        (b'{"hooks":{},"$schema":1}', "/$schema", "string"),
        (b'{"hooks":{"error":{}}}', "/hooks/error", "must be a list of actions, not an object"),
        (b'{"hooks":{"error":["x"]}}', "/hooks/error/0", "must be an object, not a string"),
        (b'{"hooks":{"toolcall":[]}}', "/hooks/toolcall", 'did you mean "tool_call"?'),
    ],
)
def test_a_broken_document_is_refused_at_its_place(data: bytes, pointer: str, reason: str) -> None:
    assert reason in faults(data)[pointer]


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("command", 1, "must be a string, not a whole number"),
        ("command", "a;b", "script"),
        ("args", "x", "must be a list, not a string"),
        ("args", {}, "must be a list, not an object"),
        ("env", [], "must be an object, not a list"),
        ("cwd", "../x", "leaves the workspace"),
        ("cwd", "/proc/1", "/proc"),
        ("cwd", 1, "must be a string"),
        ("timeout_ms", True, "must be a whole number, not true or false"),
        ("timeout_ms", 5.0, "must be a whole number, not a number with a fraction"),
        ("timeout_ms", "5000", "must be a whole number, not a string"),
        ("timeout_ms", 0, "milliseconds"),
        ("timeout_ms", -1, "milliseconds"),
        ("timeout_ms", 300_001, "1 to 300000"),
        ("stdin_json", 1, "must be true or false, not a whole number"),
        ("stdin_json", "true", "must be true or false, not a string"),
        ("enabled", 0, "must be true or false"),
        ("id", "", "must match"),
        ("id", "a b", "must match"),
        ("id", 1, "must be a string"),
        ("created_at", "yesterday", "UTC time"),
        ("updated_at", "2026-03-20T10:00:00+01:00", "UTC time"),
        ("matcher", "", "empty alternative"),
        ("matcher", "a||b", "empty alternative"),
        ("matcher", "a | b", "white space"),
        ("policy", "", "at least 1"),
        ("protocol", "claud", 'did you mean "claude"?'),
        ("protocol", "Claude", 'did you mean "claude"?'),
        ("comand", "x", 'did you mean "command"?'),
        ("timeout", 5, 'did you mean "timeout_ms"?'),
        ("enabld", True, 'did you mean "enabled"?'),
        ("type", "command", "is no known key"),
        ("cwd", None, "must not be null"),
        ("id", None, "must not be null"),
    ],
)
def test_each_wrong_field_is_refused_at_its_place(field: str, value: Any, reason: str) -> None:
    assert reason in faults(one(**{field: value}))[f"/hooks/tool_call/0/{field}"]


def test_a_command_is_required() -> None:
    found = faults({"hooks": {"error": [{"args": []}]}})
    assert found == {"/hooks/error/0/command": "is required"}


def test_faults_inside_lists_and_objects_have_their_own_pointers() -> None:
    found = faults(one(args=["ok", "a\0b", 3], env={"OK": "x", "1X": "y", "N": "a\0", "M": 4}))
    assert set(found) == {
        "/hooks/tool_call/0/args/1",
        "/hooks/tool_call/0/args/2",
        "/hooks/tool_call/0/env/1X",
        "/hooks/tool_call/0/env/N",
        "/hooks/tool_call/0/env/M",
    }


def test_all_faults_of_a_file_come_at_once_and_name_the_file() -> None:
    document = {"hooks": {"toolcall": [{"command": "a;b"}], "error": [{"comand": "x"}]}, "x": 1}
    with pytest.raises(InvalidConfig) as caught:
        parse(document, where="w/hooks.json")
    assert {fault.pointer for fault in caught.value.faults} == {
        "/x",
        "/hooks/toolcall",
        "/hooks/toolcall/0/command",
        "/hooks/error/0/command",
        "/hooks/error/0/comand",
    }
    assert all(line.startswith("w/hooks.json: /") for line in str(caught.value).splitlines())


def test_a_message_never_repeats_a_rejected_value() -> None:
    document = one(args=["s3cret\0"], env={"A": "s3cret\0"}, cwd="../s3cret", protocol="s3cret")
    document["hooks"]["tool_call"][0]["command"] = "s3cret;"
    assert len(faults(document)) == 5
    assert not any("s3cret" in message for message in faults(document).values())


def test_a_file_of_a_million_mistakes_is_answered_with_a_hundred() -> None:
    found = faults({"hooks": {"error": [3] * 200_000}})
    assert len(found) == 101
    assert "only the first 100" in found[""]


def test_the_largest_timeout_is_a_setting() -> None:
    assert parse(one(timeout_ms=600_000), max_timeout_ms=600_000)
    assert (
        "1 to 1000"
        in faults(one(timeout_ms=1001), max_timeout_ms=1000)["/hooks/tool_call/0/timeout_ms"]
    )


def test_an_id_stands_once_in_a_file() -> None:
    document = {
        "hooks": {
            "error": [{"id": "hook_01", "command": "a"}],
            "agent_end": [{"id": "hook_02", "command": "a"}, {"id": "hook_01", "command": "a"}],
        }
    }
    assert faults(document) == {"/hooks/agent_end/1/id": "is the id of /hooks/error/0 too"}


def test_reserved_variables_are_no_fault_of_the_file() -> None:
    (hook,) = parse(one(env={"LD_PRELOAD": "x", "PATH": "y"}))
    assert hook.action.env == {"LD_PRELOAD": "x", "PATH": "y"}


@pytest.mark.parametrize("event", sorted(EVENTS))
def test_a_matcher_is_for_events_that_name_a_tool(event: str) -> None:
    document = one(event, matcher="bash")
    if event in MATCHED_EVENTS:
        assert parse(document)
    else:
        assert event in faults(document)[f"/hooks/{event}/0/matcher"]


@pytest.mark.parametrize("event", sorted(EVENTS))
def test_a_protocol_is_for_events_of_the_gate(event: str) -> None:
    document = one(event, protocol="claude")
    if event in GATE:
        assert parse(document)
    else:
        told = faults(document)[f"/hooks/{event}/0/protocol"]
        assert "PreToolUse" in told
        assert event in told


@pytest.mark.parametrize(
    ("matcher", "name", "expected"),
    [
        ("bash", "bash", True),
        ("bash", "bash2", False),
        ("bash", "Bash", False),
        ("*", "anything", True),
        ("mcp__*", "mcp__server__tool", True),
        ("mcp__*", "notmcp__x", False),
        ("mcp__server", "mcp__server__tool", False),
        ("Write|Edit", "Edit", True),
        ("Write|Edit", "WriteEdit", False),
        ("Multi*|Edit", "MultiEdit", True),
        ("a.b", "axb", False),
        ("a-b", "a-bc", False),
        ("a,b", "a", False),
    ],
)
def test_a_matcher_is_a_full_match(matcher: str, name: str, *, expected: bool) -> None:
    assert Action(command="x", matcher=matcher).matches_tool(name) is expected


def test_without_a_matcher_every_tool_is_meant() -> None:
    assert Action(command="x").matches_tool("anything")


def test_one_action_from_the_api_is_checked_by_the_same_rules() -> None:
    assert parse_action({"command": "x", "args": ["a"]}, event="error").args == ("a",)
    with pytest.raises(InvalidConfig) as caught:
        parse_action({"command": "a;b", "x": 1, "matcher": "y"}, event="error", at="/action")
    assert {fault.pointer for fault in caught.value.faults} == {
        "/action/command",
        "/action/x",
        "/action/matcher",
    }
    with pytest.raises(InvalidConfig):
        parse_action("x", event="error")


def test_the_file_is_written_as_it_was_read() -> None:
    document = {
        "hooks": {
            "error": [
                {
                    "id": "hook_02",
                    "command": "b",
                    "args": [],
                    "timeout_ms": 30000,
                    "env": {"É": "é"},
                }
            ],
            "agent_end": [{"command": "a", "enabled": False, "created_at": "2026-03-20T10:00:00Z"}],
        }
    }
    document["hooks"]["error"][0]["env"] = {"E": "é"}
    data = dump_hooks(parse(document))
    assert json.loads(data) == document
    assert "é".encode() in data
    assert data.endswith(b"}\n")
    assert list(json.loads(dump_hooks((), schema="s"))) == ["$schema", "hooks"]


arguments = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
words = st.text("abcdefgh é", min_size=1, max_size=6)
entries = st.fixed_dictionaries(
    {"command": words},
    optional={
        "args": st.lists(
            st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), max_size=3
        ),
        "env": st.dictionaries(st.sampled_from(["A", "B_1"]), words),
        "cwd": words,
        "timeout_ms": st.integers(1, 300_000),
        "stdin_json": st.booleans(),
        "enabled": st.booleans(),
        "policy": st.just("audit"),
    },
)
gate_entries = st.tuples(entries, st.sampled_from(["native", "claude"])).map(
    lambda pair: {**pair[0], "protocol": pair[1]}
)
documents = st.dictionaries(
    st.sampled_from(sorted(EVENTS)), st.lists(entries, min_size=1, max_size=3)
) | st.dictionaries(st.sampled_from(sorted(GATE)), st.lists(gate_entries, min_size=1, max_size=3))


@given(documents)
def test_reading_what_was_written_gives_the_same_hooks(events: dict[str, Any]) -> None:
    hooks = parse({"hooks": events})
    assert parse_hooks(dump_hooks(hooks)) == hooks


@given(st.binary(max_size=200))
def test_any_bytes_are_hooks_or_an_invalid_config(data: bytes) -> None:
    with contextlib.suppress(InvalidConfig):
        parse_hooks(data)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["hooks", "error", "command", "args", "env", "id", "x", "matcher"]),
                inner,
            )
        ),
        max_leaves=20,
    )
)
def test_any_json_is_hooks_or_an_invalid_config(document: object) -> None:
    with contextlib.suppress(InvalidConfig):
        parse(document)
