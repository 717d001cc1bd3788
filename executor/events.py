"""What is an event, and which events are there?

Two families (SPEC section 1): lifecycle events are observed, gate events are awaited and may
block. An ``Event`` is valid by construction: ``make_event`` is the only road, it names every
mistake at once, and it writes the envelope, the one JSON line that every hook gets, exactly once.

Rules for editors: ``make_event`` runs inside the agent's loop (15 microseconds for a small
payload), so the checks are written by hand; the JSON schema is made from the same tables.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isfinite

from executor.document import hint, kind_of, pointer
from executor.errors import Fault, InvalidEvent

MAX_NESTING = 128
"""Levels of a payload. Deeper ones break parsers that hooks use, and Python's own stack."""
MAX_VALUES = 16 * 1024 * 1024
"""Values in one payload: more cannot fit into any envelope, and shared ones multiply."""
MAX_SESSION_ID_CHARACTERS = 256

LIFECYCLE_FIELDS: Mapping[str, Mapping[str, str]] = {
    "agent_start": {"agent": "string", "session": "string"},
    "agent_end": {"success": "boolean", "messages_count": "number"},
    "llm_request": {"provider": "string", "model": "string", "messages_count": "number"},
    "llm_response": {
        "provider": "string",
        "model": "string",
        "duration_ms": "number",
        "success": "boolean",
    },
    "tool_call_start": {"tool": "string", "arguments": "object"},
    "tool_call": {"tool": "string", "success": "boolean", "output": "string"},
    "turn_complete": {},
    "error": {"component": "string", "message": "string"},
}
"""Required payload fields by event, each with its JSON type (SPEC 1.1). Others pass through."""

GATE_FIELDS: Mapping[str, Mapping[str, str]] = {
    "SessionStart": {"session_id": "string", "user_input": "string"},
    "PreToolUse": {"tool_name": "string", "input": "object"},
    "PostToolUse": {"tool_name": "string", "input": "object", "output": "string"},
}
"""The same for the gate (SPEC 1.2)."""

LIFECYCLE: frozenset[str] = frozenset(LIFECYCLE_FIELDS)
GATE: frozenset[str] = frozenset(GATE_FIELDS)
EVENTS: frozenset[str] = LIFECYCLE | GATE

_FIELDS = {
    name: tuple(fields.items()) for name, fields in {**LIFECYCLE_FIELDS, **GATE_FIELDS}.items()
}
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "number": (int, float),
    "object": (dict,),
}
_ARTICLE = {
    "string": "a string",
    "boolean": "true or false",
    "number": "a number",
    "object": "an object",
}
_CONTROL_OR_SURROGATE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""What the encoder leaves bare and no line of text should hold: DEL, C1, the two line separators,
lone surrogates. (It escapes C0 itself.) None of them can stand outside a JSON string."""

_Container = dict[str, object] | list[object] | tuple[object, ...]
_Path = tuple["_Path", str | int] | None
"""The way down to a value, linked upwards; made into a pointer only where there is a fault."""

_encode = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":")
).encode


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. Made by ``make_event`` only.

    ``timestamp`` is UTC with milliseconds and ``Z``; ``envelope`` is the UTF-8 JSON of SPEC 1.1
    without a newline; ``depth`` is 1 for the outermost event of a causal chain.
    """

    name: str
    session_id: str
    timestamp: str
    payload: Mapping[str, object]
    envelope: bytes
    depth: int = 1


