"""What would happen to this hook, and why?

What ``check`` says of one hook. The verdict is ``compile_job``'s own, on the values that a run
would get, so that ``check`` and a run cannot disagree; beside it stands what ``lint`` sees. Pure:
what the disk must tell is in ``Files`` or comes through ``Look``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from executor.admission import stripped_names
from executor.check.explanation import Explanation, Finding, Look, Weight
from executor.check.lint import lint
from executor.events import GATE_FIELDS, LIFECYCLE_FIELDS, Event, make_event
from executor.outcome import Outcome
from executor.plan import Files, Identity, Place, compile_job, environment, timeout_ms
from executor.settings import Settings
from executor.subscription import Subscription

_SAMPLES: Mapping[str, object] = {"string": "", "boolean": True, "number": 0}


def explain(
    subscription: Subscription,
    files: Files,
    place: Place | None,
    identity: Identity,
    settings: Settings,
    look: Look,
) -> Explanation:
    """Everything about one enabled hook. ``place`` is None where its sandbox cannot be had."""
    action, policy = subscription.hook.action, subscription.policy
    event = sample_event(subscription.event)
    home, emit = policy.environment.home, policy.bus.emit
    names = tuple(environment(event, action.env, home=home, emit=emit))
    bare = Explanation(
        id=subscription.id,
        subscription=subscription,
        because=why_bound(settings, subscription),
        runs_as=identity,
        place=place,
        cwd=files.cwd,
        timeout_ms=timeout_ms(action.timeout_ms, policy, settings.limits.max_timeout_ms),
        mounts=files.mounts,
        environment=names,
        stripped=stripped_names(action.env),
        command_sha256=files.command_sha256,
    )
    if subscription.refusal is not None:
        # The policy here is only a stand-in: whatever else it made of the hook would mislead.
        return replace(bare, findings=(_error(bare, subscription.refusal),))
    found = (*_verdict(bare, event, files, settings), *lint(bare, files, look))
    return replace(bare, findings=found)


def sample_event(name: str) -> Event:
    """An event of that name with the emptiest payload it allows."""
    fields = {**LIFECYCLE_FIELDS, **GATE_FIELDS}[name]
    payload = {key: {} if kind == "object" else _SAMPLES[kind] for key, kind in fields.items()}
    if "session_id" in payload:
        payload["session_id"] = "sess_check"
    return make_event(name, payload, session_id="sess_check", now=datetime.now(UTC))


def why_bound(settings: Settings, subscription: Subscription) -> str:
    """Which line of config.toml chose the policy, and what became of one that the hook asks for."""
    action = subscription.hook.action
    number = binding_number(settings, subscription.event, action.command)
    text = "no [[bind]] matches" if number is None else f"config.toml /bind/{number}"
    asked = action.policy
    if asked is None or asked == settings.policy_for(subscription.event, action.command):
        return text
    if subscription.refusal is not None:
        return f'{text}; the hook asks for "{asked}", and is refused'
    return f'{text}; made stricter by "{asked}", which the hook asks for'


def binding_number(settings: Settings, event: str, command: str) -> int | None:
    """The index of the ``[[bind]]`` that ``Settings.policy_for`` would follow."""
    for number, one in enumerate(settings.bind):
        if (one.commands or not one.plugins) and one.covers(event, one.commands, command):
            return number
    return None


def _verdict(
    hook: Explanation, event: Event, files: Files, settings: Settings
) -> Iterator[Finding]:
    limits = settings.limits
    planned = compile_job(
        event,
        hook.subscription,
        files,
        hook.place or Place(),
        hook.runs_as,
        run_id="run_check",
        max_payload_bytes=limits.max_payload_bytes,
        max_timeout_ms=limits.max_timeout_ms,
    )
    reason = planned.reason if isinstance(planned, Outcome) else None
    told = "; ".join(files.faults)
    if reason and reason != told:
        yield _error(hook, reason)
    for fault in files.faults:
        yield _error(hook, fault)
    failure = files.failure
    if failure is not None and failure.reason and failure.reason != reason:
        yield _error(hook, failure.reason, at="/command")


def _error(hook: Explanation, message: str, *, at: str = "") -> Finding:
    return Finding(Weight.ERROR, hook.pointer + at, message)
