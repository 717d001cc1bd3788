"""Does a rule's command pattern mean this command?

A pattern is written like a command line, with ``*`` for any text: ``rm -rf *``, ``git push*``,
``npm run test``. It is read in two ways, because the cost of a mistake differs:

``strictly`` (allow rules): the whole command, word by word, is what the pattern says, whatever its
holes turn out to be; a path before the name only where system programs live.

``generously`` (deny and ask rules): the same command in another spelling counts too: ``/bin/rm``
for ``rm``, options in any order, bundled, split, long or abbreviated, further options and operands.
A command with holes that could turn out to be meant is ``MAYBE``.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from executor.globs import glob_matches
from executor.permission.shell.commands import Command
from executor.permission.shell.literals import MANY, ONE

SYSTEM_DIRECTORIES = frozenset(
    {"/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"}
)
_HOLE = re.compile(f"[{MANY}{ONE}]+")
_SUBCOMMAND = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_OPTION_LIKE = re.compile(r"[A-Za-z0-9=-]*")
_LETTERS_OF = {"recursive": "rR", "force": "f"}
"""Long options whose short forms are the same everywhere that matters."""
_WORD_OPTIONS = frozenset({"find"})
"""Programs whose single-dash options are words, never bundles."""
_SPACES = str.maketrans(dict.fromkeys(" \t\n\r", "\x1f"))


class Match(IntEnum):
    """How sure a pattern is. ``MAYBE``: it depends on what only the running shell knows."""

    NO = 0
    MAYBE = 1
    YES = 2


_Test = Callable[[str, str], bool]


def covers(pattern: str, text: str) -> bool:
    """Whether the pattern matches whatever the text's holes become (no literal holds a hole)."""
    return glob_matches(pattern, text)


def may_match(pattern: str, text: str) -> bool:
    """Whether the pattern could match for some content of the holes; errs towards yes."""
    holes = _HOLE.split(text)
    if len(holes) == 1:
        return glob_matches(pattern, text)
    if "*" not in pattern:
        return glob_matches("*".join(part.replace("*", "\x1f") for part in holes), pattern)
    start, end = pattern.partition("*")[0], pattern.rpartition("*")[2]
    return (start.startswith(holes[0]) or holes[0].startswith(start)) and (
        end.endswith(holes[-1]) or holes[-1].endswith(end)
    )


@dataclass(frozen=True, slots=True)
class Shape:
    """A command's words by their role, worked out once for all patterns.

    ``operands`` say whether an option came directly before. ``open``: a hole stands where an
    option could; ``many``: a hole may become any words; ``holes``: there is any.
    """

    command: Command
    name: str
    joined: str
    holes: bool
    letters: frozenset[str]
    options: tuple[str, ...]
    operands: tuple[tuple[str, bool], ...]
    open: bool
    many: bool

    @property
    def hidden(self) -> bool:
        """Whether even the program is not known."""
        return _HOLE.search(self.name) is not None


def shape_of(command: Command) -> Shape:
    """The command as the generous reading needs it."""
    name, arguments = command.name, command.words[1:]
    joined = " ".join((name, *arguments))
    letters: set[str] = set()
    options: list[str] = []
    operands: list[tuple[str, bool]] = []
    after_option, ended, unsure = False, False, False
    for word in arguments:
        if ended or len(word) < 2 or word[0] != "-":
            operands.append((word, after_option))
            holes = word.startswith((MANY, ONE)) and _OPTION_LIKE.fullmatch(_HOLE.sub("", word))
            unsure |= not ended and bool(holes)
            after_option = False
        elif word == "--":
            ended, after_option = True, False
        else:
            options.append(word)
            after_option = True
            unsure |= _HOLE.search(word) is not None
            if word[1] != "-":
                letters.update(word[1:])
            for long, short in _LETTERS_OF.items():
                if len(word) > 2 and f"--{long}".startswith(word):
                    letters.update(short)
    if name == "rm" and "R" in letters:
        letters.add("r")
    many = any(MANY in word for word in arguments)
    return Shape(
        command,
        name,
        joined,
        _HOLE.search(joined) is not None,
        frozenset(letters),
        tuple(options),
        tuple(operands),
        unsure or many,
        many,
    )


