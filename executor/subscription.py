"""Who reacts to an event, and under which policy?

A Subscription is a hook, a PluginSubscription a plugin, together with everything that configuration
says about it; it is made once per snapshot, never per event.
"""

from __future__ import annotations

from dataclasses import dataclass

from executor.hooks import Hook
from executor.plugin_job import PluginSandbox
from executor.policy import Policy


@dataclass(frozen=True, slots=True)
class Subscription:
    """One hook that may run.

    ``id`` as reports name it, ``backend`` the resolved sandbox ("docker" or "namespace").
    ``refusal`` is set where configuration alone already says no: such a hook is recorded as
    ``refused`` for every event and never starts.
    """

    id: str
    hook: Hook
    policy: Policy
    backend: str
    refusal: str | None = None

    @property
    def event(self) -> str:
        return self.hook.event

    @property
    def kind(self) -> str:
        """The ``backend`` of reports; ``walls`` is their ``sandbox`` (SPEC section 10)."""
        return "shell"

    @property
    def walls(self) -> str | None:
        return self.backend

    def wants(self, tool: object) -> bool:
        """Whether the action's ``matcher`` accepts this tool name (SPEC section 2)."""
        matcher = self.hook.action.matcher
        if matcher is None:
            return True
        return isinstance(tool, str) and self.hook.action.matches_tool(tool)


@dataclass(frozen=True, slots=True)
class PluginSubscription:
    """One plugin and one event that it reacts to; its policy may differ from event to event.

    ``sandbox`` is None where the plugin cannot serve; then ``refusal`` says why. ``notes`` go into
    every report: what it asked for and did not get, an older version in its place.
    """

    id: str
    event: str
    policy: Policy
    sandbox: PluginSandbox | None = None
    gate: bool = False
    refusal: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return "wasm"

    @property
    def walls(self) -> str | None:
        return None

    def wants(self, tool: object) -> bool:
        """A plugin has no matcher: it looks at the payload itself."""
        del tool
        return True


AnySubscription = Subscription | PluginSubscription
