"""Which plugins does a workspace have, and which of them can serve?

``PluginSet.open`` reads ``plugins/*/`` once: manifest and component by descriptor, each refused if
somebody else could have written it, the component by its bytes (what was hashed is what is
compiled). A plugin that cannot serve stays in the set with its reason, visible, and stops nobody.
``load`` gives the next set and keeps an old version in place of one that is broken now, so that a
reload is one call and one swap.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import anyio
import anyio.to_thread

from executor.configuration import ownership_fault
from executor.disk.beneath import open_beneath
from executor.disk.workspace import Workspace
from executor.errors import InvalidConfig
from executor.plugins import MAX_FILE_BYTES, Manifest, parse_manifest
from executor.wasm.cache import Cache, Compiled, Rejected

DIRECTORY = "plugins"
MANIFEST = "plugin.toml"
MAX_WASM_BYTES = 128 * 1024 * 1024
_COMPILERS = 1
"""At once: one takes a core and up to 400 MB."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """One folder. Either ``manifest`` and ``compiled`` are there, or ``fault`` says why not.

    ``stale`` is set where an older version serves because the one on the disk is broken.
    """

    name: str
    manifest: Manifest | None = None
    compiled: Compiled | None = None
    fault: str | None = None
    stale: str | None = None

    @property
    def id(self) -> str:
        return f"plugin:{self.name}"

    @property
    def serves(self) -> bool:
        return self.compiled is not None


@dataclass(frozen=True, slots=True)
class PluginSet:
    """All plugins of a workspace, by priority and name; those that cannot serve last."""

    workspace: Workspace
    cache: Cache
    plugins: tuple[Plugin, ...] = ()

    @staticmethod
    async def present(workspace: Workspace) -> bool:
        """Whether there is anything to open."""
        try:
            await anyio.to_thread.run_sync(
                lambda: os.stat(DIRECTORY, dir_fd=workspace.descriptor, follow_symlinks=False)
            )
        except OSError:
            return False
        return True

    @classmethod
    async def open(cls, workspace: Workspace, cache: Cache) -> PluginSet:
        """Read and compile them all. Raises InvalidConfig where ``plugins`` itself is unusable."""
        return await cls(workspace, cache).load()

    async def load(self) -> PluginSet:
        """The set as the disk has it now; this one goes on serving until the other is ready."""
        before = {plugin.name: plugin for plugin in self.plugins if plugin.serves}
        names = await anyio.to_thread.run_sync(_names, self.workspace)
        found: dict[str, Plugin] = {}
        room = anyio.CapacityLimiter(_COMPILERS)

        async def one(name: str) -> None:
            plugin = await self._one(name, room)
            old = before.get(name)
            if plugin.fault is not None and old is not None:
                plugin = replace(old, stale=plugin.fault)
            found[name] = plugin

        async with anyio.create_task_group() as tasks:
            for name in names:
                tasks.start_soon(one, name)
        return replace(self, plugins=tuple(sorted(found.values(), key=_order)))

    async def _one(self, name: str, room: anyio.CapacityLimiter) -> Plugin:
        try:
            manifest, wasm = await anyio.to_thread.run_sync(_read, self.workspace, name)
        except InvalidConfig as broken:
            return Plugin(name, fault=str(broken))
        try:
            sha256 = await anyio.to_thread.run_sync(lambda: hashlib.sha256(wasm).hexdigest())
            compiled = await anyio.to_thread.run_sync(self.cache.find, sha256)
            if compiled is None:
                async with room:
                    compiled = await self.cache.compile(sha256, wasm)
        except Rejected as reason:
            return Plugin(name, manifest, fault=f"{DIRECTORY}/{name}/{manifest.wasm} {reason}")
        except OSError as failure:
            return Plugin(name, manifest, fault=f"cannot be compiled: {failure.strerror}")
        fault = _unserved(manifest, compiled)
        if fault is not None:
            return Plugin(name, manifest, fault=fault)
        return Plugin(name, manifest, compiled)


def manifests(workspace: Workspace) -> list[Plugin]:
    """What the manifests alone say: nothing is compiled, so nothing serves. Raises InvalidConfig
    where ``plugins`` itself is unusable."""
    found = []
    for name in _names(workspace):
        try:
            found.append(Plugin(name, _read(workspace, name)[0]))
        except InvalidConfig as broken:
            found.append(Plugin(name, fault=str(broken)))
    return sorted(found, key=_order)


def _order(plugin: Plugin) -> tuple[bool, int, str]:
    priority = plugin.manifest.priority if plugin.serves and plugin.manifest else 0
    return (not plugin.serves, priority, plugin.name)


def _unserved(manifest: Manifest, compiled: Compiled) -> str | None:
    """Events that the component has no function for."""
    if manifest.lifecycle and not compiled.on_event:
        return f"{compiled.interface} exports no on-event, which {manifest.lifecycle[0]} needs"
    if manifest.gate and not compiled.on_gate:
        return f"{compiled.interface} exports no on-gate, which {manifest.gate[0]} needs"
    return None


# ---------------------------------------------------------------------------------------- the disk


def _names(workspace: Workspace) -> list[str]:
    """The folders in ``plugins``. Raises InvalidConfig."""
    try:
        with _opened(workspace.descriptor, DIRECTORY, os.O_DIRECTORY) as directory:
            _check(workspace, directory, DIRECTORY)
            names = [entry.name for entry in os.scandir(directory) if entry.is_dir()]
    except FileNotFoundError:
        return []
    except OSError as failure:
        raise InvalidConfig(f"cannot be read: {failure.strerror}", where=DIRECTORY) from failure
    return sorted(name for name in names if not name.startswith("."))


def _read(workspace: Workspace, name: str) -> tuple[Manifest, bytes]:
    """One plugin's manifest and component. Raises InvalidConfig."""
    where = f"{DIRECTORY}/{name}"
    try:
        with _opened(workspace.descriptor, where, os.O_DIRECTORY) as directory:
            _check(workspace, directory, where)
            text = _bytes(workspace, directory, where, MANIFEST, MAX_FILE_BYTES)
            manifest = parse_manifest(text, where=f"{where}/{MANIFEST}", directory=name)
            wasm = _bytes(workspace, directory, where, manifest.wasm, MAX_WASM_BYTES)
    except OSError as failure:
        raise InvalidConfig(f"cannot be read: {failure.strerror}", where=where) from failure
    return manifest, wasm


