"""Are hooks listed and changed as SPEC section 6 says, and in force at once?"""

from __future__ import annotations

import json
import os
import re
from typing import Any

import pytest

from tests.support import TOOL_CALL
from tests.unit.api.conftest import Api

pytestmark = pytest.mark.anyio

ACTION = {"command": "python3", "args": ["x.py"], "stdin_json": True, "timeout_ms": 3000}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


async def created(api: Api, event: str = "tool_call", **more: Any) -> dict[str, Any]:
    response = await api.client.post("/api/hooks", json={"event": event, "action": ACTION, **more})
    assert response.status_code == 201, response.text
    hook: dict[str, Any] = response.json()
    assert response.headers["location"] == f"/api/hooks/{hook['id']}"
    return hook


async def ran(api: Api) -> int:
    response = await api.client.post(
        "/api/events?wait=true",
        json={"event": "tool_call", "session_id": "s", "payload": TOOL_CALL},
    )
    assert response.status_code == 200, response.text
    return len(response.json()["runs"])


def on_disk(api: Api) -> Any:
    return json.loads((api.workspace.path / "hooks.json").read_bytes())["hooks"]


async def test_an_empty_workspace_lists_no_hooks(api: Api) -> None:
    response = await api.client.get("/api/hooks")
    assert (response.status_code, response.json()) == (200, {"hooks": []})


async def test_a_created_hook_is_answered_whole_listed_and_run(api: Api) -> None:
    hook = await created(api, enabled=True)
    moment = hook["created_at"]
    assert TIME.fullmatch(moment)
    assert hook == {
        "id": "hook_01",
        "event": "tool_call",
        "action": ACTION,
        "enabled": True,
        "created_at": moment,
        "updated_at": moment,
    }
    assert (await api.client.get("/api/hooks")).json() == {"hooks": [hook]}
    one = await api.client.get("/api/hooks/hook_01")
    assert one.json() == hook
    assert one.headers["etag"]
    assert await ran(api) == 1


async def test_an_updated_hook_keeps_id_and_first_time_and_runs_anew(api: Api) -> None:
    hook = await created(api)
    response = await api.client.put(
        "/api/hooks/hook_01", json={"event": "tool_call", "action": {"command": "other"}}
    )
    assert response.status_code == 200
    told = response.json()
    assert (told["id"], told["created_at"]) == ("hook_01", hook["created_at"])
    assert told["action"] == {
        "command": "other",
        "args": [],
        "timeout_ms": 30000,
        "stdin_json": False,
    }
    assert await ran(api) == 1
    assert [job.command for job in api.backend.jobs] == ["other"]


async def test_an_update_may_move_a_hook_to_another_event(api: Api) -> None:
    await created(api)
    response = await api.client.put(
        "/api/hooks/hook_01", json={"event": "error", "action": {"command": "x"}}
    )
    assert response.status_code == 200
    assert await ran(api) == 0
    assert list(on_disk(api)) == ["tool_call", "error"]
    assert on_disk(api)["tool_call"] == []


async def test_toggling_stays_in_the_file_and_stops_running(api: Api) -> None:
    await created(api)
    for expected in (False, True):
        response = await api.client.patch("/api/hooks/hook_01/toggle")
        assert response.status_code == 200
        assert response.json() == {"id": "hook_01", "enabled": expected}
        assert len(on_disk(api)["tool_call"]) == 1
        assert await ran(api) == int(expected)


async def test_a_put_without_enabled_leaves_it_as_it_is(api: Api) -> None:
    await created(api, enabled=False)
    response = await api.client.put(
        "/api/hooks/hook_01", json={"event": "tool_call", "action": ACTION}
    )
    assert response.json()["enabled"] is False


async def test_a_deleted_hook_is_gone_and_its_id_is_not_given_again(api: Api) -> None:
    await created(api)
    response = await api.client.delete("/api/hooks/hook_01")
    assert (response.status_code, response.content) == (204, b"")
    assert await ran(api) == 0
    assert (await api.client.get("/api/hooks/hook_01")).status_code == 404
    assert (await created(api))["id"] == "hook_02"


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", ""), ("PUT", ""), ("DELETE", ""), ("PATCH", "/toggle")],
)
async def test_an_unknown_id_is_404(api: Api, method: str, path: str) -> None:
    body = {"event": "error", "action": ACTION} if method == "PUT" else None
    response = await api.client.request(method, f"/api/hooks/hook_99{path}", json=body)
    assert response.status_code == 404
    assert response.headers["content-type"] == "application/problem+json"


async def test_order_mode_and_layout_of_the_file_stay(api: Api) -> None:
    text = """{
    "$schema": "x.json",
    "hooks": {
        "error": [
            {"timeout_ms": 5, "command": "z", "args": []}
        ],
        "tool_call": [],
        "agent_end": [
            {"command": "a"}
        ]
    }
}
"""
    path = api.workspace.file("hooks.json", text, mode=0o640)
    owner = os.stat(path).st_uid
    await api.service.executor.reloader.refresh()
    await created(api)
    document = json.loads(path.read_bytes())
    assert list(document) == ["$schema", "hooks"]
    assert list(document["hooks"]) == ["error", "tool_call", "agent_end"]
    first = document["hooks"]["error"][0]
    assert list(first) == ["id", "timeout_ms", "command", "args", "created_at", "updated_at"]
    status = os.stat(path)
    assert (status.st_mode & 0o7777, status.st_uid) == (0o640, owner)
    assert path.read_bytes().startswith(b'{\n    "$schema"')


