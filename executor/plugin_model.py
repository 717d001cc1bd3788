"""What can a plugin.toml say?

One frozen model for each section, with PRX's keys. ``plugins`` reads a file into them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
)

from executor.document import LISTED, hint
from executor.events import EVENTS, GATE, LIFECYCLE
from executor.grants import path_fault
from executor.topics import matches_any_event, pattern_fault

MAX_MEMORY_MB = 4096
MAX_KV_MB = 64
DEFAULT_PRIORITY = 50
HOOK = "hook"
OTHER_TYPES = frozenset({"tool", "channel", "provider", "middleware", "api", "storage", "cron"})
"""What a plugin can be besides, in PRX. Such a capability is none of ours, and left alone."""

HARMLESS = frozenset({"log", "config", "kv", "clock", "random", "events"})
"""Permissions that open nothing on the host: every policy grants them. ``events`` is to be called
with events, which the capability says anyway."""
GRANTABLE = frozenset({"env", "filesystem", "filesystem-read", "filesystem-write"})
UNSUPPORTED: Mapping[str, str] = {
    **dict.fromkeys(
        ("http", "http-outbound", "network", "sockets"),
        "a plugin has no network in this version, not even to an allow-list",
    ),
    **dict.fromkeys(
        ("memory", "messaging", "llm", "channel", "cron"),
        "this is an executor of hooks and has no such service",
    ),
}
"""Permissions that this version cannot give, and why."""
PERMISSIONS = HARMLESS | GRANTABLE | frozenset(UNSUPPORTED)

_STRICT = ConfigDict(frozen=True, strict=True, extra="forbid")
_NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


def _pattern(text: str) -> str:
    if (fault := pattern_fault(text)) is not None:
        raise ValueError(fault)
    if not matches_any_event(text, LIFECYCLE, GATE):
        raise ValueError("can match no event" + hint(text.rpartition(".")[2], EVENTS))
    return text


def _wasm(text: str) -> str:
    parts = text.split("/")
    if not text or text.startswith("/") or ".." in parts or _CONTROL.search(text):
        raise ValueError("must be the path of a file inside the plugin's own directory")
    if text.endswith(".cwasm"):
        raise ValueError("must be a component, never native code: it is compiled here")
    return text


def _permission(text: str) -> str:
    if text not in PERMISSIONS:
        raise ValueError("is no known permission" + hint(text, PERMISSIONS))
    return text


def _directory(text: str) -> str:
    plain = re.sub(r"/\*{1,2}$", "", text)
    if (fault := path_fault(plain)) is not None:
        raise ValueError(fault)
    if "*" in plain:
        raise ValueError("may have a star only as its last segment, as in data/*")
    return plain.rstrip("/") or "/"


def _long_form(value: object) -> object:
    """PRX's longer way to write a pattern is a table of its own with a description."""
    if not isinstance(value, dict):
        return value
    if unknown := sorted(set(value) - {"pattern", "description"}):
        raise ValueError(f'has the unknown key "{unknown[0]}"; it may have pattern and description')
    if "pattern" not in value:
        raise ValueError("needs a pattern")
    return value["pattern"]


def _some(patterns: tuple[str, ...]) -> tuple[str, ...]:
    if not patterns:
        raise ValueError("must name an event, a topic pattern, or * for all")
    return patterns


Events = Annotated[
    str,
    BeforeValidator(_long_form),
    AfterValidator(_pattern),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {
                    "type": "object",
                    "properties": {
                        "pattern": {"type": "string", "minLength": 1},
                        "description": {"type": "string"},
                    },
                    "required": ["pattern"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]
Permission = Annotated[str, AfterValidator(_permission)]
Permissions = Annotated[tuple[Permission, ...], LISTED]


class PluginSection(BaseModel):
    """``[plugin]``: what it is called, and where its component lies."""

    model_config = _STRICT

    name: Annotated[str, StringConstraints(pattern=_NAME)] = Field(
        description="As its directory is called."
    )
    version: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    description: Annotated[str, StringConstraints(max_length=1000)] = ""
    wasm: Annotated[str, AfterValidator(_wasm)] = Field(
        default="plugin.wasm", description="The component, inside the plugin's directory."
    )
    api_version: str = "1"
    author: str | None = None
    license: str | None = None


class HookCapability(BaseModel):
    """One ``[[capabilities]]`` of type hook."""

    model_config = _STRICT

    type: Literal["hook"]
    name: str = ""
    description: str = ""
    events: Annotated[tuple[Events, ...], LISTED, AfterValidator(_some)] = Field(
        description="Event names, topics, prx.lifecycle.*, or *. No wildcard means a gate event."
    )
    priority: Annotated[int, Field(ge=0, le=100)] = Field(
        default=DEFAULT_PRIORITY, description="Order in the gate; the lower runs first."
    )


class ResourcesSection(BaseModel):
    """``[resources]``: the smaller of this and the policy's limits applies."""

    model_config = _STRICT

    max_memory_mb: Annotated[int, Field(ge=1, le=MAX_MEMORY_MB)] = 64
    max_execution_time_ms: Annotated[int, Field(ge=1)] = 30_000
    max_fuel: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="Read and ignored: time is limited instead."
    )
    max_kv_storage_mb: Annotated[int, Field(ge=0, le=MAX_KV_MB)] | None = None
    max_kv_storage_kb: Annotated[int, Field(ge=0, le=MAX_KV_MB * 1024)] | None = None
    max_http_requests: Annotated[int, Field(ge=0)] | None = None
    max_http_requests_per_call: Annotated[int, Field(ge=0)] | None = None

    @property
    def kv_bytes(self) -> int:
        """The bound of the plugin's key-value store; 1 MiB where nothing is said."""
        if self.max_kv_storage_kb is not None:
            return self.max_kv_storage_kb * 1024
        return (1 if self.max_kv_storage_mb is None else self.max_kv_storage_mb) * 1024 * 1024


class PermissionsSection(BaseModel):
    """``[permissions]``: what it asks for. Without a ``required`` one it does not load."""

    model_config = _STRICT

    required: Permissions = ()
    optional: Permissions = ()
    filesystem_allowlist: Annotated[
        tuple[Annotated[str, AfterValidator(_directory)], ...], LISTED
    ] = Field(default=(), description="Directories, absolute or relative to the workspace.")
    http_allowlist: Annotated[tuple[str, ...], LISTED] = ()


class ManifestFile(BaseModel):
    """The whole file, but for capabilities of other types."""

    model_config = _STRICT

    plugin: PluginSection
    capabilities: Annotated[tuple[HookCapability, ...], LISTED] = ()
    permissions: PermissionsSection = PermissionsSection()
    resources: ResourcesSection = ResourcesSection()
    config: dict[str, str] = {}
