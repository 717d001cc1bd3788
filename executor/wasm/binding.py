"""Under which policy does each plugin run, and what does that make of it?

Once a snapshot: for every event of every plugin the bound policy, the smaller of its limits and the
manifest's, and the directories that both name. The result is a subscription like a shell hook's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from executor.action import Action
from executor.configuration import Configuration
from executor.events import GATE
from executor.plan import Files, timeout_ms
from executor.plugin_job import PluginSandbox
from executor.plugins import Manifest
from executor.policy import Policy
from executor.subscription import PluginSubscription
from executor.wasm.cache import Compiled
from executor.wasm.loader import Plugin
from executor.wasm.permissions import Permitted, permitted

MIB = 1024 * 1024
NOTHING = Action(command="true")
"""The resolver looks at an action's policy; a plugin has no command of its own."""

Look = Callable[[Action, Policy], Files]
"""``Resolver.files``: what of the policy's grants is there."""


def bind(
    plugins: Sequence[Plugin], configuration: Configuration, look: Look, workspace: str
) -> tuple[PluginSubscription, ...]:
    """One subscription for each plugin and event, in the order of the plugins.

    A plugin that cannot serve is refused at every event that its manifest names, so that nobody
    takes it for running.
    """
    return tuple(
        _subscription(plugin, event, configuration, look, workspace)
        for plugin in plugins
        if plugin.manifest is not None
        for event in plugin.manifest.events
    )


def _subscription(
    plugin: Plugin, event: str, configuration: Configuration, look: Look, workspace: str
) -> PluginSubscription:
    bound_name = configuration.settings.policy_for_plugin(event, plugin.name)
    policy = configuration.policies.get(bound_name)
    manifest, compiled = plugin.manifest, plugin.compiled
    notes = () if plugin.stale is None else (f"an older version serves: {plugin.stale}",)
    if policy is None:
        refusal: str | None = (
            f'config.toml binds this plugin to policy "{bound_name}", which does not exist'
        )
        policy = configuration.policies["strict"]
        return PluginSubscription(plugin.id, event, policy, refusal=refusal, notes=notes)
    if manifest is None or compiled is None:
        return PluginSubscription(plugin.id, event, policy, refusal=plugin.fault, notes=notes)
    got = _permitted(manifest, policy, look, workspace)
    return PluginSubscription(
        plugin.id,
        event,
        policy,
        sandbox=_sandbox(manifest, compiled, policy, got, configuration),
        gate=event in GATE,
        refusal="; ".join(got.faults) or None,
        notes=(*notes, *got.notes),
    )


def _permitted(manifest: Manifest, policy: Policy, look: Look, workspace: str) -> Permitted:
    asked = manifest.permissions
    if not asked.filesystem_allowlist:
        return permitted(asked, (), workspace=workspace, policy=policy.name)
    return permitted(asked, look(NOTHING, policy).mounts, workspace=workspace, policy=policy.name)


def _sandbox(
    manifest: Manifest,
    compiled: Compiled,
    policy: Policy,
    got: Permitted,
    configuration: Configuration,
) -> PluginSandbox:
    resources, limits = manifest.resources, policy.limits
    largest = configuration.settings.limits.max_timeout_ms
    return PluginSandbox(
        name=manifest.name,
        sha256=compiled.sha256,
        native=compiled.native,
        interface=compiled.interface,
        imports=compiled.imports,
        wasi=compiled.wasi,
        http=tuple(compiled.http),
        config=manifest.config,
        directories=got.directories,
        environment=got.environment,
        memory_bytes=min(resources.max_memory_mb * MIB, limits.memory),
        timeout_seconds=timeout_ms(resources.max_execution_time_ms, policy, largest) / 1000,
        output_bytes=limits.output,
        kv_bytes=resources.kv_bytes,
    )
