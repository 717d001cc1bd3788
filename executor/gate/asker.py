"""What happens when an agent asks before, or after, it acts?

``ask`` is the awaited verb: it reads like SPEC section 7. Make the event; for PreToolUse look at
Permission first (a denial ends it: no hook fires); for SessionStart let only the first call of a
session through; then walk the handlers: Python functions as registered, hooks of hooks.json in
file order, plugins. Every verdict is kept.

Shell hooks and plugins of the gate have a lane of their own: they never wait behind observed
events, and a lane that is full is a failed gate, not a silent delay.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import anyio
import anyio.to_thread

from executor.depth import MAX_DEPTH, handling, next_depth
from executor.errors import Fault, InvalidConfig, InvalidEvent
from executor.events import GATE, Event, make_event, new_session_id, require_family
from executor.gate.consent import Consent
from executor.gate.handlers import Handlers
from executor.gate.protocols import answer_of_outcome
from executor.gate.sessions import Sessions
from executor.gate.walk import Handler, Rules, walk
from executor.ledger.base import Ledger
from executor.outcome import Cause
from executor.permission.decide import Permission
from executor.permission.rules import Effect
from executor.record import Record
from executor.registry import Registry
from executor.runner import Grounds, Runner, interrupted, unstarted
from executor.settings import PermissionSettings
from executor.subscription import AnySubscription, Subscription
from executor.verdict import BLOCK, Answer, Decided, Verdict, failed

_WAITING_PER_LANE = 8
"""Gate runs that may wait for each one that runs; more are failed gates at once."""


@dataclass(frozen=True, slots=True)
class Place:
    """What permission rules need to know of the machine: absolute paths."""

    workspace: str
    home: str


class Lane:
    """How many gate runs go on at once, and how many may wait."""

    def __init__(self, at_once: int) -> None:
        self._limiter = anyio.CapacityLimiter(at_once)
        self._most = at_once * (1 + _WAITING_PER_LANE)
        self._inside = 0

    async def run(self, start: Callable[[], Awaitable[Record]]) -> Record | None:
        """The record, or None where the lane is full."""
        if self._inside >= self._most:
            return None
        self._inside += 1
        try:
            async with self._limiter:
                return await start()
        finally:
            self._inside -= 1


class Asker:
    """Owns the gate of one executor. All methods belong to the event loop's thread."""

    def __init__(
        self,
        registry: Registry,
        runner: Runner,
        ledger: Ledger,
        grounds: Callable[[], Grounds],
        sessions: Sessions,
        place: Place,
        keep: Callable[[Verdict], None],
    ) -> None:
        self.handlers = Handlers()
        self.consent = Consent()
        self.closed = False
        self.thread = threading.get_ident()
        self._registry = registry
        self._runner = runner
        self._ledger = ledger
        self._grounds = grounds
        self._sessions = sessions
        self._place = place
        self._keep = keep
        self._lane = Lane(grounds().settings.limits.max_concurrency)
        self._compiled: tuple[PermissionSettings, Permission] | None = None
        self.permission()

    def permission(self) -> Permission:
        """The rules in force. Raises InvalidConfig for rules that could never be compiled."""
        settings = self._registry.snapshot.configuration.settings.permission
        if self._compiled is None or self._compiled[0] is not settings:
            place = self._place
            try:
                rules = Permission.compile(settings, workspace=place.workspace, home=place.home)
            except InvalidConfig:
                if self._compiled is None:
                    raise
                rules = self._compiled[1]  # the last good ones stay in force
            self._compiled = (settings, rules)
        return self._compiled[1]

    async def ask(
        self, name: str, payload: Mapping[str, object], session_id: str | None = None
    ) -> Verdict:
        """Permission where the event has one, then the hooks. Raises InvalidEvent."""
        event = gate_event(name, payload, session_id)
        verdict = await self._denied(event) if name == "PreToolUse" else None
        return self._kept(verdict or await self._asked(event))

    async def run_hooks(
        self, name: str, payload: Mapping[str, object], session_id: str | None = None
    ) -> Verdict:
        """The hooks only. Raises InvalidEvent."""
        return self._kept(await self._asked(gate_event(name, payload, session_id)))

    def waits(self, name: str, payload: Mapping[str, object]) -> str | None:
        """Which handler of this event would have to be waited for, if any."""
        if name == "SessionStart":
            return "SessionStart"
        event = gate_event(name, payload, None)
        waiting = [one.id for one in self.handlers.match(event) if one.waits]
        waiting += [one.id for one in self._registry.snapshot.match(event)]
        return waiting[0] if waiting else None

    async def _asked(self, event: Event) -> Verdict:
        refusal = self._refusal(event)
        if refusal is not None:
            return _ungated(event, refusal)
        handlers = self._handlers(event)
        if event.name == "SessionStart" and not await self._first(event.session_id):
            return Verdict(event.name, event.session_id, reason="this session has started before")
        settings = self._registry.snapshot.configuration.settings.gate
        with handling(event.depth):
            return await walk(event, handlers, Rules(settings.strategy, settings.budget_ms / 1000))

    async def _first(self, session_id: str) -> bool:
        return await anyio.to_thread.run_sync(self._sessions.claim, session_id)

    async def _denied(self, event: Event) -> Verdict | None:
        """Why Permission says no, as a verdict; None where it does not."""
        started = time.perf_counter()
        tool, tool_input = event.payload["tool_name"], event.payload["input"]
        assert isinstance(tool, str)  # noqa: S101  (make_event checked both)
        assert isinstance(tool_input, dict)  # noqa: S101
        decision = self.permission().decide(tool, tool_input)
        if decision.effect is Effect.ALLOW:
            return None
        why = decision.reason
        if decision.effect is Effect.ASK:
            refusal = await self.consent.refusal(tool, tool_input, decision)
            if refusal is None:
                return None
            why = f"{refusal} ({why})"
        decider = "permission" if decision.rule is None else f"permission:{decision.rule}"
        seconds = time.perf_counter() - started
        return _decided(event, decider, f"Permission denied: {why}", None, seconds)

    def _refusal(self, event: Event) -> str | None:
        """Why no handler may even be asked."""
        if self.closed:
            return "the executor is closed"
        limit = self._grounds().settings.limits.max_payload_bytes
        if len(event.envelope) > limit:
            return f"the event has {len(event.envelope)} bytes, more than max_payload_bytes {limit}"
        if event.depth > MAX_DEPTH:
            return (
                f"the event's depth {event.depth} is beyond {MAX_DEPTH}: a hook asks about itself"
            )
        return None

    def _handlers(self, event: Event) -> list[Handler]:
        """Everyone who is to be asked, in configured order; plugins come last in the snapshot."""
        functions: list[Handler] = list(self.handlers.match(event))
        grounds = self._grounds()
        return functions + [
            _Hook(subscription, self._start(subscription, grounds))
            for subscription in self._registry.snapshot.match(event)
        ]

    def _start(
        self, subscription: AnySubscription, grounds: Grounds
    ) -> Callable[[Event], Awaitable[Answer]]:
        async def start(event: Event) -> Answer:
            queued_at = time.monotonic()
            try:
                record = await self._lane.run(
                    lambda: self._runner.run(event, subscription, grounds, queued_at=queued_at)
                )
            except anyio.get_cancelled_exc_class():
                reason = "the gate's time was spent, or the caller gave up"
                ended = interrupted(Cause.CANCELLED, reason)
                self._ledger.append(unstarted(event, subscription, ended))
                raise
            if record is None:
                return failed("too many gate hooks wait already; the machine is too slow for them")
            self._ledger.append(record)
            protocol = "native"
            if isinstance(subscription, Subscription):
                protocol = subscription.hook.action.protocol
            return answer_of_outcome(
                record.outcome, protocol=protocol, event=event.name, decider=subscription.id
            )

        return start

    def _kept(self, verdict: Verdict) -> Verdict:
        self._keep(verdict)
        return verdict


