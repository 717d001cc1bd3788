"""Which words make a shell run text that its commands do not show?

Builtins that give a name another meaning, variables whose value a shell runs, subscripts that are
evaluated though they were quoted. None of it is followed: what is found here is not readable.
Words come without their quotes, so a ``$(`` or a backtick that is still there was quoted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from executor.permission.shell.literals import MANY, ONE

_LITERAL = re.compile(rf"`|\$[({MANY}{ONE}]|\$\{{[\s|]|@P\}}")
"""A quoted expansion, or one that a hole may complete; also ``${ …; }`` and ``${…@P}``."""
_RUN = re.compile(
    r"(?:PS[0-4]|PROMPT_COMMAND|BASH_ENV|BASH_ALIASES|BASH_CMDS|BASH_FUNC_[^=]*)(?:$|[+=\[])"
    r"|ENV(?:$|\+?=(?![\w-]*$))"
)
"""Variables that a shell runs; ``ENV=production`` is everybody's name for something else."""
_RENAMING = frozenset({"alias", "enable", "bind", "complete", "compgen", "compopt", "fc"})
_RENAMING |= {"start-stop-daemon", "run-parts"}
"""With any word, what runs, or what later commands mean, is not known."""
_EVALUATING = frozenset(
    {"test", "[", "[[", "printf", "let", "read", "declare", "typeset", "local", "export", "set"}
    | {"readonly", "unset", "mapfile", "readarray", "getopts", "wait", "integer", "float", "for"}
    | {"select", "case"}
)
_OPTION = {"hash": "p", "mapfile": "C", "readarray": "C"}
_NO_FILE = re.compile(r"(?:^|/)(?:dev|proc)/|(?:^|/)fd/|(?:^|/)(?:stdin|\d+)$|^-$")

SUSPECTS = _RENAMING | _EVALUATING | frozenset(_OPTION)


def suspect(words: Sequence[str], here: Sequence[str] = ()) -> str | None:
    """Why this command hides what runs, or None."""
    name, arguments = words[0].rpartition("/")[2], words[1:]
    if _LITERAL.search(words[0]):
        return "the name of a command holds a quoted expansion"
    if name in _RENAMING and arguments:
        return f"{name} hides what runs"
    if (letter := _OPTION.get(name)) and any(_may_be(letter, word) for word in arguments):
        return f"{name} -{letter} may run anything"
    if name not in _EVALUATING:
        return None
    if name not in ("unset", "test", "[", "[[", "case") and any(map(_RUN.match, arguments)):
        return f"{name} sets a variable that a shell runs"
    if name == "printf" and not any(_may_be("v", word) or "[" in word for word in arguments):
        return None
    if any(map(_LITERAL.search, (*arguments, *here))):
        return f"{name} may evaluate a quoted expansion"
    return None


def suspect_assignment(word: str) -> str | None:
    """The same for ``NAME=value``."""
    if _RUN.match(word):
        return "it sets a variable that a shell runs"
    if _LITERAL.search(word):
        return "a variable holds a quoted expansion"
    return None


def no_script(path: str) -> bool:
    """Whether the path of a script may be no file, but what the shell was fed."""
    return (
        MANY in path or ONE in path or _NO_FILE.search(re.sub(r"/(?:\.?/)*", "/", path)) is not None
    )


def _may_be(letter: str, word: str) -> bool:
    return word.startswith((MANY, ONE)) or (word.startswith("-") and letter in word)
