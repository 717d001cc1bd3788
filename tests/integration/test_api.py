"""Does the API hold on real sockets: its document, its crowds, its enemies?"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from anyio.lowlevel import checkpoint
from prometheus_client.parser import text_string_to_metric_families

from executor import Executor
from executor.api import connection
from executor.api.app import build_app
from executor.api.server import served
from executor.api.service import Service
from executor.api.tokens import Scope, Tokens
from executor.job import Job
from executor.ledger.recent import Recent
from executor.outcome import Outcome
from executor.testing import FakeBackend
from tests.support import TOOL_CALL, Workspace

pytestmark = pytest.mark.anyio

EVENT = {"event": "tool_call", "session_id": "s", "payload": dict(TOOL_CALL)}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Brief(FakeBackend):
    """Gives the loop a turn, as a real run does many times."""

    async def run(self, job: Job) -> Outcome:
        await checkpoint()
        return await super().run(job)


@asynccontextmanager
async def listening(workspace: Workspace) -> Any:
    """The API on a port of its own: its base address, a token, the service."""
    recent = Recent()
    backends = {"fake": Brief()}
    async with Executor.open(workspace.path, backends=backends, sinks=[recent]) as executor:
        service = Service(executor, recent, Tokens(executor.live.state))
        secret, _ = service.tokens.create(Scope)
        with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
            port = listener.getsockname()[1]
            async with served(service, [listener], ["127.0.0.1"]):
                yield port, secret, service


def client(port: int, secret: str, **more: Any) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        base_url=f"http://127.0.0.1:{port}",
        headers={"Authorization": f"Bearer {secret}"},
        timeout=60,
        limits=httpx2.Limits(max_connections=None),
        **more,
    )


async def test_two_hundred_clients_while_hooks_run_see_no_fault_of_ours(
    workspace: Workspace,
) -> None:
    workspace.hooks({"tool_call": [{"command": "a"}, {"command": "b"}]})
    statuses: Counter[int] = Counter()
    async with listening(workspace) as (port, secret, service):

        async def one(number: int) -> None:
            async with client(port, secret) as http:
                for turn in range(5):
                    key = {"Idempotency-Key": f"{number}-{turn}"}
                    for response in (
                        await http.get("/api/hooks"),
                        await http.post("/api/events", json=EVENT, headers=key),
                        await http.get("/api/runs?limit=5"),
                    ):
                        statuses[response.status_code] += 1
                        if response.status_code == 503:
                            assert response.headers["retry-after"]

        async with anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(one, number)
        assert service.executor.dispatcher.waiting <= 1024
        await service.executor.drain()
    assert set(statuses) <= {200, 202, 503}
    assert statuses[202] + statuses[503] == 1000
    assert statuses[200] == 2000


async def test_labels_stay_few_whatever_comes_in(workspace: Workspace) -> None:
    workspace.hooks({"tool_call": [{"command": "a"}]})
    async with listening(workspace) as (port, secret, service), client(port, secret) as http:
        await http.get("/api/hooks")
        for number in range(100):
            await http.get(f"/nothing/{number}")
            await http.get(f"/api/runs/run_{number}")
            await http.request("BREW" if number % 2 else "GET", f"/api/hooks/x{number}")
        before = await series(http)
        for number in range(10_000):
            payload = {"tool": f"tool{number}", "success": True, "output": "x"}
            service.executor.emit("tool_call", payload, session_id=f"session{number}")
            if number % 500 == 0:
                await service.executor.drain()
        await service.executor.drain()
        after = await series(http)
    assert len(after) < 400
    new = {name for name, _ in after - before}
    assert len(after - before) < 120, new
    assert not any("session" in str(labels) or "tool1" in str(labels) for _, labels in after)


async def series(http: httpx2.AsyncClient) -> set[tuple[str, str]]:
    """Name and labels of each sample; the text as a strict reader takes it."""
    response = await http.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    text = response.text
    assert text.endswith("\n")
    found = set()
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        assert family.type != "unknown", family.name
        for sample in family.samples:
            key = (sample.name, json.dumps(sample.labels, sort_keys=True))
            assert key not in found, key
            found.add(key)
    return found


async def test_a_slow_head_is_hung_up_on(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.2)
    async with listening(workspace) as (port, secret, _):
        stream = await anyio.connect_tcp("127.0.0.1", port)
        async with stream:
            await stream.send(b"GET /api/hooks HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
            ended = (anyio.EndOfStream, anyio.BrokenResourceError)
            with anyio.fail_after(30), pytest.raises(ended):
                await stream.receive()
        async with client(port, secret) as http:
            assert (await http.get("/api/hooks")).status_code == 200


async def test_connections_beyond_the_limit_are_told_so(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_CONNECTIONS", 3)
    async with listening(workspace) as (port, secret, _):
        idle = [await anyio.connect_tcp("127.0.0.1", port) for _ in range(3)]
        async with client(port, secret) as http:
            response = await http.get("/api/hooks")
            assert response.status_code == 503
            assert response.headers["retry-after"]
        for stream in idle:
            await stream.aclose()


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_a_gigabyte_ends_early_and_cheaply(workspace: Workspace, framing: str) -> None:
    async with listening(workspace) as (port, secret, _):
        head = (
            f"POST /api/hooks HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {secret}\r\n"
            "Content-Type: application/json\r\n"
        )
        sized = "Content-Length: 1073741824\r\n\r\n"
        head += sized if framing == "length" else "Transfer-Encoding: chunked\r\n\r\n"
        sent = 0
        answer = b""
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(head.encode())
            chunk = b" " * 65536
            framed = chunk if framing == "length" else b"10000\r\n" + chunk + b"\r\n"
            try:
                while sent < 1 << 30:
                    await stream.send(framed)
                    sent += len(chunk)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                pass
            try:
                while data := await stream.receive():
                    answer += data
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                pass
    assert sent < 64 << 20
    assert not answer or b" 413 " in answer.split(b"\r\n")[0]


async def test_a_follower_gets_events_and_the_end(workspace: Workspace) -> None:
    async with (
        listening(workspace) as (port, secret, service),
        client(port, secret) as http,
        http.stream("GET", "/api/events/stream?topic=prx.lifecycle.tool_call") as response,
    ):
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = response.aiter_lines()
        assert await anext(lines) == ": following"
        service.executor.emit("turn_complete", {}, session_id="s")
        service.executor.emit("tool_call", TOOL_CALL, session_id="s")
        seen: list[str] = []
        while not (seen and seen[-1].startswith("data: ")):
            seen.append(await anext(lines))
        assert "event: prx.lifecycle.tool_call" in seen
        assert json.loads(seen[-1][6:])["payload"] == TOOL_CALL
        service.closing.set()
        with anyio.fail_after(30):
            async for _ in lines:
                pass


# ------------------------------------------------------------------------------- the document


def test_the_document_names_every_row_of_the_contract() -> None:
    paths = build_app().openapi()["paths"]
    rows = {f"{method.upper()} {path}" for path, found in paths.items() for method in found}
    assert rows == {
        "GET /api/hooks",
        "POST /api/hooks",
        "GET /api/hooks/{id}",
        "PUT /api/hooks/{id}",
        "DELETE /api/hooks/{id}",
        "PATCH /api/hooks/{id}/toggle",
        "POST /api/events",
        "POST /api/gate/{event}",
        "GET /api/runs",
        "GET /api/runs/{id}",
        "DELETE /api/runs/{id}",
        "GET /api/events/stream",
        "GET /api/status",
        "GET /metrics",
        "GET /healthz",
    }


@pytest.fixture
def living(workspace: Workspace) -> Iterator[tuple[int, str]]:
    """The API in a thread of its own, for clients that block."""
    ready: list[tuple[int, str]] = []
    begun, over = threading.Event(), threading.Event()

    async def main() -> None:
        async with listening(workspace) as (port, secret, _):
            ready.append((port, secret))
            begun.set()
            await anyio.to_thread.run_sync(over.wait)

    thread = threading.Thread(target=lambda: anyio.run(main))
    thread.start()
    assert begun.wait(60)
    yield ready[0]
    over.set()
    thread.join(60)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_schemathesis_finds_no_fault_and_no_answer_beyond_the_document(
    living: tuple[int, str],
    tmp_path: Path,
) -> None:
    """Thousands of requests made from the document: no 5xx, no undocumented status or form."""
    fuzzed(living, tmp_path, examples=100)


def test_schemathesis_finds_no_fault_in_a_short_look(
    living: tuple[int, str], tmp_path: Path
) -> None:
    fuzzed(living, tmp_path, examples=3)


CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
    "unsupported_method",
    "negative_data_rejection",
)
"""All that is a fault of ours. A document cannot say that a path leaves the workspace, so that
legal-looking requests may be refused."""


def fuzzed(living: tuple[int, str], place: Path, *, examples: int) -> None:
    port, secret = living
    words = [
        str(Path(sys.executable).with_name("schemathesis")),
        "run",
        f"http://127.0.0.1:{port}/api/openapi.json",
        "--header",
        f"Authorization: Bearer {secret}",
        "--checks",
        ",".join(CHECKS),
        "--exclude-path",
        "/api/events/stream",
        "--max-examples",
        str(examples),
        "--suppress-health-check",
        "all",
        "--no-color",
        "--generation-database",
        "none",
    ]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=850, cwd=place
    )
    assert re.search(r"\b1[0-9] selected|Operations:\s+1[0-9]", done.stdout), done.stdout[-3000:]
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
