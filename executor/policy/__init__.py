"""What may a hook do, by which policy?

The room's front door: reads ``policies/*.toml`` and makes named policies of them (SPEC 3.1). The
values live in ``policy_model``, the meeting of two in ``policy_merge``, the paths that no policy
may grant in ``grants``; all are offered here.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from executor.document import decode_toml, hint, kind_of, model_faults, refuse_if
from executor.errors import Fault
from executor.grants import grant_fault
from executor.policy.merge import stricter
from executor.policy.model import Policy
from executor.policy.text import describe

__all__ = [
    "Policy",
    "RawPolicy",
    "describe",
    "grant_fault",
    "parse_policy",
    "resolve_policies",
    "stricter",
    "unbuilt",
    "without_effect",
    "write_faults",
]

MAX_FILE_BYTES = 64 * 1024
WITHOUT_EFFECT = (("sandbox", "warm"),)
"""Section and key; delete one here when its feature is built."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class RawPolicy:
    """One file, valid by itself: what it sets, and from which policy it starts."""

    name: str
    extends: str | None
    values: Mapping[str, object]
    where: str


def parse_policy(data: bytes, *, where: str) -> RawPolicy:
    """One policy file; ``where`` is its path, whose last part must be ``<name>.toml``.

    Raises InvalidConfig with all faults of the file. (A parent is looked for later.)
    """
    table = decode_toml(data, where=where, max_bytes=MAX_FILE_BYTES)
    faults: list[Fault] = []
    parent = table.pop("extends", None)
    if parent is not None and not isinstance(parent, str):
        faults.append(Fault("/extends", f"must be a string, not {kind_of(parent)}"))
        parent = None
    name = table.get("name", "")
    if isinstance(name, str) and "name" in table:
        faults += _name_faults(name, where)
    try:
        values = Policy.model_validate(table).model_dump(exclude_unset=True)
    except ValidationError as error:
        faults += model_faults(error, Policy, also=("extends",))
        values = {}
    refuse_if(faults, where=where)
    return RawPolicy(str(name), parent, values, where)


def resolve_policies(
    shipped: Mapping[str, RawPolicy], workspace: Mapping[str, RawPolicy]
) -> dict[str, Policy]:
    """Every policy by name, each with what it inherits.

    Raises InvalidConfig with all faults: a shipped name defined again, an unknown parent, a cycle.
    """
    faults = [
        Fault("", f'{raw.where}: "{name}" is a shipped policy and cannot be redefined; extend it')
        for name, raw in workspace.items()
        if name in shipped
    ]
    raws = {**workspace, **shipped}
    for key, raw in raws.items():
        if key != raw.name:
            faults.append(Fault("/name", f'{raw.where}: the file of "{key}" is named otherwise'))
        if raw.extends is not None and raw.extends not in raws:
            message = f"{raw.where}: there is no such policy" + hint(raw.extends, raws)
            faults.append(Fault("/extends", message))
    cyclic = sorted(name for name in raws if _chain(raws, name) is None)
    faults += [Fault("/extends", f"{raws[name].where}: leads back to itself") for name in cyclic]
    refuse_if(faults, where="policies")
    return {name: _inherited(raws, name) for name in raws}


def write_faults(
    policy: Policy, *, workspace: str, protected: Sequence[str], private: Sequence[str] = ()
) -> list[Fault]:
    """Every grant of the policy that ``grant_fault`` refuses, with its pointer.

    ``protected`` may not be written, ``private`` (the executor's state) not even be read.
    """
    lists = {"read": policy.filesystem.read, "write": policy.filesystem.write}
    return [
        Fault(f"/filesystem/{kind}/{index}", fault)
        for kind, paths in lists.items()
        for index, path in enumerate(paths)
        if (
            fault := grant_fault(
                path,
                workspace=workspace,
                protected=(*protected, *private) if kind == "write" else private,
                writable=kind == "write",
            )
        )
    ]


def unbuilt(policy: Policy) -> tuple[str, ...]:
    """What the policy grants and this version cannot give: reasons to refuse, with their keys."""
    reasons = []
    if policy.network.allow:
        reasons.append(
            "network.allow names hosts, and this version has no egress proxy: a hook would have "
            "either no network or all of it"
        )
    return tuple(reasons)


def without_effect(policy: Policy) -> tuple[str, ...]:
    """Warnings: keys that are set, legal, and without effect in this version."""
    default = Policy(name=policy.name)
    return tuple(
        f"{section}.{key} is set, and has no effect in this version"
        for section, key in WITHOUT_EFFECT
        if getattr(getattr(policy, section), key) != getattr(getattr(default, section), key)
    )


def _name_faults(name: str, where: str) -> list[Fault]:
    if not _NAME.fullmatch(name):
        return [Fault("/name", "must be lower-case letters, digits, - and _, at most 64")]
    stem, dot, _ = posixpath.basename(where).partition(".toml")
    if dot and stem != name:
        return [Fault("/name", "differs from the name of its file")]
    return []


def _chain(raws: Mapping[str, RawPolicy], name: str) -> list[RawPolicy] | None:
    """The policy and its ancestors, or None where that never ends."""
    chain: list[RawPolicy] = []
    seen: set[str] = set()
    following: str | None = name
    while following is not None and following in raws:
        if following in seen:
            return None
        seen.add(following)
        chain.append(raws[following])
        following = raws[following].extends
    return chain


def _inherited(raws: Mapping[str, RawPolicy], name: str) -> Policy:
    merged: dict[str, object] = {}
    for raw in reversed(_chain(raws, name) or []):
        merged.pop("description", None)
        for key, value in raw.values.items():
            before = merged.get(key)
            if isinstance(value, dict) and isinstance(before, dict):
                merged[key] = {**before, **value}
            else:
                merged[key] = value
    return Policy.model_validate(merged)
