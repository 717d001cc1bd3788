"""How is one measurement told?"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One line of the table.

    ``ours`` and ``beside`` are printed as they are; ``met`` is None where there is no goal.
    """

    what: str
    ours: str
    beside: str = ""
    ratio: float | None = None
    goal: str = ""
    met: bool | None = None


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"


def microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} µs"


def timed(action: Callable[[], object]) -> float:
    """Seconds that one call took."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def paired(
    one: Callable[[], object], other: Callable[[], object], *, times: int, warm_up: int = 3
) -> tuple[float, float, float]:
    """Medians of both, and the median of the ratios of neighbours: A B A B … in one run, so that
    a machine whose speed drifts cannot favour either."""
    for _ in range(warm_up):
        one()
        other()
    pairs = [(timed(one), timed(other)) for _ in range(times)]
    return (
        statistics.median(pair[0] for pair in pairs),
        statistics.median(pair[1] for pair in pairs),
        statistics.median(pair[0] / pair[1] for pair in pairs),
    )


def median_of(action: Callable[[], object], *, times: int, warm_up: int = 3) -> float:
    """The median of several calls, in seconds."""
    for _ in range(warm_up):
        action()
    return statistics.median(timed(action) for _ in range(times))


def print_table(rows: Sequence[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="medians; ratios of neighbours in one run", header_style="bold")
    for name in ("what", "hook-executor", "beside it", "ratio", "goal", ""):
        table.add_column(name, overflow="fold")
    marks = {None: "", True: "met", False: "missed"}
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        table.add_row(row.what, row.ours, row.beside, ratio, row.goal, marks[row.met])
    Console(width=140).print(table)
