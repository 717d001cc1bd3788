"""How does a test get a nats-server of its own?

Debian's binary on a free loopback port, ready when it says so: nothing here sleeps or polls.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.support import missing

_LISTENING = re.compile(r"Listening for client connections on 127\.0\.0\.1:(\d+)")


class NatsServer:
    """One server; ``start`` after ``stop`` gives it the same port."""

    def __init__(self, options: Sequence[str]) -> None:
        self._options = options
        self._process: subprocess.Popen[str] | None = None
        self.port = -1

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._process = process = subprocess.Popen(
            [binary(), "--addr", "127.0.0.1", "--port", str(self.port), *self._options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if found := _LISTENING.search(line):
                self.port = int(found[1])
            if "Server is ready" in line:
                return
        raise AssertionError("nats-server did not start: " + "".join(said))

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        process.communicate(timeout=30)

    def pause(self, how: signal.Signals = signal.SIGSTOP) -> None:
        """The server stands still (SIGSTOP) or goes on (SIGCONT)."""
        assert self._process is not None
        self._process.send_signal(how)


@contextmanager
def nats_server(*options: str) -> Iterator[NatsServer]:
    """A running server; skips, with the reason, where there is none to start."""
    server = NatsServer(options)
    server.start()
    try:
        yield server
    finally:
        server.pause(signal.SIGCONT) if server._process is not None else None
        server.stop()


def binary() -> str:
    """The path of the server; skips, with the reason, where there is none."""
    found = shutil.which("nats-server", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if found is None:
        missing("nats", "no nats-server here; on Debian: apt-get install nats-server")
        raise AssertionError
    return found
