"""What is told of all attempts? One line each, and a total."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.security.probe import Line

NOT_BUILT = (
    Line(
        "A12",
        "proxy mode: other hosts, other ports, addresses, rebinding, an empty list",
        "-",
        "-",
        "not built: egress proxy",
        "a policy with network.allow is refused",
    ),
)


class Report:
    """Lines of one session."""

    key = pytest.StashKey["Report"]()

    def __init__(self) -> None:
        self._lines: list[Line] = list(NOT_BUILT)

    def add(self, line: Line) -> None:
        """One probe was made, or could not be."""
        self._lines.append(line)

    def text(self) -> Iterator[str]:
        """As a table, and the total."""
        lines = sorted(self._lines, key=lambda line: line.order)
        heads = ("probe", "backend", "user", "outcome", "attempt", "what stopped it")
        rows = [
            (line.number, line.backend, line.user, line.outcome, line.attempt, line.stopped_by)
            for line in lines
        ]
        widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(5)]
        for row in (heads, *rows):
            cells = [text.ljust(width) for text, width in zip(row, widths, strict=False)]
            yield "  ".join((*cells, row[5])).rstrip()
        ran = [line for line in lines if line.ran]
        escapes = sum(line.outcome == "ESCAPED" for line in ran)
        left = len(lines) - len(ran)
        rest = f" ({left} lines of what is not built or could not run here)" if left else ""
        yield f"{len(ran)} probes, {escapes} escapes{rest}"
