"""How does the executor talk to one cell, from its first frame to its last?

Theory of operation
-------------------
A backend starts a cell and holds its two streams; ``converse`` speaks ``protocol`` over them for
both backends: B (namespace only), await R, send J while already reading (a payload of 16 MiB
must not meet a full pipe on the other side), collect the output up to the cap, end at X. The
cell's own clock ends a hook that is late; the clocks here are the second line, for a cell or an
engine that no longer answers: they ask the backend to ``destroy`` the sandbox from outside.

Cancelling ``converse`` is a request like ``Stop.request``: TERM to the tree, KILL after the
grace, everything read to its end, and only then the cancellation goes on. No other exception
leaves this module. The streams stay open: the cell waits after X, so that the backend can read
the kernel's counters, and ends when the backend closes them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import anyio
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled

from executor import emission
from executor.cell import protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from executor.job import Job


class Streams(Protocol):
    """The two byte streams of one cell. OSError and anyio's broken resources mean: lost."""

    async def receive(self) -> bytes:
        """Some bytes of what the cell wrote, ``b""`` at its end."""

    async def send(self, data: bytes) -> None:
        """Write all of ``data``. Called by one task at a time, while another receives."""

    def close(self) -> None:
        """End both. For the cell it is the end of its lifeline."""


class End(StrEnum):
    """Why a conversation ended."""

    EXIT = "exit"
    """The cell reported; ``Report.exit`` is set. In all other cases it is not."""
    LOST = "lost"
    """The streams ended, broke, or carried what no cell would say."""
    SETUP = "setup"
    """The hook had not been started when the set-up limit was reached."""
    OVERDUE = "overdue"
    """Past deadline, grace and margin the cell had not reported: destroyed from outside."""
    STOPPED = "stopped"
    """We were asked to stop, and the cell had no job yet or never reported."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long we wait for a cell: from the first frame to S, and beyond each of its duties."""

    setup_seconds: float = 30.0
    margin_seconds: float = 2.0


class Stop:
    """A request to end a run: TERM and the grace, or KILL. May be made before the run begins."""

    def __init__(self) -> None:
        self.asked = anyio.Event()
        self.hard = anyio.Event()

    def request(self, *, hard: bool = False) -> None:
        """Ask, in the event loop's thread. A later hard request cuts the grace short."""
        if hard:
            self.hard.set()
        self.asked.set()


@dataclass(frozen=True, slots=True)
class Report:
    """One conversation. Times are the event loop's monotonic clock; ``None``: it never came."""

    end: End
    exit: protocol.Exit | None
    ready: protocol.Ready | None
    stdout: bytes
    stderr: bytes
    truncated: bool
    stop_asked: bool
    reason: str
    began_at: float
    ready_at: float | None
    started_at: float | None
    ended_at: float

    @property
    def hook_seconds(self) -> float:
        """From S to the end, by our clock; ``exit.wall_seconds`` is the cell's own."""
        return 0.0 if self.started_at is None else self.ended_at - self.started_at


async def converse(
    streams: Streams,
    job: Job,
    job_frame: bytes,
    *,
    destroy: Callable[[], Awaitable[None]],
    frames_before: Sequence[bytes] = (),
    stop: Stop | None = None,
    bounds: Bounds = Bounds(),
) -> Report:
    """Run ``job`` in the cell behind ``streams``; raises nothing but cancellation.

    ``destroy`` must end the sandbox from outside, never raise, and be bounded; it is awaited at
    most once, shielded. Cancelling waits for the grace and the margin at most, then re-raises.
    """
    stop = stop or Stop()
    frames = (*frames_before, job_frame)
    conversation = _Conversation(streams, job, frames, destroy, stop, bounds)

    async def cancellation_is_a_request() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            stop.request()

    async with anyio.create_task_group() as group:
        group.start_soon(cancellation_is_a_request)
        with anyio.CancelScope(shield=True):
            report = await conversation.run()
        group.cancel_scope.cancel()
    await checkpoint_if_cancelled()
    return report


_LOST = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)
_OUTPUT = {protocol.STDOUT: "running", protocol.STDERR: "running"}
_EMITTED = {protocol.EMITTED: "running"}
_EXPECTED = {
    "new": {protocol.READY: "ready", protocol.EXIT: "ended"},
    "ready": {protocol.STARTED: "running", protocol.EXIT: "ended"},
    "running": _OUTPUT | _EMITTED | {protocol.EXIT: "ended"},
}
"""State → frame that may come → next state. Anything else is no cell of our version."""


