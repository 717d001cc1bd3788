"""The engine's frames come apart anywhere; what is in them does not."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

import anyio
import anyio.to_thread
import pytest
from hypothesis import given, strategies as st

from executor.backends.docker_streams import (
    AttachError,
    ContainerStreams,
    Demultiplexer,
    attach,
)


def framed(stream: int, data: bytes) -> bytes:
    return struct.pack(">BxxxI", stream, len(data)) + data


frames = st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=40)), max_size=8)


@given(frames, st.integers(1, 30))
def test_any_split_gives_the_same_bytes(parts: list[tuple[int, bytes]], size: int) -> None:
    text = b"".join(framed(*part) for part in parts)
    demultiplexer = Demultiplexer()
    got = b"".join(demultiplexer.feed(text[i : i + size]) for i in range(0, len(text), size))
    assert got == b"".join(data for stream, data in parts if stream == 1)


def test_what_comes_beside_the_protocol_is_kept_in_part() -> None:
    demultiplexer = Demultiplexer()
    assert demultiplexer.feed(framed(2, b"oh\xff ") + framed(3, b"no\n")) == b""
    assert demultiplexer.complaint == "oh� no"
    demultiplexer.feed(framed(2, b"x" * 100_000))
    assert len(demultiplexer.complaint) == 2048


@pytest.mark.parametrize("header", [b"HTTP/1.1", b"\x04\0\0\0\0\0\0\1", b"\x01\0\1\0\0\0\0\1"])
def test_what_no_engine_would_send_is_an_error(header: bytes) -> None:
    with pytest.raises(AttachError):
        Demultiplexer().feed(header)


@pytest.mark.anyio
async def test_streams_carry_much_in_both_directions_at_once() -> None:
    ours, theirs = socket.socketpair()
    streams, size = ContainerStreams(ours, early=framed(1, b"early")), 8 << 20
    got = bytearray()

    def engine() -> None:
        theirs.sendall(framed(2, b"note") + framed(1, b"y" * size))
        seen = 0
        while seen < size:
            seen += len(theirs.recv(1 << 16))
        theirs.close()

    async def receive() -> None:
        while data := await streams.receive():
            got.extend(data)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.to_thread.run_sync, engine)
            group.start_soon(receive)
            await streams.send(b"x" * size)
    assert got == b"early" + b"y" * size
    assert streams.demultiplexer.complaint == "note"
    streams.close()
    streams.close()


@pytest.mark.anyio
async def test_closing_wakes_who_receives() -> None:
    ours, theirs = socket.socketpair()
    streams = ContainerStreams(ours)
    woken = []

    async def receive() -> None:
        with pytest.raises(anyio.ClosedResourceError) as error:
            await streams.receive()
        woken.append(error.value)

    with theirs:
        async with anyio.create_task_group() as group:
            group.start_soon(receive)
            await anyio.wait_all_tasks_blocked()
            streams.close()
    assert len(woken) == 1


class Listener:
    """An engine that gives one answer to one request."""

    def __init__(self, path: str, answer: bytes) -> None:
        self.request = b""
        self._answer = answer
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(path)
        self._socket.listen(1)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._socket.accept()
        with connection, self._socket:
            while b"\r\n\r\n" not in self.request:
                self.request += connection.recv(1000)
            size = len(self._answer) // 50 + 1
            with contextlib.suppress(BrokenPipeError):
                for start in range(0, len(self._answer), size):
                    connection.sendall(self._answer[start : start + size])

    def join(self) -> None:
        self._thread.join()


@pytest.mark.anyio
async def test_attaching_takes_the_connection_over(tmp_path: object) -> None:
    path = f"{tmp_path}/engine"
    answer = b"HTTP/1.1 101 UPGRADED\r\nUpgrade: tcp\r\n\r\n" + framed(1, b"early bird")
    listener = Listener(path, answer)
    streams = await anyio.to_thread.run_sync(attach, path, "1.41", "abc", 10.0)
    got = b""
    while data := await streams.receive():
        got += data
    streams.close()
    listener.join()
    assert got == b"early bird"
    first = listener.request.split(b"\r\n", 1)[0]
    assert first == (
        b"POST /v1.41/containers/abc/attach?stream=1&stdin=1&stdout=1&stderr=1 HTTP/1.1"
    )


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 404 Not Found\r\n\r\n{}", b"x" * 20_000, b"HTTP/1.1\r\n\r\n"]
)
def test_an_engine_that_does_not_attach_is_an_error(tmp_path: object, answer: bytes) -> None:
    path = f"{tmp_path}/engine"
    listener = Listener(path, answer)
    with pytest.raises(AttachError):
        attach(path, "1.41", "abc", 10.0)
    listener.join()


def test_an_engine_that_says_nothing_is_not_waited_for(tmp_path: object) -> None:
    path = f"{tmp_path}/engine"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(path)
        silent.listen(1)
        with pytest.raises(TimeoutError):
            attach(path, "1.41", "abc", 0.05)
