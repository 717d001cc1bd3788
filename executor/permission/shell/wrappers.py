"""Which commands do nothing but run another one?

A closed table of the usual wrappers and how each one's own options end, so that ``sudo -u bob
rm -rf /`` is seen as ``rm -rf /`` too. A wrapper that is missing here hides its inner command from
deny rules: add it. ``ANY`` lists those whose options are too many to follow: for them every later
word is taken as the possible start of a command, and no allow rule vouches.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from executor.permission.shell.literals import MANY, ONE

ASSIGNMENT = re.compile(r"[^-=][^=]*=")
"""As env and sudo take it, which ask for no proper name."""


@dataclass(frozen=True, slots=True)
class Wrapper:
    """``valued``: short options that take a value; ``long``: long ones that take the next word.

    ``operands`` come before the command. ``transparent``: the wrapper changes nothing that an
    allow rule on the inner command would not have meant.
    """

    valued: str = ""
    flags: str = ""
    long: tuple[str, ...] = ()
    long_flags: tuple[str, ...] = ()
    operands: int = 0
    assignments: bool = False
    transparent: bool = False


WRAPPERS: Mapping[str, Wrapper] = {
    "command": Wrapper(flags="pvV", transparent=True),
    "builtin": Wrapper(transparent=True),
    "exec": Wrapper(valued="a", flags="cl", transparent=True),
    "nohup": Wrapper(transparent=True),
    "setsid": Wrapper(flags="cfw", transparent=True),
    "time": Wrapper(valued="of", flags="apqv", assignments=True, transparent=True),
    "nice": Wrapper(valued="n", flags="0123456789", long=("adjustment",), transparent=True),
    "ionice": Wrapper(valued="cn", flags="t", long=("class", "classdata"), transparent=True),
    "stdbuf": Wrapper(valued="ioe", long=("input", "output", "error"), transparent=True),
    "timeout": Wrapper(
        valued="ks",
        flags="v",
        long=("kill-after", "signal"),
        long_flags=("foreground", "preserve-status", "verbose"),
        operands=1,
        transparent=True,
    ),
    "env": Wrapper(
        valued="uC",
        flags="i0v",
        long=("unset", "chdir"),
        long_flags=("ignore-environment", "null", "debug"),
        assignments=True,
        transparent=True,
    ),
    "sudo": Wrapper(
        valued="ughpCcrtTUDRa",
        flags="ABEeHiKklnPSsv",
        long=("user", "group", "host", "prompt", "chdir", "chroot", "role", "type"),
        long_flags=("preserve-env", "non-interactive", "login", "shell", "set-home", "stdin"),
        assignments=True,
    ),
    "doas": Wrapper(valued="uC", flags="Lns"),
    "xargs": Wrapper(
        valued="adEILnPs",
        flags="0eiloprtx",
        long=("arg-file", "delimiter", "max-lines", "max-args", "max-procs", "max-chars"),
        long_flags=("null", "no-run-if-empty", "interactive", "verbose", "exit", "replace", "eof"),
    ),
    "busybox": Wrapper(transparent=True),
    "toybox": Wrapper(transparent=True),
    "noglob": Wrapper(transparent=True),
    "nocorrect": Wrapper(transparent=True),
}

FOREIGN = frozenset({"csh", "tcsh", "fish", "elvish", "nu", "xonsh", "pwsh"})
"""Shells with another grammar."""
SHELLS = FOREIGN | {"sh", "bash", "dash", "zsh", "ksh", "ash", "mksh", "rbash", "ksh93", "posh"}
SHELLS |= {"lksh", "yash", "pdksh", "oksh", "rksh", "rzsh", "hush"}
_SHELL_OPTIONS = re.compile(r"[-+](?:[aefhilmnpsuvxBCEHPT]*c?[aefhilmnpsuvxBCEHPT]*[oO]?)")
"""Bundles that all of them read alike; an ``o`` at the end takes the next word."""
_SHELL_LONG = frozenset({"--login", "--norc", "--noprofile", "--posix", "--verbose", "--noediting"})
LOADER = re.compile(r"ld[\w.-]*\.so[\w.-]*", re.ASCII)
"""The dynamic linker runs the program that it is given."""

ANY = frozenset(
    {
        *("su", "runuser", "pkexec", "gosu", "su-exec", "watch", "flock", "parallel", "script"),
        *("chroot", "unshare", "nsenter", "setpriv", "capsh", "taskset", "chrt", "numactl"),
        *("strace", "ltrace", "gdb", "valgrind", "perf", "ssh", "systemd-run", "xvfb-run"),
        *("fakeroot", "firejail", "bwrap", "proot", "fd", "fdfind", "entr", "start-stop-daemon"),
        *("dbus-run-session", "caffeinate", "torsocks", "proxychains", "unbuffer", "expect"),
        *("sg", "newgrp", "at", "batch", "eatmydata", "chronic", "choom", "uclampset", "rlwrap"),
        *("systemd-inhibit", "cpulimit", "tmux", "screen", "run-parts", "dbus-launch"),
        *("setarch", "linux32", "linux64", "i386", "x86_64", "prlimit", "cgexec", "faketime"),
    }
)


FED = frozenset(
    {"su", "runuser", "ssh", "sg", "newgrp", "at", "batch", "chroot", "unshare", "nsenter"}
    | {
        "script",
        "parallel",
        "screen",
        "tmux",
        "firejail",
        "bwrap",
        "proot",
        "fakeroot",
        "run-parts",
    }
)
"""Those of ``ANY`` that run what they are fed where no command is named."""


def after_options(wrapper: Wrapper, words: tuple[str, ...]) -> int | None:
    """Where the inner command begins in ``words``; None where an option is not known."""
    at = 1
    while at < len(words):
        word = words[at]
        if MANY in word or word.startswith(ONE):
            return None
        if word == "--":
            at += 1
            break
        if word.startswith("--"):
            name, equals, _ = word[2:].partition("=")
            if name in wrapper.long:
                at += 1 if equals else 2
            elif name in wrapper.long_flags:
                at += 1
            else:
                return None
        elif word.startswith("-") and len(word) > 1:
            taken = _short_options(wrapper, word[1:])
            if taken is None:
                return None
            at += taken
        elif wrapper.assignments and ASSIGNMENT.match(word):
            at += 1
        else:
            break
    return at + wrapper.operands


def shell_options(words: tuple[str, ...]) -> tuple[str, int] | None:
    """A shell's short options, and where its operands begin; None where one is not known."""
    letters, at = "", 1
    while at < len(words) and words[at][:1] in ("-", "+"):
        word = words[at]
        at += 1
        if word in ("-", "--"):
            break
        if word in _SHELL_LONG:
            continue
        if not _SHELL_OPTIONS.fullmatch(word) or (word[0] == "+" and set("cs") & set(word)):
            return None
        if word[-1] in "oO":
            if not words[at : at + 1] or not words[at][:1].isalpha():
                return None
            at += 1
        letters += word[1:]
    return letters, at


def _short_options(wrapper: Wrapper, letters: str) -> int | None:
    """How many words a bundle of short options takes; None where a letter is not known."""
    for place, letter in enumerate(letters):
        if letter in wrapper.valued:
            return 1 if place + 1 < len(letters) else 2
        if letter not in wrapper.flags:
            return None
        if letter in "eil" and "I" in wrapper.valued:  # xargs: optional, attached values
            return 1
    return 1
