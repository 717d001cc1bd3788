"""A conversation ends in a Report, whatever the cell, the stream or the caller does.

The cell is a coroutine of the test on the other side of an in-memory pipe.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from executor.cell import protocol
from executor.cell.protocol import Kind, Stopped
from executor.cell.session import Bounds, End, Report, Stop, converse
from executor.job import Job, Limits, Sandbox

pytestmark = pytest.mark.anyio

SOON = Bounds(setup_seconds=0.05, margin_seconds=0.05)
READY = protocol.frame(
    protocol.READY, protocol.field(b"V", protocol.VERSION) + protocol.field(b"L", 3)
)
STARTED = protocol.frame(protocol.STARTED)


def job(*, payload: bytes = b"{}", output: int = 64, timeout: float = 30, grace: float = 5) -> Job:
    limits = Limits(1 << 27, 64, 1.0, 1 << 24, 256, 1 << 24, output)
    return Job(
        run_id="r",
        sandbox=Sandbox(uid=1000, gid=1000, limits=limits),
        command="true",
        argv=("true",),
        env=(),
        cwd="/",
        timeout_seconds=timeout,
        payload=payload,
        grace_seconds=grace,
    )


def out(data: bytes, kind: bytes = protocol.STDOUT) -> bytes:
    return protocol.frame(kind, data)


def exit_frame(**changes: Any) -> bytes:
    values: dict[bytes, Any] = {
        b"k": Kind.EXITED,
        b"c": 0,
        b"s": "",
        b"x": Stopped.NO,
        b"w": 1500,
        b"u": 700,
        b"m": 4096,
        b"1": 0,
        b"2": 0,
        b"z": 0,
    } | {name.removeprefix("_").encode(): value for name, value in changes.items()}
    return protocol.frame(
        protocol.EXIT,
        b"".join(
            protocol.field(tag, value if isinstance(value, str) else int(value))
            for tag, value in values.items()
        ),
    )


class Wire:
    """Both ends of a pipe pair; ``send`` of the executor waits until the cell reads."""

    def __init__(self) -> None:
        self._to_cell, self.from_executor = anyio.create_memory_object_stream[bytes](0)
        self.to_executor, self._from_cell = anyio.create_memory_object_stream[bytes](1000)
        self._parser = protocol.FrameParser(protocol.MAX_FRAME_BYTES)
        self._frames: list[tuple[bytes, bytes]] = []
        self.heard: list[bytes] = []

    async def receive(self) -> bytes:
        """As ``Streams``."""
        try:
            return await self._from_cell.receive()
        except anyio.EndOfStream:
            return b""

    async def send(self, data: bytes) -> None:
        """As ``Streams``."""
        for start in range(0, len(data), 1 << 20):
            await self._to_cell.send(data[start : start + (1 << 20)])

    def close(self) -> None:
        """As ``Streams``, for both sides."""
        for end in (self._to_cell, self.from_executor, self.to_executor, self._from_cell):
            end.close()

    async def say(self, *frames: bytes) -> None:
        """Write as the cell."""
        for frame in frames:
            await self.to_executor.send(frame)

    async def hear(self) -> bytes:
        """The kind of the next frame that reached the cell."""
        while not self._frames:
            self._frames += self._parser.feed(await self.from_executor.receive())
        kind, _ = self._frames.pop(0)
        self.heard.append(kind)
        return kind

    async def start(self) -> None:
        """Play the cell until its hook's process exists."""
        await self.say(READY)
        assert await self.hear() == protocol.JOB
        await self.say(STARTED)


Cell = Callable[[Wire], Coroutine[Any, Any, None]]


