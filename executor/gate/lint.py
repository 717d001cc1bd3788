"""Which gate hooks are written so that they will not do what was meant?

Warnings for ``check``; pure. Two kinds: under ``strategy = "first"`` a hook that injects ends the
walk, so a guard behind it is not asked; and a matcher is a glob over the whole tool name, so what
looks like a regular expression or like the name of a whole server matches nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from executor.configuration import Configuration
from executor.globs import glob_matches
from executor.hooks import Hook

_EXPRESSION = re.compile(r"\.\*|\.\+|[\^$()\[\]+?\\]")
_SERVER = re.compile(r"mcp__[^_*]+(?:_[^_*]+)*")


def gate_warnings(configuration: Configuration) -> list[str]:
    """One sentence for each finding, with its place in hooks.json."""
    enabled = [hook for hook in configuration.hooks if hook.enabled]
    found = [text for hook in enabled for text in _matcher(hook)]
    if configuration.settings.gate.strategy == "first":
        guards = [hook for hook in enabled if hook.event == "PreToolUse"]
        found += _hidden(guards)
    return found


def _hidden(guards: Sequence[Hook]) -> Iterator[str]:
    for place, later in enumerate(guards):
        earlier = next((one for one in guards[:place] if _overlap(one, later)), None)
        if earlier is not None:
            yield (
                f'{later.pointer}: under [gate] strategy = "first" this hook is not asked when '
                f"{earlier.pointer} injects a message; put guards first, or use block-wins"
            )


def _overlap(one: Hook, other: Hook) -> bool:
    """Whether some tool name could be meant by both; errs towards yes."""
    if one.action.matcher is None or other.action.matcher is None:
        return True
    return any(
        glob_matches(a, b) or glob_matches(b, a) or ("*" in a and "*" in b)
        for a in one.action.matcher.split("|")
        for b in other.action.matcher.split("|")
    )


def _matcher(hook: Hook) -> Iterator[str]:
    at = f"{hook.pointer}/matcher"
    for alternative in (hook.action.matcher or "").split("|"):
        if _EXPRESSION.search(alternative):
            yield (
                f"{at}: {alternative!r} looks like a regular expression; only * means something "
                "here, and the whole name must match"
            )
        elif _SERVER.fullmatch(alternative):
            yield f"{at}: {alternative!r} matches no tool of that server; write {alternative}__*"
