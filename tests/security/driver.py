"""How is a list of attempts made, one after the other, and what did each one see?

A hook's own program: copied into a workspace and run inside a sandbox, and run outside for the
positive controls. Standard library only. ``driver.py PROBES.json PLACES.json`` prints one JSON
object, probe → what it printed, and how it ended.

Each attempt is Python, in a process of its own that is killed after a while. It may use ``at``
(the places that it aims at), ``tried`` (a call's result, or the name of its errno), ``shell`` and
``syscall``. An OSError that leaves it is printed as the name of its errno.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import Any

SECONDS = 8
KEPT_BYTES = 1500

_libc = ctypes.CDLL(None, use_errno=True)


def tried(call: Callable[..., Any], *arguments: Any, **more: Any) -> str:
    """What a call gave, as text, or the name of its errno."""
    try:
        return f"{call(*arguments, **more)!r}"
    except OSError as error:
        return named(error)


def named(error: OSError) -> str:
    """ENOENT, and the like; resolver errors by their own name."""
    if isinstance(error, TimeoutError) and error.errno is None:
        return "TIMEOUT"
    return errno.errorcode.get(error.errno or 0, type(error).__name__)


def syscall(number: int, *arguments: int | bytes | None) -> str:
    """A bare system call: its result, or the name of its errno."""
    words = [
        ctypes.c_char_p(word) if isinstance(word, bytes) else ctypes.c_ulong(word or 0)
        for word in arguments
    ]
    ctypes.set_errno(0)
    result = _libc.syscall(ctypes.c_long(number), *words)
    if result == -1:
        code = ctypes.get_errno()
        return errno.errorcode.get(code, str(code))
    return str(result)


def shell(line: str, seconds: float = 5) -> str:
    """A line of bash: its output, and its exit code."""
    try:
        ended = subprocess.run(
            ["bash", "-c", line],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "TIMEOUT"
    except OSError as error:
        return named(error)
    return f"{ended.stdout.decode('utf-8', 'replace')}[{ended.returncode}]"


def attempt(code: str, at: dict[str, Any]) -> dict[str, Any]:
    """Make one attempt in a child."""
    with tempfile.TemporaryFile() as said:
        child = os.fork()
        if child == 0:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            _make(code, at)
        status = _ended(child)
        said.seek(0)
        text = said.read(KEPT_BYTES).decode("utf-8", "replace").strip()
    return {
        "said": text,
        "exit": os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
        "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
    }


def _make(code: str, at: dict[str, Any]) -> None:
    result = 1
    try:
        os.setpgid(0, 0)
        signal.alarm(SECONDS)
        names = {"at": at, "tried": tried, "shell": shell, "syscall": syscall, "os": os}
        exec(compile(code, "<attempt>", "exec"), names)
        result = 0
    except OSError as error:
        sys.stdout.write(named(error))
        result = 0
    except BaseException:  # noqa: BLE001  (whatever it is, it is told)
        traceback.print_exc()
    sys.stdout.flush()
    os._exit(result)


def _ended(child: int) -> int:
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(OSError):
        os.killpg(child, signal.SIGKILL)
    return status


def main(probes: str, places: str) -> None:
    """Make all attempts, tell of all."""
    with open(probes, encoding="utf-8") as file:
        attempts: dict[str, str] = json.load(file)
    with open(places, encoding="utf-8") as file:
        at: dict[str, Any] = json.load(file)
    json.dump({name: attempt(code, at) for name, code in attempts.items()}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
