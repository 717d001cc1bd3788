"""How do Linux namespaces run one Job, without a daemon and with or without root?

Theory of operation
-------------------
One cell a run (``executor/cell``), started natively: it builds its own sandbox, and everything
that follows is the conversation that the container backend has too. What is ours here:

    start ─► leaf ─► converse ─► hang up ─► counters ─► ended ─► leaf removed
    it waits  limits  B names     the kernel ends whatever is left with the cell, which is
    for B     are set the leaf    PID 1 of its namespace; the leaf outlives it

Each arrow holds for every way out, a cancelled run and a cell that does not answer included: the
tear-down is shielded, bounded, and ends with SIGKILL by descriptor and by cgroup. When this
process dies, the cell's input ends, and so does the cell; its empty leaf is for the next sweep.

Where there is no cgroup to write, ``enforce = "best"`` limits memory for each process
(RLIMIT_DATA) and the number of processes for the sandbox (RLIMIT_NPROC, counted in each user
namespace since Linux 5.14), and every outcome says so; ``enforce = "cgroup"`` is a refusal.
"""

from __future__ import annotations

import math
import os
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import anyio
from anyio.lowlevel import checkpoint

from executor.backends.namespace_controls import read_controls
from executor.cell import launch, network, protocol, seccomp
from executor.cell.cgroup import (
    REMEDY,
    Hierarchies,
    Leaf,
    Limit,
    discover,
    leaf_name,
    left_behind,
)
from executor.cell.classify import Counters, classified
from executor.cell.probe import probe
from executor.cell.session import Stop, converse
from executor.errors import Unavailable
from executor.job import Enforce
from executor.outcome import Outcome, error, refused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType

    from executor.backends.base import Control
    from executor.disk.instance import Instance
    from executor.job import Job

_CELL_PROCESSES = 2
"""The outer process and PID 1, where both are in the leaf."""
_CELL_BYTES = 2 << 20
"""What the cell and the kernel's side of a sandbox take of the leaf's memory."""
_PAGE = 4096
_END_SECONDS = 2.0
_REMOVE_TRIES = 12


@dataclass(slots=True, eq=False)
class _Run:
    """A run in flight, so that ``close`` can stop it and wait."""

    stop: Stop
    over: anyio.Event


class NamespaceBackend:
    """The kernel of this machine. Usable with or without ``async with``."""

    name = "namespace"

    def __init__(self, *, instance: Instance) -> None:
        self._instance = instance
        self._hierarchies: Hierarchies | None = None
        self._network: network.EmptyNetwork | None = None
        self._runs: set[_Run] = set()
        self._serial = 0

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

    def probe(self) -> None:
        """Blocking, some ten milliseconds. Raises ``Unavailable``, with reason and remedy."""
        probe()

    async def run(self, job: Job) -> Outcome:
        """Run one job in namespaces of its own."""
        await checkpoint()
        where, began_at = self._where(), anyio.current_time()
        if job.sandbox.limits.enforce is Enforce.CGROUP and not where.complete:
            return refused(f"limits must be cgroup limits, and are not: {where.reason}. {REMEDY}")
        run = _Run(Stop(), anyio.Event())
        self._runs.add(run)
        try:
            return await self._run(job, where, run.stop, began_at)
        except Unavailable as missing:
            return error(str(missing))
        except OSError as fault:
            return error(f"no sandbox could be started: {fault}")
        finally:
            self._runs.discard(run)
            run.over.set()

    async def _run(self, job: Job, where: Hierarchies, stop: Stop, began_at: float) -> Outcome:
        frame = _job_frame(job, where)
        async with self._started(job, where) as cell:
            # J follows B at once: a cell of ours has one job, and need not wait for us once more.
            report = await converse(
                cell.streams,
                job,
                b"",
                frames_before=[cell.build_frame, frame],
                destroy=cell.destroy,
                stop=stop,
            )
            elapsed = anyio.current_time() - began_at
            cell.streams.close()  # its end, while we count: the leaf keeps its counters
            counters = cell.leaf.counters() if cell.leaf else Counters()
        return classified(report, counters, elapsed, job=job, notes=_notes(where))

    async def inspect(self, job: Job) -> tuple[Control, ...]:
        """Start the job's sandbox, hold its hook just before the exec, and look from outside.

        Raises ``Unavailable`` where it cannot be started at all.
        """
        where = self._where()
        frame = _job_frame(job, where, hold=True)
        try:
            async with self._started(job, where) as cell:
                with anyio.fail_after(_END_SECONDS * 5):
                    landlock = await _held(cell, frame)
                controls = read_controls(cell.process.pid, job.sandbox, cell.leaf, landlock)
                await cell.destroy()
        except (OSError, TimeoutError, protocol.ProtocolError) as fault:
            raise Unavailable(f"no sandbox could be started: {fault}") from fault
        return controls

    async def sweep(self) -> int:
        """Remove the leaves of dead instances, and whatever is still in them."""
        removed = 0
        for leaf in left_behind(self._where(), self._instance.is_dead):
            leaf.kill()
            removed += await _remove(leaf)
        return removed

    async def close(self) -> None:
        """Stop what still runs and wait for it."""
        for run in (runs := list(self._runs)):
            run.stop.request()
        for run in runs:
            await run.over.wait()
        if self._network is not None:
            self._network.close()
            self._network = None

    def _where(self) -> Hierarchies:
        if self._hierarchies is None:
            self._hierarchies = discover()
            self._network = network.make()
        return self._hierarchies

    @asynccontextmanager
    async def _started(self, job: Job, where: Hierarchies) -> AsyncIterator[_Cell]:
        # The cell loads while its leaf is made; it does nothing before B.
        process = launch.start("--enter", "--max-age", str(_max_age(job)))
        cell = _Cell(job, process, launch.SocketStreams(process.sock), network=self._network)
        try:
            if where.legacy or where.unified:
                self._serial += 1
                name = leaf_name(self._instance.id, f"{self._serial}x{job.run_id}")
                cell.leaf = Leaf.create(where, name, _limit(job))
            yield cell
        finally:
            with anyio.CancelScope(shield=True):
                await cell.end()


