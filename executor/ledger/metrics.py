"""How often did what happen?

Prometheus counters in a registry of their own, so that two executors in one process do not add
up. Label values come from closed sets only (statuses, causes, event names), never from payloads.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from executor.outcome import Status
from executor.record import Record


class Metrics:
    """A Sink, and the counters that the dispatcher moves itself."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.events = Counter(
            "prx_hook_events", "Events accepted.", ["event"], registry=self.registry
        )
        self.drops = Counter(
            "prx_hook_drops",
            "Events and runs that were dropped.",
            ["reason"],
            registry=self.registry,
        )
        self.runs = Counter(
            "prx_hook_runs", "Runs ended.", ["backend", "status"], registry=self.registry
        )
        self.timeouts = Counter(
            "prx_hook_timeouts",
            "Runs that passed their deadline, by the signal that ended them.",
            ["stage"],
            registry=self.registry,
        )

    def append(self, record: Record) -> None:
        outcome = record.outcome
        self.runs.labels(record.sandbox or record.backend, outcome.status.value).inc()
        if outcome.stage is not None:
            self.timeouts.labels(outcome.stage.value).inc()
        if outcome.status is Status.DROPPED:
            self.drops.labels(outcome.cause.value).inc()

    def value(self, name: str, **labels: str) -> float:
        """The current value of a sample (0 where it never moved)."""
        return self.registry.get_sample_value(name, labels) or 0.0
