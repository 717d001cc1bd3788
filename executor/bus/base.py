"""What travels on a bus, and what must every bus offer?"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import anyio
import anyio.abc

from executor.document import kind_of
from executor.errors import Fault, InvalidInput
from executor.topics import LIFECYCLE_PREFIX, topic_fault

if TYPE_CHECKING:
    from executor.bus.listener import Callback, Listener

MAX_MESSAGE_BYTES = 65536
"""Larger messages stay off the bus (SPEC section 5); shell and WASM hooks still get them."""
MAX_WAITING = 8192
"""Messages that wait for one slow listener; more are dropped."""
MAX_WAITING_BYTES = 16 * 1024 * 1024
"""The same in bytes, so that a stuck listener cannot hold 8192 of the largest."""


class Execute(StrEnum):
    """Who runs the hooks of a published event. Each message says so; workers obey."""

    LOCAL = "local"
    WORKERS = "workers"


class Published(StrEnum):
    """What became of a message."""

    ACCEPTED = "accepted"
    TOO_LARGE = "size"
    TOO_DEEP = "depth"
    FULL = "queue"
    """The server is away (or slow) and the buffer for it is full."""
    CLOSED = "closed"


class Drop(StrEnum):
    """Why a message was lost, the label of ``prx_bus_drops_total``."""

    SIZE = "size"
    DEPTH = "depth"
    SLOW = "slow"
    """One listener did not keep up; the others have the message."""
    SERVER = "server"
    """The network bus could not take it: the server is away, the buffer is full."""
    UNCONFIRMED = "unconfirmed"
    """It was sent, and the connection broke before the server said so; perhaps it arrived."""
    MALFORMED = "malformed"
    """It came from the network and is no message of ours."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message. ``data`` is UTF-8 JSON: an event's envelope, or what ``publish`` was given."""

    topic: str
    data: bytes
    depth: int = 1
    execute: Execute = Execute.LOCAL

    def json(self) -> object:
        """``data``, decoded."""
        return json.loads(self.data)


@dataclass(slots=True)
class Counts:
    """What moved on a bus since it was opened. Changed under the bus's lock."""

    published: int = 0
    received: int = 0
    """Messages that came from the network."""
    crashes: int = 0
    """Exceptions that a callback raised; each was logged, and the next message still came."""
    drops: dict[Drop, int] = field(default_factory=lambda: dict.fromkeys(Drop, 0))


class Report(Protocol):
    """Writes one line for the operator: a warning, unless the news is ``good``."""

    def __call__(self, message: str, *, good: bool = False, **details: object) -> None: ...


def silent(message: str, *, good: bool = False, **details: object) -> None:
    """The Report of nobody."""
    del message, good, details


class Bus(Protocol):
    """Delivers at most once, in order for each listener; never waits, never raises."""

    counts: Counts

    def publish(self, message: Message) -> Published:
        """Hand it to everybody who listens. From any thread."""
        ...

    def subscribe(
        self, pattern: str, *, capacity: int = MAX_WAITING
    ) -> AbstractAsyncContextManager[Listener]:
        """Listen while the block lasts. Raises InvalidInput for what is no pattern."""
        ...

    async def attach(
        self, pattern: str, callback: Callback, *, capacity: int = MAX_WAITING
    ) -> Listener:
        """Call back, in a thread, until ``detach``."""
        ...

    async def detach(self, listener: Listener) -> None:
        """Call back no more."""
        ...

    async def run(
        self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Do the bus's work in the event loop until ``close``."""
        ...

    def close(self) -> None:
        """No more messages; in the event loop's thread."""
        ...


@asynccontextmanager
async def running(bus: Bus) -> AsyncIterator[None]:
    """The bus works while the block lasts."""
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        try:
            await tasks.start(bus.run)
            yield
        except Exception as raised:  # noqa: BLE001  (kept, to leave as it came: not in a group)
            failure = raised
        finally:
            bus.close()
    if failure is not None:
        raise failure


def compose(topic: str, payload: Mapping[str, object], depth: int) -> Message:
    """The message of ``publish``. Raises InvalidInput for a bad or reserved topic or payload."""
    if (fault := topic_fault(topic)) is not None:
        raise InvalidInput([Fault("/topic", fault)])
    if f"{topic}.".startswith(LIFECYCLE_PREFIX):
        raise InvalidInput([Fault("/topic", f"{LIFECYCLE_PREFIX}* is for events: emit them")])
    if not isinstance(payload, Mapping):
        raise InvalidInput([Fault("/payload", f"must be an object, not {kind_of(payload)}")])
    try:
        text = json.dumps(dict(payload), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return Message(topic, text.encode(), depth)
    except (ValueError, TypeError, RecursionError) as error:
        message = f"cannot be written as JSON ({type(error).__name__})"
        raise InvalidInput([Fault("/payload", message)]) from None


def worth_a_line(count: int) -> bool:
    """Whether the nth drop is logged: the 1st, 10th, 100th … (no flood of lines)."""
    while count >= 10 and count % 10 == 0:
        count //= 10
    return count == 1
