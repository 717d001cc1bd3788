"""Do events, questions and runs come in and out as SPEC section 6 says?"""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from executor.job import Job
from executor.outcome import Cause, Outcome, Status
from executor.testing import SAMPLE_PAYLOADS, FakeBackend
from tests.support import TOOL_CALL, Workspace
from tests.unit.api.conftest import Api, opened

pytestmark = pytest.mark.anyio

EVENT = {"event": "tool_call", "session_id": "s", "payload": dict(TOOL_CALL)}


class Held(FakeBackend):
    """Runs wait until the test lets them go."""

    def __init__(self) -> None:
        super().__init__()
        self.go = anyio.Event()
        self.began = anyio.Event()

    async def run(self, job: Job) -> Outcome:
        self.began.set()
        await self.go.wait()
        return await super().run(job)


@pytest.mark.parametrize("name", SAMPLE_PAYLOADS)
async def test_each_lifecycle_event_is_accepted(api: Api, name: str) -> None:
    body = {"event": name, "session_id": "s", "payload": dict(SAMPLE_PAYLOADS[name])}
    response = await api.client.post("/api/events", json=body)
    assert response.status_code == 202
    told = response.json()
    assert told == {"id": told["id"], "event": name, "accepted": True}
    assert told["id"].startswith("evt_")


async def test_waiting_for_the_hooks_answers_what_emit_json_prints(workspace: Workspace) -> None:
    workspace.hooks({"tool_call": [{"command": "a"}]})
    async with opened(workspace) as api:
        response = await api.client.post("/api/events?wait=true", json=EVENT)
        assert response.status_code == 200
        told = response.json()
        assert list(told) == ["event", "bus", "runs"]
        assert told["event"]["payload"] == TOOL_CALL
        assert [(run["hook"], run["status"]) for run in told["runs"]] == [("hook_01", "ok")]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/event"),
        ({"event": None}, "/event"),
        ({"event": "PreToolUse", "payload": {}}, "/event"),
        ({"event": "nope"}, "/event"),
        (
            {"event": "tool_call", "payload": {"tool": "x", "success": 1, "output": ""}},
            "/payload/success",
        ),
        ({"event": "tool_call", "payload": []}, "/payload"),
        ({**EVENT, "session_id": ""}, "/session_id"),
        ({**EVENT, "session_id": 5}, "/session_id"),
        ({**EVENT, "depth": 1}, ""),
    ],
)
async def test_an_invalid_event_is_422_and_runs_nothing(
    workspace: Workspace, body: dict[str, Any], pointer: str
) -> None:
    workspace.hooks({"tool_call": [{"command": "a"}]})
    async with opened(workspace) as api:
        response = await api.client.post("/api/events", json=body)
        assert response.status_code == 422
        assert pointer in [error["pointer"] for error in response.json()["errors"]]
        await api.service.executor.drain()
        assert api.backend.jobs == []


async def test_a_full_queue_is_503_with_retry_after(workspace: Workspace) -> None:
    workspace.hooks({"tool_call": [{"command": "a"}]})
    workspace.settings("[limits]\nmax_concurrency = 1\nmax_queue = 2\n")
    held = Held()
    async with opened(workspace, held) as api:
        answers = []
        for _ in range(3):
            answers.append(await api.client.post("/api/events", json=EVENT))
            await held.began.wait()
        full = await api.client.post("/api/events", json=EVENT)
        assert [one.status_code for one in answers] == [202, 202, 202]
        assert full.status_code == 503
        assert full.headers["retry-after"] == "1"
        held.go.set()
        await api.service.executor.drain()
        assert len(held.jobs) == 3
        assert (await api.client.post("/api/events", json=EVENT)).status_code == 202


async def test_an_event_beyond_max_payload_bytes_is_413(workspace: Workspace) -> None:
    workspace.settings("[limits]\nmax_payload_bytes = 1024\n")
    async with opened(workspace) as api:
        big = {**EVENT, "payload": {**TOOL_CALL, "output": "x" * 2000}}
        assert (await api.client.post("/api/events", json=big)).status_code == 413


async def test_a_repeated_key_is_carried_out_once(workspace: Workspace) -> None:
    workspace.hooks({"tool_call": [{"command": "a"}]})
    async with opened(workspace) as api:
        key = {"Idempotency-Key": "k1"}
        first = await api.client.post("/api/events", json=EVENT, headers=key)
        again = await api.client.post("/api/events", json=EVENT, headers=key)
        assert (first.json(), first.status_code) == (again.json(), again.status_code)
        assert again.headers["idempotency-replayed"] == "true"
        await api.service.executor.drain()
        assert len(api.backend.jobs) == 1
        other = {**EVENT, "session_id": "other"}
        clash = await api.client.post("/api/events", json=other, headers=key)
        assert clash.status_code == 422
        bad = await api.client.post("/api/events", json={}, headers={"Idempotency-Key": "k2"})
        assert bad.status_code == 422
        mended = await api.client.post("/api/events", json=EVENT, headers={"Idempotency-Key": "k2"})
        assert mended.status_code == 202


