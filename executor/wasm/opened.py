"""How do a workspace's plugins become part of an executor?

The one thing that ``service`` opens: it reads and compiles the plugins, waits until each can serve
or is refused, and holds the workers. Without a ``plugins`` folder it costs one failed stat(2).
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from executor.backends.wasm import WasmBackend
from executor.cell import seccomp
from executor.configuration import Configuration
from executor.disk.workspace import Workspace
from executor.plan import Identity
from executor.resolve import Resolver
from executor.subscription import PluginSubscription
from executor.wasm.binding import MIB, bind
from executor.wasm.cache import Cache
from executor.wasm.loader import Plugin, PluginSet
from executor.wasm.pool import Pool
from executor.wasm.process import Confinement

LEAST_DATA_BYTES = 1024 * MIB
WORKER_BYTES = 256 * MIB
FACTOR = 5
"""What a worker may take beside its guest's memory, and for copies of it (``guest.COPIES``)."""


@dataclass(slots=True)
class OpenedPlugins:
    """The plugins that serve, and what runs them. ``backend`` is None where there are none."""

    current: PluginSet | None = None
    backend: WasmBackend | None = None
    subscriptions: tuple[PluginSubscription, ...] = ()
    _warming: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    @property
    def plugins(self) -> tuple[Plugin, ...]:
        return () if self.current is None else self.current.plugins

    async def warm(self) -> None:
        """Start a worker, so that the first event finds one."""
        with self._warming:
            if self.backend is not None and any(plugin.serves for plugin in self.plugins):
                await self.backend.warm()

    def settle(self) -> None:
        """No first event will come any more."""
        self._warming.cancel()


@asynccontextmanager
async def open_plugins(
    configuration: Configuration,
    workspace: Workspace,
    resolver: Resolver,
    identity: Identity,
    state: Path,
) -> AsyncIterator[OpenedPlugins]:
    """Compile, bind, and close again. Raises InvalidConfig, Unavailable."""
    if not await PluginSet.present(workspace):
        yield OpenedPlugins()
        return
    cache = Cache(state / "wasm", identity)
    current = await PluginSet.open(workspace, cache)
    subscriptions = await anyio.to_thread.run_sync(
        bind, current.plugins, configuration, resolver.files, workspace.path
    )
    backend = WasmBackend(Pool(_confinement(identity, cache, subscriptions), _size(configuration)))
    try:
        yield OpenedPlugins(current, backend, subscriptions)
    finally:
        with anyio.CancelScope(shield=True):
            await backend.close()


async def reopened(
    opened: OpenedPlugins,
    configuration: Configuration,
    workspace: Workspace,
    resolver: Resolver,
    identity: Identity,
    state: Path,
    *,
    reread: bool,
) -> OpenedPlugins:
    """The candidate of a reload: bound anew, and ``reread`` from the disk; ``opened`` goes on
    serving. Its workers are kept; the first plugin ever gets some. Raises InvalidConfig."""
    current, backend = opened.current, opened.backend
    if current is None and not (reread and await PluginSet.present(workspace)):
        return opened
    cache = Cache(state / "wasm", identity) if current is None else current.cache
    if current is None or reread:
        current = await (current or PluginSet(workspace, cache)).load()
    subscriptions = await anyio.to_thread.run_sync(
        bind, current.plugins, configuration, resolver.files, workspace.path
    )
    if backend is None:
        confinement = _confinement(identity, cache, subscriptions)
        backend = WasmBackend(Pool(confinement, _size(configuration)))
    return OpenedPlugins(current, backend, subscriptions)


def _confinement(
    identity: Identity, cache: Cache, subscriptions: tuple[PluginSubscription, ...]
) -> Confinement:
    largest = max((one.sandbox.memory_bytes for one in subscriptions if one.sandbox), default=0)
    return Confinement(
        uid=identity.uid,
        gid=identity.gid,
        data_bytes=max(LEAST_DATA_BYTES, FACTOR * largest + WORKER_BYTES),
        seccomp=seccomp.hook_program(),
        cache=cache.directory,
    )


def _size(configuration: Configuration) -> int:
    return min(configuration.settings.limits.max_concurrency, max(2, os.cpu_count() or 2))
