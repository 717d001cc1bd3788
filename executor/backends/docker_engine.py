"""Which engine is there, what can it do, and how is it called without being waited for?

Every call goes through ``Engine.call``: a thread, a limit, and a way to undo what comes back
after nobody waits any more (a container that was created late is removed). What goes wrong is one
of two things: ``EngineLost`` (no answer) or ``EngineRefusal`` (an answer: no).
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import anyio
import anyio.to_thread
import docker
import docker.errors
import requests.exceptions

from executor import images
from executor.backends import docker_body as bodies
from executor.backends.docker_facts import Document, Facts, read_facts, socket_urls
from executor.backends.docker_streams import AttachError, ContainerStreams, attach
from executor.backends.docker_wire import Wire, client as wired_client
from executor.errors import Unavailable

T = TypeVar("T")

CALL_SECONDS = 30.0
IMPORT_SECONDS = 600.0
_ANY_VERSION = "1.41"
_NONSENSE = (AttributeError, KeyError, TypeError, ValueError)
"""What reading an answer raises that has not the shape of one."""
_START = "start the engine (systemctl start docker), or see that this user may use its socket"


class EngineLost(Exception):
    """The engine did not answer, or not in time."""


class EngineRefusal(Exception):
    """The engine answered with an error. ``missing``: what was asked for is not there."""

    def __init__(self, message: str, *, missing: bool = False) -> None:
        self.missing = missing
        super().__init__(message)


class Engine:
    """One engine behind one Unix socket. Opened at the first call; safe for concurrent use."""

    def __init__(self, url: str | None = None, *, calls_at_once: int = 32) -> None:
        self._url = url
        self._limiter = anyio.CapacityLimiter(calls_at_once)
        self._calls_at_once = calls_at_once
        self._opening = threading.Lock()
        self._late: list[_Handover[Any]] = []
        self._client: docker.APIClient | None = None
        self.path = ""
        """The socket, once it is open."""

    async def call(
        self,
        function: Callable[[], T],
        *,
        seconds: float = CALL_SECONDS,
        undo: Callable[[T], None] | None = None,
    ) -> T:
        """Run a blocking call in a thread, at most so long. ``undo`` gets a late result.

        Raises ``EngineLost`` or ``EngineRefusal``. Cancellation does not wait for the engine.
        """
        handover = _Handover(function, undo)
        try:
            with anyio.fail_after(seconds):
                return await anyio.to_thread.run_sync(
                    handover.work, limiter=self._limiter, abandon_on_cancel=True
                )
        except TimeoutError as error:
            handover.wire.cut()
            self._abandon(handover)
            raise EngineLost(f"the engine did not answer within {seconds:g} s") from error
        except BaseException:
            self._abandon(handover)
            raise

    def _abandon(self, handover: _Handover[Any]) -> None:
        self._late = [late for late in self._late if not late.over.is_set()]
        if handover.abandon():
            self._late.append(handover)

    # What follows blocks: for ``call``, and for threads of one's own.

    def settle(self, seconds: float) -> None:
        """Until calls that nobody waits for have ended and were undone; at most so long."""
        deadline = time.monotonic() + seconds
        for late in list(self._late):
            late.over.wait(max(0.0, deadline - time.monotonic()))

    def client(self) -> docker.APIClient:
        """The low-level client, with the newest API version that both ends speak."""
        with self._opening:
            if self._client is None:
                self.path, self._client = _open(self._url, self._calls_at_once)
            return self._client

    def facts(self) -> Facts:
        """Ask the engine what it is."""
        client = self.client()
        return _translated(lambda: read_facts(client.info(), client.version(), client.api_version))

    def image(self, name: str) -> Document:
        """An image's record."""
        client = self.client()
        return _translated(lambda: dict(client.inspect_image(name)))  # type: ignore[no-untyped-call]

    def import_image(self, image: images.Image) -> str:
        """The id of one of our images in this engine; slow where it is not there yet."""
        _, client = _open(self._url, 1, IMPORT_SECONDS)
        with contextlib.closing(client):
            return images.engine_id(client, image)

    def create(self, name: str, body: bodies.Body) -> str:
        """The id of a new container."""
        client = self.client()
        return _translated(
            lambda: str(client.create_container_from_config(body, name)["Id"])  # type: ignore[no-untyped-call]
        )

    def prepare(self, container: str) -> tuple[ContainerStreams, Document]:
        """Its streams (before it is started, so that nothing is missed), and its record."""
        version = self.client().api_version
        streams = _translated(lambda: attach(self.path, version, container, CALL_SECONDS))
        try:
            return streams, self.inspect(container)
        except BaseException:
            streams.abandon()
            raise

    def start(self, container: str) -> Document:
        """Start it; its state then, with the ``Pid`` that its PID 1 has on the host."""
        client = self.client()
        _translated(lambda: client.start(container))
        return dict(self.inspect(container).get("State") or {})

    def inspect(self, container: str) -> Document:
        """The engine's record of a container."""
        client = self.client()
        return _translated(lambda: dict(client.inspect_container(container)))

    def wait(self, container: str, seconds: float) -> None:
        """Until it has ended."""
        client = self.client()
        _translated(lambda: client.wait(container, timeout=int(seconds)))

    def remove(self, container: str) -> bool:
        """Kill and delete it, with what anonymous volumes it has; false where there is none."""
        client = self.client()
        try:
            _translated(lambda: client.remove_container(container, force=True, v=True))
        except EngineRefusal as refusal:
            if not refusal.missing:
                raise
            return False
        return True

    def labelled(self, label: str) -> list[Document]:
        """All containers that carry this label, running or not."""
        client = self.client()
        return _translated(
            lambda: [dict(c) for c in client.containers(all=True, filters={"label": label})]
        )

    def close(self) -> None:
        """Close idle connections. The engine may be used again."""
        with self._opening:
            if self._client is not None:
                self._client.close()
                self._client = None


