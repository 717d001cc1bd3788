"""Does a name match a pattern with stars?

One star rule for everything that people write as a glob (matchers, ``commands``, ``tool``): ``*``
stands for any characters, none and ``/`` included; every other character stands for itself; the
whole name must match. No regular expression is built, so no pattern can be slow: a match walks the
name once.
"""

from __future__ import annotations

from collections.abc import Iterable


def glob_matches(pattern: str, name: str) -> bool:
    """Whether the whole ``name`` matches ``pattern``."""
    if "*" not in pattern:
        return pattern == name
    first, *middle, last = pattern.split("*")
    if len(name) < len(first) + len(last):
        return False
    if not name.startswith(first) or not name.endswith(last):
        return False
    position, end = len(first), len(name) - len(last)
    for piece in middle:
        found = name.find(piece, position, end)
        if found < 0:
            return False
        position = found + len(piece)
    return True


def glob_covers(wide: str, narrow: str) -> bool:
    """Whether every name that ``narrow`` matches is matched by ``wide`` too.

    A star of ``narrow`` can only fall under a star of ``wide``, so it may be read as a character
    that no literal part of ``wide`` contains.
    """
    return glob_matches(wide, narrow)


def any_glob_matches(patterns: Iterable[str], name: str) -> bool:
    """Whether one of the patterns matches the whole name."""
    return any(glob_matches(pattern, name) for pattern in patterns)
