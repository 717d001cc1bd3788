"""Who reacts to an event, and under which policy?

A Subscription is a hook together with everything that configuration says about it; it is made
once per snapshot, never per event.
"""

from __future__ import annotations

from dataclasses import dataclass

from executor.hooks import Hook
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

    def wants(self, tool: object) -> bool:
        """Whether the action's ``matcher`` accepts this tool name (SPEC section 2)."""
        matcher = self.hook.action.matcher
        if matcher is None:
            return True
        return isinstance(tool, str) and self.hook.action.matches_tool(tool)