@dataclass
class _Conversation:
    _streams: Streams
    _job: Job
    _frames: Sequence[bytes]
    _destroy: Callable[[], Awaitable[None]]
    _stop: Stop
    _bounds: Bounds
    _state: str = "new"
    _job_begun: bool = False
    _ready_event: anyio.Event = field(default_factory=anyio.Event)
    _started_event: anyio.Event = field(default_factory=anyio.Event)
    _destroying: tuple[End, str] | None = None
    _end: End | None = None
    _reason: str = ""
    _exit: protocol.Exit | None = None
    _ready: protocol.Ready | None = None
    _stdout: bytearray = field(default_factory=bytearray)
    _stderr: bytearray = field(default_factory=bytearray)
    _cut: bool = False
    _ready_at: float | None = None
    _started_at: float | None = None
    _ended_at: float = 0.0

    async def run(self) -> Report:
        began_at = anyio.current_time()
        async with anyio.create_task_group() as self._group:
            self._group.start_soon(self._send)
            self._group.start_soon(self._watch_setup)
            self._group.start_soon(self._watch_deadline)
            self._group.start_soon(self._watch_stop)
            await self._receive()
        return Report(
            end=self._end or End.LOST,
            exit=self._exit,
            ready=self._ready,
            stdout=bytes(self._stdout),
            stderr=bytes(self._stderr),
            truncated=self._cut,
            stop_asked=self._stop.asked.is_set(),
            reason=self._reason,
            began_at=began_at,
            ready_at=self._ready_at,
            started_at=self._started_at,
            ended_at=self._ended_at,
        )

    def _finish(self, end: End, reason: str = "") -> None:
        if self._end is None:
            if self._destroying is not None and end is not End.EXIT:
                end, reason = self._destroying
            self._end, self._reason = end, reason
            self._ended_at = anyio.current_time()
            self._group.cancel_scope.cancel()

    async def _receive(self) -> None:
        parser = protocol.FrameParser()
        try:
            while data := await self._streams.receive():
                for kind, body in parser.feed(data):
                    self._take(kind, body)
                    if self._end is not None:
                        return
                await checkpoint()  # a flood may not keep the clocks from their turn
        except protocol.ProtocolError as error:
            self._finish(End.LOST, f"the cell broke the protocol: {error}")
        except _LOST as error:
            self._finish(End.LOST, f"the cell's stream broke: {error!r}")
        else:
            self._finish(End.LOST, "the cell's stream ended without a report")

    def _take(self, kind: bytes, body: bytes) -> None:
        following = _EXPECTED[self._state].get(kind)
        if following is None:
            raise protocol.ProtocolError(f"frame {kind!r} while {self._state}")
        self._state = following
        if kind in _OUTPUT:
            self._collect(self._stdout if kind == protocol.STDOUT else self._stderr, body)
        elif kind in _EMITTED:
            emission.heard(body)
        elif kind == protocol.READY:
            self._ready = protocol.decode_ready(body)
            self._ready_at = anyio.current_time()
            if self._ready.version != protocol.VERSION:
                raise protocol.ProtocolError(f"version {self._ready.version}")
            self._ready_event.set()
        elif kind == protocol.STARTED:
            self._started_at = anyio.current_time()
            self._started_event.set()
        else:
            self._exit = last = protocol.decode_exit(body)
            self._cut |= last.stdout_bytes + last.stderr_bytes > len(self._stdout + self._stderr)
            self._finish(End.EXIT)

    def _collect(self, output: bytearray, chunk: bytes) -> None:
        room = self._job.sandbox.limits.output_bytes - len(output)
        output += chunk[:room]
        self._cut |= len(chunk) > room

    async def _send(self) -> None:
        try:
            *before, job_frame = self._frames
            for frame in before:
                await self._streams.send(frame)
            await self._ready_event.wait()
            if self._stop.asked.is_set():
                return
            self._job_begun = True
            await self._streams.send(job_frame)
            await self._stop.asked.wait()
            if not self._stop.hard.is_set():
                await self._streams.send(protocol.frame(protocol.TERM))
                await self._stop.hard.wait()
            await self._streams.send(protocol.frame(protocol.KILL))
        except _LOST as error:  # a last report may still be on its way to us
            await anyio.sleep(self._bounds.margin_seconds)
            self._finish(End.LOST, f"the cell stopped listening: {error!r}")

    async def _watch_setup(self) -> None:
        with anyio.move_on_after(self._bounds.setup_seconds):
            await self._started_event.wait()
            return
        self._finish(End.SETUP, f"nothing had started after {self._bounds.setup_seconds:g} s")

    async def _watch_deadline(self) -> None:
        await self._started_event.wait()
        duties = self._job.timeout_seconds + self._job.grace_seconds
        await anyio.sleep(duties + self._bounds.margin_seconds)
        await self._destroy_and_finish(End.OVERDUE, "the cell let its deadline pass")

    async def _watch_stop(self) -> None:
        await self._stop.asked.wait()
        if not self._job_begun:
            self._finish(End.STOPPED, "stopped before it began")
            return
        with anyio.move_on_after(self._job.grace_seconds):
            await self._stop.hard.wait()
        await anyio.sleep(self._bounds.margin_seconds)
        await self._destroy_and_finish(End.STOPPED, "the cell did not answer a request to stop")

    async def _destroy_and_finish(self, end: End, reason: str) -> None:
        if self._destroying is None:
            self._destroying = (end, reason)
            with anyio.CancelScope(shield=True):
                await self._destroy()
            await anyio.sleep(self._bounds.margin_seconds)  # what was written may still arrive
            self._finish(end, reason)
