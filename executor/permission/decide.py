"""May this tool be called with this input?

Deny over ask over allow; ``default`` where no rule matches (SPEC section 7). Order in the file does
not matter, only which effect matches. Three rules of reading keep text from fooling it:

- a deny or ask rule matches when *any* command or path of the call is meant; one that merely could
  be meant (``rm $X``) makes the call an ask;
- an allow rule matches when *every* command is covered (by this or another allow rule) and all of
  the text was understood; a redirection into a file, a variable set, a function defined: no allow;
- what cannot be read safely, where command rules are about the tool, is an ask (without a
  callback: a denial), whatever ``default`` says, unless that is deny.

Pure, total (nothing raises), compiled once: a decision looks only at rules about its tool and
about the programs that it names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from executor.errors import Fault, InvalidConfig
from executor.permission.command_patterns import Match
from executor.permission.index import Index, index_rules
from executor.permission.rules import Call, Effect, Rule, compile_rule
from executor.permission.shell.commands import Command
from executor.permission.shell.literals import MANY, ONE
from executor.permission.shell.words import MAX_CHARACTERS
from executor.permission.tool_paths import Ground
from executor.settings import PermissionSettings

_KNOWN_TOOLS = 512
"""Tools whose rules are kept together; names come from models, so there could be any number."""


@dataclass(frozen=True, slots=True)
class Decision:
    """``rule`` is the place of the deciding rule in config.toml (from 0), or ``None``."""

    effect: Effect
    rule: int | None
    reason: str


class Permission:
    """The compiled rules of one config.toml."""

    def __init__(self, rules: Iterable[Rule], default: Effect, ground: Ground) -> None:
        self._rules = tuple(rules)
        self._default = default
        self._ground = ground
        self._known: dict[str, Index] = {}

    @classmethod
    def compile(cls, settings: PermissionSettings, *, workspace: str, home: str = "") -> Permission:
        """``workspace`` and ``home`` are absolute. Raises InvalidConfig with all faults."""
        ground = Ground(workspace, home.rstrip("/"))
        rules: list[Rule] = []
        faults: list[Fault] = []
        for index, one in enumerate(settings.rules):
            compiled = compile_rule(index, one, ground)
            if isinstance(compiled, Rule):
                rules.append(compiled)
            else:
                faults += compiled
        if faults:
            raise InvalidConfig(faults, where="config.toml")
        return cls(rules, Effect(settings.default), ground)

    def decide(self, tool: str, tool_input: Mapping[str, object]) -> Decision:
        """What is to happen with this call, and why. Never raises."""
        call = Call(tool, tool_input, self._ground)
        rules = self._about(tool)
        ask: Decision | None = None
        allowing: list[Rule] = []
        for rule in rules.candidates(call):
            if rule.effect is Effect.ALLOW:
                allowing.append(rule)
                continue
            match = rule.generously(call)
            if match is Match.YES and rule.effect is Effect.DENY:
                return Decision(Effect.DENY, rule.index, f"rule {rule.index} ({rule.text})")
            if match is not Match.NO and ask is None:
                how = "" if match is Match.YES else "it could turn out to be what is meant by "
                ask = Decision(Effect.ASK, rule.index, f"{how}rule {rule.index} ({rule.text})")
        if ask is None and rules.commands and call.reading is not None and call.reading.unclear:
            ask = Decision(Effect.ASK, None, f"it cannot be read safely: {call.reading.unclear[0]}")
            if self._default is Effect.DENY:
                return Decision(Effect.DENY, None, ask.reason)
        if ask is not None:
            return ask
        return _allowed(allowing, call) or self._otherwise(call, allowing)

    def explain(self, tool: str, tool_input: Mapping[str, object]) -> dict[str, object]:
        """The decision with everything it was made from, for people (JSON values)."""
        call = Call(tool, tool_input, self._ground)
        decision = self.decide(tool, tool_input)
        return {
            "effect": decision.effect.value,
            "rule": decision.rule,
            "reason": decision.reason,
            "default": self._default.value,
            "commands": [] if call.reading is None else [_shown(c.words) for c in _commands(call)],
            "unclear": [] if call.reading is None else list(call.reading.unclear),
            "caveats": [] if call.reading is None else list(call.reading.caveats),
            "paths": [None if one is None else one.text for one in call.paths],
            "rules": [
                {"rule": rule.index, "text": rule.text, "matches": _how(rule, call)}
                for rule in self._rules
            ],
        }

    def _about(self, tool: str) -> Index:
        known = self._known.get(tool)
        if known is None:
            if len(self._known) >= _KNOWN_TOOLS:
                self._known.clear()
            known = self._known[tool] = index_rules(
                rule for rule in self._rules if rule.about(tool)
            )
        return known

    def _otherwise(self, call: Call, allowing: list[Rule]) -> Decision:
        reason = "no rule matches"
        if allowing and call.reading is not None and call.reading.caveats:
            reason = f"no allow rule vouches for it: {call.reading.caveats[0]}"
        return Decision(self._default, None, f'{reason}; the default is "{self._default.value}"')


def _allowed(allowing: list[Rule], call: Call) -> Decision | None:
    vouching = [rule for rule in allowing if rule.vouches(call)]
    for rule in vouching:
        if rule.command is None:
            return Decision(Effect.ALLOW, rule.index, f"rule {rule.index} ({rule.text})")
    reading = call.reading
    if not vouching or reading is None or reading.unclear or reading.caveats:
        return None
    commands = [command for command in reading.commands if not command.transparent]
    if not commands:
        return None
    covering: list[Rule] = []
    for command in commands:
        found = next((rule for rule in vouching if rule.covers(command)), None)
        if found is None:
            return None
        covering.append(found)
    first = covering[0]
    return Decision(Effect.ALLOW, first.index, f"rule {first.index} ({first.text})")


def _commands(call: Call) -> Iterable[Command]:
    return () if call.reading is None else call.reading.commands


def _how(rule: Rule, call: Call) -> str:
    if not rule.about(call.tool):
        return "no: another tool"
    if rule.effect is not Effect.ALLOW:
        return rule.generously(call).name.lower()
    return "yes" if _allowed([rule], call) is not None else "no"


def _shown(words: tuple[str, ...]) -> str:
    """The words with their holes as ``…``."""
    line = " ".join(words)[:MAX_CHARACTERS]
    return line.replace(MANY, "…").replace(ONE, "…")
