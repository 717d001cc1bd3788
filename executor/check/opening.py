"""Would an executor open here, and what would keep it from that?

``Executor.open`` itself is the judge, so that ``check`` cannot pass what it refuses. It stops at
its first reason; where it has one, its steps are then tried one by one, so that all are told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from executor.bus.base import running, silent
from executor.bus.choice import bus_for
from executor.configuration import Configuration
from executor.disk.workspace import Workspace
from executor.errors import ExecutorError, InvalidConfig, Unavailable
from executor.in_force import grounds_for, state_directory
from executor.plan import Place
from executor.policy import Policy
from executor.registry import wanted_policies
from executor.sandboxes import Sandboxes
from executor.service import Executor
from executor.wasm.opened import OpenedPlugins, open_plugins

if TYPE_CHECKING:
    from executor.subscription import PluginSubscription
    from executor.wasm.loader import Plugin

Places = Mapping[tuple[str, str], Place]


@dataclass(slots=True)
class Opening:
    """What an executor would stand on, and every reason for which it would not open.

    ``configuration`` has the hooks' ids where it opened. ``broken`` is what a file says,
    ``missing`` the reason for each policy that has no sandbox, ``refusals`` everything else.
    ``uncontained`` is what the plugins' workers could not be denied on this machine.
    """

    configuration: Configuration
    places: Places = field(default_factory=dict)
    backends: Mapping[str, str] = field(default_factory=dict)
    plugins: Sequence[Plugin] = ()
    subscriptions: Sequence[PluginSubscription] = ()
    uncontained: Sequence[str] = ()
    broken: list[InvalidConfig] = field(default_factory=list)
    missing: dict[str, Unavailable] = field(default_factory=dict)
    refusals: list[ExecutorError] = field(default_factory=list)


async def try_to_open(
    workspace: Workspace,
    configuration: Configuration,
    sandbox: str | None,
    *,
    known: Sequence[InvalidConfig] = (),
) -> Opening:
    """Open an executor that runs nothing, and close it again. ``known`` are the faults of files
    that were found already; ``configuration`` is what could be read in spite of them."""
    opening = Opening(configuration)
    try:
        async with Executor.open(workspace.path, sandbox=sandbox, watch=False) as executor:
            live = executor.live
            opening.configuration = configuration = live.registry.snapshot.configuration
            opening.places = dict(live.sandboxes.places)
            opening.backends = {
                policy.name: live.sandboxes.backend_of(policy)
                for policy in wanted_policies(configuration)
            }
            await _look_at(live.plugins, opening)
    except ExecutorError as refusal:
        await _try_each_step(workspace, sandbox, opening)
        _add(opening, refusal, known)
    return opening


async def _try_each_step(workspace: Workspace, sandbox: str | None, opening: Opening) -> None:
    configuration = opening.configuration
    opening.places, opening.backends = await _sandboxes(
        sandbox, wanted_policies(configuration), opening.missing
    )
    try:
        grounds = grounds_for(workspace, configuration, opening.places)
        state = state_directory(workspace, configuration.settings.state.dir)
        async with open_plugins(
            configuration, workspace, grounds.resolver, grounds.identity, state
        ) as plugins:
            await _look_at(plugins, opening)
    except ExecutorError as refusal:
        _add(opening, refusal)
    try:
        async with running(bus_for(configuration.settings.bus, silent)):
            pass
    except ExecutorError as refusal:
        _add(opening, refusal)


async def _sandboxes(
    override: str | None, policies: Sequence[Policy], missing: dict[str, Unavailable]
) -> tuple[Places, Mapping[str, str]]:
    """The root and the backend of each policy, one by one: one may lack what others have."""
    places: dict[tuple[str, str], Place] = {}
    backends: dict[str, str] = {}
    for policy in policies:
        try:
            async with Sandboxes.open(override, None, [policy]) as sandboxes:
                places |= sandboxes.places
                backends[policy.name] = sandboxes.backend_of(policy)
        except Unavailable as reason:
            missing[policy.name] = reason
    return places, backends


async def _look_at(plugins: OpenedPlugins, opening: Opening) -> None:
    await plugins.warm()
    opening.plugins, opening.subscriptions = plugins.plugins, plugins.subscriptions
    opening.uncontained = () if plugins.backend is None else plugins.backend.notes


def _add(opening: Opening, refusal: ExecutorError, known: Sequence[InvalidConfig] = ()) -> None:
    """Each reason once: the judge's own is very likely among those of its steps."""
    told = {str(one) for one in (*known, *opening.broken, *opening.refusals)}
    told |= {str(one) for one in opening.missing.values()}
    if str(refusal) in told:
        return
    if isinstance(refusal, InvalidConfig):
        opening.broken.append(refusal)
    else:
        opening.refusals.append(refusal)
