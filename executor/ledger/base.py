"""What must anything that keeps Records offer?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from executor.record import Record


class Sink(Protocol):
    """Keeps records. Must not block for long and must not raise: a full disk stops no hook."""

    def append(self, record: Record) -> None: ...


class Ledger:
    """Hands each record to every sink, in order."""

    def __init__(self, sinks: Iterable[Sink] = ()) -> None:
        self._sinks = tuple(sinks)

    def append(self, record: Record) -> None:
        for sink in self._sinks:
            sink.append(record)
