"""Which lines would mend it, ready to paste?

From the grants that ``explain`` found missing to policies, ``[[bind]]`` tables and commands. A
shipped policy cannot be edited, so its hooks get one that already grants enough, or a new one that
extends it; a workspace's own policy gets the missing paths. Grants are by hook (event and command),
never for all: who needs one path more should not open it to the others. Pure.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from executor.check.explain import binding_number
from executor.check.explanation import Explanation, Look
from executor.configuration import Configuration
from executor.grants import inside
from executor.plan import Identity
from executor.policy.model import Policy

_NAME = re.compile(r"[^a-z0-9_-]+")
SETTINGS_FILE = "config.toml"


class Act(StrEnum):
    """What to do with a step's text."""

    CREATE = "create"
    EDIT = "edit"
    APPEND = "append"
    INSERT = "insert"
    RUN = "run"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do. ``file`` is relative to the workspace, "" for a command; ``bind`` is the
    number of the ``[[bind]]`` above which to insert."""

    act: Act
    file: str
    text: str
    bind: int | None = None


@dataclass(frozen=True, slots=True)
class _Want:
    """What hooks with one command need of one policy."""

    command: str
    base: str
    bind: int | None
    reads: tuple[str, ...]
    writes: tuple[str, ...]


def steps(
    explained: Sequence[Explanation],
    configuration: Configuration,
    shipped: Collection[str],
    look: Look,
) -> tuple[Step, ...]:
    """Everything to do, in order: directories, policies, bindings. Empty where nothing lacks."""
    wants = _wants(explained, configuration)
    directories = [path for hook in explained for path in hook.subscription.policy.filesystem.write]
    result: list[Step] = []
    taken = dict(configuration.policies)
    for want, hooks in wants.items():
        base = taken.get(want.base)
        if base is None:
            continue
        directories += want.writes
        if want.base not in shipped:
            result.append(_edit(base, want))
            continue
        chosen = _covering(taken.values(), base, want, hooks)
        if chosen is None:
            chosen = _extended(base, want, _free_name(hooks, taken))
            taken[chosen.name] = chosen
            # A log grows: "audit" is "default" with room for it, and its lists are replaced here.
            log = want.writes and base.name == "default" and "audit" in shipped
            text = _policy_text(chosen, base, "audit" if log else base.name)
            result.append(Step(Act.CREATE, f"policies/{chosen.name}.toml", text))
        directories += chosen.filesystem.write
        act = Act.APPEND if want.bind is None else Act.INSERT
        result.append(Step(act, SETTINGS_FILE, _bind_text(hooks, chosen.name), want.bind))
    return (*_directories(directories, explained, look), *result)


def _wants(
    explained: Iterable[Explanation], configuration: Configuration
) -> Mapping[_Want, list[Explanation]]:
    """Bindings tell hooks apart by event and command: hooks that share both get the same."""
    bound: dict[tuple[str, str], list[Explanation]] = {}
    for hook in explained:
        action = hook.subscription.hook.action
        bound.setdefault((hook.subscription.event, action.command), []).append(hook)
    wants: dict[_Want, list[Explanation]] = {}
    for (event, command), hooks in bound.items():
        reads = tuple(dict.fromkeys(path for hook in hooks for path in hook.reads))
        writes = tuple(dict.fromkeys(path for hook in hooks for path in hook.writes))
        if not reads and not writes:
            continue
        base = configuration.settings.policy_for(event, command)
        number = binding_number(configuration.settings, event, command)
        wants.setdefault(_Want(command, base, number, reads, writes), []).extend(hooks)
    return wants


def _directories(
    paths: Iterable[str], explained: Sequence[Explanation], look: Look
) -> Iterable[Step]:
    """The commands that make a directory, or make it writable for the hooks' id."""
    for path in sorted({path for path in paths if path.startswith("/")}):
        kind = look.kind(path)
        identity = explained[0].runs_as
        if kind is None:
            yield Step(Act.RUN, "", _creation(path, identity, look))
        elif kind == "directory" and not look.writable(path):
            sudo = "" if look.privileged() else "sudo "
            owner = f"{identity.uid}:{identity.gid}"
            yield Step(Act.RUN, "", f"{sudo}chown {owner} {shlex.quote(path)}")


