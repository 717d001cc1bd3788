"""Who reacts to what, according to hooks.json?

``parse_hooks`` reads the file strictly: everything in it is understood and legal, or every mistake
is reported at once with its JSON pointer (SPEC section 2). What only the disk or a policy can tell
(does the command exist? is the cwd granted?) comes later.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from executor.action import DEFAULT_TIMEOUT_MS, MAX_TIMEOUT_MS, Action, ManagedFields
from executor.document import (
    MAX_FAULTS,
    decode_json,
    hint,
    kind_of,
    model_faults,
    pointer,
    refuse,
    refuse_if,
)
from executor.errors import Fault, InvalidConfig
from executor.events import EVENTS, GATE

__all__ = [
    "DEFAULT_TIMEOUT_MS",
    "EVENTS_OF_FIELDS",
    "MATCHED_EVENTS",
    "MAX_FILE_BYTES",
    "MAX_TIMEOUT_MS",
    "Action",
    "Hook",
    "dump_hooks",
    "parse_action",
    "parse_hooks",
]

MAX_FILE_BYTES = 5 * 1024 * 1024

MATCHED_EVENTS = frozenset({"PreToolUse", "PostToolUse", "tool_call", "tool_call_start"})
"""The events that carry a tool's name, where a ``matcher`` can mean something."""

EVENTS_OF_FIELDS: Mapping[str, tuple[frozenset[str], str]] = {
    "matcher": (MATCHED_EVENTS, "is an event without a tool"),
    "protocol": (GATE, "is observed, and nobody reads an answer"),
}
"""The fields that mean nothing for some events: for which they do, and why not for others."""


@dataclass(frozen=True, slots=True)
class Hook:
    """One entry of hooks.json; ``pointer`` is its place, ``id`` is None until it has one."""

    id: str | None
    event: str
    action: Action
    enabled: bool
    created_at: str | None
    updated_at: str | None
    pointer: str


def parse_hooks(
    data: bytes, *, where: str = "hooks.json", max_timeout_ms: int = MAX_TIMEOUT_MS
) -> tuple[Hook, ...]:
    """The hooks in file order. ``max_timeout_ms`` is in milliseconds.

    Raises InvalidConfig with all faults of the file.
    """
    document = decode_json(data, where=where, max_bytes=MAX_FILE_BYTES)
    if not isinstance(document, dict):
        message = f'must be an object like {{"hooks": {{}}}}, not {kind_of(document)}'
        raise InvalidConfig(message, where=where)
    faults: list[Fault] = []
    known = ("hooks", "$schema")
    unknown = [key for key in document if key not in known][: MAX_FAULTS + 1]
    faults += [Fault(pointer(key), "is no known key" + hint(key, known)) for key in unknown]
    if not isinstance(document.get("$schema", ""), str):
        faults.append(Fault("/$schema", "must be a string"))
    events = document.get("hooks")
    found: list[Hook] = []
    if "hooks" not in document:
        faults.append(Fault("/hooks", "is required"))
    elif not isinstance(events, dict):
        faults.append(Fault("/hooks", f"must be an object, not {kind_of(events)}"))
    else:
        for event, entries in events.items():
            if len(faults) > MAX_FAULTS:
                break
            found += _event(faults, event, entries, max_timeout_ms)
    _check_ids(faults, found)
    refuse_if(faults, where=where)
    return tuple(found)


def parse_action(
    value: object,
    *,
    event: str,
    at: str = "",
    where: str = "",
    max_timeout_ms: int = MAX_TIMEOUT_MS,
) -> Action:
    """One action from plain values, as the API and ``run`` get it; ``at`` is its pointer.

    Raises InvalidConfig with all its faults.
    """
    faults: list[Fault] = []
    if isinstance(value, dict):
        action = _action(faults, event, value, at, max_timeout_ms, also=())
        if action is not None:
            return action
    else:
        faults.append(Fault(at, f"must be an object, not {kind_of(value)}"))
    return refuse(faults, where=where)