@dataclass(frozen=True, slots=True)
class _Hook:
    """A shell hook or plugin as a handler of the gate."""

    subscription: AnySubscription
    start: Callable[[Event], Awaitable[Answer]]

    @property
    def id(self) -> str:
        return self.subscription.id

    @property
    def goes_on(self) -> bool:
        return self.subscription.policy.gate.on_failure == "continue"

    def begin(self, event: Event) -> Awaitable[Answer]:
        return self.start(event)


def gate_event(name: str, payload: Mapping[str, object], session_id: str | None) -> Event:
    """One event of the gate, of the payload's session if none is given. Raises InvalidEvent."""
    require_family(name, GATE)
    if session_id is None:
        own = dict(payload).get("session_id")
        session_id = own if isinstance(own, str) else new_session_id()
    return make_event(
        name, payload, session_id=session_id, now=datetime.now(UTC), depth=next_depth()
    )


def event_of(
    event: str | Mapping[str, object], payload: Mapping[str, object] | None
) -> tuple[str, Mapping[str, object]]:
    """Name and payload from the two forms that callers use. Raises InvalidEvent."""
    if isinstance(event, str):
        return event, {} if payload is None else payload
    name, content = event.get("name"), event.get("payload")
    if payload is not None or set(event) != {"name", "payload"}:
        raise InvalidEvent([Fault("", 'must be a name and a payload, or {"name", "payload"}')])
    if not isinstance(name, str) or not isinstance(content, Mapping):
        raise InvalidEvent([Fault("", "name must be a string and payload an object")])
    return name, content


def _decided(
    event: Event, decider: str, message: str, failure: str | None, seconds: float = 0.0
) -> Verdict:
    """A block that came before any handler was asked."""
    decided = Decided(decider, BLOCK, message, failure, seconds)
    return Verdict(
        event.name, event.session_id, BLOCK, message, decider, message, (decided,), seconds
    )


def _ungated(event: Event, refusal: str) -> Verdict:
    if event.name == "PreToolUse":
        return _decided(event, "gate", f"The call is blocked to be safe: {refusal}", refusal)
    return Verdict(event.name, event.session_id, decider="gate", reason=refusal)
