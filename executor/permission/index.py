"""Which rules could match this call, without asking each of them?

A decision must be quick with hundreds of rules (50 microseconds for 200), so the rules about one
tool are sorted once by what a call must have for them to match at all: a program's name, its
subcommand, a piece of text in a path or field. What is left out here could not have matched; what
stays is asked in full. Holes turn the sieve off: a command that is not known may be any.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from executor.permission.rules import Call, Rule

_Sieved = tuple[tuple[str, str, Rule], ...]
"""How the text must begin, what it must hold, and the rule."""


@dataclass(frozen=True, slots=True)
class Index:
    """The rules about one tool. ``commands``: some look at commands."""

    programs: Mapping[str, Mapping[str | None, tuple[Rule, ...]]]
    paths: _Sieved
    fields: Mapping[str, _Sieved]
    others: tuple[Rule, ...]
    commands: bool

    def candidates(self, call: Call) -> list[Rule]:
        """The rules to be asked."""
        found = list(self.others)
        if self.programs:
            self._by_program(found, call)
        if self.paths:
            texts = [None if path is None else path.text for path in call.paths]
            _sift(found, self.paths, texts)
        for field, entries in self.fields.items():
            _sift(found, entries, call.texts(field))
        return found

    def _by_program(self, found: list[Rule], call: Call) -> None:
        before = len(found)
        for shape in call.shapes:
            if shape.hidden:
                del found[before:]
                for rules in self.programs.values():
                    for some in rules.values():
                        found += some
                return
            rules_of = self.programs.get(shape.name)
            if rules_of is None:
                continue
            if shape.holes:
                for some in rules_of.values():
                    found += some
                continue
            found += rules_of.get(None, ())
            for word in shape.command.words[1:]:
                if word in rules_of:
                    found += rules_of[word]


def index_rules(rules: Iterable[Rule]) -> Index:
    """Sort the rules about one tool."""
    programs: dict[str, dict[str | None, list[Rule]]] = {}
    paths: list[tuple[str, str, Rule]] = []
    fields: dict[str, list[tuple[str, str, Rule]]] = {}
    others: list[Rule] = []
    commands = False
    for rule in rules:
        commands |= rule.command is not None
        if rule.command is not None and rule.command.key is not None:
            by_word = programs.setdefault(rule.command.key, {})
            by_word.setdefault(rule.command.subcommand, []).append(rule)
        elif rule.path is not None:
            paths.append((rule.path.prefix, rule.path.piece, rule))
        elif rule.fields:
            field, pattern = rule.fields[0]
            start, *rest = pattern.split("*")
            fields.setdefault(field, []).append((start, max(rest, key=len, default=""), rule))
        else:
            others.append(rule)
    return Index(
        {
            name: {word: tuple(some) for word, some in by_word.items()}
            for name, by_word in programs.items()
        },
        tuple(paths),
        {field: tuple(entries) for field, entries in fields.items()},
        tuple(others),
        commands,
    )


def _sift(found: list[Rule], entries: _Sieved, texts: Iterable[str | None]) -> None:
    for text in texts:
        if text is None:
            found += [rule for _, _, rule in entries]
            return
        found += [
            rule for start, piece, rule in entries if text.startswith(start) and piece in text
        ]
