"""How does a container engine run one Job?

Theory of operation
-------------------
Through the Engine API, never the command line client (which leaves containers behind when it is
killed). One container a run, with the cell as PID 1; its body is ``docker_body``'s. The order::

    create ─► attach + inspect ─► start + converse ─► counters ─► close ─► delete
              limits kept?        J goes as soon as   the cell waits       in the background
                                  the cell is ready   until we close

``attach`` comes before ``start``, so that nothing is missed. The conversation does not wait for
the answer to ``start``: the cell is ready before the engine has finished its own records. The
container is deleted by a thread of the ``Remover`` after the outcome is known (it costs as much as
a run); ``close`` waits for it, and at the interpreter's end the threads are joined.

What may fail, fails into a value: no answer is ``engine_lost``, an answer that says no is
``setup``, an engine that keeps less than was asked is a refusal. Cancelling a run ends it as
``session`` says, closes the cell's lifeline and hands the container to the remover.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Self

import anyio
import anyio.to_thread

from executor import images
from executor.backends import docker_body as bodies
from executor.backends.base import Control
from executor.backends.docker_container import created
from executor.backends.docker_controls import read_controls
from executor.backends.docker_engine import (
    CALL_SECONDS,
    IMPORT_SECONDS,
    Engine,
    EngineLost,
    EngineRefusal,
)
from executor.backends.docker_facts import Document, Facts, container_user
from executor.backends.docker_remover import Remover
from executor.cell import launch, protocol, seccomp
from executor.cell.classify import classified
from executor.cell.session import Bounds, End, Stop, converse
from executor.disk.store import Store
from executor.errors import Refused, Unavailable
from executor.outcome import Cause, Outcome, Status, error, refused

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from executor.disk.instance import Instance
    from executor.job import Job

CLOSE_SECONDS = 40.0
_BOUNDS = Bounds()
_STALE_SECONDS = 300.0
"""A container so long past its own deadline belongs to nobody, whoever made it."""


@dataclass(frozen=True, slots=True)
class EngineImage:
    """An image in the engine: its id (``sha256:…``), and the digest that records name."""

    id: str
    digest: str


@dataclass(slots=True, eq=False)
class _Run:
    """A run in flight, so that ``close`` can stop it and wait."""

    stop: Stop
    over: anyio.Event


class DockerBackend:
    """A container engine behind a Unix socket: Docker's, Podman's, root's or one's own.

    ``cell_path`` is the cell's binary on this host (the program's own if left out), ``base_url`` a
    ``unix://`` URL. Nothing is opened before ``probe`` or the first run; usable with or without
    ``async with``.
    """

    name = "docker"

    def __init__(
        self, instance: Instance, cell_path: str | None = None, *, base_url: str | None = None
    ) -> None:
        self._instance = instance
        self._cell_path = cell_path
        self._engine = Engine(base_url)
        self._remover = Remover(self._engine.remove)
        self._facts: Facts | None = None
        self._checked_images: set[str] = set()
        self._runs: set[_Run] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self.close()

    async def probe(self) -> Facts:
        """What engine is there. Raises ``Unavailable`` where none answers, or none that will do."""
        try:
            facts = await self._engine.call(self._engine.facts)
        except (EngineLost, EngineRefusal) as fault:
            message = f"the container engine does not work: {fault}"
            raise Unavailable(message, remedy="docker info", engine=True) from fault
        if facts.missing:
            message = f"the container engine cannot give {', '.join(facts.missing)}"
            raise Unavailable(message, remedy="see the warnings of: docker info")
        if self._cell_path is None:
            self._cell_path = await anyio.to_thread.run_sync(_shared_cell, self._instance.directory)
        self._facts = facts
        return facts

    async def image(self, name: str) -> EngineImage:
        """A built image by its name, or any by id or digest. Never pulls, never takes a tag."""
        if not bodies.immutable(name):
            built = await anyio.to_thread.run_sync(images.required, name)
            work = partial(self._engine.import_image, built)
            return EngineImage(await self._engine.call(work, seconds=IMPORT_SECONDS), built.digest)
        try:
            document = await self._engine.call(partial(self._engine.image, name))
        except (EngineLost, EngineRefusal) as fault:
            message = f"the image {name} cannot be used: {fault}"
            raise Unavailable(message, remedy="docker images --no-trunc", engine=True) from fault
        return EngineImage(document["Id"], document["Id"].removeprefix("sha256:"))

    async def run(self, job: Job) -> Outcome:
        """Run one job in a container of its own."""
        run = _Run(Stop(), anyio.Event())
        self._runs.add(run)
        try:
            return await self._run(job, run.stop)
        except Refused as no:
            return refused(str(no))
        except Unavailable as missing:
            return error(str(missing), Cause.ENGINE_LOST if missing.engine else Cause.SETUP)
        except EngineLost as lost:
            self._facts = None
            return error(str(lost), Cause.ENGINE_LOST)
        except EngineRefusal as no:
            return error(f"the engine refuses: {no}")
        finally:
            self._runs.discard(run)
            run.over.set()

    async def _run(self, job: Job, stop: Stop) -> Outcome:
        began_at = anyio.current_time()
        frame = protocol.job_frame(job, seccomp=seccomp.hook_program())
        body = await self._body(job)
        async with created(self._engine, self._remover, body) as container:
            async with anyio.create_task_group() as group:
                group.start_soon(container.start_or_stop, stop)
                report = await converse(
                    container.streams, job, frame, destroy=container.destroy, stop=stop
                )
            if container.fault is not None and report.exit is None:
                raise container.fault
            if report.end is End.LOST:
                counters, cause, detail = await container.autopsy()
            else:
                counters, cause, detail = await container.counters(), Cause.SETUP, ""
            elapsed = anyio.current_time() - began_at
        outcome = classified(report, counters, elapsed, job=job)
        if detail and outcome.status is Status.ERROR:
            return replace(outcome, cause=cause, reason=f"{outcome.reason}: {detail}")
        return outcome

    async def _body(self, job: Job) -> bodies.Body:
        """The create body. Raises ``Refused`` for what must not be asked for."""
        facts, sandbox = self._facts or await self.probe(), job.sandbox
        if not bodies.immutable(sandbox.image):
            raise Refused(f"the image {sandbox.image!r} is no image id: a tag may change")
        if sandbox.runtime and sandbox.runtime not in facts.runtimes:
            known = ", ".join(sorted(facts.runtimes))
            raise Refused(f"the engine has no runtime {sandbox.runtime!r}; it has {known}")
        await self._check_image(sandbox.image)
        lifetime = _BOUNDS.setup_seconds + job.timeout_seconds + job.grace_seconds
        placing = bodies.Placing(
            cell_path=self._cell_path or "",
            user=container_user(sandbox, facts, os.geteuid()),
            seccomp=seccomp.outer_profile(),
            processors=facts.processors,
            payload_bytes=len(job.payload),
            labels={
                bodies.LABEL_INSTANCE: self._instance.id,
                bodies.LABEL_RUN: job.run_id,
                bodies.LABEL_DEADLINE: str(round(time.time() + CALL_SECONDS + lifetime)),
            },
        )
        return bodies.create_body(sandbox, placing)

    async def _check_image(self, image: str) -> None:
        """An image may not bring volumes: they would be writable places without a limit."""
        if image in self._checked_images:
            return
        document = await self._engine.call(partial(self._engine.image, image))
        if (document.get("Config") or {}).get("Volumes"):
            raise Refused(f"the image {image} declares volumes")
        self._checked_images.add(image)

    async def inspect(self, job: Job) -> tuple[Control, ...]:
        """Start the job's sandbox, hold its hook just before the exec, and look from outside.

        Raises ``Unavailable`` where it cannot be started at all.
        """
        frame = protocol.job_frame(job, seccomp=seccomp.hook_program(), hold=True)
        try:
            body = await self._body(job)
            async with created(self._engine, self._remover, body) as container:
                pid = await container.start()
                with anyio.fail_after(_BOUNDS.setup_seconds):
                    landlock = await container.hold(frame)
                read = partial(read_controls, pid, job.sandbox, body, landlock)
                controls = await self._engine.call(read)
        except (EngineLost, EngineRefusal, Refused, TimeoutError, protocol.ProtocolError) as fault:
            raise Unavailable(f"no sandbox could be started in the engine: {fault}") from fault
        facts = self._facts
        if facts is not None:
            controls = (Control("engine", True, False, facts.described), *controls)
        return controls

    async def sweep(self) -> int:
        """Remove containers of dead executors, and whatever is long past its own deadline."""
        removed = 0
        with contextlib.suppress(EngineLost, EngineRefusal, Unavailable):
            containers = await self._engine.call(
                partial(self._engine.labelled, bodies.LABEL_INSTANCE)
            )
            for name in [found["Id"] for found in containers if self._is_stale(found)]:
                with contextlib.suppress(EngineRefusal):  # somebody else is at it
                    removed += await self._engine.call(partial(self._engine.remove, name))
        return removed

    def _is_stale(self, document: Document) -> bool:
        labels = document.get("Labels") or {}
        deadline = labels.get(bodies.LABEL_DEADLINE, "")
        late = deadline.isdigit() and int(deadline) + _STALE_SECONDS < time.time()
        # The wall clock may have jumped: what still runs is ended by its cell, not by us.
        ended = document.get("State") != "running"
        return (late and ended) or self._instance.is_dead(labels[bodies.LABEL_INSTANCE])

    async def drain(self) -> None:
        """Wait until the containers of all ended runs are deleted."""
        await anyio.to_thread.run_sync(self._engine.settle, CALL_SECONDS)
        await anyio.to_thread.run_sync(self._remover.drain, CLOSE_SECONDS)

    async def close(self) -> None:
        """Stop what still runs, wait for it and for the deletions."""
        runs = list(self._runs)
        for run in runs:
            run.stop.request()
        for run in runs:
            await run.over.wait()
        await anyio.to_thread.run_sync(self._engine.settle, CALL_SECONDS)
        await anyio.to_thread.run_sync(self._remover.close, CLOSE_SECONDS)
        await anyio.to_thread.run_sync(self._engine.close)


def _shared_cell(locks: Path) -> str:
    """The program's own cell; a copy where it was installed for its owner alone (umask 077).

    In a container it is executed by the hook's id. Raises Unavailable where there is none.
    """
    path = launch.cell_path()
    if path.stat().st_mode & stat.S_IXOTH:
        return str(path)
    with path.open("rb") as file:
        return Store(locks / "cell").put(file.fileno()).path