@dataclass
class Sandboxed:
    """A wire, and what the conversation did to the sandbox behind it."""

    wire: Wire
    destroyed: list[str] = field(default_factory=list)

    async def destroy(self) -> None:
        """End the cell from outside."""
        self.destroyed.append("destroyed")
        await anyio.lowlevel.checkpoint()
        self.wire.to_executor.close()

    async def run(self, cell: Cell, a_job: Job | None = None, **options: Any) -> Report:
        """Converse with ``cell`` about ``a_job``."""
        a_job = a_job or job()
        frame = protocol.job_frame(a_job, seccomp=b"")
        async with anyio.create_task_group() as group:
            group.start_soon(cell, self.wire)
            report = await converse(self.wire, a_job, frame, destroy=self.destroy, **options)
            group.cancel_scope.cancel()
        return report


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandboxed]:
    wire = Wire()
    yield Sandboxed(wire)
    wire.close()


async def test_a_hook_that_ends_gives_its_exit_its_output_and_its_times(sandbox: Sandboxed) -> None:
    async def cell(wire: Wire) -> None:
        await wire.start()
        await wire.say(out(b"hello"), out(b"oh", protocol.STDERR), exit_frame(c=3, _1=5, _2=2))

    report = await sandbox.run(cell)
    assert report.end is End.EXIT
    assert report.exit is not None
    assert (report.exit.kind, report.exit.number) == (Kind.EXITED, 3)
    assert (report.stdout, report.stderr, report.truncated) == (b"hello", b"oh", False)
    assert report.ready == protocol.Ready(version=protocol.VERSION, landlock=3)
    assert report.ready_at is not None
    assert report.started_at is not None
    assert report.began_at <= report.ready_at <= report.started_at <= report.ended_at
    assert report.hook_seconds == report.ended_at - report.started_at
    assert sandbox.destroyed == []
    assert not report.stop_asked


@pytest.mark.parametrize("size", range(1, 60))
async def test_frames_may_be_split_at_any_byte(sandbox: Sandboxed, size: int) -> None:
    async def cell(wire: Wire) -> None:
        text = STARTED + out(b"one") + out(b"two", protocol.STDERR) + exit_frame(_1=3, _2=3)
        for start in range(0, len(READY), size):
            await wire.say(READY[start : start + size])
        assert await wire.hear() == protocol.JOB
        for start in range(0, len(text), size):
            await wire.say(text[start : start + size])

    report = await sandbox.run(cell)
    assert (report.end, report.stdout, report.stderr) == (End.EXIT, b"one", b"two")


async def test_the_build_frame_is_said_before_ready_and_the_job_after(sandbox: Sandboxed) -> None:
    async def cell(wire: Wire) -> None:
        await wire.hear()
        await wire.start()
        await wire.say(exit_frame())

    build = protocol.build_frame(job().sandbox)
    report = await sandbox.run(cell, frames_before=(build,))
    assert report.end is End.EXIT
    assert sandbox.wire.heard == [protocol.BUILD, protocol.JOB]


async def test_a_large_payload_meets_a_cell_that_talks_first(sandbox: Sandboxed) -> None:
    async def cell(wire: Wire) -> None:
        await wire.say(READY, STARTED)
        for _ in range(3000):  # more than the pipe holds: only a reader lets it go on
            await wire.say(out(b"x"))
        assert await wire.hear() == protocol.JOB
        await wire.say(exit_frame(_1=3000))

    report = await sandbox.run(cell, job(payload=b"p" * (16 << 20)))
    assert (report.end, len(report.stdout), report.truncated) == (End.EXIT, 64, True)


async def test_a_cell_that_ends_without_reading_its_job_is_heard(sandbox: Sandboxed) -> None:
    async def cell(wire: Wire) -> None:
        await wire.say(READY, exit_frame(k=Kind.NOT_STARTED, c=13, s="verify"))

    report = await sandbox.run(cell, job(payload=b"p" * (4 << 20)))
    assert report.end is End.EXIT
    assert report.exit is not None
    assert (report.exit.kind, report.exit.stage) == (Kind.NOT_STARTED, "verify")
    assert report.started_at is None
    assert report.hook_seconds == 0