async def test_the_gate_answers_its_two_keys(api: Api) -> None:
    @api.service.executor.on("PreToolUse")
    def guard(payload: dict[str, object]) -> dict[str, object]:
        blocked = payload["tool_name"] == "bash"
        return {"exit_code": int(blocked), "message": "no" if blocked else ""}

    for tool, expected in (("bash", (1, "no")), ("read", (0, ""))):
        body = {"session_id": "s", "payload": {"tool_name": tool, "input": {}}}
        response = await api.client.post("/api/gate/PreToolUse", json=body)
        assert response.status_code == 200
        assert response.json() == {"exit_code": expected[0], "message": expected[1]}
    assert (await api.client.post("/api/gate/tool_call", json={"payload": {}})).status_code == 404
    wrong = {"session_id": "s", "payload": {"tool_name": 1, "input": {}}}
    assert (await api.client.post("/api/gate/PreToolUse", json=wrong)).status_code == 422


async def test_permission_comes_before_the_gates_hooks(workspace: Workspace) -> None:
    workspace.settings('[permission]\nrules = [{effect = "deny", tool = "bash"}]\n')
    async with opened(workspace) as api:
        body = {"payload": {"tool_name": "bash", "input": {}}}
        told = (await api.client.post("/api/gate/PreToolUse", json=body)).json()
        assert told["exit_code"] == 1
        assert "Permission denied" in told["message"]


async def test_runs_are_listed_newest_first_in_steady_pages(workspace: Workspace) -> None:
    workspace.hooks({"tool_call": [{"command": "a"}], "error": [{"command": "b"}]})

    def respond(job: Job) -> Outcome:
        if job.command == "b":
            return Outcome(Status.FAILED, Cause.EXIT, exit_code=3)
        return Outcome(Status.OK, Cause.EXIT, exit_code=0)

    async with opened(workspace, FakeBackend(respond)) as api:
        for number in range(5):
            api.service.executor.emit("tool_call", TOOL_CALL, session_id=f"s{number}")
        api.service.executor.emit("error", {"component": "c", "message": "m"}, session_id="e")
        await api.service.executor.drain()
        first = (await api.client.get("/api/runs?limit=4")).json()
        api.service.executor.emit("tool_call", TOOL_CALL, session_id="late")
        await api.service.executor.drain()
        rest = (await api.client.get(f"/api/runs?limit=4&cursor={first['next']}")).json()
        sessions = [run["session_id"] for run in first["runs"] + rest["runs"]]
        assert sorted(sessions) == ["e", "s0", "s1", "s2", "s3", "s4"]
        assert rest["next"] is None
        failed = (await api.client.get("/api/runs?status=failed")).json()["runs"]
        assert [run["exit_code"] for run in failed] == [3]
        assert len((await api.client.get("/api/runs?event=error")).json()["runs"]) == 1
        assert len((await api.client.get("/api/runs?hook=hook_01")).json()["runs"]) == 6
        run = failed[0]
        assert (await api.client.get(f"/api/runs/{run['id']}")).json() == run
        assert (await api.client.get("/api/runs/run_nope")).status_code == 404


async def test_a_run_in_flight_is_shown_and_cancelled(workspace: Workspace) -> None:
    workspace.hooks({"tool_call": [{"command": "a"}]})
    held = Held()
    async with opened(workspace, held) as api:
        receipt = api.service.executor.emit("tool_call", TOOL_CALL, session_id="s")
        await held.began.wait()
        (run,) = (await api.client.get("/api/runs?status=running")).json()["runs"]
        assert run["status"] == "running"
        assert (await api.client.get(f"/api/runs/{run['id']}")).json() == run
        response = await api.client.delete(f"/api/runs/{run['id']}")
        assert response.status_code == 202
        (record,) = await receipt.wait()
        assert record.run_id == run["id"]
        assert (record.outcome.status, record.outcome.cause) == (
            Status.INTERRUPTED,
            Cause.CANCELLED,
        )
        assert (await api.client.delete(f"/api/runs/{run['id']}")).status_code == 409
        assert (await api.client.delete("/api/runs/run_nope")).status_code == 404


async def test_followers_see_events_and_end_when_the_daemon_closes(api: Api) -> None:
    service = api.service
    from executor.api import stream

    lines = stream._lines(service, "prx.lifecycle.*")
    assert await anext(lines) == b": following\n\n"
    service.executor.emit("tool_call", TOOL_CALL, session_id="s")
    line = await anext(lines)
    head, _, data = line.decode().partition("data: ")
    assert head == "id: 1\nevent: prx.lifecycle.tool_call\n"
    assert json.loads(data)["payload"] == TOOL_CALL
    service.closing.set()
    with pytest.raises(StopAsyncIteration):
        await anext(lines)


async def test_a_follower_that_does_not_keep_up_is_told_what_it_missed(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    from executor.api import stream

    monkeypatch.setattr(stream, "_WAITING", 4)
    lines = stream._lines(api.service, "prx.*")
    await anext(lines)
    for _ in range(10):
        api.service.executor.emit("turn_complete", {}, session_id="s")
    first = await anext(lines)
    assert b"event: dropped" in first
    assert b'"dropped":6' in first
    await lines.aclose()  # type: ignore[attr-defined]


async def test_the_status_tells_of_a_broken_file_and_of_what_runs(workspace: Workspace) -> None:
    workspace.hooks({"tool_call": [{"command": "a"}]})
    async with opened(workspace) as api:
        before = (await api.client.get("/api/status")).json()
        assert before["reload"]["ok"] is True
        assert before["hooks"] == {"total": 1, "enabled": 1}
        workspace.file("hooks.json", "{")
        await api.service.executor.reloader.refresh()
        after = (await api.client.get("/api/status")).json()
        assert after["generation"] == before["generation"] == 1
        assert after["reload"]["ok"] is False
        assert [one["part"] for one in after["reload"]["failures"]] == ["hooks.json"]