@dataclass(slots=True)
class _Cell:
    """A cell that was started, until nothing of it is left."""

    job: Job
    process: launch.Launched
    streams: launch.SocketStreams
    leaf: Leaf | None = None
    network: network.EmptyNetwork | None = None

    @property
    def build_frame(self) -> bytes:
        return protocol.build_frame(
            self.job.sandbox,
            tasks=() if self.leaf is None else self.leaf.tasks,
            leaf="" if self.leaf is None else self.leaf.unified,
            network="" if self.network is None else self.network.path,
        )

    async def destroy(self) -> None:
        """From outside, whatever the cell thinks of it."""
        if self.leaf is not None:
            self.leaf.kill()
        self.process.kill()

    async def end(self) -> None:
        """Hang up, which is the end of the cell; take away what it leaves."""
        self.streams.close()
        ended = False
        with anyio.move_on_after(_END_SECONDS):
            await self.process.ended()
            ended = True
        if not ended:
            await self.destroy()
            with anyio.move_on_after(_END_SECONDS):
                await self.process.ended()
        self.process.forget()
        if self.leaf is not None and not self.leaf.remove():
            self.leaf.kill()
            await _remove(self.leaf)


async def _remove(leaf: Leaf) -> bool:
    """The kernel needs a moment to see that a process has gone."""
    for attempt in range(_REMOVE_TRIES):
        if leaf.remove():
            return True
        await anyio.sleep(0.001 * 2**attempt)
    return False


async def _held(cell: _Cell, frame: bytes) -> int:
    """Drive a cell until its hook is held; the Landlock ABI that it found."""
    parser, landlock = protocol.FrameParser(), 0
    await cell.streams.send(cell.build_frame)
    while data := await cell.streams.receive():
        for kind, body in parser.feed(data):
            if kind == protocol.READY:
                landlock = protocol.decode_ready(body).landlock
                await cell.streams.send(frame)
            elif kind == protocol.STARTED:
                return landlock
            elif kind == protocol.EXIT:
                last = protocol.decode_exit(body)
                raise OSError(last.number, f"{os.strerror(last.number)} ({last.stage})")
    raise protocol.ProtocolError("the cell ended")


def _limit(job: Job) -> Limit:
    limits = job.sandbox.limits
    # The payload is no part of what the hook may use (SPEC 2.2); it is there once, as pages.
    payload = (len(job.payload) // _PAGE + 1) * _PAGE
    return Limit(
        memory_bytes=limits.memory_bytes + payload + _CELL_BYTES,
        pids=limits.pids + _CELL_PROCESSES,
        cpus=limits.cpus,
    )


def _job_frame(job: Job, where: Hierarchies, *, hold: bool = False) -> bytes:
    """With rlimits only for what no cgroup limits: they are coarser, and NPROC counts the cell."""
    limits = job.sandbox.limits
    return protocol.job_frame(
        job,
        seccomp=seccomp.hook_program(),
        rlimit_pids=limits.pids + 1 if "pids" in where.lacking else 0,
        rlimit_data_bytes=limits.memory_bytes if "memory" in where.lacking else 0,
        hold=hold,
    )


def _notes(where: Hierarchies) -> tuple[str, ...]:
    instead = {
        "memory": "memory is limited for each process, not for all together, and not shared memory",
        "pids": "processes are limited by RLIMIT_NPROC",
        "cpu": "cpu time is not limited",
    }
    return tuple(f"{instead[name]} ({why})" for name, why in where.lacking.items())


def _max_age(job: Job) -> int:
    """A cell that nobody gives a job ends after so many seconds."""
    return math.ceil(60 + job.grace_seconds)
