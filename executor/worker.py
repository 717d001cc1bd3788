"""How does one of many machines take its share of the events?

Theory of operation
-------------------
Every worker subscribes in one queue group, so that NATS gives each event to one of them. What
arrives goes into a backlog at once (the server drops clients that do not read) and from there, a
few at a time, onto the ordinary road of ``Dispatcher.perform``. Only messages that name the workers
are taken; the emitters of all others run their hooks themselves. What an event's hooks emit in turn
is the worker's own: it runs that here, and says so on the bus.

Delivery is at most once, so nothing is ever given back: a worker that is told to stop takes no more
and runs what it has; one that is killed loses what it had in hand, which its ``Tally`` survives to
tell.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

import anyio
import anyio.abc
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from executor.bus.base import Execute, Message, Report, silent
from executor.bus.listener import Listener
from executor.bus.nats import NatsBus
from executor.errors import InvalidInput
from executor.events import LIFECYCLE, Event, make_event
from executor.receipt import Receipt
from executor.service import Executor
from executor.tally import Tally
from executor.topics import LIFECYCLE_PREFIX, compiled

GROUP = "hook-executor"
_PATTERN = f"{LIFECYCLE_PREFIX}*"
_BACKLOG = 65536
_BACKLOG_BYTES = 128 * 1024 * 1024
_COLLECT_SECONDS = 10.0
"""Between two looks for workers that were killed."""


@dataclass(slots=True)
class Totals:
    """What a worker did with the messages that reached it. ``lost``: see ``Tally.collect``."""

    taken: int = 0
    ended: int = 0
    left_alone: int = 0
    malformed: int = 0
    lost: int = 0


class Worker:
    """Executes events that others publish, until it is told to stop.

    ``executor`` must have been opened on ``bus``, executing locally.
    """

    def __init__(
        self,
        executor: Executor,
        bus: NatsBus,
        tally: Tally,
        *,
        group: str = GROUP,
        report: Report = silent,
    ) -> None:
        self.totals = Totals()
        self._executor = executor
        self._bus = bus
        self._tally = tally
        self._group = group
        self._report = report
        self._stop = anyio.Event()
        self._backlog = Listener(
            compiled(_PATTERN),
            _BACKLOG,
            threading.RLock(),
            bus.counts,
            report,
            max_bytes=_BACKLOG_BYTES,
        )
        self._slots = anyio.Semaphore(_events_at_once(executor))
        executor.metrics.registry.register(_Totals(self))

    def stop(self) -> None:
        """Take no more events and run those in hand, in the event loop's thread."""
        self._stop.set()

    async def run(
        self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Work until ``stop``; returns when every event in hand has ended."""
        self._collect()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep_collecting)
            async with anyio.create_task_group() as runs:
                interest = await self._bus.want(_PATTERN, self._take, group=self._group)
                task_status.started()

                async def finish() -> None:
                    await self._stop.wait()
                    await self._bus.forget(interest)
                    self._backlog.close()

                runs.start_soon(finish)
                while messages := await self._backlog.batch(1):
                    await self._slots.acquire()
                    runs.start_soon(self._execute, messages[0])
            await self._executor.drain()
            tasks.cancel_scope.cancel()
        self._collect()

    @property
    def in_hand(self) -> int:
        """Events that were taken and have not ended."""
        return self._tally.taken - self._tally.ended

    def _take(self, message: Message) -> None:
        if message.execute is not Execute.WORKERS:
            self.totals.left_alone += 1
            return
        self.totals.taken += 1
        before = self._backlog.dropped
        self._tally.take()
        self._backlog.deliver(message)
        if self._backlog.dropped > before:
            self._end()

    async def _execute(self, message: Message) -> None:
        try:
            receipt = self._perform(message)
            if receipt is not None:
                await receipt.wait()
            self._end()
        finally:
            self._slots.release()

    def _perform(self, message: Message) -> Receipt | None:
        try:
            event = event_of(message)
        except InvalidInput as fault:
            self.totals.malformed += 1
            self._report("a message is no event", topic=message.topic, fault=str(fault))
            return None
        return self._executor.dispatcher.perform(event)

    def _end(self) -> None:
        self.totals.ended += 1
        self._tally.end()

    async def _keep_collecting(self) -> None:
        while True:
            await anyio.sleep(_COLLECT_SECONDS)
            self._collect()

    def _collect(self) -> None:
        if lost := self._tally.collect():
            self.totals.lost += lost
            self._report("a worker was killed; what it had in hand is lost", events=lost)


def event_of(message: Message) -> Event:
    """The event whose envelope a message carries, with the depth that the bus says.

    Raises InvalidInput where it is none, or another than its topic says.
    """
    frame: object = None
    with suppress(ValueError, RecursionError):
        frame = json.loads(message.data)
    name = message.topic.removeprefix(LIFECYCLE_PREFIX)
    if not isinstance(frame, dict) or frame.get("event") != name or name not in LIFECYCLE:
        raise InvalidInput("it is no envelope of its topic's event")
    timestamp, session_id, payload = (
        frame.get(key) for key in ("timestamp", "session_id", "payload")
    )
    if not (isinstance(session_id, str) and isinstance(payload, dict)):
        raise InvalidInput("its envelope lacks a session id or a payload")
    try:
        now = datetime.fromisoformat(str(timestamp))
    except ValueError:
        raise InvalidInput("its timestamp is none") from None
    return make_event(name, payload, session_id=session_id, now=now, depth=message.depth)


def _events_at_once(executor: Executor) -> int:
    """So many that no run finds the dispatcher's queue full, and nobody waits for the next one."""
    limits = executor.dispatcher.grounds.settings.limits
    room = limits.max_concurrency + min(limits.max_concurrency, limits.max_queue)
    return max(1, room // max(1, executor.dispatcher.most_hooks))


class _Totals(Collector):
    """``prx_worker_*`` for Prometheus."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def collect(self) -> Iterator[Metric]:
        totals = self._worker.totals
        events = CounterMetricFamily(
            "prx_worker_events", "Events that reached this worker.", labels=["what"]
        )
        for what in Totals.__slots__:
            events.add_metric([what], getattr(totals, what))
        yield events
        yield GaugeMetricFamily(
            "prx_worker_in_hand", "Events taken and not ended.", self._worker.in_hand
        )
