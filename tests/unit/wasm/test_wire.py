"""Do frames survive any split, and does nonsense end a conversation?"""

from __future__ import annotations

import os
import socket
import threading

import pytest

from executor.wasm.wire import HEAD, MAX_META_BYTES, Channel, Garbled, lengths, pack, unpack


def test_a_frame_comes_as_it_went_byte_by_byte() -> None:
    ours, theirs = socket.socketpair()
    meta, blob = {"do": "call", "text": "é\n\u2028", "list": [1, None, True]}, bytes(range(256)) * 9
    data = pack(meta, len(blob)) + blob

    def drip() -> None:
        for byte in data:
            ours.send(bytes([byte]))

    with ours, theirs:
        writer = threading.Thread(target=drip)
        writer.start()
        assert Channel(theirs, 1 << 20).read() == (meta, blob)
        writer.join()


def test_descriptors_ride_on_a_frame() -> None:
    ours, theirs = socket.socketpair()
    read, write = os.pipe()
    with ours, theirs:
        socket.send_fds(ours, [pack({})], [read, write])
        channel = Channel(theirs, 0)
        assert channel.read() == ({}, b"")
        taken = channel.descriptors
        assert [os.path.samestat(os.fstat(one), os.fstat(read)) for one in taken[:1]] == [True]
        for descriptor in (read, write, *taken):
            os.close(descriptor)


def test_the_end_of_the_stream_is_an_end() -> None:
    for part in (b"", b"\0", HEAD.pack(5, 0) + b"{"):
        ours, theirs = socket.socketpair()
        with theirs:
            with ours:
                ours.sendall(part)
            with pytest.raises(EOFError):
                Channel(theirs, 0).read()


@pytest.mark.parametrize("head", [HEAD.pack(MAX_META_BYTES + 1, 0), HEAD.pack(0, 11)])
def test_a_frame_that_is_too_long_is_refused_before_it_is_read(head: bytes) -> None:
    with pytest.raises(Garbled):
        lengths(head, 10)


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'"x"', b"NaN"])
def test_what_is_no_object_is_refused(text: bytes) -> None:
    with pytest.raises(Garbled):
        unpack(text)
