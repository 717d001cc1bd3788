"""How do events and questions come in over HTTP?"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import cast

from fastapi import APIRouter, Request, Response

from executor.api import schemas
from executor.api.problems import Problem, problem_of
from executor.api.service import Service, answer, body_of, encoded, principal_of, service_of
from executor.document import kind_of
from executor.errors import Fault, InvalidInput
from executor.events import GATE, LIFECYCLE
from executor.outcome import Cause, Status
from executor.receipt import Receipt

router = APIRouter()

_EVENT_KEYS = frozenset({"event", "session_id", "payload"})
_GATE_KEYS = frozenset({"session_id", "payload"})
_RETRY = {"Retry-After": "1"}


@router.post("/api/events", **schemas.POST_EVENT)
async def post_event(request: Request, wait: bool = False) -> Response:  # noqa: FBT001, FBT002
    """Emit an event. ``wait=true`` answers when its hooks have ended, with what ``emit --json``
    prints. An ``Idempotency-Key`` makes a repetition safe."""
    service = service_of(request)
    key = request.headers.get("idempotency-key")
    if key is None:
        return await _emitted(service, request, wait=wait)
    who = principal_of(request).name
    content = await request.body() + (b"\1" if wait else b"\0")
    known = service.replies.begin(who, key, content)
    if known is not None:
        status, body = known
        return Response(
            body, status, {"Idempotency-Replayed": "true"}, media_type="application/json"
        )
    try:
        response = await _emitted(service, request, wait=wait)
    except BaseException:
        service.replies.forget(who, key)
        raise
    service.replies.keep(who, key, response.status_code, bytes(response.body))
    return response


@router.post("/api/gate/{event}", **schemas.POST_GATE)
async def post_gate(request: Request, event: str) -> Response:
    """Ask the gate: Permission where the event has one, then the hooks."""
    if event not in GATE:
        raise Problem(404, "there is no such gate event")
    service = service_of(request)
    body = await body_of(request, known=_GATE_KEYS)
    session, payload = _session_and_payload(body)
    verdict = await service.executor.ask(event, payload, session_id=session)
    return answer(verdict.as_answer())


async def _emitted(service: Service, request: Request, *, wait: bool) -> Response:
    body = await body_of(request, known=_EVENT_KEYS)
    event = body.get("event")
    if not isinstance(event, str):
        text = f"must be a string, not {kind_of(event)}" if "event" in body else "is required"
        raise Problem(422, faults=[Fault("/event", text)])
    if event in GATE:
        raise Problem(422, faults=[Fault("/event", "is asked (/api/gate), not emitted")])
    session, payload = _session_and_payload(body)
    limits = service.executor.live.grounds.settings.limits
    wanted = len(service.executor.live.registry.snapshot.subscriptions.get(event, ()))
    room = limits.max_queue - service.executor.dispatcher.waiting
    if event in LIFECYCLE and room < wanted and service.executor.dispatcher.waiting:
        raise Problem(503, "the queue of waiting runs is full", headers=_RETRY)
    try:
        receipt = service.executor.emit(event, payload, session_id=session)
    except InvalidInput as mistake:
        raise problem_of(mistake) or mistake from None
    _refuse_dropped(receipt)
    if wait:
        await receipt.wait()
        return answer(receipt.as_json())
    name = f"evt_{secrets.token_hex(8)}"
    return Response(
        encoded({"id": name, "event": event, "accepted": True}), 202, media_type="application/json"
    )


def _refuse_dropped(receipt: Receipt) -> None:
    """What was not taken is told at once; nothing of it runs later."""
    if not receipt.accepted:
        reason = receipt.reason or "the event was dropped"
        if receipt.cause is Cause.SIZE:
            raise Problem(413, reason)
        raise Problem(503, reason, headers=_RETRY)
    ended = [record for record in receipt.records if record is not None]
    if (
        ended
        and all(
            one.outcome.status is Status.DROPPED and one.outcome.cause is Cause.QUEUE
            for one in ended
        )
        and len(ended) == len(receipt.records)
    ):
        raise Problem(503, "the queue of waiting runs is full", headers=_RETRY)


def _session_and_payload(body: Mapping[str, object]) -> tuple[str | None, Mapping[str, object]]:
    """As they stand; ``make_event`` judges the session's words."""
    faults = []
    session, payload = body.get("session_id"), body.get("payload", {})
    if "session_id" in body and not isinstance(session, str):
        faults.append(Fault("/session_id", f"must be a string, not {kind_of(session)}"))
    if not isinstance(payload, dict):
        faults.append(Fault("/payload", f"must be an object, not {kind_of(payload)}"))
    if faults:
        raise Problem(422, faults=faults)
    return cast("str | None", session), cast("dict[str, object]", payload)
