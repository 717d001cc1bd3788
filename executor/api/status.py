"""How is the executor, and what is in force?"""

from __future__ import annotations

import time
from importlib.metadata import version

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from executor.api import schemas
from executor.api.service import Service, answer, service_of

router = APIRouter()
_PLAIN = "text/plain; charset=utf-8"
_PAGE = b"<!doctype html><meta charset=utf-8><title>hook-executor</title><p>hook-executor\n"


@router.get("/", include_in_schema=False)
async def page() -> Response:
    """Static, without data; whoever asks."""
    headers = {"Content-Security-Policy": "default-src 'none'", "X-Content-Type-Options": "nosniff"}
    return Response(_PAGE, media_type="text/html; charset=utf-8", headers=headers)


@router.get("/healthz", **schemas.HEALTH)
async def healthz(request: Request) -> Response:
    """Whether events are taken; whoever asks."""
    well = not service_of(request).closing.is_set()
    return Response(b"ok" if well else b"not ok", 200 if well else 503, media_type=_PLAIN)


@router.get("/api/status", **schemas.STATUS)
async def status(request: Request) -> Response:
    """What is in force since when, what failed to come into force, what waits and runs."""
    return answer(status_of(service_of(request)))


@router.get("/metrics", **schemas.METRICS)
async def metrics(request: Request) -> Response:
    """Prometheus text format."""
    text = generate_latest(service_of(request).executor.metrics.registry)
    return Response(text, headers={"Content-Type": CONTENT_TYPE_LATEST})


def status_of(service: Service) -> dict[str, object]:
    """What ``GET /api/status`` answers."""
    executor = service.executor
    live, reload, limits = (
        executor.live,
        executor.reloader.state,
        executor.live.grounds.settings.limits,
    )
    hooks = live.registry.snapshot.configuration.hooks
    return {
        "version": version("hook-executor"),
        "workspace": live.workspace.path,
        "uptime_seconds": round(time.monotonic() - service.started, 3),
        "generation": live.registry.snapshot.generation,
        "loaded_at": reload.loaded_at,
        "hooks": {"total": len(hooks), "enabled": sum(hook.enabled for hook in hooks)},
        "reload": {
            "ok": not reload.failures,
            "results": dict(reload.results),
            "failures": [
                {
                    "part": part,
                    "errors": [
                        {"pointer": fault.pointer, "message": fault.message} for fault in faults
                    ],
                }
                for part, faults in reload.failures.items()
            ],
            "needs_restart": list(reload.waiting),
        },
        "queue": {
            "waiting": executor.dispatcher.waiting,
            "running": len(executor.flights),
            "max_queue": limits.max_queue,
            "max_concurrency": limits.max_concurrency,
        },
        "runs": [flight.as_history() for flight in executor.flights],
        "paused": [
            {"hook": hook, "failures": one.failures, "reason": one.reason}
            for hook, one in executor.dispatcher.breaker.paused().items()
        ],
        "sandboxes": sorted(live.sandboxes.backends),
        "plugins": [
            {"name": one.name, "serves": one.serves, "fault": one.fault, "stale": one.stale}
            for one in live.plugins.plugins
        ],
    }
