"""Which commands would really run, given what a shell tool is asked to do?

``read_shell`` takes the text of a command line, ``read_argv`` a list of words that no shell sees.
Both look through wrappers (``sudo``, ``xargs``, ``find -exec``), inner shells (``sh -c``, ``eval``)
and here-documents fed to a shell. A command that only a running shell could know is reported as one
whose name is a hole, so that it *may* be anything and is never certainly harmless.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from executor.permission.shell.literals import MANY, ONE, PRIVATE
from executor.permission.shell.suspects import SUSPECTS, no_script, suspect, suspect_assignment
from executor.permission.shell.words import Simple, Split, split_nested, split_shell
from executor.permission.shell.wrappers import (
    ANY,
    ASSIGNMENT,
    FED,
    FOREIGN,
    LOADER,
    SHELLS,
    WRAPPERS,
    Wrapper,
    after_options,
    shell_options,
)

_STARTS = re.compile(r"-[A-Za-z]*[si]|--shell|--login")
_ATTACHED = re.compile(r"^--[^=]*=|^-\w*?c|^-\w")
"""What stands before a text that is one word with its option."""
MAX_LEVELS = 12
"""Wrappers around wrappers."""
_MAX_SUFFIXES = 64

_SIMPLE_TEXT = re.compile(r"[A-Za-z0-9_./,:@%+=\- ]*", re.ASCII)
_SPECIAL = frozenset(
    {*WRAPPERS, *SHELLS, *ANY, "find", "eval", "trap", "alias", "source", ".", "if", "then", "else"}
    | {"elif", "fi", "for", "select", "case", "esac", "while", "until", "do", "done", "function"}
    | {"coproc", "in", *SUSPECTS}
)


@dataclass(frozen=True, slots=True)
class Command:
    """One command. ``transparent``: a wrapper whose inner command stands beside it, and which an
    allow rule need not name. ``name`` is the last part of a path."""

    words: tuple[str, ...]
    transparent: bool = False

    @property
    def name(self) -> str:
        return self.words[0].rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Reading:
    """``unclear``: commands may be missing. ``caveats``: more happens than the words say. Only
    where both are empty may an allow rule vouch for the whole."""

    commands: tuple[Command, ...]
    unclear: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()


def read_shell(text: str) -> Reading:
    """What a shell would run, given this text."""
    if _SIMPLE_TEXT.fullmatch(text) and len(text) < 4096:
        words = tuple(text.split())
        if not words:
            return Reading(())
        name = words[0].rpartition("/")[2]
        if "=" not in words[0] and name not in _SPECIAL and not name.startswith("ld"):
            return Reading((Command(words),))
    split = Split()
    split_shell(text, split)
    return _Unwrapping(split).reading()


def read_argv(words: Sequence[str]) -> Reading:
    """What runs when these words are executed without a shell."""
    split = Split()
    split.add(Simple(tuple(PRIVATE.sub("?", word) for word in words)))
    return _Unwrapping(split).reading()


class _Unwrapping:
    def __init__(self, split: Split) -> None:
        self._split = split
        self._found: dict[tuple[str, ...], Command] = {}
        self._level = 0

    def reading(self) -> Reading:
        for simple in self._split.simple:  # grows while inner texts are read
            self._command(simple.words, simple.here)
        doubts = self._split.doubts
        return Reading(
            tuple(self._found.values()),
            tuple(dict.fromkeys(doubts.unclear)),
            tuple(dict.fromkeys(doubts.caveats)),
        )

    def _command(self, words: tuple[str, ...], here: Sequence[str] = ()) -> None:
        if not words:
            return
        self._level += 1
        if self._level > MAX_LEVELS or len(self._found) > 1_000:
            self._split.doubts.unclear.append("commands run commands too many times over")
        else:
            if (why := suspect(words, here)) is not None:
                self._unclear(why)
            self._look_inside(words, here)
        self._level -= 1

    def _look_inside(self, words: tuple[str, ...], here: Sequence[str]) -> None:
        if words[0].startswith("="):
            self._unknown("zsh reads a word that begins with = as a path")
        name = words[0].rpartition("/")[2]
        transparent = False
        if _has_hole(words[:1]):
            self._unknown("the name of a command is not known before it runs")
            self._every_suffix(words)
        elif name in SHELLS:
            transparent = self._shell(words, here)
        elif name in WRAPPERS:
            transparent = self._wrapped(name, WRAPPERS[name], words, here)
        elif name in ANY or LOADER.fullmatch(name):
            self._any(name, words, here)
        elif name == "find":
            self._find(words)
        elif name in ("eval", "trap", "alias"):
            transparent = self._text_command(name, words)
        elif name in ("source", "."):
            self._script(words[1:] if words[1:2] and words[1][:1] == "-" else words[1:2], here)
        self._keep(words, transparent=transparent)

    def _keep(self, words: tuple[str, ...], *, transparent: bool = False) -> None:
        self._found.setdefault(words, Command(words, transparent))

    def _unknown(self, why: str) -> None:
        """A command runs that cannot be seen."""
        self._split.doubts.caveats.append(why)
        self._keep((MANY,))

    def _any(self, name: str, words: tuple[str, ...], here: Sequence[str]) -> None:
        if name in FED and (here or sum(word[:1] != "-" for word in words) < 3):
            self._unclear(f"{name} may run what it is fed")
            self._texts(here)
        self._every_suffix(words)

    def _unclear(self, why: str) -> None:
        self._split.doubts.unclear.append(why)

    def _text(self, text: str) -> None:
        """A text that a shell reads."""
        if MANY in text or ONE in text:
            self._unknown("a text with expansions is read as commands")
        split_nested(text, self._split)

    def _script(self, paths: Sequence[str], here: Sequence[str]) -> None:
        if any(map(no_script, paths)):
            self._unknown("it runs a script that is not known")
            self._texts(here)

    def _texts(self, here: Sequence[str]) -> None:
        for text in here:
            self._text(text)

    def _shell(self, words: tuple[str, ...], here: Sequence[str]) -> bool:
        """Whether all that it runs is now known."""
        options = shell_options(words)
        if options is None:
            self._unclear("the options of a shell are not all known")
            self._texts(here)
            self._every_suffix(words)
            return False
        letters, at = options
        name = words[0].rpartition("/")[2]
        if name in FOREIGN:
            self._unclear(f"{name} reads commands in another way")
        operand = words[at] if at < len(words) else None
        if "c" in letters and operand is not None:
            if "s" in letters:
                self._unclear("a shell is given a text and reads its input too")
            self._text(operand)
            return True
        if operand is None or operand == "-" or "s" in letters:
            self._texts(here)
            if not here:
                self._unknown("a shell reads commands from its input")
            return bool(here)
        self._script((operand,), here)
        self._keep(words[at:], transparent=True)
        return False

    def _wrapped(
        self, name: str, wrapper: Wrapper, words: tuple[str, ...], here: Sequence[str]
    ) -> bool:
        if name == "env" and any(re.match(r"-[a-z]*S|--split-string", word) for word in words):
            self._split.doubts.caveats.append("env splits a text")
            for word in words[1:]:
                self._text(re.sub(r"^(-\w*S|--split-string=?)", "", word))
            self._every_suffix(words)
            return False
        start = after_options(wrapper, words)
        if start is None:
            self._split.doubts.caveats.append(f"the options of {name} are not all known")
            self._every_suffix(words)
            return False
        inner, options = words[start:], words[1:start]
        for word in options:
            if wrapper.assignments and ASSIGNMENT.match(word):
                self._split.doubts.caveats.append(f"it sets {word.partition('=')[0]}")
                if (why := suspect_assignment(word)) is not None:
                    self._unclear(why)
        if name in ("sudo", "doas") and (here or not inner) and any(map(_STARTS.match, options)):
            self._unclear(f"{name} starts a shell that reads its input")
        if name == "xargs":
            inner = _fed(inner, options)
        self._command(inner, here)
        return wrapper.transparent and bool(inner)

    def _every_suffix(self, words: tuple[str, ...]) -> None:
        self._split.doubts.caveats.append(f"{words[0]} runs another command")
        if len(words) > _MAX_SUFFIXES:
            self._split.doubts.unclear.append(f"the words of {words[0]} are too many to follow")
        for at in range(1, min(len(words), _MAX_SUFFIXES)):
            word = words[at]
            texts = any(char in word for char in " \t\n;&|")
            if word.startswith("-") and "=" not in word and not texts:
                continue
            if texts:
                self._text(_ATTACHED.sub("", word))
            name = word.rpartition("/")[2]
            if name in SHELLS or name in WRAPPERS or name in ANY or name == "find":
                self._command(words[at:])
                return
            self._keep(words[at : at + _MAX_SUFFIXES])
        if _has_hole(words[1:]):
            self._unknown("a command is not known before it runs")

    def _find(self, words: tuple[str, ...]) -> None:
        at = 1
        while at < len(words):
            word = words[at]
            at += 1
            if MANY in word and word.startswith(MANY):
                self._unknown("find may be told to run a command that is not known")
            if word not in ("-exec", "-execdir", "-ok", "-okdir"):
                continue
            start = at
            while at < len(words) and words[at] not in (";", "+"):
                at += 1
            self._command(tuple(part.replace("{}", ONE) for part in words[start:at]))

    def _text_command(self, name: str, words: tuple[str, ...]) -> bool:
        arguments = words[1:]
        if arguments[:1] == ("--",):
            arguments = arguments[1:]
        if name == "eval":
            self._text(" ".join(arguments))
            return True
        if name == "trap":
            self._text(arguments[0] if arguments else "")
        for word in arguments if name == "alias" else ():
            self._text(word.partition("=")[2])
            self._split.doubts.caveats.append("it defines an alias")
        return False


def _fed(inner: tuple[str, ...], options: tuple[str, ...]) -> tuple[str, ...]:
    """What xargs runs: words from its input at the end, or wherever its mark stands."""
    mark = None
    for at, word in enumerate(options):
        if word.startswith(("-I", "-i")):
            mark = word[2:] or (options[at + 1] if word == "-I" and at + 1 < len(options) else "{}")
        elif word.startswith("--replace"):
            mark = word.partition("=")[2] or "{}"
    if not inner:
        return ()
    if mark is None:
        return (*inner, MANY)
    return tuple(word.replace(mark, ONE) for word in inner)


def _has_hole(words: Sequence[str]) -> bool:
    return any(MANY in word or ONE in word for word in words)
