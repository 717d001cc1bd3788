"""How is the API served on sockets that are open already?"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

import anyio
import uvicorn

from executor.api.app import build_app
from executor.api.auth import Bounds, Shell
from executor.api.connection import Connection
from executor.api.observed import Observed
from executor.api.service import Service

_SLACK = 64 * 1024
DRAIN_SECONDS = 10


class Server(uvicorn.Server):
    """uvicorn's, whose signals are the daemon's business."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def shell_of(service: Service, hosts: Sequence[str] | None) -> Shell:
    """The whole application."""

    def event_bytes() -> int:
        # JSON may write one byte of the envelope as six.
        return 2 * service.executor.live.grounds.settings.limits.max_payload_bytes + _SLACK

    observe = Observed(service.executor.metrics.registry)
    app = build_app(service)
    return Shell(app, service.tokens, Bounds(event_bytes), observe, hosts)


@asynccontextmanager
async def served(
    service: Service, sockets: Sequence[socket.socket], hosts: Sequence[str] | None
) -> AsyncIterator[None]:
    """Requests are answered while the block lasts; at its end those in progress are finished."""
    config = uvicorn.Config(
        shell_of(service, hosts),
        http=Connection,
        ws="none",
        loop="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=DRAIN_SECONDS,
        backlog=1024,
    )
    server = Server(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve, list(sockets))
        try:
            with anyio.fail_after(30):
                while not server.started:  # noqa: ASYNC110  (uvicorn has no event for it)
                    await anyio.sleep(0.005)
            yield
        finally:
            service.closing.set()
            server.should_exit = True