class _Handover(Generic[T]):
    """A result that is either received or undone, whoever comes first."""

    def __init__(self, function: Callable[[], T], undo: Callable[[T], None] | None) -> None:
        self._function, self._undo = function, undo
        self._lock = threading.Lock()
        self._results: list[T] = []
        self._begun = self._abandoned = False
        self.over = threading.Event()
        self.wire = Wire()

    def work(self) -> T:
        """The call, in its thread."""
        self._begin()
        try:
            with self.wire.carrying():
                result = self._function()
            with self._lock:
                self._results.append(result)
                late = self._abandoned
            if late:
                self._undo_all()
        finally:
            self.over.set()
        return result

    def _begin(self) -> None:
        with self._lock:
            if self._abandoned:
                raise EngineLost("nobody waits for this any more")
            self._begun = True

    def abandon(self) -> bool:
        """Nobody waits any more; whether the call is still under way."""
        with self._lock:
            self._abandoned = True
            under_way = self._begun and not self.over.is_set()
        self._undo_all()
        return under_way

    def _undo_all(self) -> None:
        with self._lock:
            results, self._results = self._results, []
        if self._undo is not None:
            for result in results:
                self._undo(result)


def _translated(function: Callable[[], T]) -> T:
    try:
        return function()
    except docker.errors.APIError as error:
        text = error.explanation or str(error)
        raise EngineRefusal(str(text).strip(), missing=error.status_code == 404) from error
    except AttachError as error:
        raise EngineRefusal(str(error)) from error
    except (OSError, requests.exceptions.RequestException, docker.errors.DockerException) as error:
        raise EngineLost(f"the engine does not answer: {error}") from error
    except _NONSENSE as error:
        raise EngineLost(f"it does not answer as a container engine does: {error!r}") from error


def _open(
    url: str | None, connections: int, seconds: float = CALL_SECONDS
) -> tuple[str, docker.APIClient]:
    faults = []
    for candidate in (url,) if url else socket_urls(os.environ, os.geteuid()):
        if not candidate.startswith("unix://"):
            message = f"the engine at {candidate} is not on a Unix socket of this machine"
            remedy = "set DOCKER_HOST to a unix:// URL: a hook's files must be the engine's too"
            raise Unavailable(message, remedy=remedy, engine=True)
        path = "/" + candidate.removeprefix("unix://").lstrip("/")
        try:
            _knock(path)
            return path, _connect(f"unix://{path}", connections, seconds)
        except (
            OSError,
            docker.errors.DockerException,
            requests.exceptions.RequestException,
        ) as error:
            faults.append(f"{path}: {_root_cause(error)}")
    message = f"no container engine answers ({'; '.join(faults)})"
    raise Unavailable(message, remedy=_START, engine=True)


def _knock(path: str) -> None:
    """Raises OSError where nobody listens. (The library would leave its socket open then.)"""
    with socket.socket(socket.AF_UNIX) as knock:
        knock.settimeout(10)
        knock.connect(path)


def _connect(url: str, connections: int, seconds: float) -> docker.APIClient:
    """A client with the engine's own API version. (Left to find it out by itself, the library
    leaves connections open where that fails.)"""
    asking = wired_client(url, _ANY_VERSION, seconds=10, connections=1)
    with contextlib.closing(asking) as first:
        answer: object = first.version(api_version=False)
    version = answer.get("ApiVersion") if isinstance(answer, dict) else None
    if not isinstance(version, str):
        raise docker.errors.DockerException("it answers, but not as a container engine does")
    client = wired_client(url, version, seconds=int(seconds), connections=connections)
    client.trust_env = False  # no proxies, no .netrc
    return client


def _root_cause(error: BaseException) -> str:
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
