"""Into which simple commands does a shell split this text?

Theory of operation. One pass over the text, as POSIX sh and bash read it: quoting, separators,
substitutions, redirections, here-documents, comments. Nothing is expanded; what only a running
shell could know leaves a hole in its word (``shell_literals``). Commands inside substitutions are
found like all others.

Rules for editors. The gate's deny rules look at what this finds, so it must find *at least* what a
shell would run. Where it cannot follow, it goes on as well as it can and says so in ``unclear``;
where it understood but the text does more than its words say (a file is written, a variable set for
what follows), it says so in ``caveats``. Nothing here raises, and nothing here is slow: at most
``MAX_CHARACTERS``, ``MAX_COMMANDS``, ``MAX_DEPTH``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from executor.permission.shell.literals import MANY, ONE, PRIVATE, expanded, literal
from executor.permission.shell.quotes import ENDS, MAX_DEPTH, Doubts, Word, WordReader
from executor.permission.shell.suspects import suspect, suspect_assignment

MAX_CHARACTERS = 32_768
MAX_COMMANDS = 1_000

_RESERVED = frozenset(
    {"if", "then", "else", "elif", "fi", "do", "done", "while", "until", "!", "{", "}", "esac"}
)
_HEADS = frozenset({"for", "select", "case", "[["})
"""Their words name variables and values; the commands come after a separator."""
_AFTER_TIME = _RESERVED | _HEADS | {"time", "function", "coproc"}
"""What bash does not take as a program's name after ``time``."""
_REDIRECTION = re.compile(
    r"(?:\d+|\{\w+\})?(<<<|<<-?|<>|<&|>&|>>|>\||&>>|&>|<(?!\()|>(?!\())", re.ASCII
)
_BACKGROUND = frozenset({"&>", "&>>"})
"""bash sends both streams there; dash ends a command at the ``&``, so that another begins."""
_REDIRECTING = frozenset("<>&{0123456789")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(\[[^\]]*\])?\+?=", re.ASCII)


@dataclass(slots=True)
class Simple:
    """One simple command: its words without redirections, and what it is fed as here-documents."""

    words: tuple[str, ...] = ()
    here: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Split:
    """What was found, in the order of reading."""

    simple: list[Simple] = field(default_factory=list)
    doubts: Doubts = field(default_factory=Doubts)
    characters: int = 0
    """Read so far, texts inside texts again and again."""

    def add(self, command: Simple) -> None:
        if len(self.simple) < MAX_COMMANDS:
            self.simple.append(command)
        elif len(self.simple) == MAX_COMMANDS:
            self.simple.append(Simple((MANY,)))
            self.doubts.unclear.append(f"it holds more than {MAX_COMMANDS} commands")


def split_shell(text: str, into: Split) -> None:
    """Add the simple commands of a text that came from outside: its holes are not ours."""
    if PRIVATE.search(text):
        into.doubts.unclear.append("it holds control characters")
        text = PRIVATE.sub("?", text)
    split_nested(text, into)


def split_nested(text: str, into: Split) -> None:
    """As ``split_shell``, for a text that stood inside another and may hold our holes."""
    if len(text) > MAX_CHARACTERS:
        into.doubts.unclear.append(f"it is longer than {MAX_CHARACTERS} characters")
        text = text[:MAX_CHARACTERS]
    into.characters += len(text)
    if into.characters > 4 * MAX_CHARACTERS:
        into.doubts.unclear.append("it holds texts inside texts too many times over")
        return
    _Scanner(text, into).commands(closer="")


