"""What a hook may say through its emit channel, and what it cannot claim there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from executor.emission import EMIT_BYTES, MAX_EVENTS, MAX_LINE_BYTES, Emissions, heard, hearing
from executor.errors import InvalidEvent
from executor.events import make_event
from executor.job import EMIT_DESCRIPTOR
from executor.plan import environment

NOW = datetime(2026, 3, 21, tzinfo=UTC)
RUNS_EVENT = make_event("turn_complete", {}, session_id="sess_1", now=NOW, depth=3)


class Said:
    """A dispatcher that keeps what it is told, as strict as the real one."""

    def __init__(self) -> None:
        self.events: list[tuple[str, object, str, int]] = []

    def __call__(
        self, name: str, payload: Mapping[str, object], *, session_id: str, depth: int
    ) -> object:
        make_event(name, payload, session_id=session_id, now=NOW, depth=depth)
        self.events.append((name, dict(payload), session_id, depth))
        return None


def test_a_line_is_an_event_of_the_runs_session_one_level_deeper() -> None:
    said = Said()
    emissions = Emissions(RUNS_EVENT, said)
    line = b'{"event": "error", "payload": {"component": "c", "message": "m"}}\n{"event":"turn_'
    for piece in (line[:9], line[9:], b'complete"}\n\n  \n', b'{"event":"turn_complete"}'):
        emissions.hear(piece)
    assert len(said.events) == 2
    assert emissions.end() == ()
    assert said.events == [
        ("error", {"component": "c", "message": "m"}, "sess_1", 4),
        ("turn_complete", {}, "sess_1", 4),
        ("turn_complete", {}, "sess_1", 4),
    ]


def test_a_forged_depth_session_or_time_changes_nothing() -> None:
    said = Said()
    emissions = Emissions(RUNS_EVENT, said)
    lie = {
        "event": "turn_complete",
        "payload": {"depth": 0, "prxdepth": 1},
        "depth": 0,
        "session_id": "sess_other",
        "timestamp": "1970-01-01T00:00:00.000Z",
        "Prx-Depth": "1",
    }
    emissions.hear(json.dumps(lie).encode() + b"\n")
    assert said.events == [("turn_complete", lie["payload"], "sess_1", 4)]


@pytest.mark.parametrize(
    "line",
    [
        b"no json",
        b"[]",
        b"{}",
        b'{"event":7}',
        b'{"event":"PreToolUse","payload":{"tool_name":"x","input":{}}}',
        b'{"event":"tool_cal"}',
        b'{"event":"turn_complete","payload":[]}',
        b'{"event":"tool_call","payload":{}}',
        b"\xff\xfe",
        b"[" * 5000,
        b'{"event":"turn_complete","payload":{"x":"' + b"y" * MAX_LINE_BYTES + b'"}}',
    ],
)
def test_what_is_no_lifecycle_event_is_told_in_the_report_and_the_next_line_counts(
    line: bytes,
) -> None:
    said = Said()
    emissions = Emissions(RUNS_EVENT, said)
    emissions.hear(line + b'\n{"event":"turn_complete"}\n')
    assert len(said.events) == 1
    (fault,) = emissions.end()
    assert fault.startswith("emit: ")
    assert len(fault) < 300


def test_the_number_of_events_and_of_complaints_is_bounded() -> None:
    said = Said()
    emissions = Emissions(RUNS_EVENT, said)
    for number in range(3 * MAX_EVENTS):
        emissions.hear(
            b'{"event":"turn_complete"}\n' if number % 2 else b'{"event":"%d"}\n' % number
        )
    assert len(said.events) == MAX_EVENTS // 2
    assert len(emissions.end()) <= 8
    emissions.hear(b"x" * EMIT_BYTES)
    assert any("bytes" in fault for fault in emissions.end())


def test_the_run_that_talks_is_the_one_that_is_heard() -> None:
    first: list[bytes] = []
    second: list[bytes] = []
    heard(b"nobody listens")
    with hearing(first.append):
        heard(b"1")
        with hearing(second.append):
            heard(b"2")
        heard(b"3")
    assert (first, second) == ([b"1", b"3"], [b"2"])


def test_only_a_hook_that_may_emit_is_told_the_descriptor() -> None:
    with_channel = environment(RUNS_EVENT, {"ZERO_HOOK_EMIT_FD": "9"}, home=False, emit=True)
    assert with_channel["ZERO_HOOK_EMIT_FD"] == str(EMIT_DESCRIPTOR)
    without = environment(RUNS_EVENT, {"ZERO_HOOK_EMIT_FD": "9"}, home=False)
    assert "ZERO_HOOK_EMIT_FD" not in without


def test_an_error_of_the_dispatcher_is_the_hooks_own_mistake() -> None:
    def refuse(name: str, payload: Mapping[str, object], *, session_id: str, depth: int) -> object:
        raise InvalidEvent("it says no")

    emissions = Emissions(RUNS_EVENT, refuse)
    emissions.hear(b'{"event":"turn_complete"}\n' * 3)
    assert emissions.end() == ("emit: turn_complete: /: it says no (3 times)",)
