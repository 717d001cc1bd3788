"""What do requests and answers look like, for the OpenAPI document?

Made from the tables and models that the parsers use (``executor.schema``), so that the document
and the code cannot drift apart. One constant for each operation, in the order of SPEC section 6.
"""

from __future__ import annotations

from typing import Any

from executor.action import DEFAULT_TIMEOUT_MS
from executor.events import GATE_FIELDS, LIFECYCLE_FIELDS, MAX_SESSION_ID_CHARACTERS
from executor.outcome import Cause, Status
from executor.schema import hooks_schema

Schema = dict[str, Any]

_ACTION: Schema = hooks_schema()["$defs"]["tool_gate_action"]
_MANAGED = ("id", "enabled", "created_at", "updated_at")
_TIME = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"}
_STAMP = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"}
_TEXT = {"type": "string"}
_NUMBER = {"type": "number"}
_COUNT = {"type": "integer", "minimum": 0}
_FLAG = {"type": "boolean"}


def _object(required: Schema, optional: Schema | None = None, *, closed: bool = True) -> Schema:
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        **({"additionalProperties": False} if closed else {}),
    }


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


_FIELDS = {name: one for name, one in _ACTION["properties"].items() if name not in _MANAGED}
ACTION_IN = {**_ACTION, "properties": _FIELDS, "title": "Action"}
ACTION_OUT = {
    **ACTION_IN,
    "required": ["command", "args", "timeout_ms", "stdin_json"],
    "example": {
        "command": "python3",
        "args": ["/opt/hooks/track_latency.py"],
        "timeout_ms": DEFAULT_TIMEOUT_MS,
        "stdin_json": True,
    },
}
_EVENTS = {"enum": [*LIFECYCLE_FIELDS, *GATE_FIELDS]}
HOOK_IN = _object({"event": _EVENTS, "action": ACTION_IN}, {"enabled": _FLAG})
HOOK = _object(
    {
        "id": _TEXT,
        "event": _EVENTS,
        "action": ACTION_OUT,
        "enabled": _FLAG,
        "created_at": _TIME,
        "updated_at": _TIME,
    }
)
_SESSION = {
    "type": "string",
    "minLength": 1,
    "maxLength": MAX_SESSION_ID_CHARACTERS,
    "pattern": r"^[^\x00-\x1f\x7f-\x9f]+$",
}


def _payload(fields: dict[str, str] | Any) -> Schema:
    required = {name: {"type": kind} for name, kind in fields.items()}
    return _object(required, closed=False)


EVENT_IN = {
    "oneOf": [
        _object(
            {"event": {"const": name}, "payload": _payload(fields)}
            if fields
            else {"event": {"const": name}},
            {"session_id": _SESSION, **({} if fields else {"payload": {"type": "object"}})},
        )
        for name, fields in LIFECYCLE_FIELDS.items()
    ]
}
GATE_IN = _object({"payload": {"type": "object"}}, {"session_id": _SESSION})
RUN = _object(
    {
        "id": _TEXT,
        "event": _TEXT,
        "session_id": _TEXT,
        "started_at": _STAMP,
        "ended_at": _or_null(_STAMP),
        "hook": _TEXT,
        "backend": {"enum": ["shell", "wasm"]},
        "sandbox": _or_null(_TEXT),
        "status": {"enum": ["running", *(status.value for status in Status)]},
        "policy": _TEXT,
    },
    {
        "cause": {"enum": [cause.value for cause in Cause]},
        "exit_code": _or_null({"type": "integer"}),
        "signal": _or_null({"type": "integer"}),
        "duration_ms": _NUMBER,
        "stdout": _TEXT,
        "stderr": _TEXT,
        "truncated": _FLAG,
        "reason": _or_null(_TEXT),
        "notes": {"type": "array", "items": _TEXT},
    },
    closed=False,
)
PROBLEM = _object(
    {"type": _TEXT, "title": _TEXT, "status": {"type": "integer"}},
    {
        "detail": _TEXT,
        "errors": {
            "type": "array",
            "items": _object({"pointer": _TEXT, "message": _TEXT}),
        },
    },
)
_MEANINGS = {
    400: "The body cannot be parsed.",
    401: "No valid token.",
    403: "The token lacks the scope, or the host name or origin is not ours.",
    404: "There is no such thing.",
    409: "Not in this state.",
    412: "It was changed since (If-Match).",
    413: "The body is too large.",
    422: "Not valid; `errors` says where.",
    429: "Too many requests.",
    503: "Too busy, or stopping; see Retry-After.",
}
_ALWAYS = (400, 401, 403, 429, 503)


