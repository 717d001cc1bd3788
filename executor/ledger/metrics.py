"""How often did what happen?

Prometheus counters in a registry of their own, so that two executors in one process do not add
up. Label values come from closed sets only (statuses, causes, event names), never from payloads.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

from executor.outcome import Status
from executor.record import Record

_RUN_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_START_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
_STARTED = frozenset({Status.OK, Status.FAILED, Status.SIGNALLED, Status.TIMEOUT, Status.OOM})


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

        self.run_seconds = Histogram(
            "prx_hook_run_seconds",
            "The hook's own time, of runs whose hook started.",
            ["backend"],
            buckets=_RUN_BUCKETS,
            registry=self.registry,
        )
        self.start_seconds = Histogram(
            "prx_hook_sandbox_start_seconds",
            "From the sandbox's first step until the hook's process existed.",
            ["backend"],
            buckets=_START_BUCKETS,
            registry=self.registry,
        )
        self.queue_seconds = Histogram(
            "prx_hook_queue_seconds",
            "From the event until a worker took the run.",
            buckets=_START_BUCKETS,
            registry=self.registry,
        )

    def append(self, record: Record) -> None:
        outcome, backend = record.outcome, record.sandbox or record.backend
        self.runs.labels(backend, outcome.status.value).inc()
        if outcome.status in _STARTED:
            self.run_seconds.labels(backend).observe(outcome.duration_seconds)
            self.start_seconds.labels(backend).observe(outcome.usage.start_seconds)
            self.queue_seconds.observe(outcome.usage.queue_seconds)
        if outcome.stage is not None:
            self.timeouts.labels(outcome.stage.value).inc()
        if outcome.status is Status.DROPPED:
            self.drops.labels(outcome.cause.value).inc()

    def value(self, name: str, **labels: str) -> float:
        """The current value of a sample (0 where it never moved)."""
        return self.registry.get_sample_value(name, labels) or 0.0