class CommandPattern:
    """One compiled pattern. ``key`` is the program's name where the pattern says one."""

    def __init__(self, text: str) -> None:
        words = text.split()
        self.text = " ".join(words)
        self._name = words[0]
        self._rest = self.text.removesuffix(" *")
        name = words[0].rpartition("/")[2]
        self.key = None if "*" in words[0] else name
        self.subcommand = words[1] if words[1:] and _SUBCOMMAND.fullmatch(words[1]) else None
        """A word without which no command without holes is meant."""
        self._options = tuple(word for word in words[1:] if word.startswith("-") and len(word) > 1)
        self._operands = tuple(
            word for word in words[1:] if word not in self._options and word.strip("*")
        )
        # `npm publish` is not `npm run publish`, though `rm /` is `rm a /`.
        self._anchored = self.subcommand is not None

    def strictly(self, command: Command) -> bool:
        """Whether an allow rule with this pattern vouches for the command."""
        words = command.words
        if "/" not in self._name and "/" in words[0]:
            directory, _, name = words[0].rpartition("/")
            if directory not in SYSTEM_DIRECTORIES:
                return False
            words = (name, *words[1:])
        if not self._whole(words):
            return False
        fewer = tuple(word for word in words if word != MANY)
        return len(fewer) == len(words) or (bool(fewer) and self._whole(fewer))

    def generously(self, shape: Shape) -> Match:
        """Whether a deny or ask rule with this pattern is about the command."""
        words = shape.command.words
        if glob_matches(self.text, shape.joined):
            return Match.YES
        if words[0] != shape.name and glob_matches(self.text, " ".join(words)):
            return Match.YES
        if self._names(words[0], covers) and self._means(shape, covers, sure=True):
            return Match.YES
        if not shape.holes:
            return Match.NO
        if self._names(words[0], may_match) and (
            shape.many or MANY in words[0] or self._means(shape, may_match, sure=False)
        ):
            return Match.MAYBE
        return Match.MAYBE if self.key is None and may_match(self.text, shape.joined) else Match.NO

    def _whole(self, words: tuple[str, ...]) -> bool:
        line = " ".join(word.translate(_SPACES) for word in words)
        return glob_matches(self.text, line) or glob_matches(self._rest, line)

    def _names(self, word: str, test: _Test) -> bool:
        name = word.rpartition("/")[2]
        if "/" not in self._name:
            return test(self._name, name)
        return test(self._name, word) or (
            "/" not in word and test(self._name.rpartition("/")[2], name)
        )

    def _means(self, shape: Shape, test: _Test, *, sure: bool) -> bool:
        if sure or not shape.open:
            for option in self._options:
                if not _has_option(shape, option):
                    return False
        wanted = list(self._operands)
        for word, after_option in shape.operands:
            if not wanted:
                break
            if test(wanted[0], word) or (word[:1] == "/" and test(wanted[0], _tidy(word))):
                wanted.pop(0)
            elif len(wanted) == len(self._operands) and self._anchored and not after_option:
                return False
        return not wanted


def _has_option(shape: Shape, wanted: str) -> bool:
    if any(glob_matches(wanted, word) for word in shape.options):
        return True
    if "*" in wanted:
        return False
    if wanted.startswith("--"):
        given = (word.partition("=")[0] for word in shape.options if word.startswith("--"))
        if any(len(word) > 2 and wanted.startswith(word) for word in given):
            return True
        return any(letter in shape.letters for letter in _LETTERS_OF.get(wanted[2:], ""))
    if shape.name in _WORD_OPTIONS or len(wanted) > 5:
        return False
    letters = set(wanted[1:])
    if shape.name == "rm" and "R" in letters:
        letters = letters - {"R"} | {"r"}
    return letters <= shape.letters


def _tidy(word: str) -> str:
    """An absolute path without ``//``, ``.`` and ``..``."""
    return posixpath.normpath("/" + word.lstrip("/"))
