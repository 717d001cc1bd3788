"""What is the state of the executor at this moment, in numbers?

A Prometheus collector that looks when it is asked; nothing is counted on the road for it. Labels
come from closed sets only.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from executor.dispatcher import Dispatcher
from executor.reload import Reloader
from executor.runner import Runner


class Gauges(Collector):
    """One executor's queue, runs, configuration and paused hooks."""

    def __init__(self, dispatcher: Dispatcher, runner: Runner, reloader: Reloader) -> None:
        self._dispatcher = dispatcher
        self._runner = runner
        self._reloader = reloader

    def collect(self) -> Iterable[Metric]:
        limits = self._dispatcher.grounds.settings.limits
        hooks = self._reloader.hooks
        enabled = sum(hook.enabled for hook in hooks)
        state = self._reloader.state
        yield _gauge("queue_depth", "Runs that wait.", self._dispatcher.waiting)
        yield _gauge("queue_limit", "Runs that may wait; more are dropped.", limits.max_queue)
        yield _gauge("running", "Runs in flight, the gate's included.", len(self._runner.flights))
        yield _gauge("concurrency_limit", "Runs at once, at most.", limits.max_concurrency)
        yield _gauge("generation", "Configurations put in force since the start.", state.generation)
        yield _gauge(
            "reload_last_success_timestamp_seconds",
            "When the configuration in force was read.",
            state.loaded_seconds,
        )
        yield _gauge(
            "reload_failures",
            "Parts of the configuration that are broken now.",
            len(state.failures),
        )
        reloads = CounterMetricFamily(
            "prx_hook_reloads", "Attempts to reload, by result.", labels=["result"]
        )
        for result, count in state.results.items():
            reloads.add_metric([result], count)
        yield reloads
        configured = GaugeMetricFamily(
            "prx_hook_configured", "Hooks in hooks.json, by state.", labels=["state"]
        )
        configured.add_metric(["enabled"], enabled)
        configured.add_metric(["disabled"], len(hooks) - enabled)
        yield configured
        paused = len(self._runner.breaker.paused())
        yield _gauge("paused", "Hooks paused because their sandbox does not start.", paused)
        yield CounterMetricFamily(
            "prx_hook_pauses",
            "Times that a hook was paused.",
            value=self._runner.breaker.trips,
        )


def _gauge(name: str, words: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"prx_hook_{name}", words, value=value)
