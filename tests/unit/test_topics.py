"""Does a pattern mean the topics that SPEC sections 4 and 5 say, and no others?"""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from executor import topics
from executor.errors import InvalidInput
from executor.events import GATE, LIFECYCLE

segments = st.text("abcdefgh_-0", min_size=1, max_size=4)
names = st.lists(segments, min_size=1, max_size=5).map(".".join)


@pytest.mark.parametrize(
    ("pattern", "topic", "expected"),
    [
        ("prx.lifecycle.tool_call", "prx.lifecycle.tool_call", True),
        ("prx.lifecycle.tool_call", "prx.lifecycle.tool_call_start", False),
        ("prx.lifecycle.tool_call", "prx.lifecycle", False),
        ("prx.lifecycle.*", "prx.lifecycle.error", True),
        ("prx.lifecycle.*", "prx.lifecycle", False),
        ("prx.lifecycle.*", "prx.lifecyclex.error", False),
        ("prx.lifecycle.*", "prx.metrics.cpu", False),
        ("prx.*", "prx.metrics", True),
        ("prx.*", "prx.metrics.cpu.user", True),
        ("prx.*", "prx", False),
        ("prx.**", "prx.metrics.cpu.user", True),
        ("prx.**", "prx", False),
        ("*", "anything.at.all", True),
        ("**", "x", True),
    ],
)
def test_a_pattern_means_exactly_its_topics(pattern: str, topic: str, *, expected: bool) -> None:
    assert topics.matches(pattern, topic) is expected


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        ".",
        "a.",
        ".a",
        "a..b",
        "tool_*",
        "*.a",
        "a.*.b",
        "a.***",
        "***",
        "a b",
        "a.é",
        "a>",
        "x" * 256,
    ],
)
def test_what_is_no_pattern_is_refused_with_a_reason(pattern: str) -> None:
    assert topics.pattern_fault(pattern)
    with pytest.raises(InvalidInput):
        topics.validate(pattern)
    with pytest.raises(InvalidInput):
        topics.matches(pattern, "a")


def test_a_star_is_no_topic() -> None:
    assert topics.topic_fault("prx.*")
    assert topics.topic_fault("prx.metrics.x") is None


@pytest.mark.parametrize("event", sorted(LIFECYCLE))
@pytest.mark.parametrize("pattern", ["*", "prx.*", "prx.lifecycle.*", "prx.lifecycle.**"])
def test_wildcards_mean_every_lifecycle_event(pattern: str, event: str) -> None:
    assert topics.matches_event(pattern, event)
    assert topics.matches_event(event, event)
    assert topics.matches_event(topics.topic_of(event), event)


@pytest.mark.parametrize("event", sorted(GATE))
def test_a_gate_event_is_meant_by_its_exact_name_only(event: str) -> None:
    assert topics.matches_event(event, event, gate=True)
    for pattern in ("*", "**", "prx.*", "prx.lifecycle.*", f"prx.lifecycle.{event}"):
        assert not topics.matches_event(pattern, event, gate=True)


@pytest.mark.parametrize(
    ("pattern", "alive"),
    [
        ("tool_call", True),
        ("prx.lifecycle.tool_call", True),
        ("PreToolUse", True),
        ("*", True),
        ("toolcall", False),
        ("prx.metrics.*", False),
        ("prx.lifecycle.PreToolUse", False),
        ("prx.lifecycle.tool_call.*", False),
    ],
)
def test_a_dead_pattern_can_be_told(pattern: str, *, alive: bool) -> None:
    assert topics.matches_any_event(pattern, LIFECYCLE, GATE) is alive


@given(names)
def test_every_topic_is_its_own_pattern(topic: str) -> None:
    assert topics.matches(topic, topic)
    assert topics.matches("*", topic)


@given(names, names)
def test_a_star_means_what_is_below_and_only_that(prefix: str, rest: str) -> None:
    assert topics.matches(f"{prefix}.*", f"{prefix}.{rest}")
    assert topics.matches(f"{prefix}.**", f"{prefix}.{rest}")
    assert not topics.matches(f"{prefix}.*", prefix)
    assert not topics.matches(f"{prefix}.*", f"{prefix}x.{rest}")


@given(st.text())
def test_any_text_is_a_pattern_or_has_a_fault(text: str) -> None:
    if topics.pattern_fault(text) is None:
        topics.matches(text, "a.b")
    else:
        with pytest.raises(InvalidInput):
            topics.compiled(text)