def _bytes(workspace: Workspace, directory: int, where: str, name: str, limit: int) -> bytes:
    """A file of the plugin, never from outside of its folder. O_NONBLOCK: no FIFO may hang us."""
    place = f"{where}/{name}"
    try:
        with _opened(directory, name, os.O_NONBLOCK) as descriptor:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise InvalidConfig("it is no regular file", where=place)
            _check(workspace, descriptor, place)
            if status.st_size > limit:
                raise InvalidConfig(f"it is larger than {limit} bytes", where=place)
            with os.fdopen(os.dup(descriptor), "rb") as file:
                return file.read(limit)
    except FileNotFoundError:
        raise InvalidConfig("it does not exist", where=place) from None
    except OSError as failure:
        raise InvalidConfig(f"cannot be read: {failure.strerror}", where=place) from failure


@contextmanager
def _opened(directory: int, path: str, flags: int) -> Iterator[int]:
    descriptor = open_beneath(directory, path, os.O_RDONLY | flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _check(workspace: Workspace, descriptor: int, where: str) -> None:
    fault = ownership_fault(
        os.fstat(descriptor),
        runner=os.geteuid(),
        workspace_owner=workspace.status.st_uid,
        owned_by_workspace=True,
    )
    if fault is not None:
        raise InvalidConfig(fault, where=os.path.join(workspace.path, where))
