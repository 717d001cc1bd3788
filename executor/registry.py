"""What is in force now?

An immutable Snapshot and the one swap. Whoever changes the configuration (a file, the API) ends in
``Registry.replace``; runs in flight keep the Snapshot that they started with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from executor.configuration import Configuration
from executor.errors import Refused
from executor.events import Event
from executor.hooks import Hook
from executor.policy import Policy, stricter
from executor.subscription import AnySubscription, PluginSubscription, Subscription

_TOOL_KEYS = ("tool", "tool_name")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that decides what an event does. ``generation`` counts the swaps."""

    generation: int
    configuration: Configuration
    subscriptions: Mapping[str, tuple[AnySubscription, ...]] = field(default_factory=dict)

    def match(self, event: Event) -> tuple[AnySubscription, ...]:
        """Who reacts to this event, in configured order."""
        tool = next((event.payload[key] for key in _TOOL_KEYS if key in event.payload), None)
        return tuple(
            subscription
            for subscription in self.subscriptions.get(event.name, ())
            if subscription.wants(tool)
        )


class Registry:
    """Holds the current Snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    @property
    def snapshot(self) -> Snapshot:
        return self._snapshot

    def replace(self, candidate: Snapshot) -> None:
        """Put a fully built candidate in force: one assignment, so no reader sees half of it."""
        self._snapshot = candidate


def build_snapshot(
    configuration: Configuration,
    *,
    generation: int,
    backend_of: Callable[[Policy], str],
    plugins: Sequence[PluginSubscription] = (),
) -> Snapshot:
    """Bind each enabled hook to its policy and backend; ``plugins`` are bound already and come
    after the hooks."""
    subscriptions: dict[str, list[AnySubscription]] = {}
    for name, hook in identified(configuration.hooks):
        if hook.enabled:
            bound = subscribe(name, hook, configuration, backend_of)
            subscriptions.setdefault(hook.event, []).append(bound)
    for plugin in plugins:
        subscriptions.setdefault(plugin.event, []).append(plugin)
    return Snapshot(
        generation,
        configuration,
        {event: tuple(bound) for event, bound in subscriptions.items()},
    )


def wanted_policies(configuration: Configuration) -> tuple[Policy, ...]:
    """The policies under which this configuration's enabled hooks would run, each once."""
    found = {
        subscription.policy.name: subscription.policy
        for name, hook in identified(configuration.hooks)
        if hook.enabled
        and (subscription := subscribe(name, hook, configuration, lambda _: "")).refusal is None
    }
    return tuple(found.values())


def subscribe(
    name: str, hook: Hook, configuration: Configuration, backend_of: Callable[[Policy], str]
) -> Subscription:
    """One hook with its policy: the bound one, made stricter by the one it asks for."""
    settings, policies = configuration.settings, configuration.policies
    bound_name = settings.policy_for(hook.event, hook.action.command)
    bound = policies.get(bound_name)
    asked = hook.action.policy
    refusal = None
    if bound is None:
        bound = policies["strict"]
        refusal = f'config.toml binds this hook to policy "{bound_name}", which does not exist'
    elif asked is not None and asked != bound_name:
        if asked not in settings.policies.requestable:
            refusal = (
                f'the hook asks for policy "{asked}", which config.toml does not list under '
                "[policies] requestable"
            )
        elif asked not in policies:
            refusal = f'the hook asks for policy "{asked}", which does not exist'
        else:
            try:
                bound = stricter(bound, policies[asked])
            except Refused as reason:
                refusal = str(reason)
    return Subscription(name, hook, bound, backend_of(bound), refusal)


def identified(hooks: Sequence[Hook]) -> list[tuple[str, Hook]]:
    """Each hook with its id: the one in the file, else the next free ``hook_NN`` in file order."""
    taken = {hook.id for hook in hooks if hook.id is not None}
    result = []
    number = 0
    for hook in hooks:
        name = hook.id
        while name is None:
            number += 1
            candidate = f"hook_{number:02d}"
            name = None if candidate in taken else candidate
        result.append((name, hook))
    return result
