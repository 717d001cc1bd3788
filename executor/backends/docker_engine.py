"""Which engine is there, what can it do, and how is it called without being waited for?

Every call goes through ``Engine.call``: a thread, a limit, and a way to undo what comes back
after nobody waits any more (a container that was created late is removed). What goes wrong is one
of two things: ``EngineLost`` (no answer) or ``EngineRefusal`` (an answer: no).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio
import anyio.to_thread
import docker
import docker.errors
import requests.exceptions

from executor.backends import docker_body as bodies
from executor.backends.docker_streams import AttachError, ContainerStreams, attach
from executor.errors import Refused, Unavailable

if TYPE_CHECKING:
    from executor.job import Sandbox

T = TypeVar("T")
Document = dict[str, Any]

CALL_SECONDS = 30.0
_START = "start the engine (systemctl start docker), or see that this user may use its socket"


class EngineLost(Exception):
    """The engine did not answer, or not in time."""


class EngineRefusal(Exception):
    """The engine answered with an error. ``missing``: what was asked for is not there."""

    def __init__(self, message: str, *, missing: bool = False) -> None:
        self.missing = missing
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Facts:
    """What an engine says of itself."""

    version: str
    api_version: str
    processors: int
    runtimes: frozenset[str]
    rootless: bool
    remapped: bool
    """The engine maps container ids to other host ids (userns-remap)."""
    missing: tuple[str, ...]
    """Controls that this engine cannot give, and that no run may lack."""


class Engine:
    """One engine behind one Unix socket. Opened at the first call; safe for concurrent use."""

    def __init__(self, url: str | None = None, *, calls_at_once: int = 32) -> None:
        self._url = url
        self._limiter = anyio.CapacityLimiter(calls_at_once)
        self._calls_at_once = calls_at_once
        self._opening = threading.Lock()
        self._client: docker.APIClient | None = None
        self._path = ""

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
            handover.abandon()
            raise EngineLost(f"the engine did not answer within {seconds:g} s") from error
        except BaseException:
            handover.abandon()
            raise

    # What follows blocks: for ``call``, and for threads of one's own.

    def client(self) -> docker.APIClient:
        """The low-level client, with the newest API version that both ends speak."""
        with self._opening:
            if self._client is None:
                self._path, self._client = _open(self._url, self._calls_at_once)
            return self._client

    def facts(self) -> Facts:
        """Ask the engine what it is."""
        client = self.client()
        return _translated(lambda: read_facts(client.info(), client.api_version))

    def image(self, name: str) -> Document:
        """An image's record."""
        client = self.client()
        return _translated(lambda: dict(client.inspect_image(name)))  # type: ignore[no-untyped-call]

    def create(self, name: str, body: bodies.Body) -> str:
        """The id of a new container."""
        client = self.client()
        return _translated(
            lambda: str(client.create_container_from_config(body, name)["Id"])  # type: ignore[no-untyped-call]
        )

    def attach(self, container: str) -> ContainerStreams:
        """The container's streams; before it is started, so that nothing is missed."""
        version = self.client().api_version
        return _translated(lambda: attach(self._path, version, container, CALL_SECONDS))

    def start(self, container: str) -> None:
        """Start it; returns when its PID 1 was executed."""
        client = self.client()
        _translated(lambda: client.start(container))

    def inspect(self, container: str) -> Document:
        """The engine's record of a container."""
        client = self.client()
        return _translated(lambda: dict(client.inspect_container(container)))

    def wait(self, container: str, seconds: float) -> None:
        """Until it has ended."""
        client = self.client()
        _translated(lambda: client.wait(container, timeout=int(seconds)))

    def remove(self, container: str) -> None:
        """Kill and delete it, and what anonymous volumes it has. Gone already is no error."""
        client = self.client()
        try:
            _translated(lambda: client.remove_container(container, force=True, v=True))
        except EngineRefusal as refusal:
            if not refusal.missing:
                raise

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
        self._abandoned = False

    def work(self) -> T:
        result = self._function()
        with self._lock:
            late = self._abandoned
            self._results.append(result)
        if late and self._undo is not None:
            self._undo(result)
        return result

    def abandon(self) -> None:
        with self._lock:
            self._abandoned = True
            results = list(self._results)
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


def socket_urls(environment: Mapping[str, str], uid: int) -> tuple[str, ...]:
    """Where an engine may listen: DOCKER_HOST alone where it is set, else the usual sockets."""
    if host := environment.get("DOCKER_HOST"):
        return (host,)
    runtime = environment.get("XDG_RUNTIME_DIR") or f"/run/user/{uid}"
    paths = ["/var/run/docker.sock", f"{runtime}/docker.sock", f"{runtime}/podman/podman.sock"]
    if uid == 0:
        paths.append("/run/podman/podman.sock")
    return tuple(f"unix://{path}" for path in paths)


def _open(url: str | None, connections: int) -> tuple[str, docker.APIClient]:
    faults = []
    for candidate in (url,) if url else socket_urls(os.environ, os.geteuid()):
        if not candidate.startswith("unix://"):
            message = f"the engine at {candidate} is not on a Unix socket of this machine"
            remedy = "set DOCKER_HOST to a unix:// URL: a hook's files must be the engine's too"
            raise Unavailable(message, remedy=remedy, engine=True)
        path = "/" + candidate.removeprefix("unix://").lstrip("/")
        try:
            client = docker.APIClient(
                base_url=f"unix://{path}",
                version="auto",
                timeout=int(CALL_SECONDS),
                max_pool_size=connections,
            )
        except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
            faults.append(f"{path}: {_root_cause(error)}")
            continue
        client.trust_env = False  # no proxies, no .netrc
        return path, client
    raise Unavailable(
        f"no container engine answers ({'; '.join(faults)})", remedy=_START, engine=True
    )


def _root_cause(error: BaseException) -> str:
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def read_facts(info: Document, api_version: str) -> Facts:
    """Pure: the answer to ``GET /info``."""
    options = {
        option.split(",")[0].removeprefix("name=") for option in info.get("SecurityOptions") or ()
    }
    needed = {
        "linux containers": info.get("OSType", "linux") == "linux",
        "seccomp": "seccomp" in options,
        "a memory limit": info.get("MemoryLimit", True),
        "a swap limit": info.get("SwapLimit", True),
        "a limit of processes": info.get("PidsLimit", True),
        "a cpu quota": info.get("CpuCfsQuota", True),
    }
    return Facts(
        version=str(info.get("ServerVersion", "")),
        api_version=api_version,
        processors=int(info.get("NCPU") or 1),
        runtimes=frozenset(info.get("Runtimes") or ()),
        rootless="rootless" in options,
        remapped="userns" in options,
        missing=tuple(name for name, given in needed.items() if not given),
    )


def container_user(sandbox: Sandbox, facts: Facts, own_uid: int) -> str:
    """Pure: "uid:gid" inside, so that the host sees ``sandbox.uid``. Raises ``Refused``.

    A rootless engine maps its own user to 0 inside: the one case in which "0:0" is asked for.
    """
    if sandbox.uid == 0 or sandbox.gid == 0:
        raise Refused("a hook never runs as host root (uid or gid 0)")
    if facts.rootless:
        if sandbox.uid != own_uid:
            raise Refused(f"a rootless engine cannot run a hook as host uid {sandbox.uid}")
        return "0:0"
    if facts.remapped and any(mount.writable for mount in sandbox.mounts):
        raise Refused("this engine remaps user ids (userns-remap): no directory can be writable")
    return f"{sandbox.uid}:{sandbox.gid}"