class _Scanner:
    def __init__(self, text: str, into: Split) -> None:
        self._into = into
        self._doubts = into.doubts
        self._read = WordReader(
            text,
            into.doubts,
            substitution=self._substitution,
            nested=lambda inner: split_nested(inner, into),
        )
        self._documents: list[tuple[str, bool, bool, Simple]] = []

    def commands(self, closer: str) -> None:
        """Everything up to the closing parenthesis, or to the end."""
        self._doubts.depth += 1
        if self._doubts.depth > MAX_DEPTH:
            self._doubts.unclear.append("it is nested too deeply")
            self._read.at = len(self._read.text)
        else:
            self._commands(closer)
        self._doubts.depth -= 1

    def document(self) -> str:
        """The whole text as the body of a here-document: its substitutions run."""
        return self._read.quoted(closer="")

    def _commands(self, closer: str) -> None:
        read = self._read
        words: list[Word] = []
        current = Simple()
        cases = breaks = 0
        while True:
            read.skip_blanks()
            char = read.text[read.at : read.at + 1]
            if char in _REDIRECTING and (found := _REDIRECTION.match(read.text, read.at)):
                breaks = len(words) if found[1] in _BACKGROUND else breaks
                self._redirect(found, current)
                continue
            if char and char != "#" and (char not in ENDS or char in "<>"):
                word = read.word()
                if word.unquoted and word.text in ("case", "esac") and _only_reserved(words):
                    cases += 1 if word.text == "case" else -1
                words.append(word)
                continue
            if char == "(" and words:
                message = "it defines a function or an array, or uses a pattern list"
                self._doubts.caveats.append(message)
            self._finish(words, current)
            if breaks:
                self._finish(words[breaks:], Simple())
            words, current, breaks = [], Simple(), 0
            read.at += 1
            if not char:
                self._end_of_text(closer)
                return
            if char == ")" and closer and cases <= 0:
                return
            self._separate(char)

    def _separate(self, char: str) -> None:
        """What stands between two commands was just read."""
        read = self._read
        match char:
            case "#":
                newline = read.text.find("\n", read.at)
                read.at = len(read.text) if newline < 0 else newline
            case "\n":
                self._read_documents()
            case "(":
                self._open()
            case ")":
                self._doubts.unclear.append("a parenthesis closes nothing, or it holds a case")

    def _open(self) -> None:
        if self._read.text.startswith("(", self._read.at):
            self._read.at += 1
            if self._read.arithmetic():
                return
            self._read.at -= 1
        self.commands(closer=")")

    def _substitution(self) -> None:
        if self._documents:
            self._doubts.unclear.append(
                "a substitution stands between a here-document and its text"
            )
        self.commands(closer=")")

    def _end_of_text(self, closer: str) -> None:
        if closer:
            self._doubts.unclear.append("a parenthesis is never closed")
        if self._documents:
            self._doubts.unclear.append("a here-document never begins")
            self._documents.clear()

    def _finish(self, words: list[Word], current: Simple) -> None:
        rest = _without_reserved(words)
        if rest and rest[0].unquoted and rest[0].text in _HEADS:
            self._doubts.caveats.append(f"it uses {rest[0].text}")
            self._doubt(suspect([word.text for word in rest]))
            return
        if rest and rest[0].unquoted and rest[0].text in ("function", "coproc"):
            self._doubts.unclear.append(f"it uses {rest[0].text}")
            rest = _without_reserved(rest[2 if rest[0].text == "function" else 1 :])
        while rest and (found := _ASSIGNMENT.match(rest[0].text)) and found.end() <= rest[0].bare:
            self._doubts.caveats.append(f"it sets {rest[0].text.partition('=')[0]}")
            self._doubt(suspect_assignment(rest[0].text))
            rest = rest[1:]
        plain = [piece for word in rest for piece in expanded(word.text)]
        if len(plain) != len(rest):
            self._doubts.caveats.append("it expands braces, which not every shell does")
            self._into.add(Simple(tuple(literal(word.text) for word in rest), current.here))
        if plain or current.here:
            current.words = tuple(plain)
            self._into.add(current)

    def _doubt(self, why: str | None) -> None:
        if why is not None:
            self._doubts.unclear.append(why)

    def _redirect(self, found: re.Match[str], current: Simple) -> None:
        operator = found[1]
        self._read.at = found.end()
        self._read.skip_blanks()
        start = self._read.at
        if operator in ("<&", ">&") and self._read.text.startswith("-", start):
            self._read.at += 1  # bash ends the redirection here, whatever follows
            return
        target = self._read.word().text
        if operator.startswith("<<") and found[0] not in (operator, f"0{operator}"):
            self._doubts.unclear.append("a here-document is not for the standard input")
        fed = current.here or any(document[3] is current for document in self._documents)
        if fed and operator in ("<", "<&", "<>"):
            self._doubts.unclear.append("a command has more than one input")
        if operator in ("<<", "<<-"):
            quoted = any(char in "'\"\\" for char in self._read.text[start : self._read.at])
            if not target or PRIVATE.search(target):
                self._doubts.unclear.append("a here-document has no plain end mark")
            self._documents.append((target, quoted, operator == "<<-", current))
        elif operator == "<<<":
            current.here += expanded(target)
        elif not _harmless(operator, target):
            self._doubts.caveats.append("it redirects to or from something other than /dev/null")

    def _read_documents(self) -> None:
        documents, self._documents = self._documents, []
        for end_mark, quoted, strip_tabs, command in documents:
            text = self._body(end_mark, strip_tabs=strip_tabs)
            command.here.append(text if quoted else _Scanner(text, self._into).document())

    def _body(self, end_mark: str, *, strip_tabs: bool) -> str:
        read = self._read
        lines: list[str] = []
        while read.at < len(read.text):
            newline = read.text.find("\n", read.at)
            end = len(read.text) if newline < 0 else newline
            line = read.text[read.at : end]
            read.at = end + 1
            if strip_tabs:
                line = line.lstrip("\t")
            if line == end_mark:
                return "\n".join(lines)
            lines.append(line)
        self._doubts.unclear.append("a here-document is never closed")
        return "\n".join(lines)


def _harmless(operator: str, target: str) -> bool:
    """Whether the redirection writes nothing but /dev/null and reaches no network."""
    if operator in ("<&", ">&") and re.fullmatch(r"\d+-?|-", target):
        return True
    if operator == "<":
        return not target.startswith(("/dev/tcp", "/dev/udp", MANY, ONE))
    return target == "/dev/null"


def _only_reserved(words: list[Word]) -> bool:
    return not _without_reserved(words)


def _without_reserved(words: list[Word]) -> list[Word]:
    start = 0
    while start < len(words) and words[start].unquoted:
        if words[start].text == "time":
            after = start + 1
            while after < len(words) and words[after].text in ("-p", "--"):
                after += 1
            following = words[after] if after < len(words) else None
            if following is None or not following.unquoted or following.text not in _AFTER_TIME:
                break
            start = after
        elif words[start].text in _RESERVED:
            start += 1
        else:
            break
    return words[start:]
