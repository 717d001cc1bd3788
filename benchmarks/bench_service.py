"""How quick is the daemon? Reload, listing and events, through real sockets on one core."""

from __future__ import annotations

import json
import os
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from http.client import HTTPConnection
from pathlib import Path

import anyio

from benchmarks.table import Row, milliseconds
from executor import Executor
from executor.api.server import served
from executor.api.service import Service
from executor.api.tokens import Scope, Tokens
from executor.ledger.recent import Recent
from executor.reload import Reloader
from executor.testing import FakeBackend

_HOOKS = 1000
_ROUNDS = 15
_REQUESTS = 1500
_EVENT = json.dumps(
    {
        "event": "tool_call",
        "session_id": "s",
        "payload": {"tool": "bash", "success": True, "output": "ok"},
    }
).encode()


def rows() -> Sequence[Row]:
    """The three goals of the service."""
    before = os.environ.get("XDG_STATE_HOME")
    with tempfile.TemporaryDirectory() as place:
        os.environ["XDG_STATE_HOME"] = f"{place}/state"
        try:
            reload = anyio.run(_reload, _workspace(place, "reload", _hooks(1)))
            listing = _hooks(20).replace("tool_call", "error")
            listed, emitted = anyio.run(_served, _workspace(place, "served", listing))
        finally:
            if before is None:
                del os.environ["XDG_STATE_HOME"]
            else:
                os.environ["XDG_STATE_HOME"] = before
    return [
        Row(
            f"reload of {_HOOKS} hooks, after the save",
            milliseconds(reload),
            goal="≤ 100 ms",
            met=reload <= 0.1,
        ),
        Row(
            "GET /api/hooks (20 hooks), one core",
            f"{listed:.0f}/s",
            goal="≥ 500/s",
            met=listed >= 500,
        ),
        Row(
            "POST /api/events, accepted, one core",
            f"{emitted:.0f}/s",
            goal="≥ 300/s",
            met=emitted >= 300,
        ),
    ]


def _hooks(number: int, round_: int = 0) -> str:
    entries = [
        {"command": f"hook{round_}_{one}", "args": ["--flag", "value"], "timeout_ms": 5000}
        for one in range(number)
    ]
    return json.dumps({"hooks": {"tool_call": entries}})


def _workspace(place: str, name: str, hooks: str) -> Path:
    made = Path(place) / name
    made.mkdir()
    (made / "hooks.json").write_text(hooks)
    return made


async def _reload(place: Path) -> float:
    path, new = place / "hooks.json", place / ".new"
    took = []
    async with Executor.open(place, backends={"fake": FakeBackend()}) as executor:
        for round_ in range(_ROUNDS):
            new.write_text(_hooks(_HOOKS, round_))
            wanted = executor.reloader.state.generation + 1
            began = time.perf_counter()
            new.rename(path)
            await _until(executor.reloader, wanted)
            took.append(time.perf_counter() - began)
    return statistics.median(took)


async def _until(reloader: Reloader, generation: int) -> None:
    while reloader.state.generation < generation:
        await reloader.turn.wait()


async def _served(place: Path) -> tuple[float, float]:
    recent = Recent()
    async with Executor.open(place, backends={"fake": FakeBackend()}, sinks=[recent]) as executor:
        service = Service(executor, recent, Tokens(executor.live.state))
        secret, _ = service.tokens.create(Scope)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            async with served(service, [listener], ["127.0.0.1"]):
                listing = await _rate(lambda: _ask(port, secret, "GET", "/api/hooks", None))
                emitting = await _rate(lambda: _ask(port, secret, "POST", "/api/events", _EVENT))
    return listing, emitting


async def _rate(ask: Callable[[], None]) -> float:
    """Requests in a second of the server's processor time, so that neither the client's share of
    the machine nor a neighbour's counts. The client is a process of its own."""
    began = time.process_time()
    child = os.fork()
    if child == 0:
        try:
            ask()
        finally:
            os._exit(0)
    await anyio.to_thread.run_sync(lambda: os.waitpid(child, 0))
    return _REQUESTS // 4 * 4 / (time.process_time() - began)


def _ask(port: int, secret: str, method: str, path: str, body: bytes | None) -> None:
    """All the requests, on four connections that stay open."""
    each = _REQUESTS // 4

    def one() -> None:
        connection = HTTPConnection("127.0.0.1", port)
        headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
        for _ in range(each):
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            response.read()
            if response.status not in (200, 202):
                raise RuntimeError(f"{method} {path}: {response.status}")

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
