"""How are hooks listed and changed over HTTP?

Every change ends in the file, and then in force (``Reloader.refresh``) before it is answered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread
from fastapi import APIRouter, Request, Response

from executor.api import schemas
from executor.api.problems import Problem
from executor.api.service import Service, answer, body_of, encoded, service_of
from executor.document import hint, kind_of
from executor.errors import Fault, InvalidConfig
from executor.events import EVENTS
from executor.hook_json import etag_of, hook_etag, hook_json, hooks_json
from executor.hooks import Hook, parse_action
from executor.hooks_file import Unknown

router = APIRouter()
T = TypeVar("T")

_KEYS = frozenset({"event", "action", "enabled"})


@router.get("/api/hooks", **schemas.LIST_HOOKS)
async def list_hooks(request: Request) -> Response:
    """All hooks of hooks.json, in its order, as they are in force."""
    return _List.of(service_of(request)).response(request)


@router.post("/api/hooks", **schemas.CREATE_HOOK)
async def create_hook(request: Request) -> Response:
    """Append a hook to its event."""
    service = service_of(request)
    event, action, enabled = await _wanted(request, service)
    hook = await _changed(
        service,
        lambda: service.file.add(
            event,
            action,
            enabled=enabled is not False,
            if_match=request.headers.get("if-match"),
        ),
    )
    headers = {"Location": f"/api/hooks/{hook.id}", "ETag": hook_etag(hook)}
    return answer(hook_json(hook), 201, headers)


@router.get("/api/hooks/{id}", **schemas.GET_HOOK)
async def get_hook(request: Request, id: str) -> Response:  # noqa: A002  (the parameter's name)
    """One hook."""
    for hook in service_of(request).executor.live.registry.snapshot.configuration.hooks:
        if hook.id == id:
            return _unless_known(request, encoded(hook_json(hook)), hook_etag(hook))
    raise Unknown("there is no hook with this id")


@router.put("/api/hooks/{id}", **schemas.UPDATE_HOOK)
async def update_hook(request: Request, id: str) -> Response:  # noqa: A002
    """Replace a hook's event and action; its id and ``created_at`` stay."""
    service = service_of(request)
    event, action, enabled = await _wanted(request, service)
    hook = await _changed(
        service,
        lambda: service.file.update(
            id, event, action, enabled=enabled, if_match=request.headers.get("if-match")
        ),
    )
    return answer(hook_json(hook), headers={"ETag": hook_etag(hook)})


@router.delete("/api/hooks/{id}", **schemas.DELETE_HOOK)
async def delete_hook(request: Request, id: str) -> Response:  # noqa: A002
    """Take a hook out of the file."""
    service = service_of(request)
    if_match = request.headers.get("if-match")
    await _changed(service, lambda: service.file.remove(id, if_match=if_match))
    return Response(status_code=204)


@router.patch("/api/hooks/{id}/toggle", **schemas.TOGGLE_HOOK)
async def toggle_hook(request: Request, id: str) -> Response:  # noqa: A002
    """Enable a disabled hook, disable an enabled one; it stays in the file."""
    service = service_of(request)
    if_match = request.headers.get("if-match")
    hook = await _changed(service, lambda: service.file.toggle(id, if_match=if_match))
    told = {"id": hook.id, "enabled": hook.enabled}
    return answer(told, headers={"ETag": hook_etag(hook)})


async def _changed(service: Service, change: Callable[[], T]) -> T:
    """The change on the disk, then in force."""
    result = await anyio.to_thread.run_sync(change)
    await service.executor.reloader.refresh()
    return result


async def _wanted(request: Request, service: Service) -> tuple[str, dict[str, object], bool | None]:
    """The event, the action (as it was sent, and legal) and ``enabled`` of a body."""
    body = await body_of(request, known=_KEYS)
    faults: list[Fault] = []
    event, action, enabled = body.get("event"), body.get("action"), body.get("enabled")
    if not isinstance(event, str):
        faults.append(_wrong("/event", "a string", event, given="event" in body))
    elif event not in EVENTS:
        faults.append(Fault("/event", "is no known event" + hint(event, EVENTS)))
    if "action" not in body:
        faults.append(Fault("/action", "is required"))
    else:
        limits = service.executor.live.grounds.settings.limits
        try:
            parse_action(
                action,
                event=event if isinstance(event, str) else "",
                at="/action",
                max_timeout_ms=limits.max_timeout_ms,
            )
        except InvalidConfig as broken:
            faults += broken.faults
    if "enabled" in body and not isinstance(enabled, bool):
        faults.append(_wrong("/enabled", "true or false", enabled, given=True))
    if faults or not isinstance(event, str) or not isinstance(action, dict):
        raise Problem(422, faults=faults)
    return event, action, enabled if isinstance(enabled, bool) else None


def _wrong(pointer: str, wanted: str, value: object, *, given: bool) -> Fault:
    text = f"must be {wanted}, not {kind_of(value)}" if given else f"is required: {wanted}"
    return Fault(pointer, text)


def _unless_known(request: Request, body: bytes, etag: str) -> Response:
    """304 for who has it already."""
    headers = {"ETag": etag, "Cache-Control": "no-cache"}
    if etag in [tag.strip() for tag in request.headers.get("if-none-match", "").split(",")]:
        return Response(status_code=304, headers=headers)
    return Response(body, media_type="application/json", headers=headers)


class _List:
    """The list as it was encoded for one snapshot: encoded once, sent often."""

    last: _List | None = None

    def __init__(self, hooks: tuple[Hook, ...]) -> None:
        self.hooks = hooks
        self.body = hooks_json(hooks)
        self.etag = etag_of(self.body)

    @classmethod
    def of(cls, service: Service) -> _List:
        hooks = service.executor.live.registry.snapshot.configuration.hooks
        if cls.last is None or cls.last.hooks is not hooks:
            cls.last = cls(hooks)
        return cls.last

    def response(self, request: Request) -> Response:
        return _unless_known(request, self.body, self.etag)
