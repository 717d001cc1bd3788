"""How do topics travel between machines?

Theory of operation
-------------------
The same topics are NATS subjects; a final star becomes NATS's ``>``. Local subscribers get local
messages through a ``MemoryBus``, whether or not the server is there; the connection does not echo,
so nobody hears anything twice. For the network ``publish`` only appends to a bounded outbox, which
one task empties in batches. A batch counts as sent when the server has answered the ping behind it;
if the connection breaks before, it is counted as unconfirmed and *not* sent again: at most once.

The client's own reconnecting is off. Here a lost connection means a new client, with credentials
read anew and every subscription made again, after a pause that grows and is never the same for two
processes. (The client's own way keeps a buffer of which nobody can tell what was sent.)

Rules for editors: the only module beside ``api/`` that may import asyncio: the client needs it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc
import anyio.to_thread
from nats.errors import SlowConsumerError

from executor import depth
from executor.bus import cloudevents
from executor.bus.base import MAX_WAITING, Drop, Message, Published, Report, silent
from executor.bus.listener import Callback, Listener
from executor.bus.memory import MemoryBus
from executor.bus.nats_client import (
    CONFIRM_SECONDS,
    CONNECT_SECONDS,
    FAILURES,
    OneConnection,
    connect_options,
    require_asyncio,
)
from executor.errors import Unavailable
from executor.topics import compiled

if TYPE_CHECKING:
    from nats.aio.msg import Msg

    from executor.settings import BusSettings

_BATCH = 512
"""Messages between two pings: what is unconfirmed at most when the connection breaks."""
_CLOSING_SECONDS = 2.0
"""How long ``close`` tries to get rid of what is in the outbox."""
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.05, 2.0


@dataclass(eq=False, slots=True)
class Interest:
    """A subject that this process wants, on whatever connection there is."""

    subject: str
    group: str
    deliver: Callable[[Message], object]
    subscription: Any = None


class NatsBus:
    """A Bus over one NATS connection. ``capacity`` is that of the outbox, in messages."""

    def __init__(
        self, settings: BusSettings, report: Report = silent, *, capacity: int = MAX_WAITING
    ) -> None:
        self._settings = settings
        self._report = report
        self._local = MemoryBus(report)
        self._outbox = self._local.add_outlet(capacity)
        self.counts = self._local.counts
        self._interests: list[Interest] = []
        self._client: OneConnection | None = None
        self._up = anyio.Event()
        self._complaint = self._last_words = ""
        self._closing = anyio.Event()
        self._encode = cloudevents.encoder(settings.format)

    def publish(self, message: Message) -> Published:
        """To local listeners at once, to the network soon; from any thread, waits for nothing."""
        if (refusal := self._local.refusal(message)) is not None:
            return refusal
        with self._local.lock:
            self.counts.published += 1
            accepted = self._outbox.offer(message)
            self._local.fan_out(message)
            if self._outbox.asleep:
                self._local.ring()
        return Published.ACCEPTED if accepted else Published.FULL

    @asynccontextmanager
    async def subscribe(
        self, pattern: str, *, capacity: int = MAX_WAITING
    ) -> AsyncIterator[Listener]:
        """Listen, here and over the network; with a server there, from when the block begins."""
        async with self._local.subscribe(pattern, capacity=capacity) as listener:
            interest = await self.want(pattern, listener.deliver)
            try:
                yield listener
            finally:
                await self.forget(interest)

    async def attach(
        self, pattern: str, callback: Callback, *, capacity: int = MAX_WAITING
    ) -> Listener:
        """Call back, in a thread, until ``detach``."""
        listener = await self._local.attach(pattern, callback, capacity=capacity)
        await self.want(pattern, listener.deliver)
        return listener

    async def detach(self, listener: Listener) -> None:
        """Call back no more."""
        await self._local.detach(listener)
        for interest in [each for each in self._interests if each.deliver == listener.deliver]:
            await self.forget(interest)

    async def want(
        self, pattern: str, deliver: Callable[[Message], object], *, group: str = ""
    ) -> Interest:
        """Have messages of the network delivered, in the event loop; one of a ``group`` gets each.

        Without a server it holds from when there is one.
        """
        interest = Interest(subject_of(pattern), group, deliver)
        self._interests.append(interest)
        if (client := self._client) is not None:
            with suppress(*FAILURES):
                await self._ask_for(client, interest)
                await client.settle()
        return interest

    async def forget(self, interest: Interest) -> None:
        """No more of it; what had already arrived is delivered first."""
        with suppress(ValueError):
            self._interests.remove(interest)
        subscription, interest.subscription = interest.subscription, None
        client = self._client
        if subscription is not None and client is not None:
            with anyio.move_on_after(2 * CONFIRM_SECONDS, shield=True), suppress(*FAILURES):
                await client.leave(subscription)

    @property
    def waiting(self) -> int:
        """Messages in the outbox."""
        return len(self._outbox)

    async def connected(self, seconds: float) -> None:
        """Until the server answered. Raises Unavailable, with its last words, after a while."""
        with anyio.move_on_after(seconds):
            await self._up.wait()
            return
        raise Unavailable(
            f"no bus at {self._settings.url}: {self._complaint or 'no answer'}",
            remedy="start the server, or look at url and the credentials under [bus]",
            engine=True,
        )

    async def run(
        self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Keep a connection until ``close``."""
        require_asyncio()
        await anyio.to_thread.run_sync(connect_options, self._settings)  # to raise at the start
        async with anyio.create_task_group() as tasks:
            await tasks.start(self._local.run)
            tasks.start_soon(self._keep_connected)
            task_status.started()
            await self._closing.wait()
            tasks.cancel_scope.deadline = anyio.current_time() + _CLOSING_SECONDS
        with self._local.lock:
            left = len(self._outbox)
            self.counts.drops[Drop.SERVER] += left
        if left:
            self._report("the bus closed with messages that no server took", lost=left)

    def close(self) -> None:
        """No more messages; those in the outbox are still sent, for a while."""
        self._local.close()
        self._closing.set()

    async def _keep_connected(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while len(self._outbox) or not self._outbox.closed:
            lost = asyncio.Event()
            client = OneConnection(self._settings)
            try:
                await self._connect(client, lost)
                pause = _FIRST_PAUSE_SECONDS
                await self._serve(client, lost)
            except FAILURES as failure:
                self._complain(failure)
            finally:
                self._down()
                with anyio.move_on_after(CONNECT_SECONDS, shield=True), suppress(*FAILURES):
                    await client.close()
            await anyio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311  (no secret)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    async def _connect(self, client: OneConnection, lost: asyncio.Event) -> None:
        async def closed() -> None:
            lost.set()

        options = await anyio.to_thread.run_sync(connect_options, self._settings)
        with anyio.fail_after(3 * CONNECT_SECONDS):
            await client.connect(**options, closed_cb=closed, error_cb=self._trouble)
            for interest in tuple(self._interests):
                await self._ask_for(client, interest)
            await client.settle()
        self._client = client
        if self._complaint:
            self._report("the bus is back", good=True)
        self._complaint = self._last_words = ""
        self._up.set()

    async def _serve(self, client: OneConnection, lost: asyncio.Event) -> None:
        """Send what is in the outbox until the connection is lost, or all is sent and closed."""
        async with anyio.create_task_group() as tasks:

            async def stop_when_lost() -> None:
                await lost.wait()
                self._down()
                self._complain(ConnectionResetError("the connection was lost"))
                tasks.cancel_scope.cancel()

            tasks.start_soon(stop_when_lost)
            try:
                while messages := await self._outbox.batch(_BATCH):
                    await self._send(client, messages)
            except FAILURES as failure:
                self._complain(failure)
            tasks.cancel_scope.cancel()

    async def _send(self, client: OneConnection, messages: list[Message]) -> None:
        try:
            for message in messages:
                body, headers = self._encode(message)
                await client.publish(message.topic, body, headers=headers)
            await client.settle()
        except BaseException:
            with self._local.lock:
                self.counts.drops[Drop.UNCONFIRMED] += len(messages)
            self._report("messages were sent and never confirmed", perhaps_lost=len(messages))
            raise

    async def _ask_for(self, client: OneConnection, interest: Interest) -> None:
        interest.subscription = await client.subscribe(
            interest.subject, queue=interest.group, cb=partial(self._arrived, interest)
        )

    async def _arrived(self, interest: Interest, msg: Msg) -> None:
        if msg.subject.startswith("_INBOX."):
            return  # the wildcard of all topics sees the client's own housekeeping
        try:
            message = cloudevents.decode(msg.subject, msg.data, msg.headers)
        except cloudevents.Malformed as fault:
            text = "something on the bus is no message"
            self._local.drop(Drop.MALFORMED, text, subject=msg.subject, fault=str(fault))
            return
        if message.depth > depth.MAX_DEPTH:
            text = f"a chain of events is deeper than {depth.MAX_DEPTH}; the message is dropped"
            self._local.drop(Drop.DEPTH, text, topic=message.topic, depth=message.depth)
            return
        with self._local.lock:
            self.counts.received += 1
        interest.deliver(message)

    def _down(self) -> None:
        if self._client is not None:
            self._client, self._up = None, anyio.Event()

    async def _trouble(self, failure: Exception) -> None:
        """The client's own complaints; while it connects, they say more than its exception."""
        if isinstance(failure, SlowConsumerError):
            self._local.drop(Drop.SLOW, "this process does not keep up with the bus")
        elif (text := str(failure)) != self._last_words:
            self._last_words = text
            if self._client is not None:
                self._report("trouble with the bus", reason=text)

    def _complain(self, failure: Exception) -> None:
        text = self._last_words or str(failure) or type(failure).__name__
        if text != self._complaint and not self._outbox.closed:
            self._report("no connection to the bus; trying again", reason=text)
        self._complaint = text


def subject_of(pattern: str) -> str:
    """The NATS subject of a pattern. Raises InvalidInput for what is no pattern."""
    form = compiled(pattern)
    return form.text if form.prefix is None else f"{form.prefix}>"
