"""How does a matched hook become a Record?

The road of DESIGN for one run: resolve → plan → backend → record. Everything that can go wrong
on it is an Outcome.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

import anyio
import anyio.to_thread

from executor.backends.base import Backend
from executor.disk.residue import residue
from executor.emission import Emissions, Emit, hearing
from executor.events import GATE, Event
from executor.flights import Flight, Flights
from executor.guards import Breaker, Rate
from executor.hints import explained
from executor.job import Job
from executor.outcome import Cause, Outcome, Status, dropped, error, refused
from executor.plan import Files, Identity, Place, compile_job
from executor.plugin_job import PluginJob
from executor.policy import Policy
from executor.record import Record
from executor.resolve import Resolver
from executor.settings import Settings
from executor.subscription import AnySubscription, PluginSubscription, Subscription


class PluginBackend(Protocol):
    """What turns a PluginJob into an Outcome, by the rules of ``Backend.run``."""

    async def run(self, job: PluginJob) -> Outcome: ...


@dataclass(frozen=True, slots=True)
class Grounds:
    """What a run stands on besides its subscription; one per snapshot.

    ``places`` maps (policy name, backend) to the resolved root.
    """

    settings: Settings
    resolver: Resolver
    identity: Identity
    places: Mapping[tuple[str, str], Place]

    def place(self, policy: Policy, backend: str) -> Place:
        missing = Place(fault=f'policy "{policy.name}" has no {backend} root prepared')
        return self.places.get((policy.name, backend), missing)


class Runner:
    """Runs one subscription for one event on the backend that its policy named."""

    def __init__(
        self, backends: Mapping[str, Backend], plugins: PluginBackend | None = None
    ) -> None:
        self.flights = Flights()
        self.breaker = Breaker()
        self.rate = Rate()
        self.emit: Emit | None = None
        """Where the events go that hooks emit; set by who opens the dispatcher."""
        self._backends = backends
        self.plugins = plugins
        self._disk = anyio.CapacityLimiter(8)

    async def run(
        self, event: Event, subscription: AnySubscription, grounds: Grounds, *, queued_at: float
    ) -> Record:
        """The record of the run. Only cancellation raises; ``stopped`` makes its record."""
        refusal = self._refusal(event, subscription, grounds)
        if refusal is not None:
            return unstarted(event, subscription, refusal)
        record = await self._run(event, subscription, grounds, time.monotonic() - queued_at)
        self.breaker.note(subscription.id, record.outcome)
        return record

    def _refusal(
        self, event: Event, subscription: AnySubscription, grounds: Grounds
    ) -> Outcome | None:
        """What the guards of this hook have against the run."""
        per_minute = grounds.settings.limits.max_runs_per_minute_per_hook
        limited = per_minute > 0 and event.name not in GATE
        if limited and not self.rate.admits(subscription.id, per_minute):
            return dropped(f"the hook ran {per_minute} times within a minute", Cause.QUEUE)
        return self.breaker.refusal(subscription.id)

    async def _run(
        self, event: Event, subscription: AnySubscription, grounds: Grounds, waited: float
    ) -> Record:
        flight = Flight(new_run_id(), event, subscription, timestamp())
        with self.flights.open(flight), flight.scope:
            if isinstance(subscription, PluginSubscription):
                return await self._run_plugin(flight, subscription, waited)
            return await self._run_hook(flight, subscription, grounds, waited)
        ended = interrupted(Cause.CANCELLED, "the run was cancelled")
        record = unstarted(event, subscription, ended)
        return replace(record, run_id=flight.run_id, started_at=flight.started_at)

    async def _run_hook(
        self, flight: Flight, subscription: Subscription, grounds: Grounds, waited: float
    ) -> Record:
        event, run_id, started_at = flight.event, flight.run_id, flight.started_at
        place = grounds.place(subscription.policy, subscription.backend)
        try:
            files = await anyio.to_thread.run_sync(
                grounds.resolver.files,
                subscription.hook.action,
                subscription.policy,
                limiter=self._disk,
            )
            limits = grounds.settings.limits
            planned = compile_job(
                event,
                subscription,
                files,
                place,
                grounds.identity,
                run_id=run_id,
                max_payload_bytes=limits.max_payload_bytes,
                max_timeout_ms=limits.max_timeout_ms,
            )
            outcome = await self._execute(planned, subscription.backend, event)
        except Exception as failure:  # noqa: BLE001  (a fault of ours must not reach the agent)
            files, planned = Files((), subscription.hook.action.command, ""), None
            outcome = error(f"internal error: {type(failure).__name__}: {failure}")
        outcome = explained(outcome, subscription)
        outcome = replace(outcome, usage=replace(outcome.usage, queue_seconds=waited))
        job = planned if isinstance(planned, Job) else None
        return Record(
            run_id=run_id,
            hook=subscription.id,
            event=event.name,
            session_id=event.session_id,
            backend=subscription.kind,
            sandbox=subscription.walls,
            policy=subscription.policy.name,
            started_at=started_at,
            ended_at=timestamp(),
            outcome=outcome,
            job_digest=None if job is None else job.digest,
            command_sha256=files.command_sha256,
            image=place.digest,
        )

    async def _run_plugin(
        self, flight: Flight, subscription: PluginSubscription, waited: float
    ) -> Record:
        event, started_at = flight.event, flight.started_at
        sandbox, job = subscription.sandbox, None
        if subscription.refusal is not None or sandbox is None or self.plugins is None:
            outcome = refused(subscription.refusal or "plugins are not open here")
        else:
            job = PluginJob(
                sandbox,
                event.name,
                event.session_id,
                event.timestamp,
                event.envelope,
                gate=subscription.gate,
            )
            try:
                outcome = await self.plugins.run(job)
            except Exception as failure:  # noqa: BLE001  (a fault of ours must not reach the agent)
                outcome = error(f"internal error: {type(failure).__name__}: {failure}")
        return Record(
            run_id=flight.run_id,
            hook=subscription.id,
            event=event.name,
            session_id=event.session_id,
            backend=subscription.kind,
            sandbox=subscription.walls,
            policy=subscription.policy.name,
            started_at=started_at,
            ended_at=timestamp(),
            outcome=replace(
                outcome,
                notes=(*subscription.notes, *outcome.notes),
                usage=replace(outcome.usage, queue_seconds=waited),
            ),
            job_digest=None if job is None else job.digest,
            command_sha256=None if sandbox is None else sandbox.sha256,
        )

    async def _heard(self, job: Job, backend: str, event: Event) -> Outcome:
        """Run it; what it says through its emit channel is emitted meanwhile."""
        if not job.emit_bytes or self.emit is None:
            return await self._backends[backend].run(job)
        emissions = Emissions(event, self.emit)
        with hearing(emissions.hear):
            outcome = await self._backends[backend].run(job)
        return replace(outcome, notes=(*outcome.notes, *emissions.end()))

    async def _execute(self, planned: Job | Outcome, backend: str, event: Event) -> Outcome:
        if isinstance(planned, Outcome):
            return planned
        outcome = await self._heard(planned, backend, event)
        if not any(mount.writable for mount in planned.sandbox.mounts):
            return outcome
        found = await anyio.to_thread.run_sync(residue, planned.sandbox.mounts, limiter=self._disk)
        return replace(outcome, notes=(*outcome.notes, *found))


def unstarted(event: Event, subscription: AnySubscription, outcome: Outcome) -> Record:
    """The record of a run that never began: dropped, or interrupted while it waited."""
    now = timestamp()
    return Record(
        run_id=new_run_id(),
        hook=subscription.id,
        event=event.name,
        session_id=event.session_id,
        backend=subscription.kind,
        sandbox=subscription.walls,
        policy=subscription.policy.name,
        started_at=now,
        ended_at=now,
        outcome=outcome,
    )


def interrupted(cause: Cause, reason: str) -> Outcome:
    """The executor stopped, or somebody cancelled the run."""
    return Outcome(Status.INTERRUPTED, cause, reason=reason)


def new_run_id() -> str:
    """A fresh id, unguessable and unique over machines."""
    return f"run_{secrets.token_hex(8)}"


def timestamp() -> str:
    """Now, UTC, milliseconds, ``Z``."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