def dump_hooks(hooks: Iterable[Hook], *, schema: str | None = None) -> bytes:
    """The file that says these hooks: UTF-8, indented, events in order of first appearance.

    Fields that nobody set are left out. ``schema`` becomes ``$schema``.
    """
    events: dict[str, list[dict[str, object]]] = {}
    for hook in hooks:
        entry: dict[str, object] = {} if hook.id is None else {"id": hook.id}
        entry |= hook.action.model_dump(mode="json", exclude_unset=True, exclude_none=True)
        if not hook.enabled:
            entry["enabled"] = False
        for name, time in (("created_at", hook.created_at), ("updated_at", hook.updated_at)):
            if time is not None:
                entry[name] = time
        events.setdefault(hook.event, []).append(entry)
    document: dict[str, object] = {} if schema is None else {"$schema": schema}
    text = json.dumps({**document, "hooks": events}, ensure_ascii=False, indent=2)
    return text.encode("utf-8") + b"\n"


def _event(faults: list[Fault], event: str, entries: object, max_timeout_ms: int) -> Iterable[Hook]:
    at = pointer("hooks", event)
    if event not in EVENTS:
        faults.append(Fault(at, "is no known event" + hint(event, EVENTS)))
    if not isinstance(entries, list):
        faults.append(Fault(at, f"must be a list of actions, not {kind_of(entries)}"))
        return
    for index, entry in enumerate(entries):
        if len(faults) > MAX_FAULTS:
            return
        place = f"{at}/{index}"
        if not isinstance(entry, dict):
            faults.append(Fault(place, f"must be an object, not {kind_of(entry)}"))
            continue
        hook = _entry(faults, event, entry, place, max_timeout_ms)
        if hook is not None:
            yield hook


def _entry(
    faults: list[Fault], event: str, entry: Mapping[str, object], at: str, max_timeout_ms: int
) -> Hook | None:
    own = {key: value for key, value in entry.items() if key in ManagedFields.model_fields}
    rest = {key: value for key, value in entry.items() if key not in ManagedFields.model_fields}
    action = _action(faults, event, rest, at, max_timeout_ms, also=ManagedFields.model_fields)
    try:
        managed = ManagedFields.model_validate(_without_null(faults, own, at))
    except ValidationError as error:
        faults += model_faults(error, ManagedFields, at=at)
        return None
    if action is None:
        return None
    times = (managed.created_at, managed.updated_at)
    return Hook(managed.id, event, action, managed.enabled, *times, pointer=at)


def _action(
    faults: list[Fault],
    event: str,
    value: Mapping[str, object],
    at: str,
    max_timeout_ms: int,
    also: Iterable[str],
) -> Action | None:
    before = len(faults)
    value = _without_null(faults, value, at)
    faults += [
        Fault(f"{at}/{field}", f"is for {', '.join(sorted(events))}; {event} {why}")
        for field, (events, why) in EVENTS_OF_FIELDS.items()
        if field in value and event in EVENTS and event not in events
    ]
    try:
        action = Action.model_validate(value, context={"max_timeout_ms": max_timeout_ms})
    except ValidationError as error:
        faults += model_faults(error, Action, at=at, also=also)
        return None
    return action if len(faults) == before else None


def _without_null(faults: list[Fault], value: Mapping[str, object], at: str) -> dict[str, object]:
    """``null`` is no value of any field; in a file it is a half-done edit, not a default."""
    faults += [
        Fault(at + pointer(key), "must not be null: leave it out")
        for key, item in value.items()
        if item is None
    ]
    return {key: item for key, item in value.items() if item is not None}


def _check_ids(faults: list[Fault], hooks: Iterable[Hook]) -> None:
    first: dict[str, str] = {}
    for hook in hooks:
        if hook.id is None:
            continue
        if hook.id in first:
            faults.append(Fault(f"{hook.pointer}/id", f"is the id of {first[hook.id]} too"))
        first.setdefault(hook.id, hook.pointer)