async def test_walls_that_cannot_be_built_are_reported_before_ready(sandbox: Sandboxed) -> None:
    async def cell(wire: Wire) -> None:
        await wire.say(exit_frame(k=Kind.NOT_STARTED, c=1, s="unshare"))

    report = await sandbox.run(cell)
    assert (report.end, report.ready) == (End.EXIT, None)


async def test_a_flood_is_drained_and_capped(sandbox: Sandboxed) -> None:
    async def cell(wire: Wire) -> None:
        await wire.start()
        for _ in range(2000):
            await wire.say(out(b"x" * 1000), out(b"y" * 1000, protocol.STDERR))
        await wire.say(exit_frame(_1=2_000_000, _2=2_000_000))

    report = await sandbox.run(cell, job(output=1500))
    assert report.end is End.EXIT
    assert (len(report.stdout), len(report.stderr), report.truncated) == (1500, 1500, True)


async def test_what_the_cell_itself_dropped_counts_as_truncated(sandbox: Sandboxed) -> None:
    async def cell(wire: Wire) -> None:
        await wire.start()
        await wire.say(out(b"x" * 64), exit_frame(_1=65))

    assert (await sandbox.run(cell)).truncated


async def test_output_that_just_fits_is_not_truncated(sandbox: Sandboxed) -> None:
    async def cell(wire: Wire) -> None:
        await wire.start()
        await wire.say(out(b"x" * 64), exit_frame(_1=64))

    report = await sandbox.run(cell)
    assert (len(report.stdout), report.truncated) == (64, False)


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 500 no\r\n\r\n" * 3,
        protocol.frame(b"Z"),
        STARTED,
        out(b"early"),
        READY + READY,
        READY + out(b"early"),
        protocol.frame(protocol.READY, b"\0"),
        protocol.frame(protocol.READY, protocol.field(b"V", 1)),
        protocol.frame(
            protocol.READY, protocol.field(b"V", protocol.VERSION + 1) + protocol.field(b"L", 0)
        ),
        READY + STARTED + STARTED,
        READY + STARTED + protocol.frame(protocol.EXIT, b"junk"),
        READY + STARTED + exit_frame(k=9),
        READY + STARTED + protocol.HEADER.pack(protocol.STDOUT, protocol.MAX_REPLY_BYTES + 1),
    ],
)
async def test_what_no_cell_would_say_loses_the_stream(sandbox: Sandboxed, said: bytes) -> None:
    async def cell(wire: Wire) -> None:
        await wire.say(said)
        await anyio.sleep_forever()

    report = await sandbox.run(cell)
    assert (report.end, report.exit) == (End.LOST, None)
    assert "broke the protocol" in report.reason


@pytest.mark.parametrize("said", [b"", READY, READY + STARTED, READY + STARTED + out(b"some")])
@pytest.mark.parametrize("cut", [0, 1])
async def test_a_stream_may_be_lost_at_any_stage(sandbox: Sandboxed, said: bytes, cut: int) -> None:
    async def cell(wire: Wire) -> None:
        if said:
            await wire.say(said[: len(said) - cut])
        wire.to_executor.close()

    report = await sandbox.run(cell)
    assert (report.end, report.exit) == (End.LOST, None)
    assert "ended without a report" in report.reason


async def test_a_stream_that_breaks_is_lost(sandbox: Sandboxed) -> None:
    async def broken() -> bytes:
        await anyio.lowlevel.checkpoint()
        raise ConnectionResetError

    async def cell(_: Wire) -> None:
        await anyio.sleep_forever()

    sandbox.wire.receive = broken  # type: ignore[method-assign]
    report = await sandbox.run(cell)
    assert report.end is End.LOST
    assert "ConnectionResetError" in report.reason


async def test_a_report_counts_although_the_cell_no_longer_listens(sandbox: Sandboxed) -> None:
    async def cell(wire: Wire) -> None:
        wire.from_executor.close()
        await wire.say(READY, STARTED, exit_frame())

    assert (await sandbox.run(cell)).end is End.EXIT


