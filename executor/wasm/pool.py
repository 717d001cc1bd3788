"""Which worker takes the next event?

A small pool: workers start when they are needed, at most ``size`` at once, and the one that was
used last is taken first, so that a quiet system warms one and not all. Workers differ in what they
may reach: those for plugins without granted directories are all alike, a plugin with some gets
workers that hold exactly these. A worker is let go after ``MAX_CALLS``, since wasmtime's Python
side leaks a few bytes for each error message.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from executor.disk.beneath import open_beneath, open_plain
from executor.plugin_job import Granted, PluginSandbox
from executor.wasm.process import Confinement, Lost, Place, Process

MAX_CALLS = 50_000
KEPT_COMPONENTS = 64
"""A worker that has loaded more is let go: old versions of plugins stay in it."""

Reach = tuple[Granted, ...]


class Pool:
    """All workers of one executor. Belongs to the event loop's thread."""

    def __init__(self, confinement: Confinement, size: int) -> None:
        self._confinement = confinement
        self._room = anyio.Semaphore(size, fast_acquire=True)
        self._idle: list[tuple[Reach, Process]] = []
        self._lent: set[Process] = set()
        self._size = size
        self.missing: tuple[str, ...] | None = None
        """What the last worker could not give up; None before the first."""

    async def lend(self, sandbox: PluginSandbox) -> Process:
        """A worker that has loaded the component; ``take_back`` it, whatever happens. Raises Lost,
        Unloadable, OSError."""
        await self._room.acquire()
        try:
            process = await self._take(sandbox.directories)
        except BaseException:
            self._room.release()
            raise
        self._lent.add(process)
        # The same bytes with other imports or config would be another guest.
        if sandbox.static_digest not in process.loaded:
            try:
                await _load(process, sandbox)
            except BaseException:
                await self.take_back(sandbox, process)
                raise
        return process

    async def take_back(self, sandbox: PluginSandbox, process: Process) -> None:
        """The run is over; the worker may be dead."""
        self._lent.discard(process)
        try:
            if process.alive:
                await self._give_back(sandbox.directories, process)
        finally:
            self._room.release()

    async def warm(self) -> None:
        """Start one worker before it is needed. A failure shows when it is."""
        with contextlib.suppress(Lost, OSError):
            async with self._room:
                await self._give_back((), await self._take(()))

    def pids(self, *, idle: bool = False) -> tuple[int, ...]:
        """The workers that run something now, and with ``idle`` the others."""
        resting = [process for _, process in self._idle] if idle else []
        return tuple(process.pid for process in (*self._lent, *resting))

    async def close(self) -> None:
        """Kill them all."""
        idle, self._idle = self._idle, []
        for _, process in idle:
            await process.end()

    async def _take(self, reach: Reach) -> Process:
        for index in reversed(range(len(self._idle))):
            if self._idle[index][0] == reach:
                return self._idle.pop(index)[1]
        # The idle and the lent ones together must not exceed the size.
        if len(self._idle) >= self._size:
            _, stranger = self._idle.pop(0)
            await stranger.end()
        with _opened(reach) as places:
            process = await Process.start(self._confinement, places)
        self.missing = process.missing
        return process

    async def _give_back(self, reach: Reach, process: Process) -> None:
        if process.calls >= MAX_CALLS or len(process.loaded) > KEPT_COMPONENTS:
            with anyio.CancelScope(shield=True):
                await process.end()
        else:
            self._idle.append((reach, process))


class Unloadable(Exception):
    """The worker could not load the native code: it was made for another engine or processor."""


async def _load(process: Process, sandbox: PluginSandbox) -> None:
    reason = await process.load(
        {
            "do": "load",
            "id": sandbox.static_digest,
            "interface": sandbox.interface,
            "imports": dict(sandbox.imports),
            "wasi": sandbox.wasi,
            "http": list(sandbox.http),
            "config": dict(sandbox.config),
        },
        sandbox.native,
    )
    if reason is not None:
        raise Unloadable(reason)
    process.loaded.add(sandbox.static_digest)


@contextmanager
def _opened(reach: Reach) -> Iterator[list[Place]]:
    """The granted directories by descriptor. Raises OSError where one is not what it was."""
    with contextlib.ExitStack() as stack:
        places = []
        for one in reach:
            flags = os.O_PATH | os.O_DIRECTORY
            source = open_plain(one.source, flags)
            stack.callback(os.close, source)
            status = os.fstat(source)
            if (status.st_dev, status.st_ino) != (one.device, one.inode):
                raise OSError(f"{one.source} is not the directory any more that was granted")
            descriptor = source
            if one.below:
                descriptor = open_beneath(source, one.below, flags)
                stack.callback(os.close, descriptor)
            places.append(Place(one.path, descriptor, one.writable))
        yield places