async def test_fields_beyond_the_four_are_told_only_when_set(api: Api) -> None:
    action = {
        "command": "x",
        "env": {"A": "b"},
        "cwd": "sub",
        "matcher": "bash",
        "policy": "audit",
        "protocol": "native",
    }
    response = await api.client.post("/api/hooks", json={"event": "PreToolUse", "action": action})
    told = response.json()["action"]
    assert told == {"args": [], "timeout_ms": 30000, "stdin_json": False, **action}


async def test_a_stale_if_match_is_412_and_changes_nothing(api: Api) -> None:
    await created(api)
    listed = (await api.client.get("/api/hooks")).headers["etag"]
    one = (await api.client.get("/api/hooks/hook_01")).headers["etag"]
    fresh = await api.client.patch("/api/hooks/hook_01/toggle", headers={"If-Match": one})
    assert fresh.status_code == 200
    before = (api.workspace.path / "hooks.json").read_bytes()
    for tag in (one, listed, '"nothing"'):
        for method, path in (("PATCH", "/toggle"), ("DELETE", ""), ("PUT", "")):
            body = {"event": "error", "action": ACTION} if method == "PUT" else None
            response = await api.client.request(
                method, f"/api/hooks/hook_01{path}", headers={"If-Match": tag}, json=body
            )
            assert response.status_code == 412
    new = {"event": "error", "action": ACTION}
    response = await api.client.post("/api/hooks", headers={"If-Match": listed}, json=new)
    assert response.status_code == 412
    assert (api.workspace.path / "hooks.json").read_bytes() == before
    assert fresh.headers["etag"] == (await api.client.get("/api/hooks/hook_01")).headers["etag"]


async def test_a_file_changed_by_hand_makes_the_tag_stale(api: Api) -> None:
    await created(api)
    tag = (await api.client.get("/api/hooks/hook_01")).headers["etag"]
    path = api.workspace.path / "hooks.json"
    path.write_text(path.read_text().replace("x.py", "y.py"))
    response = await api.client.delete("/api/hooks/hook_01", headers={"If-Match": tag})
    assert response.status_code == 412


async def test_a_known_tag_is_304(api: Api) -> None:
    tag = (await api.client.get("/api/hooks")).headers["etag"]
    response = await api.client.get("/api/hooks", headers={"If-None-Match": tag})
    assert (response.status_code, response.content) == (304, b"")


async def test_a_broken_file_is_not_written_over(api: Api) -> None:
    path = api.workspace.file("hooks.json", '{"hooks": {')
    response = await api.client.post("/api/hooks", json={"event": "error", "action": ACTION})
    assert response.status_code == 409
    assert path.read_text() == '{"hooks": {'


async def test_a_linked_file_is_not_replaced(api: Api) -> None:
    api.workspace.file("elsewhere.json", '{"hooks": {}}')
    (api.workspace.path / "hooks.json").symlink_to("elsewhere.json")
    response = await api.client.post("/api/hooks", json={"event": "error", "action": ACTION})
    assert response.status_code == 409
    assert (api.workspace.path / "hooks.json").is_symlink()


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/event"),
        ({"event": 1, "action": ACTION}, "/event"),
        ({"event": "tool_cal", "action": ACTION}, "/event"),
        ({"event": "error"}, "/action"),
        ({"event": "error", "action": []}, "/action"),
        ({"event": "error", "action": {}}, "/action/command"),
        ({"event": "error", "action": {"command": "a;b"}}, "/action/command"),
        ({"event": "error", "action": {"command": "a", "timeout_ms": 0}}, "/action/timeout_ms"),
        ({"event": "error", "action": {"command": "a", "args": ["\0"]}}, "/action/args/0"),
        ({"event": "error", "action": {"command": "a", "matcher": "x"}}, "/action/matcher"),
        ({"event": "error", "action": {"command": "a", "nope": 1}}, "/action"),
        ({"event": "error", "action": {"command": "a", "id": "hook_01"}}, "/action/id"),
        ({"event": "error", "action": ACTION, "enabled": 1}, "/enabled"),
        ({"event": "error", "action": ACTION, "id": "x"}, ""),
    ],
)
async def test_an_invalid_body_is_422_with_its_place(
    api: Api, body: dict[str, Any], pointer: str
) -> None:
    response = await api.client.post("/api/hooks", json=body)
    assert response.status_code == 422, response.text
    assert pointer in [error["pointer"] for error in response.json()["errors"]]
    assert not (api.workspace.path / "hooks.json").exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff", b'{"event": "error", "event": "error"}', b"[" * 500, b"NaN", b"\0"],
)
async def test_an_unparsable_body_is_400(api: Api, content: bytes) -> None:
    response = await api.client.post(
        "/api/hooks", content=content, headers={"Content-Type": "application/json"}
    )
    assert response.status_code == 400
    assert response.headers["content-type"] == "application/problem+json"
