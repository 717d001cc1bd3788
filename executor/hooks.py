"""Who reacts to what, according to hooks.json?

``parse_hooks`` reads the file strictly: everything in it is understood and legal, or every mistake
is reported at once with its JSON pointer (SPEC section 2). An ``Action`` is valid by construction;
what only the disk or a policy can tell (does the command exist? is the cwd granted?) comes later.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from executor import admission
from executor.document import LISTED, decode_json, hint, kind_of, model_faults, pointer, refuse_if
from executor.errors import Fault, InvalidConfig
from executor.events import EVENTS, GATE
from executor.globs import any_glob_matches

MAX_FILE_BYTES = 5 * 1024 * 1024
DEFAULT_TIMEOUT_MS = 30_000
MAX_TIMEOUT_MS = 300_000
"""Ten hooks of five minutes are a mistake in the unit more often than a wish."""

MATCHED_EVENTS = frozenset({"PreToolUse", "PostToolUse", "tool_call", "tool_call_start"})
"""The events that carry a tool's name, where a ``matcher`` can mean something."""

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z")


def _refusing(text: str, faults: list[str]) -> str:
    if faults:
        raise ValueError("; ".join(faults))
    return text


def _command(text: str) -> str:
    return _refusing(text, admission.command_faults(text))


def _argument(text: str) -> str:
    return _refusing(text, admission.argument_faults(text))


def _variable(text: str) -> str:
    return _refusing(text, admission.variable_faults(text, ""))


def _value(text: str) -> str:
    return _refusing(text, admission.value_faults(text))


def _cwd(text: str) -> str:
    return _refusing(text, admission.cwd_faults(text))


def _matcher(text: str) -> str:
    if not all(text.split("|")):
        raise ValueError("has an empty alternative, which matches nothing: write * for all tools")
    if any(character.isspace() or not character.isprintable() for character in text):
        raise ValueError("holds white space or control characters, which no tool's name has")
    return text


def _time(text: str) -> str:
    if not _TIME.fullmatch(text):
        raise ValueError("must be a UTC time like 2026-03-20T10:00:00Z")
    return text


class Action(BaseModel):
    """What to run (SPEC section 2). ``timeout_ms`` is in milliseconds; the fields' rules are in
    ``admission``. Made by hand it raises pydantic's ValidationError; see ``parse_action``."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    command: Annotated[str, AfterValidator(_command)] = Field(
        description="An absolute path, a bare name found on the safe PATH inside the sandbox, or a "
        "path with a slash, relative to the workspace. No shell, no splitting."
    )
    args: Annotated[tuple[Annotated[str, AfterValidator(_argument)], ...], LISTED] = Field(
        default=(), description="Handed over literally."
    )
    env: dict[Annotated[str, AfterValidator(_variable)], Annotated[str, AfterValidator(_value)]] = (
        Field(default={}, description="Added to the sanitized environment.")
    )
    cwd: Annotated[str, AfterValidator(_cwd)] | None = Field(
        default=None, description="Working directory; the workspace if left out."
    )
    timeout_ms: int = Field(
        default=DEFAULT_TIMEOUT_MS, description="Milliseconds until the hook is stopped."
    )
    stdin_json: bool = Field(default=False, description="The envelope on stdin.")
    matcher: Annotated[str, AfterValidator(_matcher)] | None = Field(
        default=None, description="Tool names: full match, * globs, | alternatives."
    )
    policy: Annotated[str, StringConstraints(min_length=1, max_length=64)] | None = Field(
        default=None, description="A named policy to ask for; config.toml must allow asking."
    )
    protocol: Literal["native", "claude", "gemini", "cursor"] = Field(
        default="native", description="How a gate hook's exit code and output read."
    )

    @field_validator("timeout_ms")
    @classmethod
    def _timeout(cls, value: int, info: ValidationInfo) -> int:
        largest = (info.context or {}).get("max_timeout_ms", MAX_TIMEOUT_MS)
        if not 1 <= value <= largest:
            raise ValueError(f"is in milliseconds and must be 1 to {largest}")
        return value

    def matches_tool(self, name: str) -> bool:
        """Whether the ``matcher`` means the tool; without one every tool is meant."""
        return self.matcher is None or any_glob_matches(self.matcher.split("|"), name)


class _Managed(BaseModel):
    """The fields of an entry that are not the action's: written by the API, allowed by hand."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$")] | None = Field(
        default=None, description="Unique in the file, like hook_01."
    )
    enabled: bool = Field(default=True, description="False: kept, not run.")
    created_at: Annotated[str, AfterValidator(_time)] | None = Field(
        default=None, description="UTC, like 2026-03-20T10:00:00Z."
    )
    updated_at: Annotated[str, AfterValidator(_time)] | None = Field(
        default=None, description="UTC, like 2026-03-20T10:00:00Z."
    )


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
    for key in document.keys() - {"hooks", "$schema"}:
        faults.append(Fault(pointer(key), "is no known key" + hint(key, {"hooks", "$schema"})))
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
    action = None
    if isinstance(value, dict):
        action = _action(faults, event, value, at, max_timeout_ms, also=())
    else:
        faults.append(Fault(at, f"must be an object, not {kind_of(value)}"))
    refuse_if(faults, where=where)
    assert action is not None
    return action


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
    own = {key: value for key, value in entry.items() if key in _Managed.model_fields}
    rest = {key: value for key, value in entry.items() if key not in _Managed.model_fields}
    action = _action(faults, event, rest, at, max_timeout_ms, also=_Managed.model_fields)
    try:
        managed = _Managed.model_validate(_without_null(faults, own, at))
    except ValidationError as error:
        faults += model_faults(error, _Managed, at=at)
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
    if "matcher" in value and event in EVENTS and event not in MATCHED_EVENTS:
        family = "gate event without a tool" if event in GATE else "event without a tool"
        message = f"is for {', '.join(sorted(MATCHED_EVENTS))}; {event} is a {family}"
        faults.append(Fault(f"{at}/matcher", message))
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
