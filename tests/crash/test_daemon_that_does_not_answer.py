"""An engine that answers late, never, or nonsense: a bounded wait, words, and an exit code.

A fake one listens on a Unix socket; nothing real is behind it.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.crash.programs import emit, ended
from tests.support import Workspace

VERSION = json.dumps({"ApiVersion": "1.41", "Version": "0", "Components": []}).encode()
LATE_SECONDS = 2.0


def answer(body: bytes, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return f"{head}\r\n\r\n".encode() + body


def silent(client: socket.socket, request: bytes, over: threading.Event) -> None:
    over.wait()


def hanging_up(client: socket.socket, request: bytes, over: threading.Event) -> None:
    return


def cut_short(client: socket.socket, request: bytes, over: threading.Event) -> None:
    client.sendall(answer(VERSION)[:60])


def nonsense(client: socket.socket, request: bytes, over: threading.Event) -> None:
    client.sendall(b"\0\xff SSH-2.0-of course\r\n\r\n" * 10)


def no_json(client: socket.socket, request: bytes, over: threading.Event) -> None:
    client.sendall(answer(b"<html>"))


def another_shape(client: socket.socket, request: bytes, over: threading.Event) -> None:
    client.sendall(answer(b"[1, 2, 3]"))


def refusing(client: socket.socket, request: bytes, over: threading.Event) -> None:
    client.sendall(answer(b'{"message":"no"}', "500 Internal Server Error"))


def knows_its_version_only(client: socket.socket, request: bytes, over: threading.Event) -> None:
    if b"/version" in request:
        client.sendall(answer(VERSION))
    else:
        over.wait()


def late_with_its_version(client: socket.socket, request: bytes, over: threading.Event) -> None:
    over.wait(LATE_SECONDS)
    client.sendall(answer(VERSION))


def dripping(client: socket.socket, request: bytes, over: threading.Event) -> None:
    """A byte now and then, so that no time limit on one read ever passes."""
    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
    while not over.wait(0.5):
        client.sendall(b" ")


Behaviour = Callable[[socket.socket, bytes, threading.Event], None]
BEHAVIOURS: tuple[Behaviour, ...] = (
    silent,
    hanging_up,
    cut_short,
    nonsense,
    no_json,
    another_shape,
    refusing,
    late_with_its_version,
)
PATIENT: tuple[Behaviour, ...] = (knows_its_version_only, dripping)
"""These use up the whole time limit of a call, half a minute."""


class FakeDaemon:
    """Serves each connection's first request in one way, until ``close``."""

    def __init__(self, path: Path, behaviour: Behaviour) -> None:
        self._behaviour, self._over = behaviour, threading.Event()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(50)
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        self._over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._serve, args=(client,)))
            self._threads[-1].start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            while request := client.recv(65536):
                self._behaviour(client, request, self._over)
                if self._behaviour in (hanging_up, cut_short, nonsense):
                    return


@pytest.fixture(
    params=[*BEHAVIOURS, *(pytest.param(one, marks=pytest.mark.slow) for one in PATIENT)],
    ids=lambda behaviour: behaviour.__name__,
)
def daemon(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    path = tmp_path / "s"
    opened = FakeDaemon(path, request.param)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    yield
    opened.close()


@pytest.mark.usefixtures("daemon")
def test_it_is_told_in_words_within_a_bounded_time(workspace: Workspace) -> None:
    workspace.hooks({"tool_call": [{"command": "true"}]})
    result = ended(emit(workspace, "docker"), workspace.path)
    assert result.returncode in {3, 4}, result.stderr  # 3: it answers, and cannot do the work
    assert "engine" in result.stderr
    assert "Traceback" not in result.stderr


def test_nobody_who_listens_is_told_at_once(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A socket file of an engine that was killed."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/s")
    workspace.hooks({"tool_call": [{"command": "true"}]})
    began = time.monotonic()
    result = ended(emit(workspace, "docker"), workspace.path)
    assert result.returncode == 4, result.stderr
    assert time.monotonic() - began < 30


def test_one_who_never_accepts_is_bounded_too(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(tmp_path / "s"))
        listener.listen(0)
        waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
        waiting.setblocking(False)
        waiting.connect(str(tmp_path / "s"))  # fills the backlog
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/s")
        workspace.hooks({"tool_call": [{"command": "true"}]})
        result = ended(emit(workspace, "docker"), workspace.path)
    assert result.returncode == 4, result.stderr
