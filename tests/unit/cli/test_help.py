"""Does every command explain each of its options, and can a program read what it prints?"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cyclopts import App

from executor.cli import build_app

WRITES = {
    *("init", "run", "serve"),
    *("hooks remove", "runs cancel", "token revoke"),
}
"""The commands that only do something, or hand on what a hook says; all others can print JSON."""


def commands(app: App, prefix: str = "") -> Iterator[tuple[str, App]]:
    for name in app:
        if name.startswith("-"):
            continue
        one, words = app[name], f"{prefix} {name}".strip()
        if list(one) and one.default_command is None:
            yield from commands(one, words)
        else:
            yield words, one


COMMANDS = dict(commands(build_app()))


@pytest.mark.parametrize("words", COMMANDS)
def test_every_argument_and_option_has_a_help_text(words: str) -> None:
    for argument in COMMANDS[words].assemble_argument_collection():
        if argument.names != ("*",):  # the group of global options, whose members have their own
            assert argument.parameter.help, argument.names


@pytest.mark.parametrize("words", COMMANDS)
def test_no_option_was_made_up_by_the_parser(words: str) -> None:
    for argument in COMMANDS[words].assemble_argument_collection():
        assert not [name for name in argument.names if name.startswith(("--empty-", "--no-"))]


def test_everything_that_reads_prints_json() -> None:
    lacking = {
        words
        for words, command in COMMANDS.items()
        if not any("--json" in one.names for one in command.assemble_argument_collection())
    }
    assert lacking == WRITES
