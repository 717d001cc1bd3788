"""How do values reach a terminal or a pipe?

Everything that a hook or a file could have written is escaped here: a control character in it must
not move a cursor, retitle a window or forge a line.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_PIPE_WIDTH = 160
_CELL_LIMIT = 400
_SUSPECT = re.compile("[^\x20-\x7e\n]")


def prepare_streams() -> None:
    """Let no character that the locale cannot say end the program, nor a stream that is closed.

    What is opened later must not get the number of a standard stream, and be written to as one.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def talk(text: str) -> None:
    """One line for the person at the terminal, on stderr."""
    sys.stderr.write(f"hook-executor: {escaped(text)}\n")


def say(text: str = "") -> None:
    """One line of data on stdout."""
    sys.stdout.write(escaped(text) + "\n")


def print_json(value: object) -> None:
    """One JSON document: indented for a person, one line for a program."""
    indent = 2 if sys.stdout.isatty() else None
    text = json_text(value, indent=indent, ascii_only=not _speaks_utf8())
    sys.stdout.write(text + "\n")


def json_text(value: object, *, indent: int | None = None, ascii_only: bool = False) -> str:
    """JSON in which nothing unprintable stands bare (``json`` itself leaves DEL and C1 so)."""
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    return _SUSPECT.sub(lambda found: _json_character(found[0]), text)


def escaped(text: str) -> str:
    """One line, printable: ``printable`` of the log, without its limit on the length."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def terminal_lines(data: bytes) -> str:
    """A hook's output for a terminal: line ends and tabs stay, the rest is escaped."""
    text = data.decode("utf-8", "backslashreplace")
    return "".join(character if character in "\n\t" else escaped(character) for character in text)


def pass_through(data: bytes, *, to_stderr: bool = False) -> None:
    """A hook's output on ours: byte for byte into a pipe or file, harmless on a terminal."""
    stream = sys.stderr if to_stderr else sys.stdout
    if stream.isatty():
        stream.write(terminal_lines(data))
    else:
        stream.flush()
        stream.buffer.write(data)
    stream.flush()


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table on stdout; cells are plain text, escaped line by line."""
    table = _table(headings)
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    console().print(table)


def console() -> Console:
    """A console on stdout that neither highlights nor interprets what it is given."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return Console(width=width, highlight=False, markup=False, emoji=False, soft_wrap=False)


def _table(headings: Sequence[str]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _cell(value: str) -> str:
    cut = value if len(value) <= _CELL_LIMIT else value[:_CELL_LIMIT] + "…"
    return "\n".join(escaped(line) for line in cut.splitlines())


def _json_character(character: str) -> str:
    if character.isprintable():
        return character
    return json.dumps(character)[1:-1] if character != "\x7f" else "\\u007f"


def _speaks_utf8() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
