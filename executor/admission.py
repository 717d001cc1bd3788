"""Which words of an action are refused?

The rules of SPEC 2.1 that need no disk: ``command``, ``args``, ``env`` and ``cwd`` as text. Each
``*_faults`` function is total and returns every objection, best read after the field's name
("command holds a NUL byte"). None repeats a value.

Rules for editors: the check on ``command`` is a lint that keeps honest mistakes from becoming shell
lines; the sandbox is the wall. ``args`` may hold anything but NUL. The reserved variables are a
rule: nobody but the executor sets them, so they are stripped whatever else is decided.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

SAFE_PATH = "/usr/local/bin:/usr/bin:/bin"
"""The hook's PATH, and where a bare command name is looked up, inside the sandbox."""

METACHARACTERS = ";|&$`<>(){}[]*?!'\"\\"
MAX_PATH_BYTES = 4095
"""PATH_MAX of path_resolution(7), without its NUL."""
MAX_STRING_BYTES = 128 * 1024 - 1
"""MAX_ARG_STRLEN of execve(2), without its NUL: one argument, or one NAME=value."""

PROTECTED_NAMES = ("hooks.json", "config.toml", "policies", "plugins", ".git")
"""What decides what runs, in the workspace (SPEC section 3, Writing): never writable by a hook."""

KERNEL_DIRECTORIES = ("/proc", "/sys", "/dev")

RESERVED_NAMES = frozenset(
    {
        "PATH",
        "HOME",
        "BASH_ENV",
        "ENV",
        "IFS",
        "CDPATH",
        "SHELLOPTS",
        "BASHOPTS",
        "PS4",
        "PROMPT_COMMAND",
        "PYTHONPATH",
        "PYTHONHOME",
        "PYTHONSTARTUP",
        "NODE_OPTIONS",
        "NODE_PATH",
        "PERL5OPT",
        "PERL5LIB",
        "RUBYOPT",
        "RUBYLIB",
        "GLIBC_TUNABLES",
    }
)
RESERVED_PREFIXES = ("LD_", "DYLD_", "GIT_", "ZERO_HOOK_", "BASH_FUNC_")

_CONTROL = re.compile("[\x01-\x1f\x7f-\x9f]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def command_faults(command: str) -> list[str]:
    """Objections to ``command``: bare name, absolute path, or one relative to the workspace."""
    faults = _path_text_faults(command)
    found = "".join(sorted({character for character in command if character in METACHARACTERS}))
    if found:
        advice = "put the line into a script and name the script"
        faults.append(f"holds shell metacharacters ({' '.join(found)}): {advice}")
    if command.startswith("~"):
        faults.append("starts with ~, which nothing expands: write the whole path")
    if command.endswith("/") or command.rpartition("/")[2] in (".", ".."):
        faults.append("names a directory")
    if leaves(command):
        faults.append("leaves the workspace by ..")
    if _below_any(command, KERNEL_DIRECTORIES):
        faults.append("is no file that can be pinned: /proc, /sys and /dev are refused")
    return faults


def argument_faults(argument: str) -> list[str]:
    """Objections to one argument. Any text is fine that execve(2) can carry."""
    return _carried_faults(argument)


def variable_faults(name: str, value: str) -> list[str]:
    """Objections to one environment variable of an action."""
    return name_faults(name) + value_faults(value, taken=len(name) + 1)


def name_faults(name: str) -> list[str]:
    """Objections to a variable's name."""
    if "\0" in name:
        return ["has a NUL byte in its name"]
    if not _VARIABLE.fullmatch(name):
        return ["has a name that is not letters, digits and _ with no digit in front"]
    return []


def value_faults(value: str, *, taken: int = 0) -> list[str]:
    """Objections to a variable's value; ``taken`` bytes of its string are used already."""
    return _carried_faults(value, taken=taken)


def environment_faults(env: Mapping[str, str]) -> list[str]:
    """Objections to a whole ``env``, each naming its variable where that is printable."""
    return [
        f"{name if _VARIABLE.fullmatch(name) else 'a variable'} {fault}"
        for name, value in env.items()
        for fault in variable_faults(name, value)
    ]


def stripped_names(env: Iterable[str]) -> tuple[str, ...]:
    """The variables that only the executor may set, in the order given: they are not handed on."""
    return tuple(
        name for name in env if name in RESERVED_NAMES or name.startswith(RESERVED_PREFIXES)
    )


def cwd_faults(cwd: str) -> list[str]:
    """Objections to ``cwd`` as text. What is absolute is checked on the real path, later."""
    faults = _path_text_faults(cwd)
    if cwd.startswith("~"):
        faults.append("starts with ~, which nothing expands: write the whole path")
    if leaves(cwd):
        faults.append("leaves the workspace by ..")
    if _below_any(cwd, KERNEL_DIRECTORIES):
        faults.append("must not be in /proc, /sys or /dev")
    return faults


def leaves(path: str) -> bool:
    """Whether a relative path climbs above its start at any point. Lexical: links are not seen."""
    if path.startswith("/"):
        return False
    depth = 0
    for part in path.split("/"):
        depth += {"": 0, ".": 0, "..": -1}.get(part, 1)
        if depth < 0:
            return True
    return False


def _carried_faults(text: str, *, taken: int = 0) -> list[str]:
    faults = []
    if "\0" in text:
        faults.append("holds a NUL byte")
    if _SURROGATE.search(text):
        faults.append("holds a lone surrogate, which is no character")
    elif len(text.encode("utf-8")) + taken > MAX_STRING_BYTES:
        faults.append(f"is longer than the {MAX_STRING_BYTES} bytes that one string may have")
    return faults


def _path_text_faults(path: str) -> list[str]:
    if not path:
        return ["is empty"]
    faults = []
    if "\0" in path:
        faults.append("holds a NUL byte")
    if _CONTROL.search(path):
        faults.append("holds control characters")
    if _SURROGATE.search(path):
        faults.append("holds a lone surrogate, which is no character")
    elif len(path.encode("utf-8")) > MAX_PATH_BYTES:
        faults.append(f"is longer than the {MAX_PATH_BYTES} bytes that a path may have")
    return faults


def _below_any(path: str, directories: Iterable[str]) -> bool:
    if not path.startswith("/"):
        return False
    plain: list[str] = []
    for part in path.split("/"):
        if part == "..":
            plain = plain[:-1]
        elif part not in ("", "."):
            plain.append(part)
    whole = "/" + "/".join(plain)
    return any(whole == one or whole.startswith(one + "/") for one in directories)
