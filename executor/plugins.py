"""Who reacts to what, according to a plugin.toml?

``parse_manifest`` reads one manifest strictly (SPEC section 4): everything in it is understood and
legal, or every mistake is reported at once with its JSON pointer. The keys are PRX's, so that a
manifest written for PRX reads unchanged. Patterns are resolved here, once: what comes out is a set
of event names, so that no event can reach a plugin twice and none is matched at run time.

A manifest only *asks*. What a plugin gets is the intersection with its policy
(``wasm.permissions``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from executor.document import decode_toml, hint, kind_of, model_faults, refuse_if
from executor.errors import Fault
from executor.events import GATE, GATE_FIELDS, LIFECYCLE, LIFECYCLE_FIELDS
from executor.plugin_model import (
    HOOK,
    OTHER_TYPES,
    UNSUPPORTED,
    ManifestFile,
    PermissionsSection,
    ResourcesSection,
)
from executor.topics import matches_event

MAX_FILE_BYTES = 256 * 1024
MAX_CONFIG_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Manifest:
    """One plugin.toml. ``events`` are the names it reacts to, lifecycle before gate."""

    name: str
    version: str
    description: str
    wasm: str
    events: tuple[str, ...]
    priority: int
    capability: str
    resources: ResourcesSection
    permissions: PermissionsSection
    config: Mapping[str, str]
    notes: tuple[str, ...]

    @property
    def lifecycle(self) -> tuple[str, ...]:
        return tuple(name for name in self.events if name in LIFECYCLE)

    @property
    def gate(self) -> tuple[str, ...]:
        return tuple(name for name in self.events if name in GATE)


def parse_manifest(data: bytes, *, where: str, directory: str | None = None) -> Manifest:
    """The manifest of a plugin; ``directory`` is the name its folder has.

    Raises InvalidConfig with all faults of the file.
    """
    table = decode_toml(data, where=where, max_bytes=MAX_FILE_BYTES)
    faults: list[Fault] = []
    capabilities, others = _hooks(faults, table.get("capabilities", []))
    try:
        file = ManifestFile.model_validate(
            {**table, "capabilities": [one for _, one in capabilities]}
        )
    except ValidationError as error:
        places = [index for index, _ in capabilities]
        faults += [_placed(one, places) for one in model_faults(error, ManifestFile)]
        refuse_if(faults, where=where)
        raise
    if directory is not None and file.plugin.name != directory:
        faults.append(Fault("/plugin/name", f'must be "{directory}", as its directory is called'))
    if not capabilities and not faults:
        kinds = f"; {', '.join(others)} is no business of hooks" if others else ""
        faults.append(Fault("/capabilities", f"must hold one of type hook{kinds}"))
    if sum(len(key) + len(value) for key, value in file.config.items()) > MAX_CONFIG_BYTES:
        faults.append(Fault("/config", f"holds more than {MAX_CONFIG_BYTES} characters"))
    refuse_if(faults, where=where)
    hooks = file.capabilities
    return Manifest(
        name=file.plugin.name,
        version=file.plugin.version,
        description=file.plugin.description,
        wasm=file.plugin.wasm,
        events=events_of(pattern for hook in hooks for pattern in hook.events),
        priority=min(hook.priority for hook in hooks),
        capability=next((hook.name for hook in hooks if hook.name), ""),
        resources=file.resources,
        permissions=file.permissions,
        config=file.config,
        notes=_notes(file, others),
    )


def events_of(patterns: Iterable[str]) -> tuple[str, ...]:
    """The union of what the patterns mean, each event once, in the order of SPEC section 1."""
    wanted = tuple(patterns)
    lifecycle = [
        name for name in LIFECYCLE_FIELDS if any(matches_event(one, name) for one in wanted)
    ]
    gate = [
        name for name in GATE_FIELDS if any(matches_event(one, name, gate=True) for one in wanted)
    ]
    return (*lifecycle, *gate)


def _hooks(faults: list[Fault], given: object) -> tuple[list[tuple[int, object]], list[str]]:
    """The entries that are ours with their places, and the types of the others."""
    if not isinstance(given, list):
        faults.append(Fault("/capabilities", f"must be a list of tables, not {kind_of(given)}"))
        return [], []
    ours: list[tuple[int, object]] = []
    others = []
    for index, entry in enumerate(given):
        kind = entry.get("type") if isinstance(entry, dict) else None
        if isinstance(kind, str) and kind in OTHER_TYPES:
            others.append(kind)
        elif isinstance(kind, str) and kind != HOOK:
            message = "is no known type of capability" + hint(kind, {HOOK, *OTHER_TYPES})
            faults.append(Fault(f"/capabilities/{index}/type", message))
        else:
            ours.append((index, entry))
    return ours, others


def _placed(fault: Fault, places: list[int]) -> Fault:
    """A fault at the place the entry has in the file, not in the list of our entries."""
    found = re.match(r"/capabilities/(\d+)(?=/|$)", fault.pointer)
    if found is None:
        return fault
    rest = fault.pointer[found.end() :]
    return Fault(f"/capabilities/{places[int(found[1])]}{rest}", fault.message)


def _notes(file: ManifestFile, others: list[str]) -> tuple[str, ...]:
    notes = [f"the capability {kind} is not a hook, and left alone" for kind in others]
    if file.resources.max_fuel is not None:
        notes.append("resources.max_fuel is ignored: time is limited, by max_execution_time_ms")
    if file.permissions.http_allowlist:
        notes.append(f"permissions.http_allowlist is ignored: {UNSUPPORTED['http']}")
    return tuple(notes)
