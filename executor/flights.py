"""Which runs are in flight, and how is one of them stopped?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio

from executor.events import Event
from executor.subscription import AnySubscription


@dataclass(frozen=True, slots=True)
class Flight:
    """One run that has begun. ``started_at`` is UTC with milliseconds."""

    run_id: str
    event: Event
    subscription: AnySubscription
    started_at: str
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    def as_history(self) -> dict[str, object]:
        """In the shape of ``Record.as_history``, as far as it is known before the end."""
        return {
            "id": self.run_id,
            "event": self.event.name,
            "session_id": self.event.session_id,
            "started_at": self.started_at,
            "ended_at": None,
            "hook": self.subscription.id,
            "backend": self.subscription.kind,
            "sandbox": self.subscription.walls,
            "status": "running",
            "policy": self.subscription.policy.name,
        }


class Flights:
    """The runs in flight, oldest first. In the event loop's thread only."""

    def __init__(self) -> None:
        self._flights: dict[str, Flight] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def __iter__(self) -> Iterator[Flight]:
        return iter(tuple(self._flights.values()))

    def find(self, run_id: str) -> Flight | None:
        return self._flights.get(run_id)

    def cancel(self, run_id: str) -> bool:
        """Stop it as a timeout does: SIGTERM to the tree, the grace, SIGKILL. False: not there."""
        flight = self._flights.get(run_id)
        if flight is None:
            return False
        flight.scope.cancel()
        return True

    @contextmanager
    def open(self, flight: Flight) -> Iterator[None]:
        """The flight can be found while the block lasts."""
        self._flights[flight.run_id] = flight
        try:
            yield
        finally:
            del self._flights[flight.run_id]
