"""What does the emitter of an event hold in its hand?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio

from executor.events import Event
from executor.outcome import Cause
from executor.record import Record


@dataclass(slots=True)
class Receipt:
    """Returned at once by ``emit``.

    ``accepted`` is false where the event as a whole was dropped; ``reason`` and ``cause`` say why.
    ``topic``/``published`` tell of the bus. ``records`` fills up while hooks end, in configured
    order; ``wait`` ends when all have.
    """

    event: Event
    topic: str
    published: bool = False
    accepted: bool = True
    reason: str | None = None
    cause: Cause | None = None
    records: list[Record | None] = field(default_factory=list)
    _left: int | None = None
    _done: anyio.Event | None = None

    def expect(self, runs: int) -> None:
        """This many runs will come, none where the event was dropped (the dispatcher's side)."""
        self.records = [None] * runs
        self._settle(runs)

    def keep(self, position: int, record: Record) -> None:
        """One run ended (the dispatcher's side, in the event loop)."""
        self.records[position] = record
        self._settle(sum(kept is None for kept in self.records))

    async def wait(self) -> Sequence[Record]:
        """Until every hook of this event ended; their records in configured order."""
        # None: emitted from another thread and not yet accepted.
        if self._left != 0:
            if self._done is None:
                self._done = anyio.Event()
            await self._done.wait()
        return tuple(record for record in self.records if record is not None)

    def _settle(self, left: int) -> None:
        self._left = left
        if left == 0 and self._done is not None:
            self._done.set()

    def as_json(self) -> dict[str, object]:
        """What ``emit --json`` prints (SPEC section 10)."""
        event = self.event
        answer: dict[str, object] = {
            "event": {
                "event": event.name,
                "timestamp": event.timestamp,
                "session_id": event.session_id,
                "payload": dict(event.payload),
            },
            "bus": {"topic": self.topic, "published": self.published},
            "runs": [record.as_run() for record in self.records if record is not None],
        }
        if not self.accepted:
            answer["dropped"] = self.reason
        return answer
