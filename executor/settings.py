"""What did the operator decide, in config.toml?

Every section of SPEC 3.1's second listing, all keys optional, read strictly: an unknown key or a
value of the wrong type is a fault with a JSON pointer, and all are reported at once. Sections whose
feature this version lacks are checked all the same, and ``unbuilt`` says which of them are set.
"""

from __future__ import annotations

import hashlib
import posixpath
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
    ValidationError,
)

from executor.document import LISTED, Strings, decode_toml, hint, model_faults, refuse_if
from executor.errors import Fault, InvalidConfig, Unavailable
from executor.events import EVENTS, GATE, LIFECYCLE
from executor.globs import any_glob_matches
from executor.grants import inside, path_fault
from executor.topics import matches_any_event, matches_event, pattern_fault

MAX_FILE_BYTES = 256 * 1024
DEFAULT_POLICY = "default"
DAY_MS = 24 * 60 * 60 * 1000

_STRICT = ConfigDict(frozen=True, strict=True, extra="forbid")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}\$?")


def _uid(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _unprivileged(text: str) -> str:
    if text == "root" or (text.isdecimal() and int(text) == 0):
        raise ValueError("must not be root: hooks never run as host root")
    if text and not _USER.fullmatch(text) and not (text.isdecimal() and int(text) < 2**32 - 1):
        raise ValueError("must be the number or the name of a user")
    return text


def _event_pattern(text: str) -> str:
    if (fault := pattern_fault(text)) is not None:
        raise ValueError(fault)
    if not matches_any_event(text, LIFECYCLE, GATE):
        raise ValueError("can match no event" + hint(text, EVENTS))
    return text


def _state_path(text: str) -> str:
    if text and (not text.startswith("/") or path_fault(text) is not None):
        raise ValueError("must be an absolute path without .. and control characters")
    return text.rstrip("/") if text != "/" else text


def _bus_url(text: str) -> str:
    if text and not text.startswith(("nats://", "tls://")):
        raise ValueError("must start with nats:// or tls://")
    if "@" in text:
        raise ValueError("must not hold credentials: name a file in credentials, nkey or user")
    return text


PolicyName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
EventPatterns = Annotated[tuple[Annotated[str, AfterValidator(_event_pattern)], ...], LISTED]


class SandboxSettings(BaseModel):
    """``[sandbox]``. ``uid`` as text, empty where it is not set (a number is taken too)."""

    model_config = _STRICT

    uid: Annotated[str, AfterValidator(_unprivileged), BeforeValidator(_uid)] = ""


class LimitSettings(BaseModel):
    """``[limits]`` of the executor itself: counts, milliseconds, bytes of one envelope.

    The two ``_per_hook`` are 0 where a hook has no limit of its own.
    """

    model_config = _STRICT

    max_concurrency: Annotated[int, Field(ge=1, le=1024)] = 8
    max_queue: Annotated[int, Field(ge=0, le=1_000_000)] = 1024
    max_timeout_ms: Annotated[int, Field(ge=1, le=DAY_MS)] = 300_000
    max_payload_bytes: Annotated[int, Field(ge=1024, le=16 * 1024 * 1024)] = 16 * 1024 * 1024
    max_concurrency_per_hook: Annotated[int, Field(ge=0, le=1024)] = 0
    max_runs_per_minute_per_hook: Annotated[int, Field(ge=0, le=1_000_000)] = 0


class Binding(BaseModel):
    """One ``[[bind]]``: an empty list means all; one that names only plugins is for plugins."""

    model_config = _STRICT

    events: EventPatterns = ()
    commands: Strings = ()
    plugins: Strings = ()
    policy: PolicyName

    def covers(self, event: str, globs: tuple[str, ...], name: str) -> bool:
        """Whether it is about the event (by name or topic pattern) and the name."""
        if globs and not any_glob_matches(globs, name):
            return False
        gate = event in GATE
        return not self.events or any(matches_event(one, event, gate=gate) for one in self.events)


class PolicySettings(BaseModel):
    """``[policies]``: what an action may ask for."""

    model_config = _STRICT

    requestable: Annotated[tuple[PolicyName, ...], LISTED] = ()


class GateSettings(BaseModel):
    """``[gate]``. ``budget_ms`` is for all hooks of one call together."""

    model_config = _STRICT

    strategy: Literal["first", "block-wins"] = "first"
    budget_ms: Annotated[int, Field(ge=1, le=DAY_MS)] = 60_000


class PermissionRule(BaseModel):
    """One rule; keys beside ``effect`` and ``tool`` are globs on fields of the tool's input."""

    model_config = ConfigDict(frozen=True, strict=True, extra="allow")
    __pydantic_extra__: dict[str, str]

    effect: Literal["deny", "ask", "allow"]
    tool: Annotated[str, StringConstraints(min_length=1)] = "*"


class PermissionSettings(BaseModel):
    """``[permission]``: deny over ask over allow; ``default`` when no rule matches."""

    model_config = _STRICT

    default: Literal["allow", "ask", "deny"] = "allow"
    rules: Annotated[tuple[PermissionRule, ...], LISTED] = ()


class ApiSettings(BaseModel):
    """``[api]``."""

    model_config = _STRICT

    host: Annotated[str, StringConstraints(min_length=1, max_length=253)] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8787


class BusSettings(BaseModel):
    """``[bus]``. Credentials are paths of files, never the secret itself; ``tls`` is a CA file."""

    model_config = _STRICT

    url: Annotated[str, AfterValidator(_bus_url)] = ""
    format: Literal["native", "cloudevents"] = "native"
    execute: Literal["local", "workers"] = "local"
    credentials: str = ""
    nkey: str = ""
    user: str = ""
    password_file: str = ""
    tls: str = ""


class TrustSettings(BaseModel):
    """``[trust]``."""

    model_config = _STRICT

    mode: Literal["off", "warn", "require"] = "off"


class StateSettings(BaseModel):
    """``[state]``. Empty: ``default_state_dir``."""

    model_config = _STRICT

    dir: Annotated[str, AfterValidator(_state_path)] = ""


class Settings(BaseModel):
    """The whole of config.toml; ``Settings()`` is what an absent file means."""

    model_config = _STRICT

    sandbox: SandboxSettings = SandboxSettings()
    limits: LimitSettings = LimitSettings()
    bind: Annotated[tuple[Binding, ...], LISTED] = ()
    policies: PolicySettings = PolicySettings()
    gate: GateSettings = GateSettings()
    permission: PermissionSettings = PermissionSettings()
    api: ApiSettings = ApiSettings()
    bus: BusSettings = BusSettings()
    trust: TrustSettings = TrustSettings()
    state: StateSettings = StateSettings()

    def policy_for(self, event: str, command: str) -> str:
        """The name of the policy that binds a hook; ``command`` as resolved, else as written."""
        for one in self.bind:
            if (one.commands or not one.plugins) and one.covers(event, one.commands, command):
                return one.policy
        return DEFAULT_POLICY

    def policy_for_plugin(self, event: str, plugin: str) -> str:
        """The name of the policy that binds a plugin for an event."""
        for one in self.bind:
            if (one.plugins or not one.commands) and one.covers(event, one.plugins, plugin):
                return one.policy
        return DEFAULT_POLICY

    def named_policies(self) -> tuple[Fault, ...]:
        """Every policy name in the file as ``Fault(pointer, name)``, to be looked up by callers."""
        bound = [(f"/bind/{i}/policy", one.policy) for i, one in enumerate(self.bind)]
        asked = enumerate(self.policies.requestable)
        named = [*bound, *((f"/policies/requestable/{i}", name) for i, name in asked)]
        return tuple(Fault(pointer, name) for pointer, name in named)

    def unbuilt(self) -> tuple[str, ...]:
        """Warnings: keys that are set, legal, and without effect in this version."""
        default = Settings()
        found = [
            f"{section}.{key}"
            for section, keys in UNBUILT.items()
            for key in keys
            if getattr(getattr(self, section), key) != getattr(getattr(default, section), key)
        ]
        return tuple(f"{key} is set, and has no effect in this version" for key in found)


UNBUILT: Mapping[str, tuple[str, ...]] = {
    "trust": ("mode",),
}
"""Delete a key here when its feature is built."""


def parse_settings(data: bytes, *, where: str = "config.toml") -> Settings:
    """The settings of a config.toml. Raises InvalidConfig with all its faults."""
    table = decode_toml(data, where=where, max_bytes=MAX_FILE_BYTES)
    try:
        return Settings.model_validate(table)
    except ValidationError as error:
        refuse_if(model_faults(error, Settings), where=where)
        raise


def default_state_dir(environ: Mapping[str, str], workspace: str) -> str:
    """Where state lies unless config.toml says it: one folder a workspace, below XDG_STATE_HOME.

    ``workspace`` is its real, absolute path. Raises Unavailable where neither XDG_STATE_HOME nor
    HOME says an absolute path, InvalidConfig where the folder would lie inside the workspace.
    """
    base = environ.get("XDG_STATE_HOME", "")
    if not base.startswith("/"):
        home = environ.get("HOME", "")
        if not home.startswith("/"):
            raise Unavailable(
                "there is no place for the executor's state: HOME is not set",
                remedy='set XDG_STATE_HOME, or dir = "…" under [state] in config.toml',
            )
        base = posixpath.join(home, ".local/state")
    place = posixpath.normpath(workspace)
    name = re.sub(r"[^A-Za-z0-9._-]", "_", posixpath.basename(place)) or "root"
    digest = hashlib.sha256(place.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    result = posixpath.normpath(posixpath.join(base, "hook-executor", f"{name}-{digest}"))
    check_state_dir(result, workspace)
    return result


def check_state_dir(directory: str, workspace: str) -> None:
    """Raise InvalidConfig where the state would lie inside the workspace, where hooks can read.

    Lexical: give both as real paths.
    """
    if inside(posixpath.normpath(directory), posixpath.normpath(workspace)):
        message = (
            f"{directory} lies inside the workspace, which hooks can read: "
            "name a directory outside of it"
        )
        raise InvalidConfig([Fault("/state/dir", message)], where="config.toml")
