"""Does a client of source A's HTTP API work unchanged? Its own examples, whole documents."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support import Workspace
from tests.unit.api.conftest import opened

pytestmark = pytest.mark.anyio

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


LISTED = {
    "hooks": [
        {
            "id": "hook_01",
            "event": "error",
            "action": {
                "command": "/opt/hooks/notify_error.sh",
                "args": [],
                "timeout_ms": 5000,
                "stdin_json": False,
            },
            "enabled": True,
            "created_at": "2026-03-20T10:00:00Z",
            "updated_at": "2026-03-20T10:00:00Z",
        }
    ]
}
CREATE = {
    "event": "llm_response",
    "action": {
        "command": "python3",
        "args": ["/opt/hooks/track_latency.py"],
        "stdin_json": True,
        "timeout_ms": 3000,
    },
    "enabled": True,
}
UPDATE = {
    "event": "llm_response",
    "action": {
        "command": "python3",
        "args": ["/opt/hooks/track_latency_v2.py"],
        "stdin_json": True,
        "timeout_ms": 5000,
    },
    "enabled": True,
}


def timeless(hook: dict[str, Any]) -> dict[str, Any]:
    for name in ("created_at", "updated_at"):
        assert TIME.fullmatch(hook[name])
    return {key: value for key, value in hook.items() if not key.endswith("_at")}


async def test_the_printed_session_is_answered_as_printed(workspace: Workspace) -> None:
    entry = {
        "id": "hook_01",
        "command": "/opt/hooks/notify_error.sh",
        "timeout_ms": 5000,
        "created_at": "2026-03-20T10:00:00Z",
        "updated_at": "2026-03-20T10:00:00Z",
    }
    workspace.hooks({"error": [entry]})
    async with opened(workspace) as api:
        client = api.client

        response = await client.get("/api/hooks")
        assert (response.status_code, response.json()) == (200, LISTED)
        assert response.headers["content-type"] == "application/json"

        response = await client.post("/api/hooks", json=CREATE)
        assert response.status_code == 201
        created = response.json()
        assert created["created_at"] == created["updated_at"]
        assert timeless(created) == {"id": "hook_02", **CREATE}

        response = await client.put("/api/hooks/hook_02", json=UPDATE)
        assert response.status_code == 200
        assert timeless(response.json()) == {"id": "hook_02", **UPDATE}
        assert response.json()["created_at"] == created["created_at"]

        response = await client.patch("/api/hooks/hook_01/toggle")
        assert (response.status_code, response.json()) == (200, {"id": "hook_01", "enabled": False})

        response = await client.delete("/api/hooks/hook_02")
        assert (response.status_code, response.content) == (204, b"")

        listed = (await client.get("/api/hooks")).json()["hooks"]
        assert [(hook["id"], hook["enabled"]) for hook in listed] == [("hook_01", False)]