def _creation(path: str, identity: Identity, look: Look) -> str:
    sudo = "" if look.ours(path) else "sudo "
    return f"{sudo}install -d -o {identity.uid} -g {identity.gid} {shlex.quote(path)}"


def _covering(
    known: Iterable[Policy], base: Policy, want: _Want, hooks: Sequence[Explanation]
) -> Policy | None:
    """The policy with the fewest grants that differs from the base in its grants and suffices."""
    fitting = [
        policy
        for policy in known
        if policy.sandbox == base.sandbox
        and policy.network == base.network
        and policy.commands == base.commands
        and policy.filesystem.workspace == base.filesystem.workspace
        and _reaches(policy.filesystem.write, (*want.writes, *base.filesystem.write))
        and _reaches(
            (*policy.filesystem.read, *policy.filesystem.write),
            (*want.reads, *base.filesystem.read),
        )
        and policy.limits.memory >= base.limits.memory
        and policy.limits.pids >= base.limits.pids
        and all(policy.limits.timeout_ms >= hook.timeout_ms for hook in hooks)
    ]
    return min(
        fitting,
        key=lambda policy: len(policy.filesystem.read) + len(policy.filesystem.write),
        default=None,
    )


def _reaches(granted: Iterable[str], wanted: Iterable[str]) -> bool:
    allowed = tuple(granted)
    return all(any(inside(path, one) for one in allowed) for path in wanted)


def _extended(base: Policy, want: _Want, name: str) -> Policy:
    files = base.filesystem
    reads = (*files.read, *(path for path in want.reads if path not in files.read))
    writes = (*files.write, *(path for path in want.writes if path not in files.write))
    return base.model_copy(
        update={
            "name": name,
            "filesystem": files.model_copy(update={"read": reads, "write": writes}),
        }
    )


def _edit(base: Policy, want: _Want) -> Step:
    files = _extended(base, want, base.name).filesystem
    lines = ["[filesystem]"]
    if want.reads:
        lines.append(f"read = {_toml_list(files.read)}")
    if want.writes:
        lines.append(f"write = {_toml_list(files.write)}")
    return Step(Act.EDIT, f"policies/{base.name}.toml", "\n".join(lines) + "\n")


def _policy_text(policy: Policy, base: Policy, parent: str) -> str:
    lines = [
        f'name = "{policy.name}"',
        f'description = "As {parent}, with the paths that its hooks need."',
        f'extends = "{parent}"',
        "",
        "[filesystem]",
    ]
    if policy.filesystem.read != base.filesystem.read:
        lines.append(f"read = {_toml_list(policy.filesystem.read)}")
    if policy.filesystem.write != base.filesystem.write:
        lines.append(f"write = {_toml_list(policy.filesystem.write)}")
    return "\n".join(lines) + "\n"


def _bind_text(hooks: Sequence[Explanation], policy: str) -> str:
    events = dict.fromkeys(hook.subscription.event for hook in hooks)
    commands = dict.fromkeys(hook.subscription.hook.action.command for hook in hooks)
    return (
        f"[[bind]]\nevents = {_toml_list(events)}\ncommands = {_toml_list(commands)}\n"
        f'policy = "{policy}"\n'
    )


def _free_name(hooks: Sequence[Explanation], taken: Collection[str]) -> str:
    """A policy's name, from the script or command that it is for."""
    first = hooks[0]
    source = (first.reads or (first.subscription.hook.action.command,))[0]
    stem = source.rstrip("/").rpartition("/")[2].partition(".")[0].lower()
    name = _NAME.sub("-", stem).strip("-_")[:48] or "hooks"
    number = 1
    candidate = name
    while candidate in taken:
        number += 1
        candidate = f"{name}-{number}"
    return candidate


def _toml_list(values: Iterable[str]) -> str:
    """TOML's basic strings escape as JSON's do (TOML 1.0, String)."""
    return json.dumps(list(values), ensure_ascii=False)