def make_event(
    name: str,
    payload: Mapping[str, object],
    *,
    session_id: str,
    now: datetime,
    depth: int = 1,
) -> Event:
    """Check and freeze one event; ``now`` must know its time zone.

    No limit on the size is applied here: compare ``len(event.envelope)`` in bytes. Raises
    InvalidEvent with all faults, their pointers into ``{"event", "session_id", "payload"}``.
    """
    faults: list[Fault] = []
    _check_frame(faults, name, session_id, now, depth)
    content = _content(faults, payload)
    _check_fields(faults, name, content, session_id)
    _check_values(faults, content)
    if faults:
        raise InvalidEvent(faults)
    timestamp = now.astimezone(UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
    envelope = _envelope(name, timestamp, session_id, content)
    return Event(name, session_id, timestamp, content, envelope, depth)


def require_family(name: object, family: frozenset[str], *, way: str = "") -> None:
    """Raise InvalidEvent for an event of the other family, before its payload is looked at: what
    is missing there says nothing to somebody who took the wrong verb. ``way`` names the right one.
    """
    if isinstance(name, str) and name in EVENTS and name not in family:
        verb = "is asked, not emitted" if name in GATE else "is emitted, not asked"
        raise InvalidEvent([Fault("/event", f"{name} {verb}" + (f": {way}" if way else ""))])


def new_session_id() -> str:
    """A fresh session id, ``sess_`` and 16 hexadecimal digits."""
    return f"sess_{secrets.token_hex(8)}"


def session_id_fault(session_id: object) -> str | None:
    """Why this cannot be a session id, or ``None``."""
    if not isinstance(session_id, str):
        return f"must be a string, not {kind_of(session_id)}"
    if not session_id:
        return "must not be empty"
    if len(session_id) > MAX_SESSION_ID_CHARACTERS:
        return f"must have at most {MAX_SESSION_ID_CHARACTERS} characters"
    if _CONTROL_OR_SURROGATE.search(session_id):
        return "must not hold control characters or lone surrogates"
    return None


def _check_frame(
    faults: list[Fault], name: object, session_id: object, now: datetime, depth: int
) -> None:
    if not isinstance(name, str):
        faults.append(Fault("/event", f"must be a string, not {kind_of(name)}"))
    elif name not in _FIELDS:
        faults.append(Fault("/event", "is no known event" + hint(name, EVENTS)))
    if (fault := session_id_fault(session_id)) is not None:
        faults.append(Fault("/session_id", fault))
    if now.tzinfo is None:
        faults.append(Fault("/timestamp", "needs a time zone"))
    if depth < 1:
        faults.append(Fault("", "the depth of an event is at least 1"))


def _content(faults: list[Fault], payload: object) -> dict[str, object]:
    if isinstance(payload, Mapping):
        return dict(payload)
    faults.append(Fault("/payload", f"must be an object, not {kind_of(payload)}"))
    return {}


def _check_fields(
    faults: list[Fault], name: object, payload: dict[str, object], session_id: object
) -> None:
    if not isinstance(name, str):
        return
    for field, wanted in _FIELDS.get(name, ()):
        if field not in payload:
            faults.append(Fault(f"/payload/{field}", f"is required: {_ARTICLE[wanted]}"))
        elif not isinstance(payload[field], _TYPES[wanted]) or (
            wanted == "number" and isinstance(payload[field], bool)
        ):
            message = f"must be {_ARTICLE[wanted]}, not {kind_of(payload[field])}"
            faults.append(Fault(f"/payload/{field}", message))
    if name in GATE and payload.get("session_id", session_id) != session_id:
        faults.append(Fault("/payload/session_id", "differs from the event's session_id"))


def _check_values(faults: list[Fault], payload: dict[str, object]) -> None:
    """Everything JSON cannot say. Depth first and iterative, so that a loop ends at its depth."""
    stack: list[tuple[_Container, _Path, int]] = [(payload, None, 1)]
    values = 0
    while stack:
        container, path, depth = stack.pop()
        values += len(container)
        if depth > MAX_NESTING or values > MAX_VALUES:
            limits = f"{MAX_NESTING} levels or {MAX_VALUES} values"
            faults.append(Fault("/payload", f"is nested too deep or too large: at most {limits}"))
            return
        for part, value in _members(container):
            if isinstance(value, (dict, list, tuple)):
                stack.append((value, (path, part), depth + 1))
            elif (fault := _scalar_fault(value)) is not None:
                faults.append(Fault(_pointer((path, part)), fault))
            if isinstance(container, dict) and not isinstance(part, str):
                message = f"has a key that is {kind_of(part)}, not a string"
                faults.append(Fault(_pointer(path), message))


def _members(container: _Container) -> Iterable[tuple[str | int, object]]:
    return container.items() if isinstance(container, dict) else enumerate(container)


def _scalar_fault(value: object) -> str | None:
    if value is None or isinstance(value, (str, int)):
        return None
    if not isinstance(value, float):
        return f"has the Python type {type(value).__name__}, which JSON cannot say"
    return None if isfinite(value) else "is no finite number"


def _pointer(path: _Path) -> str:
    parts: list[str | int] = []
    while path is not None:
        path, part = path
        parts.append(part)
    return pointer("payload", *reversed(parts))


def _envelope(name: str, timestamp: str, session_id: str, payload: dict[str, object]) -> bytes:
    frame = {"event": name, "timestamp": timestamp, "session_id": session_id, "payload": payload}
    try:
        text = _encode(frame)
    except (ValueError, TypeError, RuntimeError) as error:
        # A number of thousands of digits, a payload that another thread changes meanwhile, or a
        # stack (RecursionError) that was nearly full before we were called.
        message = f"cannot be written as JSON ({type(error).__name__})"
        raise InvalidEvent([Fault("/payload", message)]) from None
    if not text.isascii() or "\x7f" in text:
        text = _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return text.encode("utf-8")
