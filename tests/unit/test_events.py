"""Is an Event valid by construction, and its envelope one line that every reader understands?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, strategies as st

from executor.errors import InvalidEvent
from executor.events import (
    EVENTS,
    GATE,
    LIFECYCLE,
    MAX_NESTING,
    MAX_SESSION_ID_CHARACTERS,
    Event,
    make_event,
    new_session_id,
)

NOW = datetime(2026, 3, 21, 8, 15, 30, 123987, tzinfo=UTC)

PAYLOADS: Mapping[str, dict[str, object]] = {
    "agent_start": {"agent": "a", "session": "s"},
    "agent_end": {"success": True, "messages_count": 3},
    "llm_request": {"provider": "openai", "model": "gpt-4o", "messages_count": 2.0},
    "llm_response": {"provider": "openai", "model": "gpt-4o", "duration_ms": 1842, "success": True},
    "tool_call_start": {"tool": "bash", "arguments": {"command": "ls"}},
    "tool_call": {"tool": "bash", "success": False, "output": ""},
    "turn_complete": {},
    "error": {"component": "llm", "message": "no"},
    "SessionStart": {"session_id": "sess_1", "user_input": "hello"},
    "PreToolUse": {"tool_name": "bash", "input": {"command": "pytest"}},
    "PostToolUse": {"tool_name": "bash", "input": {}, "output": "5 passed"},
}

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


def make(name: str = "turn_complete", payload: Any = None, **changes: Any) -> Event:
    arguments: dict[str, Any] = {"session_id": "sess_1", "now": NOW, **changes}
    return make_event(name, {} if payload is None else payload, **arguments)


def faults(name: Any = "turn_complete", payload: Any = None, **changes: Any) -> dict[str, str]:
    with pytest.raises(InvalidEvent) as caught:
        make(name, payload, **changes)
    return {fault.pointer: fault.message for fault in caught.value.faults}


def test_the_table_knows_eight_lifecycle_and_three_gate_events() -> None:
    assert len(LIFECYCLE) == 8
    assert {"SessionStart", "PreToolUse", "PostToolUse"} == GATE
    assert set(PAYLOADS) == EVENTS


@pytest.mark.parametrize("name", sorted(EVENTS))
def test_every_event_is_accepted_with_its_required_fields_alone(name: str) -> None:
    event = make(name, PAYLOADS[name])
    assert (event.name, event.payload, event.depth) == (name, PAYLOADS[name], 1)


@pytest.mark.parametrize("name", sorted(EVENTS))
def test_an_event_passes_further_fields_through(name: str) -> None:
    event = make(name, {**PAYLOADS[name], "extra": [1, {"a": None}]})
    assert json.loads(event.envelope)["payload"]["extra"] == [1, {"a": None}]


@pytest.mark.parametrize(
    ("name", "field"), [(name, field) for name in PAYLOADS for field in PAYLOADS[name]]
)
def test_a_missing_or_null_field_is_named_by_its_pointer(name: str, field: str) -> None:
    without = {key: value for key, value in PAYLOADS[name].items() if key != field}
    assert "is required" in faults(name, without)[f"/payload/{field}"]
    assert "not null" in faults(name, {**without, field: None})[f"/payload/{field}"] or (
        field == "session_id"
    )


@pytest.mark.parametrize(
    ("name", "field", "value", "message"),
    [
        ("agent_end", "messages_count", True, "must be a number, not true or false"),
        ("agent_end", "messages_count", "3", "must be a number, not a string"),
        ("agent_end", "success", 1, "must be true or false, not a whole number"),
        ("agent_start", "agent", 1, "must be a string, not a whole number"),
        ("tool_call_start", "arguments", [], "must be an object, not a list"),
        ("llm_response", "duration_ms", float("nan"), "is no finite number"),
        ("llm_response", "duration_ms", float("inf"), "is no finite number"),
        ("PreToolUse", "input", "ls", "must be an object, not a string"),
        ("SessionStart", "session_id", 7, "must be a string, not a whole number"),
    ],
)
def test_a_wrongly_typed_field_is_named(name: str, field: str, value: object, message: str) -> None:
    with pytest.raises(InvalidEvent) as caught:
        make(name, {**PAYLOADS[name], field: value})
    assert message in [f.message for f in caught.value.faults if f.pointer == f"/payload/{field}"]


def test_all_faults_are_reported_at_once() -> None:
    found = faults(
        "llm_response",
        {"provider": 1, "x": float("nan"), "y": {3: 4}, "z": object()},
        session_id="",
    )
    assert set(found) == {
        "/session_id",
        "/payload/provider",
        "/payload/model",
        "/payload/duration_ms",
        "/payload/success",
        "/payload/x",
        "/payload/y",
        "/payload/z",
    }


@pytest.mark.parametrize(
    ("name", "near"),
    [("toolcall", "tool_call"), ("pre_tool_use", "PreToolUse"), ("Error", "error")],
)
def test_an_unknown_event_gets_the_nearest_name(name: str, near: str) -> None:
    assert f'did you mean "{near}"?' in faults(name)["/event"]


@pytest.mark.parametrize("name", ["", "x" * 100_000, None, 3, ["tool_call"]])
def test_what_is_no_event_name_is_a_fault_and_no_crash(name: object) -> None:
    assert "/event" in faults(name)


@pytest.mark.parametrize("payload", ["text", [], 3, True])
def test_a_payload_must_be_an_object(payload: object) -> None:
    assert "must be an object" in faults("turn_complete", payload)["/payload"]


@pytest.mark.parametrize(
    "session_id", ["", "x" * (MAX_SESSION_ID_CHARACTERS + 1), "a\nb", "a\x00", "a\x9f", "\ud800", 5]
)
def test_a_session_id_that_no_variable_should_hold_is_refused(session_id: object) -> None:
    assert "/session_id" in faults(session_id=session_id)


def test_a_session_id_of_the_longest_length_and_any_script_is_accepted() -> None:
    assert make(session_id="é" * MAX_SESSION_ID_CHARACTERS).envelope


@pytest.mark.parametrize("name", sorted(GATE))
def test_a_gate_payload_with_another_session_id_is_refused(name: str) -> None:
    found = faults(name, {**PAYLOADS[name], "session_id": "sess_2"})
    assert found == {"/payload/session_id": "differs from the event's session_id"}
    assert make(name, {**PAYLOADS[name], "session_id": "sess_1"}).envelope


def test_a_lifecycle_payload_may_hold_any_session_id() -> None:
    assert make("turn_complete", {"session_id": "another"}).envelope


@pytest.mark.parametrize("make_value", [lambda inner: [inner], lambda inner: {"a": inner}])
def test_deep_nesting_is_a_fault_and_no_recursion_error(make_value: Any) -> None:
    value: object = 1
    for _ in range(MAX_NESTING - 1):
        value = make_value(value)
    assert make(payload={"x": value}).envelope
    for _ in range(5000):
        value = make_value(value)
    assert "nested too deep" in faults(payload={"x": value})["/payload"]


def test_a_payload_that_holds_itself_ends() -> None:
    loop: list[object] = []
    loop += [loop, loop]
    assert "nested too deep" in faults(payload={"x": loop})["/payload"]


def test_a_payload_that_multiplies_itself_ends() -> None:
    value: object = [1] * 1000
    for _ in range(20):
        value = [value] * 1000
    assert "too large" in faults(payload={"x": value})["/payload"]


def test_a_number_of_thousands_of_digits_is_a_fault() -> None:
    assert "cannot be written" in faults(payload={"x": 10**5000})["/payload"]


def test_a_clock_without_a_time_zone_is_a_fault() -> None:
    assert "/timestamp" in faults(now=NOW.replace(tzinfo=None))


def test_the_timestamp_is_utc_with_milliseconds() -> None:
    elsewhere = NOW.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert make(now=elsewhere).timestamp == "2026-03-21T08:15:30.123Z"


def test_the_envelope_is_the_one_of_the_contract_byte_for_byte() -> None:
    payload = {"provider": "openai", "model": "gpt-4o", "duration_ms": 1842, "success": True}
    event = make("llm_response", payload, session_id="sess_abc123")
    assert event.envelope == (
        b'{"event":"llm_response","timestamp":"2026-03-21T08:15:30.123Z",'
        b'"session_id":"sess_abc123","payload":{"provider":"openai","model":"gpt-4o",'
        b'"duration_ms":1842,"success":true}}'
    )


def test_people_can_grep_the_envelope() -> None:
    assert "你好 é 😀".encode() in make(payload={"x": "你好 é 😀"}).envelope


@pytest.mark.parametrize(
    "character", ["\x00", "\x1b", "\n", "\x7f", "\x85", "\x9f", "\u2028", "\u2029", "\ud800"]
)
def test_what_would_break_a_line_or_its_encoding_is_escaped(character: str) -> None:
    event = make(payload={"x": f"a{character}b", f"k{character}": 1})
    text = event.envelope.decode("utf-8")
    assert character not in text
    assert len(text.splitlines()) == 1
    assert json.loads(text)["payload"] == {"x": f"a{character}b", f"k{character}": 1}


@given(st.dictionaries(st.text(), json_values, max_size=4))
def test_any_json_object_survives_the_envelope(payload: dict[str, object]) -> None:
    event = make(payload=payload)
    text = event.envelope.decode("utf-8")
    assert list(json.loads(text)) == ["event", "timestamp", "session_id", "payload"]
    assert len(text.splitlines()) == 1
    # Two lone surrogates that stand side by side are one character once they are escaped.
    again = json.dumps(json.loads(text)["payload"])
    assert again == json.dumps(payload)


@pytest.mark.parametrize(
    "value",
    [object(), b"bytes", {1, 2}, 1j, NOW, int, range(3), iter([]), MappingProxyType({}), Ellipsis],
)
def test_what_json_cannot_say_is_a_fault_at_its_place(value: object) -> None:
    assert "JSON cannot say" in faults(payload={"x": [0, value]})["/payload/x/1"]


def test_the_event_keeps_what_it_was_when_the_caller_changes_his_object() -> None:
    payload: dict[str, object] = {"x": 1}
    event = make(payload=payload)
    payload["x"] = 2
    assert event.payload == {"x": 1}


def test_a_depth_below_one_is_a_fault() -> None:
    assert faults(depth=0)
    assert make(depth=8).depth == 8


def test_session_ids_are_new_each_time_and_valid() -> None:
    ids = {new_session_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(one.startswith("sess_") and make(session_id=one) for one in ids)
