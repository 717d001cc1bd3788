"""What does an operator see of the requests?

Counters by method, route and status, and one line for each change and each failure. The route is
as it is documented: a path that nobody knows is ``-``, so that no stranger adds labels or lines.
"""

from __future__ import annotations

import traceback

from prometheus_client import CollectorRegistry, Counter, Histogram

from executor.ledger.log import Log

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_QUIET = frozenset({"/api/events", "/api/gate/{event}"})
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)


class Observed:
    """See ``auth.Observe``."""

    def __init__(self, registry: CollectorRegistry, log: Log | None = None) -> None:
        self._log = log or Log()
        self._requests = Counter(
            "prx_hook_http_requests",
            "Requests answered, by route as documented.",
            ["method", "route", "status"],
            registry=registry,
        )
        self._seconds = Histogram(
            "prx_hook_http_request_seconds",
            "Time from a request's head to the end of its answer.",
            ["route"],
            buckets=_BUCKETS,
            registry=registry,
        )

    def __call__(self, method: str, route: str, status: int, seconds: float, who: str) -> None:
        method = method if method in _METHODS else "other"
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)
        change = method not in ("GET", "HEAD") and route not in _QUIET
        if change or status >= 500:
            self._log.info(
                "request",
                method=method,
                route=route,
                status=status,
                ms=round(seconds * 1000, 1),
                who=who,
            )

    def crashed(self, failure: Exception) -> None:
        last = traceback.extract_tb(failure.__traceback__)[-1]
        self._log.warning(
            "internal error", kind=type(failure).__name__, at=f"{last.name}:{last.lineno}"
        )
