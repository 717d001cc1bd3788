#!/usr/bin/env python3
"""Does a container engine answer here, and if none does, may this user start one?

    scripts/engine.py               say which engine answers; exit 1 if none does
    scripts/engine.py --start       and start Docker's if none does (root only); always exit 0

An engine that answers is never touched. One that is started here goes on running, in a session of
its own, after the command that needed it. Standard library only.
"""

from __future__ import annotations

import argparse
import http.client
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

LOG = Path("/var/log/hook-executor-dockerd.log")
PID_FILE = Path("/var/run/docker.pid")
DEFAULT_SOCKET = "/var/run/docker.sock"
START_SECONDS = 40.0
# Where the kernel or a container around us gives no bridge: hooks have no network anyway.
BARE = ("--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false")


class Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=5)
        self._path = path

    def connect(self) -> None:
        """Called by the base class."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def sockets() -> list[str]:
    """Where an engine may listen, most wanted first; ``DOCKER_HOST`` excludes the others."""
    chosen = os.environ.get("DOCKER_HOST", "")
    if chosen:
        return [chosen.removeprefix("unix://")] if chosen.startswith("unix://") else []
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}"
    return [
        DEFAULT_SOCKET,
        f"{runtime}/docker.sock",
        f"{runtime}/podman/podman.sock",
        "/run/podman/podman.sock",
    ]


def answering() -> str | None:
    """The first socket on which an engine answers."""
    return next((path for path in sockets() if ping(path) == ""), None)


def ping(path: str) -> str:
    """Empty if an engine answers there, else why not."""
    connection = Connection(path)
    try:
        connection.request("GET", "/_ping")
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException) as error:
        return getattr(error, "strerror", None) or str(error) or type(error).__name__
    finally:
        connection.close()
    return "" if answer.status == http.client.OK else f"HTTP status {answer.status}"


def start() -> str:
    """Start Docker's engine and wait for it; empty if it answers, else why not."""
    daemon = shutil.which("dockerd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if daemon is None:
        return "dockerd is not installed"
    if is_starting():
        return wait(None)
    if Path("/run/systemd/system").is_dir():
        print("no container engine answers: systemctl start docker")
        command = ["systemctl", "start", "docker"]
        subprocess.run(command, stdin=subprocess.DEVNULL, check=False)
        return wait(None)
    reason = ""
    for options in ((), BARE):
        print(f"no container engine answers: starting {' '.join((daemon, *options))}, log in {LOG}")
        reason = wait(launch([daemon, *options]))
        if reason == "":
            break
    return reason


def launch(command: list[str]) -> subprocess.Popen[bytes]:
    """The daemon in a session of its own, so that no hang-up or Ctrl-C of ours reaches it."""
    with LOG.open("ab") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
            umask=0o022,
        )


def is_starting() -> bool:
    """Whether a daemon lives that does not answer yet."""
    try:
        process = int(PID_FILE.read_text(encoding="ascii"))
        return Path(f"/proc/{process}/comm").read_text(encoding="utf-8").strip() == "dockerd"
    except (OSError, ValueError):
        return False


def wait(process: subprocess.Popen[bytes] | None) -> str:
    """Until the engine answers, the process ends or time is up; empty if it answers."""
    deadline = time.monotonic() + START_SECONDS
    reason = "it did not start"
    while time.monotonic() < deadline:
        reason = ping(DEFAULT_SOCKET)
        if reason == "":
            break
        if process is not None and process.poll() is not None:
            return f"dockerd ended with status {process.returncode}, see {LOG}"
        time.sleep(0.2)
    return reason


def main(arguments: list[str]) -> int:
    """Say, and perhaps start."""
    parser = argparse.ArgumentParser(description="Find, and perhaps start, a container engine.")
    parser.add_argument("--start", action="store_true", help="start one if none answers, as root")
    parser.add_argument("--quiet", action="store_true", help="say nothing")
    options = parser.parse_args(arguments)
    found = answering()
    if found is not None:
        if not options.quiet and not options.start:
            print(f"a container engine answers on {found}")
        return 0
    if not options.start:
        if not options.quiet:
            print("no container engine answers", file=sys.stderr)
        return 1
    if os.environ.get("DOCKER_HOST"):
        reason = "DOCKER_HOST names one that does not answer on a local socket; none is started"
    elif os.geteuid() != 0:
        why = ping(DEFAULT_SOCKET) if Path(DEFAULT_SOCKET).exists() else "none runs"
        reason = f"{why}, and only root can start one"
    else:
        reason = start()
    if reason:
        print(f"left out: the docker backend: {reason}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
