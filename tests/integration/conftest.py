"""What do tests against a real container engine need? The engine, an image, a backend, jobs."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import docker
import pytest

from executor import images
from executor.backends.docker import DockerBackend
from executor.backends.docker_body import LABEL_INSTANCE
from executor.backends.docker_engine import Engine
from executor.disk.instance import Instance
from executor.errors import Unavailable
from executor.job import Job, Limits, Mount, Sandbox
from tests.support import missing

HOOK_ID = os.getuid() or 64123
MEMORY = 64 << 20


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """The engine of this machine; without one the test is skipped, or fails where required."""
    found = Engine()
    try:
        found.client()
    except Unavailable as unavailable:
        missing("docker", str(unavailable))
    yield found
    found.close()


@pytest.fixture(scope="session")
def image(engine: Engine) -> str:
    """The id of the built image "python" in the engine."""
    built = images.find("python")
    if built is None:
        missing("docker", 'the image "python" is not built')
    assert built is not None
    return engine.import_image(built)


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    opened = Instance.open(tmp_path / "instances")
    yield opened
    with suppress(OSError):
        opened.close()


@pytest.fixture
async def backend(instance: Instance, engine: Engine) -> AsyncIterator[DockerBackend]:
    """A backend; after each test nothing that it started may be left in the engine."""
    async with DockerBackend(instance) as opened:
        yield opened
    assert engine.labelled(f"{LABEL_INSTANCE}={instance.id}") == []


MakeJob = Callable[..., Job]


@pytest.fixture
def job(image: str) -> MakeJob:
    """Make a job: ``job("sh", "-c", "…", timeout=…, mounts=…)``."""
    count = iter(range(1000))

    def make(
        *argv: str,
        timeout: float = 60,
        grace: float = 5,
        payload: bytes = b"{}",
        stdin: bool = False,
        cwd: str = "/tmp",
        mounts: tuple[Mount, ...] = (),
        env: tuple[tuple[str, str], ...] = (("PATH", "/usr/bin:/bin"),),
        **sandbox: Any,
    ) -> Job:
        limits = Limits(MEMORY, 32, 1.0, 1 << 20, 64, 1 << 20, 64 << 10)
        walls: dict[str, Any] = {"uid": HOOK_ID, "gid": HOOK_ID, "image": image} | sandbox
        return Job(
            run_id=f"run_{next(count)}",
            sandbox=Sandbox(limits=limits, mounts=mounts, **walls),
            command=argv[0],
            argv=argv,
            env=env,
            cwd=cwd,
            timeout_seconds=timeout,
            payload=payload,
            stdin=stdin,
            grace_seconds=grace,
        )

    return make


def shown(path: Path, *, writable: bool = False) -> Mount:
    """That file or directory, at its own path."""
    status = path.stat()
    return Mount(
        str(path), str(path), status.st_dev, status.st_ino, path.is_dir(), writable=writable
    )


class Relay:
    """Stands between a client and the engine; can hold an answer back, or go away.

    ``hold`` is a part of a request (b"/containers/create"); its answer waits for ``release``.
    """

    def __init__(self, path: Path, engine: str, hold: bytes = b"\0never\0") -> None:
        self.url = f"unix://{path}"
        self.asked, self.release = threading.Event(), threading.Event()
        self._engine, self._hold = engine, hold
        self._sockets: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(50)
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def cut(self) -> None:
        """End every connection and listen no more: the engine is gone."""
        for one in (self._listener, *self._sockets):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def close(self) -> None:
        self.release.set()
        self.cut()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._engine)
            self._sockets += [client, server]
            pair = threading.Thread(target=self._serve, args=(client, server))
            self._threads.append(pair)
            pair.start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        held = threading.Event()
        back = threading.Thread(target=self._copy, args=(server, client, held, False))
        back.start()
        self._copy(client, server, held, True)
        back.join()
        client.close()
        server.close()

    def _copy(
        self, source: socket.socket, to: socket.socket, held: threading.Event, request: bool
    ) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if request and self._hold in data:
                    held.set()
                elif not request and held.is_set():
                    self.asked.set()
                    self.release.wait()
                to.sendall(data)
        with suppress(OSError):
            to.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def relay(tmp_path: Path, engine: Engine) -> Iterator[Callable[..., Relay]]:
    """Make a ``Relay`` to the engine; all are closed at the end."""
    relays: list[Relay] = []

    def make(**options: Any) -> Relay:
        made = Relay(tmp_path / f"engine{len(relays)}.sock", engine.path, **options)
        relays.append(made)
        return made

    yield make
    for made in relays:
        made.close()


@pytest.fixture
def client(engine: Engine) -> Iterator[docker.APIClient]:
    """A client of the test's own."""
    with closing(docker.APIClient(f"unix://{engine.path}", version="auto")) as opened:
        yield opened
