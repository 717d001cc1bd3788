"""What is told of all attempts? One line each, and a total."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import pytest

from tests.security.probe import Line

NOT_BUILT = {
    "A12": (
        "proxy mode: other hosts, other ports, addresses, rebinding, an empty list",
        "egress proxy",
        "a policy with network.allow is refused",
    ),
}
"""Probe → attempt, the missing feature, and what holds until then."""

ELSEWHERE = {
    "E41": ("reserved and malformed variables of an action", "tests/contract/test_channels.py"),
    "E43": ("payloads beyond 8 KiB, and odd bytes in them", "tests/contract/test_channels.py"),
    "I73": ("a file beyond its limit", "tests/contract/test_outcomes.py"),
    "I79c": ("more runs than the queue holds", "tests/unit/test_service.py"),
    "I80": ("depth and size at their limits", "tests/unit/bus/test_memory.py"),
    "J89": ("a daemon that is slow, or late", "tests/crash/test_daemon_that_does_not_answer.py"),
    "L96b": ("an engine that is killed", "tests/crash/test_killed_engine.py"),
}
"""Probe → attempt, and the file whose tests make it."""


def _unmade() -> list[Line]:
    missing = [
        Line(number, attempt, "-", "-", f"not built: {feature}", until)
        for number, (attempt, feature, until) in NOT_BUILT.items()
    ]
    return missing + [
        Line(number, attempt, "-", "-", "made elsewhere", file)
        for number, (attempt, file) in ELSEWHERE.items()
    ]


def _shown(line: Line) -> tuple[str, str]:
    """A table that fits a screen, but for what went wrong."""
    return textwrap.shorten(line.attempt, 76, placeholder=" …"), line.stopped_by


class Report:
    """Lines of one session."""

    key = pytest.StashKey["Report"]()

    def __init__(self) -> None:
        self._lines = _unmade()

    def add(self, line: Line) -> None:
        """One probe was made, or could not be."""
        self._lines.append(line)

    def text(self) -> Iterator[str]:
        """As a table, and the total."""
        lines = sorted(self._lines, key=lambda line: line.order)
        heads = ("probe", "backend", "user", "outcome", "attempt", "what stopped it")
        rows = [
            (line.number, line.backend, line.user, line.outcome, *_shown(line)) for line in lines
        ]
        widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(5)]
        for row in (heads, *rows):
            cells = [text.ljust(width) for text, width in zip(row, widths, strict=False)]
            yield "  ".join((*cells, row[5])).rstrip()
        ran = [line for line in lines if line.ran]
        escapes = sum(line.outcome == "ESCAPED" for line in ran)
        left = len(lines) - len(ran)
        rest = (
            f" ({left} lines of what is not built, made elsewhere or cannot run here)"
            if left
            else ""
        )
        yield f"{len(ran)} probes, {escapes} escapes{rest}"
