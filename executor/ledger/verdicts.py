"""Where do verdicts go?

To a counter, and to every sink that has ``append_verdict`` besides ``append``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from prometheus_client import CollectorRegistry, Counter

from executor.ledger.base import Sink
from executor.verdict import Verdict


@runtime_checkable
class VerdictSink(Protocol):
    """Keeps verdicts, by the rules of ``Sink``."""

    def append_verdict(self, verdict: Verdict) -> None: ...


class Verdicts:
    """Counts each verdict and hands it on, in order."""

    def __init__(self, sinks: Iterable[Sink], registry: CollectorRegistry) -> None:
        self._sinks = tuple(sink for sink in sinks if isinstance(sink, VerdictSink))
        self._verdicts = Counter(
            "prx_gate_verdicts", "Verdicts of the gate.", ["event", "code"], registry=registry
        )
        self._failures = Counter(
            "prx_gate_failures", "Handlers that gave no verdict.", ["event"], registry=registry
        )

    def append(self, verdict: Verdict) -> None:
        self._verdicts.labels(verdict.event, str(verdict.exit_code)).inc()
        for one in verdict.decisions:
            if one.failure is not None:
                self._failures.labels(verdict.event).inc()
        for sink in self._sinks:
            sink.append_verdict(verdict)
