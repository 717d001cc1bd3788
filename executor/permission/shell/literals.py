"""What text do braces and ANSI-C quotes stand for, and how is a hole written?

The small literal parts of a shell's words; ``shell_quotes`` reads everything around them.
"""

from __future__ import annotations

import re

MANY, ONE = "\x00", "\x01"
"""Holes: any text that may become several words or none; any text inside one word."""
OPEN, COMMA, CLOSE = "\x02", "\x03", "\x04"
"""Unquoted ``{``, ``,`` and ``}`` inside a word, until ``expanded``."""
PRIVATE = re.compile("[\x00-\x04]")

_GROUP = re.compile(f"{OPEN}([^{OPEN}{CLOSE}]*){CLOSE}")
_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|(.))", re.DOTALL
)
_ESCAPES = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r"}
_ESCAPES |= {"t": "\t", "v": "\v"}
_MAX_COMMAS = 32
_MAX_PIECES = 64


def expanded(word: str) -> list[str]:
    """The words that a brace expansion makes of one; for all others just that one."""
    if OPEN not in word and COMMA not in word and CLOSE not in word:
        return [word]
    if word.count(COMMA) > _MAX_COMMAS:
        return [word.partition(OPEN)[0] + MANY]
    done: list[str] = []
    left = [word]
    while left:
        text = left.pop(0)
        group = _GROUP.search(text)
        if group is None:
            done.append(literal(text))
            continue
        before, inside, after = text[: group.start()], group[1], text[group.end() :]
        if len(done) + len(left) > _MAX_PIECES or ".." in inside:
            left.insert(0, f"{before}{MANY}{after}")
        elif COMMA in inside:
            left[:0] = [before + piece + after for piece in inside.split(COMMA)]
        else:
            left.insert(0, f"{before}{{{inside}}}{after}")
    return done


def literal(word: str) -> str:
    """The word with its braces as they are written."""
    return word.replace(OPEN, "{").replace(COMMA, ",").replace(CLOSE, "}")


def ansi_c(text: str) -> str:
    """What stands between ``$'`` and the closing quote, decoded."""
    return PRIVATE.sub(MANY, _ESCAPE.sub(_unescaped, text))


def _unescaped(found: re.Match[str]) -> str:
    hexadecimal = found[1] or found[2] or found[3]
    if hexadecimal:
        number = int(hexadecimal, 16)
        return chr(number) if number < 0x110000 else "?"
    if found[4]:
        return chr(int(found[4], 8) & 0xFF)
    return _ESCAPES.get(found[5], found[5] if found[5] in "\\'\"?" else f"\\{found[5]}")
