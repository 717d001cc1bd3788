"""How does one process serve a workspace, from its start to its end?

Theory of operation
-------------------
Open the executor; listen (what the service manager hands over, else a Unix socket or 127.0.0.1,
and always the state directory's own socket for the command line); say that we are ready; wait for a
signal. SIGHUP reads the configuration again. The first SIGTERM or SIGINT drains: no new
connections, requests in progress are finished, streams end, queued runs run. The second one, or
``DRAIN_SECONDS``, interrupts what is left. Either way nothing stays behind.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.abc

from executor.api.auth import names_of
from executor.api.server import served
from executor.api.service import Service
from executor.api.tokens import Scope, Tokens
from executor.control import SOCKET, listen, only_daemon
from executor.errors import Unavailable
from executor.ledger.log import Log
from executor.ledger.recent import Recent
from executor.service import Executor
from executor.systemd import handed_over, notify, watchdog_seconds

DRAIN_SECONDS = 60.0
_BACKLOG = 1024


@dataclass(frozen=True, slots=True)
class Listen:
    """Where to listen; None: what config.toml says under [api]. A Unix path takes TCP's place."""

    host: str | None = None
    port: int | None = None
    unix: str | None = None


@dataclass(slots=True)
class _Stop:
    asked: anyio.Event
    hard: bool = False


async def serve(
    workspace: str, *, sandbox: str | None, where: Listen, ready: Callable[[Sequence[str]], None]
) -> bool:
    """Serve until a signal; whether everything in hand was ended in peace.

    Raises InvalidConfig, Refused, Unavailable, OSError where it cannot begin.
    """
    stop = _Stop(anyio.Event())
    async with anyio.create_task_group() as tasks:
        await tasks.start(_signals, stop, tasks.cancel_scope)
        recent, log = Recent(), Log()
        async with Executor.open(workspace, sandbox=sandbox, sinks=(log, recent)) as executor:
            with only_daemon(executor.live.state):
                service = Service(executor, recent, Tokens(executor.live.state))
                await tasks.start(_reloads, service)
                with _listening(service, where) as sockets:
                    async with served(service, sockets, _hosts(sockets)):
                        if period := watchdog_seconds():
                            tasks.start_soon(_alive, period)
                        notify("READY=1")
                        ready([_name(one) for one in sockets])
                        await stop.asked.wait()
                        notify("STOPPING=1")
            log.info("draining", waiting=executor.dispatcher.waiting, running=len(executor.flights))
            tasks.start_soon(_hurry, stop, tasks.cancel_scope)
        tasks.cancel_scope.cancel()
    return not stop.hard


@contextmanager
def _listening(service: Service, where: Listen) -> Iterator[list[socket.socket]]:
    """All sockets, open; their files are removed at the end."""
    settings = service.executor.live.grounds.settings.api
    own = service.executor.live.state / SOCKET
    paths = [own]
    sockets = handed_over()
    try:
        sockets.append(listen(own))
        if where.unix is not None:
            paths.append(Path(where.unix).absolute())
            sockets.append(listen(paths[-1]))
        elif len(sockets) == 1:
            host = settings.host if where.host is None else where.host
            port = settings.port if where.port is None else where.port
            sockets.append(_tcp(host, port))
        if any(one.family != socket.AF_UNIX for one in sockets):
            _first_token(service.tokens)
        yield sockets
    finally:
        for one in sockets:
            one.close()
        for path in paths:
            path.unlink(missing_ok=True)


def _tcp(host: str, port: int) -> socket.socket:
    name = host.strip("[]")
    family = socket.AF_INET6 if ":" in name else socket.AF_INET
    try:
        return socket.create_server((name, port), family=family, backlog=_BACKLOG)
    except OSError as failure:
        raise Unavailable(
            f"cannot listen on {host} port {port}: {failure.strerror}",
            remedy="name another with --port, or under [api] in config.toml",
        ) from failure


def _hosts(sockets: Sequence[socket.socket]) -> list[str] | None:
    """The names that requests over TCP may use; None where some listener cannot know its own."""
    found: list[str] = []
    for one in sockets:
        if one.family == socket.AF_UNIX:
            continue
        names = names_of(str(one.getsockname()[0]))
        if names is None:
            return None
        found += names
    return found


def _name(one: socket.socket) -> str:
    if one.family == socket.AF_UNIX:
        return "unix socket"
    host, port = one.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _first_token(tokens: Tokens) -> None:
    """Made at the first start, where somebody can see it; it is told this once."""
    if tokens.list():
        return
    if not sys.stderr.isatty():
        Log().warning("there is no token yet", make="hook-executor token create")
        return
    secret, _ = tokens.create(Scope)
    sys.stderr.write(f"The API's token, shown this once: {secret}\n")


async def _signals(
    stop: _Stop,
    scope: anyio.CancelScope,
    *,
    task_status: anyio.abc.TaskStatus[None],
) -> None:
    """Ask to stop at the first signal, insist at the second."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for _ in signals:
            if stop.asked.is_set():
                stop.hard = True
                scope.cancel()
                return
            stop.asked.set()


async def _reloads(service: Service, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    with anyio.open_signal_receiver(signal.SIGHUP) as signals:
        task_status.started()
        async for _ in signals:
            await service.executor.reloader.refresh(always=True)


async def _hurry(stop: _Stop, scope: anyio.CancelScope) -> None:
    await anyio.sleep(DRAIN_SECONDS)
    stop.hard = True
    scope.cancel()


async def _alive(period: float) -> None:
    while True:
        with contextlib.suppress(OSError):
            notify("WATCHDOG=1")
        await anyio.sleep(period)