async def test_a_cell_that_neither_listens_nor_talks_is_lost(sandbox: Sandboxed) -> None:
    stop = Stop()

    async def cell(wire: Wire) -> None:
        await wire.start()
        wire.from_executor.close()
        stop.request()
        await anyio.sleep_forever()

    report = await sandbox.run(cell, stop=stop, bounds=SOON)
    assert report.end is End.LOST
    assert "stopped listening" in report.reason


@pytest.mark.parametrize("said", [b"", READY])
async def test_set_up_has_its_own_limit(sandbox: Sandboxed, said: bytes) -> None:
    async def cell(wire: Wire) -> None:
        if said:
            await wire.say(said)
        await anyio.sleep_forever()

    report = await sandbox.run(cell, bounds=SOON)
    assert (report.end, report.started_at) == (End.SETUP, None)


async def test_a_hook_that_the_cell_does_not_end_is_destroyed(sandbox: Sandboxed) -> None:
    async def cell(wire: Wire) -> None:
        await wire.start()
        await wire.say(out(b"last words"))
        await anyio.sleep_forever()

    report = await sandbox.run(cell, job(timeout=0.02, grace=0.02), bounds=SOON)
    assert (report.end, report.stdout) == (End.OVERDUE, b"last words")
    assert sandbox.destroyed == ["destroyed"]


async def test_a_flood_that_never_pauses_does_not_stop_the_clocks(sandbox: Sandboxed) -> None:
    frames = [READY, STARTED]

    async def flood() -> bytes:  # as a socket that always has more: nothing here awaits
        return frames.pop(0) if frames else out(b"x" * 1000)

    async def cell(wire: Wire) -> None:
        await wire.hear()

    sandbox.wire.receive = flood  # type: ignore[method-assign]
    report = await sandbox.run(cell, job(timeout=0.02, grace=0.02), bounds=SOON)
    assert (report.end, report.truncated) == (End.OVERDUE, True)


async def test_a_destroy_that_changes_nothing_still_ends_the_run(sandbox: Sandboxed) -> None:
    async def cell(wire: Wire) -> None:
        await wire.start()
        await anyio.sleep_forever()

    async def destroy() -> None:
        sandbox.destroyed.append("tried")
        await anyio.lowlevel.checkpoint()

    sandbox.destroy = destroy  # type: ignore[method-assign]
    report = await sandbox.run(cell, job(timeout=0.02, grace=0.02), bounds=SOON)
    assert report.end is End.OVERDUE
    assert sandbox.destroyed == ["tried"]


async def test_a_stop_is_term_and_the_run_is_read_to_its_end(sandbox: Sandboxed) -> None:
    stop = Stop()

    async def cell(wire: Wire) -> None:
        await wire.start()
        stop.request()
        assert await wire.hear() == protocol.TERM
        await wire.say(out(b"bye"), exit_frame(c=15, k=1, x=Stopped.ASKED_TERM, _1=3))

    report = await sandbox.run(cell, stop=stop)
    assert (report.end, report.stdout, report.stop_asked) == (End.EXIT, b"bye", True)
    assert report.exit is not None
    assert report.exit.stopped is Stopped.ASKED_TERM


async def test_a_hard_stop_is_kill_at_once(sandbox: Sandboxed) -> None:
    stop = Stop()

    async def cell(wire: Wire) -> None:
        await wire.start()
        stop.request(hard=True)
        assert await wire.hear() == protocol.KILL
        await wire.say(exit_frame(c=9, k=1, x=Stopped.ASKED_KILL))

    report = await sandbox.run(cell, stop=stop)
    assert (report.end, sandbox.wire.heard[1:]) == (End.EXIT, [protocol.KILL])


