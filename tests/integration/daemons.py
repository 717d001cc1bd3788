"""How do tests start a daemon of their own?"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support import Workspace

SECONDS = 90
CLI = [sys.executable, "-c", "from executor.cli import main; main()"]


@dataclass
class Running:
    """One daemon; ``lines`` is what it has said so far on stderr."""

    process: subprocess.Popen[str]
    workspace: Workspace
    url: str = ""
    lines: list[str] = field(default_factory=list)

    def until(self, pattern: str) -> re.Match[str]:
        """Read its stderr up to a line that matches."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"it ended without {pattern}: {''.join(self.lines)}")

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.end()

    def end(self) -> int:
        _, rest = self.process.communicate(timeout=SECONDS)
        self.lines.append(rest)
        return self.process.returncode


@contextmanager
def daemon(
    workspace: Workspace,
    *options: str,
    environment: dict[str, str] | None = None,
    descriptor: int | None = None,
) -> Iterator[Running]:
    """A daemon that is ready. ``descriptor`` is handed over as a service manager does it."""
    words = [*CLI, "serve", "--workspace", str(workspace.path), "--sandbox", "namespace", *options]
    if descriptor is not None:
        # LISTEN_PID must be the daemon's own: a shell that becomes it knows.
        become = f'exec 3<&{descriptor}; exec env LISTEN_PID=$$ LISTEN_FDS=1 "$@"'
        words = ["bash", "-c", become, "bash", *words]
    process = subprocess.Popen(
        words,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
        pass_fds=() if descriptor is None else (descriptor,),
    )
    running = Running(process, workspace)
    try:
        ready = running.until(r"ready: (.*)")
        found = re.search(r"http://\S+?(?=,|$)", ready[1])
        running.url = found[0] if found else ""
        yield running
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def cli(workspace: Workspace, *words: str, code: int = 0) -> Any:
    """One command's JSON (or text); its exit code is as expected."""
    done = subprocess.run(
        [*CLI, "--workspace", str(workspace.path), *words],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    try:
        return json.loads(done.stdout)
    except ValueError:
        return done.stdout
