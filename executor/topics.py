"""Which topics does a pattern mean?

An event's topic is ``prx.lifecycle.<event>``. A pattern is (SPEC sections 4 and 5)

- **exact**: ``prx.lifecycle.tool_call``,
- a **wildcard** at its end: ``prx.lifecycle.*``, every topic below that prefix,
- **hierarchical**, which is the same star higher up: ``prx.*`` at any depth; a final ``**`` is a
  synonym of ``*``; alone, ``*`` means all.

So there is one rule: a final star stands for one or more whole segments. It may stand nowhere else
(``tool_*`` is refused, not guessed), which keeps every pattern expressible as a NATS subject.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from executor.errors import InvalidInput

LIFECYCLE_PREFIX = "prx.lifecycle."
MAX_CHARACTERS = 255
"""Of a topic or pattern; the usual bound of a NATS subject."""

_SEGMENT = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled pattern: an exact topic, or the prefix (with its dot) that topics must extend."""

    text: str
    prefix: str | None

    def matches(self, topic: str) -> bool:
        """Whether the topic (or bare event name) is meant."""
        if self.prefix is None:
            return topic == self.text
        return len(topic) > len(self.prefix) and topic.startswith(self.prefix)


def topic_of(event_name: str) -> str:
    """The topic of a lifecycle event. (Gate events are on no topic.)"""
    return LIFECYCLE_PREFIX + event_name


def topic_fault(topic: str) -> str | None:
    """Why nothing can be published under this topic, or ``None``."""
    if not topic:
        return "is empty"
    if len(topic) > MAX_CHARACTERS:
        return f"is longer than {MAX_CHARACTERS} characters"
    if all(_SEGMENT.fullmatch(segment) for segment in topic.split(".")):
        return None
    return "must be segments of letters, digits, _ and -, joined by dots"


def pattern_fault(pattern: str) -> str | None:
    """Why this is no pattern, or ``None``."""
    head, _, last = pattern.rpartition(".")
    if last in ("*", "**"):
        return topic_fault(head) if pattern != last else None
    if "*" in pattern:
        return "may have a star only as its last segment, as in prx.lifecycle.*"
    return topic_fault(pattern)


def validate(pattern: str) -> None:
    """Raise InvalidInput where ``pattern_fault`` finds something."""
    if (fault := pattern_fault(pattern)) is not None:
        raise InvalidInput(f"the pattern {fault}")


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> Pattern:
    """The fast form of a pattern. Raises InvalidInput as ``validate`` does."""
    validate(pattern)
    head, _, last = pattern.rpartition(".")
    if last not in ("*", "**"):
        return Pattern(pattern, None)
    return Pattern(pattern, f"{head}." if head else "")


def matches(pattern: str, topic: str) -> bool:
    """Whether the pattern means the topic. Raises InvalidInput for what is no pattern."""
    return compiled(pattern).matches(topic)


def matches_event(pattern: str, event_name: str, *, gate: bool = False) -> bool:
    """Whether the pattern means the event, tried on its bare name and on its topic.

    A ``gate`` event is meant by its exact name only: no wildcard may catch it (SPEC section 4).
    Raises InvalidInput for what is no pattern.
    """
    form = compiled(pattern)
    if gate:
        return form.prefix is None and form.text == event_name
    return form.matches(event_name) or form.matches(topic_of(event_name))


def matches_any_event(pattern: str, lifecycle: Iterable[str], gate: Iterable[str]) -> bool:
    """Whether at least one event exists that the pattern means; else it is dead.

    Raises InvalidInput for what is no pattern.
    """
    return any(matches_event(pattern, name) for name in lifecycle) or any(
        matches_event(pattern, name, gate=True) for name in gate
    )
