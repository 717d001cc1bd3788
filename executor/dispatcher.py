"""What happens when an event comes in?

``emit`` is the fire-and-forget verb: it never waits and never raises for anything that a hook,
a queue or a backend does. It reads like the picture of the architecture: make the event, publish
it, match it, queue one run for each match. Workers take runs from the queue, at most
``max_concurrency`` at once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import anyio
import anyio.abc
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from executor.bus.base import Bus
from executor.events import Event, make_event
from executor.ledger.base import Ledger
from executor.ledger.metrics import Metrics
from executor.outcome import Cause, Outcome, dropped
from executor.receipt import Receipt
from executor.record import Record
from executor.registry import Registry
from executor.runner import Grounds, Runner, interrupted, unstarted
from executor.subscription import Subscription
from executor.topics import topic_of

MAX_DEPTH = 8
"""The outermost event has depth 1; deeper than this is dropped (SPEC section 5)."""


@dataclass(slots=True)
class _Pending:
    """One run that waits, with the grounds in force when its event came."""

    receipt: Receipt
    position: int
    subscription: Subscription
    grounds: Grounds
    queued_at: float


def receipt_for(event: Event) -> Receipt:
    """An empty receipt, for ``Dispatcher.accept`` to fill."""
    return Receipt(event, topic_of(event.name))


class Dispatcher:
    """Owns the queue and the workers. All methods belong to the event loop's thread."""

    def __init__(
        self,
        registry: Registry,
        runner: Runner,
        bus: Bus,
        ledger: Ledger,
        metrics: Metrics,
        grounds: Grounds,
    ) -> None:
        self._registry = registry
        self._runner = runner
        self._bus = bus
        self._ledger = ledger
        self._metrics = metrics
        self.grounds = grounds
        limits = grounds.settings.limits
        self._concurrency = limits.max_concurrency
        send, receive = anyio.create_memory_object_stream[_Pending](limits.max_queue)
        self._queue: MemoryObjectSendStream[_Pending] = send
        self._waiting: MemoryObjectReceiveStream[_Pending] = receive
        self._outstanding = 0
        self._idle: anyio.Event | None = None
        self._stopping = False

    def emit(
        self, name: str, payload: Mapping[str, object], *, session_id: str, depth: int = 1
    ) -> Receipt:
        """Accept an event. Raises InvalidEvent, the caller's mistake, and nothing else."""
        event = make_event(
            name, payload, session_id=session_id, now=datetime.now(UTC), depth=depth
        )
        return self.accept(receipt_for(event))

    def accept(self, receipt: Receipt) -> Receipt:
        """Publish and queue an event that was already made. Never raises."""
        event = receipt.event
        refusal = self._refusal(event)
        if refusal is not None:
            receipt.accepted, receipt.reason = False, refusal.reason
            receipt.expect(0)
            self._metrics.drops.labels(refusal.cause.value).inc()
            return receipt
        self._metrics.events.labels(event.name).inc()
        receipt.published = self._bus.publish(receipt.topic, event.envelope, depth=event.depth)
        self._enqueue(receipt, self._registry.snapshot.match(event))
        return receipt

    async def work(
        self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Run what is queued until ``finish``; cancelling interrupts what is in flight."""
        async with anyio.create_task_group() as workers:
            for _ in range(self._concurrency):
                workers.start_soon(self._worker, self._waiting.clone())
            task_status.started()

    async def drain(self) -> None:
        """Until nothing is queued and nothing runs."""
        while self._outstanding:
            if self._idle is None:
                self._idle = anyio.Event()
            await self._idle.wait()

    def finish(self) -> None:
        """Take no more events; workers end when the queue is empty."""
        self._stopping = True
        self._queue.close()

    def abandon(self) -> None:
        """After the workers were cancelled: what still waits becomes ``interrupted``."""
        self._stopping = True
        while True:
            try:
                pending = self._waiting.receive_nowait()
            except (anyio.WouldBlock, anyio.EndOfStream, anyio.ClosedResourceError):
                break
            self._keep(pending, self._unstarted(pending, _STOPPED))
        self._queue.close()
        self._waiting.close()

    def _refusal(self, event: Event) -> Outcome | None:
        if self._stopping:
            return dropped("the executor is stopping", Cause.STOPPED)
        limit = self.grounds.settings.limits.max_payload_bytes
        if len(event.envelope) > limit:
            size = len(event.envelope)
            return dropped(f"the envelope has {size} bytes, more than {limit}", Cause.SIZE)
        if event.depth > MAX_DEPTH:
            return dropped(f"depth {event.depth} is beyond {MAX_DEPTH}", Cause.DEPTH)
        return None

    def _enqueue(self, receipt: Receipt, matched: tuple[Subscription, ...]) -> None:
        receipt.expect(len(matched))
        now = time.monotonic()
        for position, subscription in enumerate(matched):
            pending = _Pending(receipt, position, subscription, self.grounds, now)
            self._outstanding += 1
            try:
                self._queue.send_nowait(pending)
            except anyio.WouldBlock:
                full = dropped("the queue of waiting runs is full", Cause.QUEUE)
                self._keep(pending, self._unstarted(pending, full))

    async def _worker(self, waiting: MemoryObjectReceiveStream[_Pending]) -> None:
        async with waiting:
            async for pending in waiting:
                try:
                    record = await self._runner.run(
                        pending.receipt.event,
                        pending.subscription,
                        pending.grounds,
                        queued_at=pending.queued_at,
                    )
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


_STOPPED = interrupted(Cause.STOPPED, "the executor stopped before the run had ended")
