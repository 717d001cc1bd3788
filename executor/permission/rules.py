"""What does one permission rule say about one tool call?

A rule is compiled once. Its conditions (``command``, ``path``, or a glob on any other field of the
input) are asked in one of two ways: ``generously`` for deny and ask, ``vouches`` for allow. A rule
without conditions is about every call of its tools.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from executor.errors import Fault
from executor.globs import any_glob_matches, glob_matches
from executor.permission.command_patterns import CommandPattern, Match, Shape, shape_of
from executor.permission.shell.commands import Command, Reading, read_argv, read_shell
from executor.permission.tool_paths import Ground, PathPattern, ToolPath, paths_of
from executor.settings import PermissionRule

COMMAND_FIELDS = ("command", "cmd")
"""Where a shell tool's input holds its text, or a list of words that no shell sees."""
_MISSING = object()


class Effect(StrEnum):
    """What is to happen with a call."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class Call:
    """One tool call, looked at no more than its rules need."""

    __slots__ = ("_paths", "_reading", "_shapes", "_texts", "_was_read", "ground", "input", "tool")

    def __init__(self, tool: str, tool_input: Mapping[str, object], ground: Ground) -> None:
        self.tool = tool
        self.input = tool_input
        self.ground = ground
        self._reading: Reading | None = None
        self._was_read = False
        self._paths: tuple[ToolPath | None, ...] | None = None
        self._shapes: tuple[Shape, ...] | None = None
        self._texts: dict[str, tuple[str, ...]] = {}

    @property
    def reading(self) -> Reading | None:
        """The commands, or ``None`` where the input has no command field."""
        if not self._was_read:
            self._was_read = True
            self._reading = self._read()
        return self._reading

    @property
    def paths(self) -> tuple[ToolPath | None, ...]:
        if self._paths is None:
            self._paths = paths_of(self.input, self.ground)
        return self._paths

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The commands as patterns look at them."""
        if self._shapes is None:
            reading = self.reading
            self._shapes = () if reading is None else tuple(map(shape_of, reading.commands))
        return self._shapes

    def texts(self, field: str) -> tuple[str, ...]:
        """The field's value as text, each item of a list; a dotted name goes into objects."""
        known = self._texts.get(field)
        if known is None:
            known = self._texts[field] = _texts(self.input, field)
        return known

    def _read(self) -> Reading | None:
        for field in COMMAND_FIELDS:
            value = self.input.get(field)
            if isinstance(value, str):
                return read_shell(value)
            if isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value):
                return read_argv([one for one in value if isinstance(one, str)])
            if value is not None:
                return Reading((), unclear=(f"{field} is neither a text nor a list of texts",))
        return None


@dataclass(frozen=True, slots=True)
class Rule:
    """One compiled rule; ``index`` is its place in config.toml, from 0."""

    index: int
    effect: Effect
    tools: tuple[str, ...]
    command: CommandPattern | None
    path: PathPattern | None
    fields: tuple[tuple[str, str], ...]
    text: str

    def about(self, tool: str) -> bool:
        """Whether the rule is about this tool at all."""
        return any_glob_matches(self.tools, tool)

    def generously(self, call: Call) -> Match:
        """For deny and ask: whether the call is, or could turn out to be, what the rule means."""
        result = Match.YES
        if self.path is not None:
            result = _any_path(self.path, call.paths)
        if result and self.command is not None:
            result = min(result, _any_command(self.command, call.shapes))
        for field, pattern in self.fields if result else ():
            if not any(glob_matches(pattern, text) for text in call.texts(field)):
                return Match.NO
        return result

    def vouches(self, call: Call) -> bool:
        """For allow: whether every condition but ``command`` certainly holds (see ``covers``)."""
        if self.path is not None:
            path, paths = self.path, call.paths
            if not paths or not all(one is not None and path.strictly(one) for one in paths):
                return False
        for field, pattern in self.fields:
            texts = call.texts(field)
            if not texts or not all(glob_matches(pattern, text) for text in texts):
                return False
        return True

    def covers(self, command: Command) -> bool:
        """For allow: whether the ``command`` condition certainly means this command."""
        return self.command is None or self.command.strictly(command)


def compile_rule(index: int, rule: PermissionRule, ground: Ground) -> Rule | list[Fault]:
    """The rule, or its faults with pointers into config.toml."""
    extra: Mapping[str, object] = rule.model_extra or {}
    faults: list[Fault] = []
    at = f"/permission/rules/{index}"
    conditions: dict[str, str] = {}
    for key, value in extra.items():
        if not isinstance(value, str):
            faults.append(Fault(f"{at}/{key}", "must be a string, a pattern with * for any text"))
        elif not value.strip() or not value.isprintable():
            faults.append(Fault(f"{at}/{key}", "must be a pattern of printable characters"))
        else:
            conditions[key] = value
    tools = tuple(rule.tool.split("|"))
    if not all(tools):
        faults.append(Fault(f"{at}/tool", "has an empty alternative, which matches nothing"))
    if faults:
        return faults
    text = " ".join([rule.effect, f"tool={rule.tool}", *(f"{k}={v}" for k, v in extra.items())])
    command, path = conditions.pop("command", None), conditions.pop("path", None)
    return Rule(
        index,
        Effect(rule.effect),
        tools,
        None if command is None else CommandPattern(command),
        None if path is None else PathPattern(path, ground),
        tuple(conditions.items()),
        text,
    )


def _any_command(pattern: CommandPattern, shapes: tuple[Shape, ...]) -> Match:
    best = Match.NO
    for shape in shapes:
        best = max(best, pattern.generously(shape))
        if best is Match.YES:
            break
    return best


def _any_path(pattern: PathPattern, paths: tuple[ToolPath | None, ...]) -> Match:
    best = Match.NO
    for path in paths:
        if path is None:
            best = Match.MAYBE
        elif pattern.generously(path):
            return Match.YES
    return best


def _texts(tool_input: Mapping[str, object], field: str) -> tuple[str, ...]:
    value: object = tool_input.get(field, _MISSING)
    if value is _MISSING and "." in field:
        value = tool_input
        for part in field.split("."):
            value = value.get(part, _MISSING) if isinstance(value, Mapping) else _MISSING
    if value is _MISSING:
        return ()
    items = value if isinstance(value, (list, tuple)) else (value,)
    return tuple(one if isinstance(one, str) else _json(one) for one in items)


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        return repr(type(value))
