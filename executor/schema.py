"""What does a valid document look like, for editors and other programs?

JSON Schemas (2020-12) of hooks.json, a policy, a plugin.toml and an event, made from the models and
tables that the parsers use; ``schemas/`` holds a copy of each, and a test keeps them current. A
schema cannot say all (one id twice, a path that leaves the workspace): ``check`` is the judge.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from executor.action import MAX_TIMEOUT_MS, Action, ManagedFields
from executor.admission import METACHARACTERS
from executor.events import (
    EVENTS,
    GATE,
    GATE_FIELDS,
    LIFECYCLE_FIELDS,
    MAX_SESSION_ID_CHARACTERS,
)
from executor.hooks import EVENTS_OF_FIELDS, MATCHED_EVENTS
from executor.plugin_model import HOOK, OTHER_TYPES, PERMISSIONS, ManifestFile
from executor.policy.model import Policy

DIALECT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]


def schema(kind: str) -> Schema:
    """The JSON Schema of ``kind``: hooks, policy, plugin or event. Raises KeyError for another."""
    return {"$schema": DIALECT, **MAKERS[kind]()}


def render(kind: str) -> str:
    """The same as text: indented, UTF-8 characters as they are, one newline at the end."""
    return json.dumps(schema(kind), ensure_ascii=False, indent=2) + "\n"


def hooks_schema() -> Schema:
    """hooks.json."""
    entry = _entry()
    return {
        "title": "hooks.json",
        "description": "Which commands react to which events.",
        "type": "object",
        "properties": {
            "$schema": {"type": "string"},
            "hooks": {
                "type": "object",
                "properties": {
                    name: {"type": "array", "items": {"$ref": f"#/$defs/{_definition(name)}"}}
                    for name in sorted(EVENTS)
                },
                "additionalProperties": False,
            },
        },
        "required": ["hooks"],
        "additionalProperties": False,
        "$defs": {_definition(name): _without_foreign(entry, name) for name in sorted(EVENTS)},
    }


def policy_schema() -> Schema:
    """policies/*.toml, as the JSON that the TOML says."""
    made: Schema = _without_titles(Policy.model_json_schema())
    made["title"] = "A policy of hook-executor"
    made["properties"] = {
        "name": {**made["properties"].pop("name"), "pattern": "^[a-z0-9][a-z0-9_-]{0,63}$"},
        "description": made["properties"].pop("description"),
        "extends": {"type": "string", "description": "Start from that policy's values."},
        **made["properties"],
    }
    return made


def plugin_schema() -> Schema:
    """plugins/*/plugin.toml, as the JSON that the TOML says."""
    made: Schema = _without_titles(ManifestFile.model_json_schema())
    made["title"] = "A plugin of hook-executor"
    made["description"] = "Which events a WASM component gets, and what it asks for."
    definitions = made["$defs"]
    for section in definitions.values():
        for name, one in section["properties"].items():
            section["properties"][name] = _never_null(one)
    permission = {"enum": sorted(PERMISSIONS)}
    for key in ("required", "optional"):
        definitions["PermissionsSection"]["properties"][key]["items"] = permission
    definitions["HookCapability"]["properties"]["type"] = {"const": HOOK}
    other = {
        "type": "object",
        "properties": {"type": {"enum": sorted(OTHER_TYPES)}},
        "required": ["type"],
    }
    hook = {"$ref": "#/$defs/HookCapability"}
    made["properties"]["capabilities"] = {
        "type": "array",
        "items": {"anyOf": [hook, other]},
        "contains": hook,
    }
    made["required"] = ["plugin", "capabilities"]
    return made


def event_schema() -> Schema:
    """The envelope that every hook gets."""
    fields = {**LIFECYCLE_FIELDS, **GATE_FIELDS}
    return {
        "title": "The envelope of an event",
        "description": "One line of JSON; payloads may hold further fields.",
        "type": "object",
        "properties": {
            "event": {"enum": list(fields)},
            "timestamp": {
                "type": "string",
                "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$",
            },
            "session_id": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_SESSION_ID_CHARACTERS,
            },
            "payload": {"type": "object"},
        },
        "required": ["event", "timestamp", "session_id", "payload"],
        "additionalProperties": False,
        "oneOf": [
            {"properties": {"event": {"const": name}, "payload": _payload(required)}}
            for name, required in fields.items()
        ],
    }


MAKERS: Mapping[str, Callable[[], Schema]] = {
    "hooks": hooks_schema,
    "policy": policy_schema,
    "plugin": plugin_schema,
    "event": event_schema,
}


def _payload(required: Mapping[str, str]) -> Schema:
    return {
        "type": "object",
        "properties": {field: {"type": kind} for field, kind in required.items()},
        "required": list(required),
    }


def _definition(event: str) -> str:
    """Events whose actions have the same fields share a definition: ``tool_gate_action``, …"""
    words = ("tool" if event in MATCHED_EVENTS else "", "gate" if event in GATE else "", "action")
    return "_".join(filter(None, words))


def _without_foreign(entry: Schema, event: str) -> Schema:
    """An entry without the fields that mean nothing for this event."""
    foreign = {name for name, (events, _) in EVENTS_OF_FIELDS.items() if event not in events}
    fields = {name: one for name, one in entry["properties"].items() if name not in foreign}
    return {**entry, "properties": fields}


def _entry() -> Schema:
    made = _without_titles(Action.model_json_schema())
    managed = _without_titles(ManagedFields.model_json_schema())
    properties: Schema = {**made["properties"], **managed["properties"]}
    for name, one in properties.items():
        properties[name] = _never_null(one)
    unsafe = METACHARACTERS.replace("\\", r"\\").replace("[", r"\[").replace("]", r"\]")
    unsafe += r"\x00-\x1f\x7f-\x9f"
    properties["command"] |= {"minLength": 1, "pattern": f"^[^~{unsafe}][^{unsafe}]*$"}
    properties["args"]["items"] |= {"pattern": r"^[^\x00]*$"}
    properties["env"] |= {"propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}}
    properties["env"]["additionalProperties"] |= {"pattern": r"^[^\x00]*$"}
    properties["timeout_ms"] |= {"minimum": 1, "maximum": MAX_TIMEOUT_MS}
    return {**made, "description": "One command.", "properties": properties}


def _never_null(one: Schema) -> Schema:
    """A field that may be left out is not one that may be null."""
    rest = {key: value for key, value in one.items() if key not in ("anyOf", "default")}
    if "anyOf" in one:
        rest = {**next(kind for kind in one["anyOf"] if kind.get("type") != "null"), **rest}
    if one.get("default") is not None:
        rest["default"] = one["default"]
    return rest


def _without_titles(value: Any) -> Any:
    """Pydantic's titles only repeat the names of the keys."""
    if isinstance(value, dict):
        return {
            key: _without_titles(one)
            for key, one in value.items()
            if not (key == "title" and isinstance(one, str))
        }
    return [_without_titles(one) for one in value] if isinstance(value, list) else value
