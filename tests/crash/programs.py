"""How does a test run the command line in surroundings that nobody would choose?"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support import TOOL_CALL, Workspace

PROGRAM = (sys.executable, "-c", "from executor.cli import main; main()")
PAYLOAD = json.dumps(TOOL_CALL)
SECONDS = 90
"""No program of a test takes longer, whatever it meets."""


def emit(workspace: Workspace, sandbox: str, event: str = "tool_call") -> list[str]:
    """The words of ``hook-executor emit`` for this workspace."""
    payload = ["--payload", PAYLOAD] if event == "tool_call" else []
    where = ["--workspace", str(workspace.path), "--sandbox", sandbox]
    return [*PROGRAM, "emit", event, *payload, *where, "--json", "--strict"]


def after(preparation: str, words: Sequence[str]) -> list[str]:
    """The same program, its process prepared by this Python before the exec."""
    code = (
        "import os, resource, signal, sys\n"
        f"{preparation}\n"
        # what Python ignores by itself is not the test's doing
        "signal.signal(signal.SIGPIPE, signal.SIG_DFL)\n"
        "os.execv(sys.argv[1], sys.argv[1:])\n"
    )
    return [sys.executable, "-c", code, *words]


def ended(words: Sequence[str], workspace: Path) -> subprocess.CompletedProcess[str]:
    """Run it to its end, which must come."""
    return subprocess.run(
        words, cwd=workspace, capture_output=True, text=True, check=False, timeout=SECONDS
    )


def await_up(fifo: Path) -> None:
    """Until a hook has written "up" into the FIFO and closed it, which must come."""
    descriptor = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    said: list[bytes] = []
    try:
        # To its end: the next reader would take a writer that has yet to close for its own.
        while said[-1:] != [b""]:
            assert select.select([descriptor], [], [], SECONDS)[0], "the hook has not begun"
            said.append(os.read(descriptor, 100))
        assert said == [b"up\n", b""]
    finally:
        os.close(descriptor)
