"""What happens when an event comes in?

``emit`` is the fire-and-forget verb: it never waits and never raises for anything that a hook,
a queue or a backend does. It reads like the picture of the architecture: make the event, publish
it, match it, queue one run for each match. Workers take runs from the queue, at most
``max_concurrency`` at once.

Events of other threads are made and published there; only the queueing is left to the event loop.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import anyio
import anyio.abc

from executor.bus.base import Bus, Execute, Message, Published, Report, silent, worth_a_line
from executor.bus.bell import Bell
from executor.depth import MAX_DEPTH, handling, next_depth
from executor.events import LIFECYCLE, Event, make_event, require_family
from executor.flights import Flights
from executor.guards import Breaker, Slots
from executor.ledger.base import Ledger
from executor.ledger.metrics import Metrics
from executor.outcome import Cause, Outcome, dropped
from executor.queue import Closed, Queue
from executor.receipt import Receipt
from executor.record import Record
from executor.registry import Registry
from executor.runner import Grounds, Runner, interrupted, unstarted
from executor.subscription import AnySubscription
from executor.topics import topic_of

_MAX_INBOX = 65536
"""Events of other threads that wait for the event loop; more are dropped."""


@dataclass(slots=True)
class _Pending:
    """One run that waits, with the grounds in force when its event came."""

    receipt: Receipt
    position: int
    subscription: AnySubscription
    grounds: Grounds
    queued_at: float


class Dispatcher:
    """Owns the queue and the workers.

    ``emit`` may be called from any thread, everything else in the event loop's own. ``execute``
    says who runs the hooks: with ``Execute.WORKERS`` only what is too large for the bus runs here.
    """

    def __init__(
        self,
        registry: Registry,
        runner: Runner,
        bus: Bus,
        ledger: Ledger,
        metrics: Metrics,
        grounds: Grounds,
        *,
        execute: Execute = Execute.LOCAL,
        report: Report = silent,
    ) -> None:
        self._registry = registry
        self._runner = runner
        self._bus = bus
        self._ledger = ledger
        self._metrics = metrics
        self.grounds = grounds
        limits = grounds.settings.limits
        self._concurrency = limits.max_concurrency
        self._queue = Queue[_Pending](limits.max_queue)
        self._slots = Slots[_Pending]()
        self._outstanding = 0
        self._idle: anyio.Event | None = None
        self._stopping = False
        self._execute = execute
        self._report = report
        self._too_deep = 0
        self._thread = threading.get_ident()
        self._inbox: deque[Receipt] = deque()
        self._inbox_lock = threading.RLock()
        self._bell = Bell()

    @property
    def waiting(self) -> int:
        """Runs in the queue, or aside because of their hook's own limit."""
        return len(self._queue) + self._slots.waiting

    @property
    def flights(self) -> Flights:
        """The runs that have begun, the gate's too."""
        return self._runner.flights

    @property
    def breaker(self) -> Breaker:
        """Which hooks are paused."""
        return self._runner.breaker

    def emit(
        self,
        name: str,
        payload: Mapping[str, object],
        *,
        session_id: str,
        depth: int | None = None,
    ) -> Receipt:
        """Publish and queue an event. Raises InvalidEvent, the caller's mistake, and nothing else.

        ``depth`` is that of the chain which this code continues, unless it is given.
        """
        require_family(name, LIFECYCLE)
        depth = next_depth() if depth is None else depth
        event = make_event(name, payload, session_id=session_id, now=datetime.now(UTC), depth=depth)
        receipt = Receipt(event, topic_of(event.name))
        if not self._admit(receipt) or not self._publish(receipt):
            return receipt
        if threading.get_ident() == self._thread:
            self._enqueue(receipt)
        else:
            self._hand_over(receipt)
        return receipt

    @property
    def most_hooks(self) -> int:
        """How many runs one event may start at most, as things stand."""
        return max(map(len, self._registry.snapshot.subscriptions.values()), default=0)

    def perform(self, event: Event) -> Receipt:
        """Queue an event that was published elsewhere for workers to execute. Never raises."""
        receipt = Receipt(event, topic_of(event.name))
        receipt.published = True
        if self._admit(receipt):
            self._enqueue(receipt)
        return receipt

    async def work(
        self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Run what is queued until ``finish``; cancelling interrupts what is in flight."""
        self._thread = threading.get_ident()
        async with anyio.create_task_group() as workers:
            for _ in range(self._concurrency):
                workers.start_soon(self._worker)
            with self._bell:
                task_status.started()
                while not self._stopping:
                    await self._bell.wait()
                    self._take_in()

    async def drain(self) -> None:
        """Until nothing is queued and nothing runs."""
        self._take_in()
        while self._outstanding:
            if self._idle is None:
                self._idle = anyio.Event()
            await self._idle.wait()

    def finish(self) -> None:
        """Take no more events; workers end when the queue is empty."""
        self._stop()
        self._queue.close()

    def abandon(self) -> None:
        """After the workers were cancelled: what still waits becomes ``interrupted``."""
        self._stop()
        for pending in (*self._queue.empty(), *self._slots.empty()):
            self._keep(pending, self._unstarted(pending, _STOPPED))
        self._queue.close()

    def _admit(self, receipt: Receipt) -> bool:
        refusal = self._refusal(receipt.event)
        if refusal is None:
            self._metrics.events.labels(receipt.event.name).inc()
            return True
        self._drop(receipt, refusal)
        return False

    def _publish(self, receipt: Receipt) -> bool:
        """Tell the bus; whether the event's hooks are to run here."""
        event = receipt.event
        message = Message(receipt.topic, event.envelope, event.depth, self._execute)
        published = self._bus.publish(message)
        receipt.published = published is Published.ACCEPTED
        if self._execute is Execute.LOCAL or published is Published.TOO_LARGE:
            return True
        if receipt.published:
            receipt.expect(0)
        else:
            self._drop(receipt, dropped("the bus is full: its server is away", Cause.QUEUE))
        return False

    def _drop(self, receipt: Receipt, refusal: Outcome) -> None:
        receipt.accepted, receipt.reason, receipt.cause = False, refusal.reason, refusal.cause
        receipt.expect(0)
        self._metrics.drops.labels(refusal.cause.value).inc()

    def _refusal(self, event: Event) -> Outcome | None:
        if self._stopping:
            return dropped("the executor is stopping", Cause.STOPPED)
        limit = self.grounds.settings.limits.max_payload_bytes
        if len(event.envelope) > limit:
            size = len(event.envelope)
            return dropped(f"the envelope has {size} bytes, more than {limit}", Cause.SIZE)
        if event.depth > MAX_DEPTH:
            self._too_deep += 1
            text = f"depth {event.depth} is beyond {MAX_DEPTH}"
            if worth_a_line(self._too_deep):
                self._report(f"an event was dropped: {text}", on=event.name, total=self._too_deep)
            return dropped(text, Cause.DEPTH)
        return None

    def _hand_over(self, receipt: Receipt) -> None:
        """In another thread: leave the queueing to the event loop, without waiting for it."""
        with self._inbox_lock:
            room = not self._stopping and len(self._inbox) < _MAX_INBOX
            if room:
                self._inbox.append(receipt)
        if room:
            self._bell.ring()
        else:
            self._drop(receipt, dropped("the executor is stopping or stands still", Cause.QUEUE))

    def _take_in(self) -> None:
        while self._inbox:
            self._enqueue(self._inbox.popleft())

    def _stop(self) -> None:
        with self._inbox_lock:
            self._stopping = True
        self._take_in()
        self._bell.ring()

    def _enqueue(self, receipt: Receipt) -> None:
        matched = self._registry.snapshot.match(receipt.event)
        receipt.expect(len(matched))
        grounds, now = self.grounds, time.monotonic()
        waiting = [
            _Pending(receipt, position, subscription, grounds, now)
            for position, subscription in enumerate(matched)
        ]
        self._outstanding += len(waiting)
        for pending in waiting[self._queue.put(waiting) :]:
            outcome = _STOPPED if self._stopping else _FULL
            self._keep(pending, self._unstarted(pending, outcome))

    async def _worker(self) -> None:
        while True:
            try:
                pending = await self._queue.take()
            except Closed:
                return
            hook = pending.subscription.id
            limit = pending.grounds.settings.limits.max_concurrency_per_hook
            if not limit:
                await self._perform(pending)
            elif self._slots.waiting > self._queue.capacity:
                self._keep(pending, self._unstarted(pending, _FULL))
            elif self._slots.enter(hook, pending, limit):
                following: _Pending | None = pending
                while following is not None:
                    await self._perform(following)
                    following = self._slots.leave(hook)

    async def _perform(self, pending: _Pending) -> None:
        event, at = pending.receipt.event, pending.queued_at
        subscription, grounds = pending.subscription, pending.grounds
        try:
            with handling(event.depth):
                record = await self._runner.run(event, subscription, grounds, queued_at=at)
        except anyio.get_cancelled_exc_class():
            self._keep(pending, self._unstarted(pending, _STOPPED))
            raise
        self._keep(pending, record)

    def _keep(self, pending: _Pending, record: Record) -> None:
        self._ledger.append(record)
        pending.receipt.keep(pending.position, record)
        self._outstanding -= 1
        if not self._outstanding and self._idle is not None:
            self._idle.set()
            self._idle = None

    @staticmethod
    def _unstarted(pending: _Pending, outcome: Outcome) -> Record:
        return unstarted(pending.receipt.event, pending.subscription, outcome)


_FULL = dropped("the queue of waiting runs is full", Cause.QUEUE)
_STOPPED = interrupted(Cause.STOPPED, "the executor stopped before the run had ended")
