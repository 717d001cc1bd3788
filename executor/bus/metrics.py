"""How does the bus look in Prometheus?

The bus counts with plain integers, because a counter object would cost the emitter more than the
publishing; they are read when somebody asks for the metrics.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from executor.bus.base import Counts


class BusCollector(Collector):
    """``prx_bus_*_total`` of one bus."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        counts = self._counts
        yield CounterMetricFamily("prx_bus_published", "Messages published.", counts.published)
        yield CounterMetricFamily(
            "prx_bus_received", "Messages that came over the network.", counts.received
        )
        yield CounterMetricFamily(
            "prx_bus_crashes", "Exceptions that subscribers' callbacks raised.", counts.crashes
        )
        drops = CounterMetricFamily(
            "prx_bus_drops", "Messages that were lost to one or all.", labels=["reason"]
        )
        for why, count in counts.drops.items():
            drops.add_metric([why.value], count)
        yield drops
