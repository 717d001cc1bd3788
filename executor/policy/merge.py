"""When two policies meet, which values win?

The stricter ones, field by field, by the rule that each field's description states (SPEC 3.1).
The result is never wider than either; where no value is the stricter one, it is refused. Lists are
compared as words: ``data`` and ``/w/data`` may be one place on the disk, but are not taken for one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from executor.errors import Refused
from executor.globs import glob_covers
from executor.grants import inside
from executor.policy.model import Policy

Rule = Callable[[str, Any, Any], object]


def stricter(bound: Policy, requested: Policy) -> Policy:
    """The stricter of both, named "bound+requested"; the same policy twice is that policy.

    The order matters for ``name``, ``description``, ``sandbox.image`` and ``sandbox.root`` only.
    Raises Refused where two values exclude each other.
    """
    if bound == requested:
        return bound
    sections = {}
    for section, rules in RULES.items():
        left, right = getattr(bound, section), getattr(requested, section)
        values = {
            field: rule(f"{section}.{field}", getattr(left, field), getattr(right, field))
            for field, rule in rules.items()
        }
        sections[section] = left.model_copy(update=values)
    name = "+".join(dict.fromkeys([*bound.name.split("+"), *requested.name.split("+")]))
    description = f"The stricter of {bound.name} and {requested.name}, field by field."
    return bound.model_copy(update={"name": name, "description": description, **sections})


def _smaller(_: str, left: float, right: float) -> float:
    return min(left, right)


def _both(_: str, left: object, right: object) -> bool:
    return bool(left and right)


def _bound(_: str, left: object, right: object) -> object:
    del right
    return left


def _prefer(strict: str) -> Rule:
    def rule(_: str, left: str, right: str) -> str:
        return strict if strict in (left, right) else left

    return rule


def _named_over(default: str) -> Rule:
    def rule(field: str, left: str, right: str) -> str:
        named = sorted({left, right} - {default})
        if len(named) > 1:
            raise Refused(
                f'two policies that meet want different values of {field}: "{named[0]}" and '
                f'"{named[1]}"; let one of them leave it at its default'
            )
        return named[0] if named else default

    return rule


def _common(covers: Callable[[str, str], bool]) -> Rule:
    """What both lists grant. Sorted, so that the order of the two does not matter."""

    def rule(_: str, left: tuple[str, ...], right: tuple[str, ...]) -> tuple[str, ...]:
        if set(left) == set(right):
            return left if list(left) == sorted(left) else tuple(sorted(left))
        kept = {one for one in left if any(covers(other, one) for other in right)}
        kept |= {one for one in right if any(covers(other, one) for other in left)}
        return tuple(sorted(kept))

    return rule


def path_covers(wide: str, narrow: str) -> bool:
    """Whether granting ``wide`` grants ``narrow``; "." is the workspace.

    Absolute and relative paths never cover each other.
    """
    if wide.startswith("/") != narrow.startswith("/"):
        return False
    return wide == "." or inside(narrow, wide)


_PATHS, _GLOBS = _common(path_covers), _common(glob_covers)

RULES: Mapping[str, Mapping[str, Rule]] = {
    "sandbox": {
        "backend": _named_over("auto"),
        "image": _bound,
        "root": _bound,
        "runtime": _named_over(""),
        "warm": _smaller,
    },
    "filesystem": {
        "workspace": _prefer("none"),
        "read": _PATHS,
        "write": _PATHS,
        "tmp": _smaller,
    },
    "network": {"allow": _GLOBS},
    "limits": {
        "enforce": _prefer("cgroup"),
        "memory": _smaller,
        "pids": _smaller,
        "cpus": _smaller,
        "file_size": _smaller,
        "open_files": _smaller,
        "output": _smaller,
        "timeout_ms": _smaller,
    },
    "environment": {"home": _both},
    "bus": {"emit": _both},
    "commands": {"allow": _GLOBS},
    "gate": {"on_failure": _prefer("block")},
}
"""One rule for every field of every section; a test counts them."""