async def test_a_hard_stop_cuts_the_grace_of_a_soft_one_short(sandbox: Sandboxed) -> None:
    stop = Stop()

    async def cell(wire: Wire) -> None:
        await wire.start()
        stop.request()
        assert await wire.hear() == protocol.TERM
        stop.request(hard=True)
        assert await wire.hear() == protocol.KILL
        await wire.say(exit_frame(c=9, k=1, x=Stopped.ASKED_KILL))

    assert (await sandbox.run(cell, stop=stop)).end is End.EXIT


@pytest.mark.parametrize("said", [b"", READY])
async def test_a_stop_before_the_job_runs_nothing(sandbox: Sandboxed, said: bytes) -> None:
    async def cell(wire: Wire) -> None:
        if said:
            await wire.say(said)
        await wire.hear()

    stop = Stop()
    stop.request()
    report = await sandbox.run(cell, stop=stop)
    assert (report.end, report.stop_asked) == (End.STOPPED, True)
    assert sandbox.wire.heard == []


async def test_a_cell_that_ignores_a_stop_is_destroyed(sandbox: Sandboxed) -> None:
    stop = Stop()

    async def cell(wire: Wire) -> None:
        await wire.start()
        stop.request()
        await anyio.sleep_forever()

    report = await sandbox.run(cell, job(grace=0.02), stop=stop, bounds=SOON)
    assert report.end is End.STOPPED
    assert sandbox.destroyed == ["destroyed"]


async def test_a_stop_during_a_long_send_waits_for_the_frame_to_be_whole(
    sandbox: Sandboxed,
) -> None:
    stop = Stop()

    async def cell(wire: Wire) -> None:
        await wire.say(READY)
        await wire.from_executor.receive()  # a first part of J
        stop.request()
        with contextlib.suppress(anyio.EndOfStream):
            rest = 0
            while rest < 4 << 20:
                rest += len(await wire.from_executor.receive())
        wire.heard.append(await wire.from_executor.receive())
        await wire.say(STARTED, exit_frame(c=15, k=1, x=Stopped.ASKED_TERM))

    size = len(protocol.job_frame(job(), seccomp=b"")) - 2
    report = await sandbox.run(cell, job(payload=b"p" * ((5 << 20) - size)), stop=stop)
    assert report.end is End.EXIT
    assert sandbox.wire.heard == [protocol.frame(protocol.TERM)]


async def test_cancelling_terms_reads_to_the_end_and_goes_on(sandbox: Sandboxed) -> None:
    a_job = job()
    frame = protocol.job_frame(a_job, seccomp=b"")
    ended: list[str] = []

    async def cell(wire: Wire, scope: anyio.CancelScope) -> None:
        await wire.start()
        scope.cancel()
        assert await wire.hear() == protocol.TERM
        await wire.say(exit_frame(c=15, k=1, x=Stopped.ASKED_TERM))
        ended.append("cell")

    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            group.start_soon(cell, sandbox.wire, scope)
            await converse(sandbox.wire, a_job, frame, destroy=sandbox.destroy)
            ended.append("not cancelled")
    assert scope.cancelled_caught
    assert ended == ["cell"]
    assert sandbox.destroyed == []


async def test_cancelling_before_the_job_leaves_at_once(sandbox: Sandboxed) -> None:
    a_job = job()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await converse(sandbox.wire, a_job, b"never sent", destroy=sandbox.destroy)
    assert scope.cancelled_caught
    assert sandbox.destroyed == []


async def test_cancelling_a_run_whose_cell_is_deaf_destroys_it_and_goes_on(
    sandbox: Sandboxed,
) -> None:
    a_job = job(grace=0.02)
    frame = protocol.job_frame(a_job, seccomp=b"")

    async def cell(wire: Wire, scope: anyio.CancelScope) -> None:
        await wire.start()
        scope.cancel()
        await anyio.sleep_forever()

    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            group.start_soon(cell, sandbox.wire, scope)
            await converse(sandbox.wire, a_job, frame, destroy=sandbox.destroy, bounds=SOON)
        group.cancel_scope.cancel()
    assert scope.cancelled_caught
    assert sandbox.destroyed == ["destroyed"]
