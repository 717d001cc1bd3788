"""What became of the last runs?

A Sink that keeps the last 1,000 records in memory, newest last, each with a serial number: a
cursor is the number of the last record that a reader saw, so that pages stay steady while new runs
come in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import count

from executor.record import Record

KEPT = 1000


class Recent:
    """Records of one process. In the event loop's thread only."""

    def __init__(self, kept: int = KEPT) -> None:
        self._records: deque[tuple[int, Record]] = deque(maxlen=kept)
        self._numbers = count(1)

    def append(self, record: Record) -> None:
        self._records.append((next(self._numbers), record))

    def find(self, run_id: str) -> Record | None:
        return next((one for _, one in self._records if one.run_id == run_id), None)

    def page(
        self, wanted: Callable[[Record], bool], *, limit: int, before: int | None = None
    ) -> tuple[list[Record], int | None]:
        """The newest ``limit`` records older than the cursor, newest first, and the next cursor,
        None at the end."""
        found: list[Record] = []
        last = None
        for number, record in reversed(self._records):
            if before is not None and number >= before:
                continue
            if not wanted(record):
                continue
            if len(found) == limit:
                return found, last
            found.append(record)
            last = number
        return found, None
