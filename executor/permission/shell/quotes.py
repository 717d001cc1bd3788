"""How does a shell read one word?

Quotes are removed, nothing is expanded. What only a running shell could know leaves a *hole*:
``ONE`` stands for any text inside one word, ``MANY`` for any text that may also become several
words or none. Commands inside a word (``$(…)``, backticks, ``<(…)``) are handed to the two
callbacks. Rules for editors: see ``shell_words``; whatever is not followed exactly must be said in
``Doubts.unclear``, because an allow rule trusts what this returns.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from executor.permission.shell.literals import CLOSE, COMMA, MANY, ONE, OPEN, ansi_c

ENDS = frozenset(" \t\n;&|<>()")
"""What ends an unquoted word."""

MAX_DEPTH = 24
"""Texts inside texts; people write three."""
_AFTER = frozenset({"", *ENDS})
_MARKS = {"*": ONE, "?": ONE, ",": COMMA, MANY: MANY, ONE: MANY, OPEN: "?", COMMA: "?", CLOSE: "?"}
"""What single characters become; a hole of an outer text may split in an inner one."""

_PLAIN = re.compile(r"[^ \t\n\\'\"`$*?\[{},;&|<>()\x00-\x04]+")
_BLANKS = re.compile(r"(?:[ \t]|\\\n)+")
_UNQUOTED = re.compile(r"[^\\\"`$]+")
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]", re.ASCII)
_BRACKETS = re.compile(r"\[[^\s;&|<>()'\"$`\\\]]{1,64}\]")
_ARITHMETIC = re.compile(r"[\w\s+\-*/%<>=!&|^~?:,$#()]*", re.ASCII)


@dataclass(slots=True)
class Doubts:
    """``unclear``: not followed, commands may be missing. ``caveats``: understood, but the text
    does more than the words of its commands say. ``depth`` counts texts inside texts."""

    unclear: list[str] = field(default_factory=list)
    caveats: list[str] = field(default_factory=list)
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Word:
    """``bare`` is how many characters came before any quoting or expansion."""

    text: str
    bare: int

    @property
    def unquoted(self) -> bool:
        return self.bare == len(self.text)


class WordReader:
    """A place in a text. ``substitution`` must read commands up to a closing parenthesis from
    here, ``nested`` those of another text."""

    def __init__(
        self,
        text: str,
        doubts: Doubts,
        substitution: Callable[[], None],
        nested: Callable[[str], None],
    ) -> None:
        self.text = text
        self.at = 0
        self._doubts = doubts
        self._substitution = substitution
        self._nested = nested

    def skip_blanks(self) -> None:
        found = _BLANKS.match(self.text, self.at)
        if found is not None:
            self.at = found.end()

    def word(self) -> Word:
        """The word that begins here; braces of a brace expansion stay marked (``expanded``)."""
        value: list[str] = []
        bare: int | None = None
        start = self.at
        while self.at < len(self.text):
            plain = _PLAIN.match(self.text, self.at)
            if plain is not None:
                value.append(plain[0])
                self.at = plain.end()
                continue
            char = self.text[self.at]
            if char in "<>" and self.text.startswith("(", self.at + 1):
                self.at += 2
                self._substitution()
                piece = ONE
            elif char in ENDS:
                break
            else:
                piece = self._special(char, start)
            if bare is None and not piece.startswith(char):
                bare = sum(map(len, value))
            value.append(piece)
        text = "".join(value)
        return Word(text, len(text) if bare is None else bare)

    def quoted(self, closer: str) -> str:
        """Text in which ``$``, backticks and backslashes work: up to a quote, or all of it."""
        value: list[str] = []
        while self.at < len(self.text):
            plain = _UNQUOTED.match(self.text, self.at)
            if plain is not None:
                value.append(plain[0])
                self.at = plain.end()
                continue
            char = self.text[self.at]
            self.at += 1
            if char == closer:
                return "".join(value)
            if char == "\\":
                following = self.text[self.at : self.at + 1]
                self.at += 1
                value.append("" if following == "\n" else following)
                if following not in ("$", "`", '"', "\\", "\n"):
                    value.insert(-1, "\\")
            elif char == "$":
                value.append(self._dollar(quoted=True))
            elif char == "`":
                value.append(self._backtick(quoted=True))
            else:
                value.append(char)
        if closer:
            self._doubts.unclear.append("a quote is never closed")
        return "".join(value)

    def arithmetic(self) -> bool:
        """Skip ``…))`` if that is plain arithmetic; the two opening ones were read."""
        depth = 2
        for position in range(self.at, len(self.text)):
            char = self.text[position]
            depth += (char == "(") - (char == ")")
            if char == ")" and depth < 2:
                inside = self.text[self.at : position]
                closes = self.text.startswith("))", position)
                if not closes or "$(" in inside or not _ARITHMETIC.fullmatch(inside):
                    if "'" in inside or "\\" in inside:
                        self._doubts.unclear.append("it may be arithmetic with quotes")
                    return False
                self.at = position + 2
                return True
        return False

    def _special(self, char: str, start: int) -> str:
        """What a character with a meaning, and all that belongs to it, adds to a word."""
        self.at += 1
        match char:
            case "\\":
                following = self.text[self.at : self.at + 1]
                self.at += 1
                return "" if following == "\n" else following
            case "'":
                return self._until_quote()
            case '"':
                return self.quoted(closer='"')
            case "$":
                return self._dollar(quoted=False)
            case "`":
                return self._backtick(quoted=False)
            case "[":
                return self._bracket(start)
            case "{" | "}":
                alone = self.at == start + 1 and self.text[self.at : self.at + 1] in _AFTER
                return char if alone else OPEN if char == "{" else CLOSE
        return _MARKS[char]

    def _until_quote(self) -> str:
        end = self.text.find("'", self.at)
        if end < 0:
            self._doubts.unclear.append("a quote is never closed")
            end = len(self.text)
        text = self.text[self.at : end]
        self.at = end + 1
        return text

    def _bracket(self, start: int) -> str:
        """``[`` as a command or in ``[[``, a plain bracket pattern, or something unclear."""
        if self.at == start + 1 and (found := re.compile(r"\[?(?=\s|$)").match(self.text, self.at)):
            self.at = found.end()
            return "[" + found[0]
        if (found := _BRACKETS.match(self.text, self.at - 1)) is not None:
            self.at = found.end()
            return ONE
        if self.text.find("]", self.at) >= 0:
            self._doubts.unclear.append("a bracket pattern holds quotes or expansions")
        return MANY

    def _dollar(self, *, quoted: bool) -> str:
        """After ``$``."""
        text, hole = self.text, ONE if quoted else MANY
        if text.startswith("((", self.at):
            self.at += 2
            if self.arithmetic():
                return hole
            self.at -= 2
        if text.startswith("(", self.at):
            self.at += 1
            self._substitution()
            return hole
        if text.startswith("{", self.at):
            self.at += 1
            if text[self.at : self.at + 1] in ("|", " ", "\t", "\n"):
                self._doubts.unclear.append("some shells run what is inside ${ …; }")
            self._doubts.depth += 1
            splits = self._braced()
            self._doubts.depth -= 1
            return MANY if splits else hole
        if text.startswith("[", self.at):
            self._doubts.unclear.append("it uses $[…]")
            return MANY
        if not quoted and text.startswith("'", self.at):
            return self._ansi_c()
        if not quoted and text.startswith('"', self.at):
            self.at += 1
            return self.quoted(closer='"')
        name = _NAME.match(text, self.at)
        if name is None:
            return "$"
        self.at = name.end()
        return MANY if name[0] in "@*" else hole

    def _braced(self) -> bool:
        """Up to the ``}`` of ``${…}``; whether it may become several words even in quotes."""
        start = self.at
        if self._doubts.depth > MAX_DEPTH:
            self.at = len(self.text)
        while self.at < len(self.text):
            char = self.text[self.at]
            self.at += 1
            if char == "}":
                if self.text.endswith("@P}", start, self.at):
                    self._doubts.unclear.append("${…@P} runs what a variable holds")
                return "@" in self.text[start : self.at]
            if char == "\\":
                if self.text[self.at : self.at + 1] in ("$", "`"):
                    self._doubts.unclear.append("an expansion is quoted inside ${…}")
                self.at += 1
            elif char == "$":
                self._dollar(quoted=True)
            elif char == "`":
                self._backtick(quoted=True)
            elif char in "'\"":
                self._doubts.unclear.append("it quotes inside ${…}, which shells read differently")
        self._doubts.unclear.append("a ${ is never closed")
        return True

    def _backtick(self, *, quoted: bool) -> str:
        """After a backtick: the text up to the next, its own escapes removed, is commands."""
        inside: list[str] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            self.at += 1
            if char == "`":
                self._nested("".join(inside))
                return ONE if quoted else MANY
            following = self.text[self.at : self.at + 1]
            if char == "\\" and following in ("`", "$", "\\", '"' if quoted else "`"):
                char = following
                self.at += 1
            inside.append(char)
        self._doubts.unclear.append("a backtick is never closed")
        self._nested("".join(inside))
        return MANY

    def _ansi_c(self) -> str:
        """After ``$`` before a quote. dash knows no ``$'…'``; with ``\\'`` inside they disagree."""
        found = re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL).match(self.text, self.at)
        if found is None:
            self._doubts.unclear.append("a quote is never closed")
            return "$"
        if "\\'" in found[1]:
            self._doubts.unclear.append("it quotes inside $'…', which shells read differently")
        self.at = found.end()
        return ansi_c(found[1])
