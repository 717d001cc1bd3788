"""What does it take to put a configuration in force?

Sandboxes for its policies, the grounds of its runs, its plugins, and a snapshot that binds them.
The same steps serve the start and each reload; a reload builds the candidate beside what is in
force and then swaps in one step of the event loop.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import anyio.to_thread

from executor.backends.base import Backend
from executor.bus.base import Report
from executor.configuration import Configuration, load_configuration
from executor.disk.identity import identity_for
from executor.disk.store import Store
from executor.disk.workspace import Workspace
from executor.hook_ids import HookIds
from executor.plan import Place, belongs_to_root
from executor.registry import Registry, Snapshot, build_snapshot, wanted_policies
from executor.reload import Candidate, Reloader, Swap
from executor.resolve import Resolver
from executor.runner import Grounds
from executor.sandboxes import Sandboxes
from executor.settings import check_state_dir, default_state_dir
from executor.wasm.opened import OpenedPlugins, open_plugins, reopened
from executor.watched import Marks, marks_of


class InForce:
    """The parts that a reload replaces together. Made by ``open``."""

    def __init__(
        self,
        stack: AsyncExitStack,
        workspace: Workspace,
        state: Path,
        sandboxes: Sandboxes,
        grounds: Grounds,
        plugins: OpenedPlugins,
        registry: Registry,
    ) -> None:
        self.workspace = workspace
        self.state = state
        self.sandboxes = sandboxes
        self.grounds = grounds
        self.plugins = plugins
        self.registry = registry
        self.ids = HookIds(state)
        self.marks: Marks = {}
        self.adopt: Callable[[], None] = lambda: None
        """Called in the step of the swap, for those who hold a part themselves."""
        self._stack = stack

    @classmethod
    async def open(
        cls,
        stack: AsyncExitStack,
        directory: Workspace,
        configuration: Configuration | None,
        *,
        sandbox: str | None,
        backends: Mapping[str, Backend] | None,
    ) -> InForce:
        """Everything of the first snapshot; ``stack`` closes it. With a ``configuration`` of the
        caller's own no file is read and no plugin opened. Raises InvalidConfig, Unavailable."""
        alone = configuration is not None
        # Taken before the files are read: what changes meanwhile will be seen as a change.
        marks = await anyio.to_thread.run_sync(marks_of, directory)
        if configuration is None:
            configuration = await anyio.to_thread.run_sync(load_configuration, directory)
        state = state_directory(directory, configuration.settings.state.dir)
        if not alone:
            hooks = await anyio.to_thread.run_sync(HookIds(state).settle, configuration.hooks)
            configuration = replace(configuration, hooks=hooks)
        sandboxes = await stack.enter_async_context(
            Sandboxes.open(sandbox, backends, wanted_policies(configuration))
        )
        grounds = grounds_for(directory, configuration, sandboxes.places)
        plugins = OpenedPlugins()
        if not alone:
            plugins = await stack.enter_async_context(
                open_plugins(configuration, directory, grounds.resolver, grounds.identity, state)
            )
        registry = Registry(_snapshot(configuration, 1, sandboxes, plugins))
        self = cls(stack, directory, state, sandboxes, grounds, plugins, registry)
        self.marks = marks
        return self

    def reloader(self, report: Report) -> Reloader:
        """What keeps it fresh."""
        configuration = self.registry.snapshot.configuration
        return Reloader(self.workspace, self.ids, configuration, self.marks, self.prepare, report)

    async def prepare(self, candidate: Candidate) -> Swap:
        """Build all of a candidate beside what is in force. Raises InvalidConfig, Unavailable."""
        configuration = candidate.configuration
        sandboxes = await self.sandboxes.again(wanted_policies(configuration))
        grounds = await anyio.to_thread.run_sync(
            grounds_for, self.workspace, configuration, sandboxes.places
        )
        plugins = await reopened(
            self.plugins,
            configuration,
            self.workspace,
            grounds.resolver,
            grounds.identity,
            self.state,
            reread=candidate.plugins,
        )
        if plugins.backend is not None and self.plugins.backend is None:
            self._stack.push_async_callback(plugins.backend.close)
        snapshot = _snapshot(configuration, candidate.generation, sandboxes, plugins)

        def swap() -> None:
            self.sandboxes, self.grounds, self.plugins = sandboxes, grounds, plugins
            self.registry.replace(snapshot)
            self.adopt()

        return swap


def state_directory(workspace: Workspace, configured: str) -> Path:
    """Where the executor keeps its own things. Raises InvalidConfig where hooks could see it."""
    directory = os.path.realpath(configured or default_state_dir(dict(os.environ), workspace.path))
    check_state_dir(directory, workspace.path)
    return Path(directory)


def grounds_for(
    workspace: Workspace,
    configuration: Configuration,
    places: Mapping[tuple[str, str], Place],
) -> Grounds:
    """What runs stand on: who they run as, and what of the disk they may be shown.

    Raises InvalidConfig for an unusable ``[sandbox] uid``, Unavailable for the state directory.
    """
    settings = configuration.settings
    identity = identity_for(workspace.status, settings.sandbox.uid)
    state = state_directory(workspace, settings.state.dir)
    commands = {
        os.path.normpath(os.path.join(workspace.path, hook.action.command))
        for hook in configuration.hooks
        if not belongs_to_root(hook.action.command)
    }
    resolver = Resolver(
        workspace,
        Store(state / "store"),
        identity,
        protected=tuple(sorted(commands)),
        private=(str(state),),
        writable=tuple(
            path for policy in configuration.policies.values() for path in policy.filesystem.write
        ),
    )
    return Grounds(settings, resolver, identity, places)


def _snapshot(
    configuration: Configuration, generation: int, sandboxes: Sandboxes, plugins: OpenedPlugins
) -> Snapshot:
    return build_snapshot(
        configuration,
        generation=generation,
        backend_of=sandboxes.backend_of,
        plugins=plugins.subscriptions,
    )
