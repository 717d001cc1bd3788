"""An engine of a test's own, which it may kill: Docker's daemon with a containerd below it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from executor.backends.docker_engine import Engine
from executor.errors import Unavailable
from tests.crash.traces import await_exit, eventually
from tests.support import missing

START_SECONDS = 60.0
_OPTIONS = ("--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false")


class PrivateEngine:
    """``directory`` holds all that it has; its path is short, for sockets lie in it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"unix://{directory}/engine.sock"

    def start(self) -> None:
        """Start it (again), and wait until it answers."""
        daemon = shutil.which("dockerd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
        if daemon is None or os.geteuid() != 0:
            missing("docker", "a private engine needs dockerd, and root")
            raise AssertionError
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                # In a network of its own: without a bridge it would remove that of the machine's.
                [
                    "unshare",
                    "--net",
                    daemon,
                    *_OPTIONS,
                    f"--data-root={self._directory}/root",
                    f"--exec-root={self._directory}/exec",
                    f"--pidfile={self._directory}/pid",
                    f"--host={self.url}",
                ],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        if not eventually(self.answers, START_SECONDS):
            self.kill()
            pytest.fail(f"it does not start: {(self._directory / 'log').read_text()[-2000:]}")

    def answers(self) -> bool:
        """Whether somebody is there."""
        engine = Engine(self.url)
        try:
            engine.facts()
        except Unavailable:
            return False
        finally:
            engine.close()
        return True

    def kill(self) -> None:
        """SIGKILL to the daemon; its containerd is told by the kernel, and goes too."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
        # Whoever reads these must not take a dead process that nobody has waited for as living.
        for name in ("pid", "exec/containerd/containerd.pid"):
            with contextlib.suppress(FileNotFoundError, ValueError):
                await_exit(int((self._directory / name).read_text()), time.monotonic() + 10)
                (self._directory / name).unlink()

    def remove(self) -> None:
        """End what is left of it, its containers' shims among that, and its files."""
        self.kill()
        deadline = time.monotonic() + START_SECONDS
        while (found := list(self.processes())) and time.monotonic() < deadline:
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await_exit(found[0], deadline)
        for place in sorted(self._mounts(), reverse=True):
            subprocess.run(["umount", "--lazy", place], check=False)
        shutil.rmtree(self._directory, ignore_errors=True)

    def processes(self) -> Iterator[int]:
        """Those that name the engine's directory: the daemons, and a shim for each container."""
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if any(f"{self._directory}/exec".encode() in word for word in words):
                    yield int(entry.name)

    def _mounts(self) -> Iterator[str]:
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            place = line.split(" ")[4]
            if place.startswith(f"{self._directory}/"):
                yield place