def _operation(
    tag: str,
    status: int,
    schema: Schema | None,
    *problems: int,
    body: Schema | None = None,
    media: str = "application/json",
    headers: tuple[str, ...] = (),
    also: dict[int, Schema | None] | None = None,
) -> Schema:
    """The keyword arguments of a route."""
    responses: dict[int, Schema] = {}
    for code, one in {status: schema, **(also or {})}.items():
        meaning = {204: "Done.", 304: "Unchanged."}.get(code, "The answer.")
        responses[code] = {"description": meaning}
        if one is not None:
            responses[code]["content"] = {media: {"schema": one}}
    for code in sorted({*_ALWAYS, *problems}):
        content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
        responses[code] = {"description": _MEANINGS[code], "content": content}
    extra: Schema = {}
    if headers:
        extra["parameters"] = [
            {"name": name, "in": "header", "required": False, "schema": _HEADERS[name]}
            for name in headers
        ]
    if body is not None:
        content = {"application/json": {"schema": body}}
        extra["requestBody"] = {"required": True, "content": content}
    return {
        "tags": [tag],
        "status_code": status,
        "responses": responses,
        "response_model": None,
        "openapi_extra": extra,
    }


_TAG = {"type": "string"}
_HEADERS: dict[str, Schema] = {
    "If-Match": _TAG,
    "If-None-Match": _TAG,
    "Idempotency-Key": {"type": "string", "pattern": r"^[\x21-\x7e]{1,255}$"},
}
_ID = _object({"id": _TEXT, "enabled": _FLAG})
_UNCHANGED: dict[int, Schema | None] = {304: None}

LIST_HOOKS = _operation(
    "hooks",
    200,
    _object({"hooks": {"type": "array", "items": HOOK}}),
    headers=("If-None-Match",),
    also=_UNCHANGED,
)
CREATE_HOOK = _operation(
    "hooks", 201, HOOK, 409, 412, 413, 422, body=HOOK_IN, headers=("If-Match",)
)
GET_HOOK = _operation("hooks", 200, HOOK, 404, headers=("If-None-Match",), also=_UNCHANGED)
UPDATE_HOOK = _operation(
    "hooks", 200, HOOK, 404, 409, 412, 413, 422, body=HOOK_IN, headers=("If-Match",)
)
DELETE_HOOK = _operation("hooks", 204, None, 404, 409, 412, headers=("If-Match",))
TOGGLE_HOOK = _operation("hooks", 200, _ID, 404, 409, 412, headers=("If-Match",))
POST_EVENT = _operation(
    "events",
    202,
    _object({"id": _TEXT, "event": _TEXT, "accepted": _FLAG}),
    *(409, 413, 422),
    body=EVENT_IN,
    headers=("Idempotency-Key",),
    also={200: {"type": "object", "description": "With `wait=true`: as `emit --json`."}},
)
POST_GATE = _operation(
    "gate",
    200,
    _object({"exit_code": {"enum": [0, 1, 2]}, "message": _TEXT}),
    *(404, 413, 422),
    body=GATE_IN,
)
LIST_RUNS = _operation(
    "runs",
    200,
    _object({"runs": {"type": "array", "items": RUN}, "next": _or_null(_TEXT)}),
    422,
)
GET_RUN = _operation("runs", 200, RUN, 404)
CANCEL_RUN = _operation(
    "runs", 202, _object({"id": _TEXT, "status": {"const": "cancelling"}}), 404, 409
)
STREAM = _operation("events", 200, _TEXT, 422, media="text/event-stream")
STATUS = _operation(
    "service",
    200,
    _object({"generation": _COUNT, "hooks": {"type": "object"}}, closed=False),
)
METRICS = _operation("service", 200, _TEXT, media="text/plain")
HEALTH: Schema = {
    "tags": ["service"],
    "response_model": None,
    "responses": {
        200: {"description": "ok", "content": {"text/plain": {"schema": {"const": "ok"}}}},
        503: {"description": "not ok", "content": {"text/plain": {"schema": {"const": "not ok"}}}},
    },
}
