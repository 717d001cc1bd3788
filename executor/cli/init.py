"""``hook-executor init``: what does a new workspace start with?

Every file is made through a descriptor of its directory, with O_EXCL: nothing is overwritten, no
link is followed (root may be asked to start a workspace in somebody else's directory), and the
modes are what stands here, whatever the umask.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from executor.cli.options import HERE, Where
from executor.errors import Refused

_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_SETTINGS = """\
# What the operator decides. Every key may be left out; a line that is commented out shows the
# default. `hook-executor check` validates this file and hooks.json, and explains each hook.

[sandbox]
# uid = ""                          # id or name for hooks when root runs the executor

[limits]
# max_concurrency = 8               # runs at once
# max_queue = 1024                  # waiting runs; more are dropped, counted
# max_timeout_ms = 300000           # no action may ask for more
# max_payload_bytes = 16777216

[gate]
strategy = "block-wins"             # all gate hooks run and a block anywhere wins; or "first"

[policies]
# requestable = []                  # the policies that an action may ask for by "policy"

[state]
# dir = ""                          # default: below XDG_STATE_HOME; never inside the workspace

# Which policy applies to which hooks: the first match wins; no match means "default".
# `hook-executor policy list` names the policies; policies/*.toml adds your own.
#
# [[bind]]
# events = ["tool_call"]            # names or topic patterns; all if left out
# commands = ["/opt/hooks/*"]       # globs; all if left out
# policy = "audit"
"""

_HOOKS = """\
{
  "hooks": {
    "tool_call": [
      {
        "command": "hooks/on_tool_call.sh",
        "timeout_ms": 5000,
        "stdin_json": true
      }
    ]
  }
}
"""

_SCRIPT = """\
#!/bin/sh
# Runs for each tool_call, in a sandbox of its own: no network, nothing writable but /tmp, and the
# workspace read-only. The event comes three ways: on stdin (stdin_json), in the file
# $ZERO_HOOK_PAYLOAD_FILE, and, up to 8192 bytes, in $ZERO_HOOK_PAYLOAD.
read -r event
printf '%s in session %s: %s\\n' "$ZERO_HOOK_EVENT" "$ZERO_HOOK_SESSION" "$event"
"""


@dataclass(frozen=True, slots=True)
class _File:
    """One file to write. ``shared``: the workspace's owner may edit it, also where root runs us."""

    directory: str
    name: str
    text: str
    mode: int
    shared: bool

    @property
    def path(self) -> str:
        return f"{self.directory}/{self.name}" if self.directory else self.name


_FILES = (
    _File("", "config.toml", _SETTINGS, 0o644, shared=False),
    _File("hooks", "on_tool_call.sh", _SCRIPT, 0o755, shared=True),
    _File("", "hooks.json", _HOOKS, 0o644, shared=True),
)
_DIRECTORIES = tuple(dict.fromkeys(file.directory for file in _FILES if file.directory))


def init(*, where: Where = HERE) -> int:
    """Write config.toml, hooks.json and hooks/on_tool_call.sh; overwrites nothing."""
    from executor.cli.output import say, talk

    made = start_workspace(where.workspace)
    for path in made:
        say(path)
    talk("written. Look at it with: hook-executor check")
    talk(
        """try it with: hook-executor emit tool_call --payload """
        """'{"tool":"bash","success":true,"output":"ok"}'"""
    )
    return 0


def start_workspace(directory: str) -> list[str]:
    """Write the files, and the directory itself where there is none; the paths that were made.

    Raises Refused, having changed nothing, where one of the files is there already.
    """
    if not os.path.lexists(directory):
        os.makedirs(directory)
        os.chmod(directory, 0o755)  # noqa: S103  (hooks of another id must see it)
    with _opened(directory) as root:
        owner = os.fstat(root)
        there = [file.path for file in _FILES if _exists(root, file.path)]
        there += [name for name in _DIRECTORIES if _exists(root, name, but_directory=True)]
        if there:
            raise Refused(
                f"{', '.join(there)} already there in {directory}; nothing was changed. "
                "Name another directory with --workspace, or move it away"
            )
        return [str(Path(directory, file.path)) for file in _FILES if _write(root, file, owner)]


def _write(root: int, file: _File, owner: os.stat_result) -> bool:
    with _place(root, file, owner) as directory:
        descriptor = os.open(file.name, _CREATE_FLAGS, 0o600, dir_fd=directory)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(file.text)
            _settle(stream.fileno(), file.mode, owner, shared=file.shared)
    return True


@contextmanager
def _place(root: int, file: _File, owner: os.stat_result) -> Iterator[int]:
    """The directory that the file goes to, made where it is missing."""
    if not file.directory:
        yield root
        return
    fresh = not _exists(root, file.directory)
    if fresh:
        os.mkdir(file.directory, 0o700, dir_fd=root)
    descriptor = os.open(file.directory, _DIRECTORY_FLAGS, dir_fd=root)
    try:
        if fresh:
            _settle(descriptor, 0o755, owner, shared=file.shared)
        yield descriptor
    finally:
        os.close(descriptor)


def _settle(descriptor: int, mode: int, owner: os.stat_result, *, shared: bool) -> None:
    if shared and os.geteuid() == 0:
        os.fchown(descriptor, owner.st_uid, owner.st_gid)
    os.fchmod(descriptor, mode)


@contextmanager
def _opened(directory: str) -> Iterator[int]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _exists(root: int, path: str, *, but_directory: bool = False) -> bool:
    """Whether anything is there; ``but_directory``: anything else than a directory."""
    try:
        mode = os.stat(path, dir_fd=root, follow_symlinks=False).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    return not (but_directory and stat.S_ISDIR(mode))
