"""Does nothing come in without a token, and does nothing that was sent come back?"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from executor.api.app import build_app
from executor.api.tokens import Scope, Tokens
from executor.errors import InvalidConfig, Unavailable
from tests.support import TOOL_CALL
from tests.unit.api.conftest import Api

pytestmark = pytest.mark.anyio

OPERATIONS = [
    (method.upper(), path)
    for path, operations in build_app().openapi()["paths"].items()
    for method in operations
    if path != "/healthz"
]
OTHERS = [
    ("GET", "/nothing"),
    ("POST", "/api"),
    ("GET", "/api/openapi.json"),
    ("GET", "/docs"),
    ("OPTIONS", "/api/hooks"),
    ("TRACE", "/"),
    ("POST", "/"),
    ("DELETE", "/healthz"),
    ("GET", "/api/hooks/"),
    ("GET", "//api/hooks"),
]
CANARY = "s3cr3t-canary"


@pytest.mark.parametrize(("method", "path"), OPERATIONS + OTHERS)
@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]"])
async def test_without_a_token_everything_is_401(
    api: Api, method: str, path: str, content: bytes
) -> None:
    async with api.bare() as client:
        response = await client.request(
            method, path.replace("{id}", "x").replace("{event}", "PreToolUse"), content=content
        )
    assert response.status_code == 401
    assert response.headers["www-authenticate"].startswith("Bearer")
    if method != "HEAD":
        assert response.json()["status"] == 401


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Basic x", "Bearer hkx_", "Bearer \xe9", "bearer  wrong"]
)
async def test_what_is_no_token_of_ours_is_401(api: Api, header: str) -> None:
    async with api.bare() as client:
        headers = {"Authorization": header.encode("latin-1")}
        response = await client.get("/api/hooks", headers=headers)  # type: ignore[arg-type]
    assert response.status_code == 401


async def test_the_page_and_the_health_are_open_and_say_nothing(api: Api) -> None:
    async with api.bare() as client:
        assert (await client.get("/healthz")).text == "ok"
        page = await client.get("/")
    assert page.status_code == 200
    assert str(api.workspace.path) not in page.text


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [
        (Scope.READ, {"GET /api/hooks", "GET /metrics", "GET /api/status", "GET /api/runs"}),
        (Scope.WRITE, {"PATCH /api/hooks/x/toggle", "DELETE /api/runs/x"}),
        (Scope.EMIT, {"POST /api/events", "POST /api/gate/PreToolUse"}),
    ],
)
async def test_each_scope_opens_its_own_doors_only(
    api: Api, scope: Scope, allowed: set[str]
) -> None:
    secret, _ = api.service.tokens.create([scope])
    doors = [
        "GET /api/hooks",
        "GET /metrics",
        "GET /api/status",
        "GET /api/runs",
        "PATCH /api/hooks/x/toggle",
        "DELETE /api/runs/x",
        "POST /api/events",
        "POST /api/gate/PreToolUse",
    ]
    async with api.bare(secret) as client:
        for door in doors:
            method, path = door.split()
            response = await client.request(method, path)
            assert (response.status_code != 403) == (door in allowed), door


async def test_an_expired_or_revoked_token_is_401(api: Api) -> None:
    tokens = api.service.tokens
    secret, token = tokens.create([Scope.READ], days=1)
    later = datetime.now(UTC) + timedelta(days=1, seconds=1)
    assert tokens.find(secret) == token
    assert tokens.find(secret, later) is None
    async with api.bare(secret) as client:
        assert (await client.get("/api/hooks")).status_code == 200
        # Made beside the daemon, by the command line:
        assert Tokens(api.service.executor.live.state).revoke(token.id)
        assert (await client.get("/api/hooks")).status_code == 401


async def test_the_file_holds_no_token_and_is_nobody_elses(api: Api) -> None:
    secret, token = api.service.tokens.create(Scope)
    path = api.service.executor.live.state / "tokens.json"
    assert secret not in path.read_text()
    assert token.id in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    with pytest.raises(Unavailable, match="chmod 600"):
        Tokens(path.parent).list()


async def test_a_token_needs_scopes_and_a_sane_expiry(api: Api) -> None:
    for scopes, days in (((), None), ((Scope.READ,), 0), ((Scope.READ,), 10**9)):
        with pytest.raises(InvalidConfig):
            api.service.tokens.create(scopes, days)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "evil.example:8787"}, 403),
        ({"Host": "localhost.evil.example"}, 403),
        ({"Host": "LOCALHOST:1"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:8787"}, 200),
    ],
)
async def test_foreign_names_and_pages_are_turned_away(
    api: Api, headers: dict[str, str], status: int
) -> None:
    assert (await api.client.get("/api/hooks", headers=headers)).status_code == status


@pytest.mark.parametrize("path", ["/api/hooks", "/api/events"])
async def test_a_body_beyond_the_limit_is_413_unread(api: Api, path: str) -> None:
    read = 0

    async def endless() -> Any:
        nonlocal read
        for _ in range(1 << 14):
            read += 1 << 16
            yield b" " * (1 << 16)

    response = await api.client.post(path, content=endless())
    assert response.status_code == 413
    assert read < 64 << 20
    headers = {"Content-Length": str(1 << 30)}
    response = await api.client.post(path, content=b"{}", headers=headers)
    assert response.status_code == 413
    assert response.headers["connection"] == "close"


async def test_no_answer_and_no_log_line_holds_a_rejected_value(
    api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    bad: list[tuple[str, str, Any]] = [
        ("POST", "/api/hooks", {"event": CANARY, "action": {"command": CANARY}}),
        ("POST", "/api/hooks", {"event": "error", "action": {"command": f"{CANARY};"}}),
        ("POST", "/api/hooks", {"event": "error", "action": {"command": "a", CANARY: CANARY}}),
        (
            "POST",
            "/api/hooks",
            {"event": "error", "action": {"command": "a", "env": {"A-": CANARY}}},
        ),
        ("POST", "/api/hooks", {"event": "error", "action": {"command": "a", "policy": [CANARY]}}),
        ("POST", "/api/hooks", {"event": "error", "action": {"command": "a", "protocol": CANARY}}),
        (
            "POST",
            "/api/hooks",
            {"event": "error", "action": {"command": "a", "cwd": f"../{CANARY}"}},
        ),
        ("POST", "/api/hooks", {"event": "error", "action": {"command": "a"}, "enabled": CANARY}),
        ("POST", "/api/hooks", {CANARY: 1}),
        ("POST", "/api/hooks", CANARY),
        ("PUT", f"/api/hooks/{CANARY}", {"event": "error", "action": {"command": "a"}}),
        ("DELETE", f"/api/hooks/{CANARY}", None),
        ("GET", f"/api/runs?limit={CANARY}", None),
        ("GET", f"/api/runs?cursor={CANARY}", None),
        ("GET", f"/api/runs?status={CANARY}", None),
        ("GET", f"/api/runs/{CANARY}", None),
        ("GET", f"/{CANARY}", None),
        ("GET", f"/api/events/stream?topic={CANARY}..", None),
        ("POST", f"/api/events?wait={CANARY}", {}),
        ("POST", "/api/events", {"event": CANARY}),
        ("POST", "/api/events", {"event": "tool_call", "payload": {"tool": {CANARY: 1}}}),
        ("POST", "/api/events", {"event": "error", "session_id": f"{CANARY}\n", "payload": {}}),
        ("POST", "/api/events", {"event": "error", "payload": CANARY}),
        ("POST", f"/api/gate/{CANARY}", {"payload": {}}),
        ("POST", "/api/gate/PreToolUse", {"payload": {"tool_name": [CANARY]}}),
    ]
    for method, path, body in bad:
        response = await api.client.request(method, path, json=body)
        assert 400 <= response.status_code < 500, (path, body, response.text)
        assert CANARY not in response.text, (path, body)
        assert CANARY not in str(response.headers)
    broken = await api.client.post(
        "/api/hooks", content=f'{{"{CANARY}'.encode(), headers={"Content-Type": "application/json"}
    )
    assert broken.status_code == 400
    assert CANARY not in broken.text
    async with api.bare(CANARY) as client:
        assert CANARY not in (await client.get("/api/hooks")).text
    written = capsys.readouterr()
    assert CANARY not in written.out + written.err


async def test_a_fault_of_ours_is_a_500_without_its_words(
    api: Api, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError(CANARY)

    monkeypatch.setattr(api.service.executor, "emit", broken)
    response = await api.client.post(
        "/api/events", json={"event": "tool_call", "payload": dict(TOOL_CALL)}
    )
    assert response.status_code == 500
    assert response.headers["content-type"] == "application/problem+json"
    written = capsys.readouterr()
    assert CANARY not in response.text + written.out + written.err
    assert "RuntimeError" in written.err
