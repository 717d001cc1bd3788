"""Why did a hook probably fail?

A sandbox makes programs fail in ways that their own messages explain badly ("Could not resolve
host"). Where the policy is the likely cause, the reason says so and names the key that would
change it. A hint never changes what happened, only what is said about it.
"""

from __future__ import annotations

import re
from dataclasses import replace

from executor.outcome import Cause, Outcome, Status
from executor.subscription import Subscription

_ADDRESS = re.compile(r"\b(?:https?|wss?|ftps?|ssh|tcp|redis|postgres(?:ql)?|mysql|nats)://")
_NETWORK_FAILURE = re.compile(
    r"Could not resolve host|Network is unreachable|Temporary failure in name resolution"
    r"|Name or service not known|Address family not supported|Failed to connect"
    r"|Couldn't connect|Could not connect|Connection refused|Unable to connect|unreachable",
    re.IGNORECASE,
)


def explained(outcome: Outcome, subscription: Subscription) -> Outcome:
    """The outcome, with a further reason where the policy is the likely cause."""
    if outcome.cause not in (Cause.EXIT, Cause.WALL_CLOCK):
        return outcome
    if outcome.status is Status.OK:
        return outcome
    if not subscription.policy.network.allow and _reaches_out(outcome, subscription):
        told = [] if outcome.reason is None else [outcome.reason]
        return replace(outcome, reason="; ".join([*told, no_network(subscription.policy.name)]))
    return outcome


def no_network(policy: str) -> str:
    """What to tell about a hook that wants a network and has none."""
    return (
        f'the sandbox has no network: policy "{policy}" has no network.allow '
        "entry (and the egress proxy that would serve one is not part of this version)"
    )


def addresses(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments that look like network addresses."""
    return tuple(argument for argument in arguments if _ADDRESS.search(argument))


def _reaches_out(outcome: Outcome, subscription: Subscription) -> bool:
    if addresses(tuple(subscription.hook.action.args)):
        return True
    return bool(_NETWORK_FAILURE.search(outcome.stderr[-4096:].decode("utf-8", "replace")))
