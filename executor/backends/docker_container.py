"""How long does a container live, and what is learnt of it on the way?

From ``create`` to the hand-over to the remover, whatever happens between: an exception, a
cancellation, an engine that answers late or never.
"""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from executor.backends import docker_body as bodies
from executor.backends.docker_controls import leaf_of
from executor.backends.docker_engine import Engine, EngineLost, EngineRefusal
from executor.cell import protocol
from executor.cell.classify import Counters
from executor.errors import Refused
from executor.outcome import Cause

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from executor.backends.docker_remover import Remover
    from executor.backends.docker_streams import ContainerStreams
    from executor.cell.session import Stop

_PATIENCE_SECONDS = 10.0


class Container:
    """One container that was created and attached. ``fault``: why it could not be started."""

    def __init__(self, engine: Engine, identity: str, streams: ContainerStreams) -> None:
        self._engine = engine
        self._id = identity
        self._pid = 0
        self.streams = streams
        self.fault: EngineLost | EngineRefusal | None = None

    async def start(self) -> int:
        """Start it; the host's pid of its PID 1, 0 where the engine does not tell."""
        state = await self._engine.call(partial(self._engine.start, self._id))
        self._pid = int(state.get("Pid") or 0)
        return self._pid

    async def start_or_stop(self, stop: Stop) -> None:
        """Start it beside its conversation, which is stopped where that cannot be done."""
        try:
            await self.start()
        except (EngineLost, EngineRefusal) as fault:
            self.fault = fault
            stop.request(hard=True)

    async def destroy(self) -> None:
        """End it from outside; bounded, and never an error."""
        with contextlib.suppress(EngineLost, EngineRefusal):
            work = partial(self._engine.remove, self._id)
            await self._engine.call(work, seconds=_PATIENCE_SECONDS)

    async def counters(self) -> Counters:
        """What the kernel counted; to be asked while the cell still waits for our end."""
        counters = Counters()
        with contextlib.suppress(EngineLost, EngineRefusal):
            if self._pid:
                counters = await self._engine.call(lambda: leaf_of(self._pid).counters())
            if counters.oom_kills is None:  # its cgroup is not visible from here
                document = await self._engine.call(partial(self._engine.inspect, self._id))
                killed = (document.get("State") or {}).get("OOMKilled")
                counters = replace(counters, oom_kills=int(bool(killed)))
        return counters

    async def hold(self, job_frame: bytes) -> int:
        """Give it a job that is held just before its exec; the Landlock ABI that it found.

        Raises ``EngineRefusal``.
        """
        parser, landlock = protocol.FrameParser(), 0
        while data := await self.streams.receive():
            for kind, body in parser.feed(data):
                if kind == protocol.EXIT:
                    raise EngineRefusal(f"{protocol.decode_exit(body)}")
                if kind == protocol.STARTED:
                    return landlock
                if kind == protocol.READY:
                    landlock = protocol.decode_ready(body).landlock
                    await self.streams.send(job_frame)
        raise EngineRefusal(f"the cell ended: {self.streams.demultiplexer.complaint}")

    async def autopsy(self) -> tuple[Counters, Cause, str]:
        """The stream ended without a report: did the cell die, or did the engine?"""
        engine = self._engine
        try:
            await engine.call(partial(engine.wait, self._id, _PATIENCE_SECONDS))
            state = (await engine.call(partial(engine.inspect, self._id))).get("State") or {}
        except EngineLost as lost:
            return Counters(), Cause.ENGINE_LOST, str(lost)
        except EngineRefusal as no:
            return Counters(), Cause.ENGINE_LOST, f"somebody removed the container: {no}"
        said = f"{state.get('Error') or ''} {self.streams.demultiplexer.complaint}".strip()
        detail = f"it ended with {state.get('ExitCode')} {said}".strip()
        return Counters(oom_kills=int(bool(state.get("OOMKilled")))), Cause.SETUP, detail


@contextlib.asynccontextmanager
async def created(engine: Engine, remover: Remover, body: bodies.Body) -> AsyncIterator[Container]:
    """A container of that body, attached and not started; deleted by the remover afterwards.

    Raises ``Refused`` where the engine keeps less than the body asks for.
    """
    name = f"{bodies.NAME_PREFIX}{uuid.uuid4().hex}"
    create = partial(engine.create, name, body)
    try:
        identity = await engine.call(create, undo=lambda _: remover.submit(name))
    except EngineLost:
        remover.submit(name, expected=True)
        raise
    try:
        prepare = partial(engine.prepare, identity)
        streams, document = await engine.call(prepare, undo=lambda both: both[0].abandon())
        try:
            if less := bodies.dishonoured(body, document):
                raise Refused(f"the engine does not keep what was asked: {', '.join(less)}")
            yield Container(engine, identity, streams)
        finally:
            streams.close()
    finally:
        remover.submit(name)
