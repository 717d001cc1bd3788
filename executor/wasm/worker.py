"""What does a worker process do, from its first frame to its last?

Started by ``process``: ``python -I -c "from executor.wasm.worker import main; main()"`` with the
socket as descriptors 0 and 1. It takes the socket away from where a guest's output could reach it,
loads wasmtime, confines itself, and then answers frames, one at a time, until the stream ends.
While a guest is asleep in a host call nobody here looks at the stream; a thread that the clock
wakes does, so that no worker outlives its executor.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from typing import NoReturn

from wasmtime import Engine, WasmtimeError
from wasmtime.component import Component

from executor.wasm.confine import Opened, Orders, confine
from executor.wasm.guest import Answer, Call, Clock, Directory, Gauge, Guest, make_engine
from executor.wasm.interface import Facts
from executor.wasm.wire import Channel, Garbled, Meta, number_of, text_of, texts_of

MAX_BLOB_BYTES = 17 * 1024 * 1024
"""The largest envelope, and some room."""


def main() -> NoReturn:
    """The whole life of a worker."""
    sock = _take_socket()
    channel = Channel(sock, MAX_BLOB_BYTES)
    with contextlib.suppress(EOFError, ConnectionError, Garbled):
        Worker(sock, channel).serve()
    # No clean-up of Python's could do better than the kernel's, and a guest may still be asleep.
    os._exit(0)


class Worker:
    """The state of one worker: its engine and what it has loaded."""

    def __init__(self, sock: socket.socket, channel: Channel) -> None:
        self._socket = sock
        self._channel = channel
        self._guests: dict[str, Guest] = {}
        self._directories: list[Directory] = []

    def serve(self) -> None:
        """Start as told, then answer until the stream ends."""
        gauge = Gauge()
        missing = self._start()
        engine = make_engine()
        clock = Clock(engine)
        threading.Thread(target=self._watch, daemon=True).start()
        self._channel.write({"ready": True, "missing": missing})
        while True:
            meta, blob = self._channel.read()
            if meta.get("do") == "load":
                self._channel.write(self._load(meta, engine, gauge))
            else:
                guest = self._guests.get(text_of(meta, "id"))
                if guest is None:
                    raise Garbled("no such guest")
                answer = guest.call(_call(meta, blob), clock, self._ask)
                self._channel.write(*_answered(answer))

    def _start(self) -> list[str]:
        meta, seccomp = self._channel.read()
        taken, self._channel.descriptors = self._channel.descriptors, []
        guests, writable = texts_of(meta, "directories"), texts_of(meta, "writable")
        if len(taken) != len(guests) + 1:
            raise Garbled("descriptors and directories differ in number")
        cache, *opened = taken
        self._directories = [
            Directory(f"/proc/self/fd/{descriptor}", guest, guest in writable)
            for descriptor, guest in zip(opened, guests, strict=True)
        ]
        return confine(
            Orders(
                uid=int(number_of(meta, "uid")),
                gid=int(number_of(meta, "gid")),
                data_bytes=int(number_of(meta, "data_bytes")),
                open_files=int(number_of(meta, "open_files")),
                seccomp=seccomp,
                directories=[
                    Opened(descriptor, guest in writable)
                    for descriptor, guest in zip(opened, guests, strict=True)
                ],
                readable=[cache],
            )
        )

    def _load(self, meta: Meta, engine: Engine, gauge: Gauge) -> Meta:
        (descriptor,) = self._channel.descriptors
        self._channel.descriptors = []
        try:
            component = Component.deserialize_file(engine, f"/proc/self/fd/{descriptor}")
            self._guests[text_of(meta, "id")] = Guest(
                engine, component, _facts(meta), _config(meta), self._directories, gauge
            )
        except WasmtimeError as failure:
            return {"loaded": False, "reason": str(failure).splitlines()[-1].strip()}
        finally:
            os.close(descriptor)
        return {"loaded": True}

    def _ask(self, question: str, key: str, value: bytes) -> tuple[bool, bytes]:
        try:
            self._channel.write({"ask": question, "key": key}, value)
            meta, answer = self._channel.read()
        except (EOFError, ConnectionError, Garbled):
            os._exit(0)
        return meta.get("found") is True, answer

    def _watch(self) -> None:
        """End with the executor, whatever a guest does."""
        poll = select.poll()
        poll.register(self._socket, select.POLLRDHUP)
        poll.poll()
        os._exit(0)


def _take_socket() -> socket.socket:
    """The stream under a number that nobody else writes to; 0, 1 and 2 lead nowhere."""
    kept = os.dup(0)
    nowhere = os.open("/dev/null", os.O_RDWR)
    for number in range(3):
        os.dup2(nowhere, number)
    # What the surrounding program failed to mark close-on-exec is none of a worker's.
    os.closerange(3, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
    return socket.socket(fileno=kept)


def _facts(meta: Meta) -> Facts:
    imports = meta.get("imports")
    if not isinstance(imports, dict):
        raise Garbled("a frame has no imports")
    return Facts(
        interface=text_of(meta, "interface"),
        imports=imports,
        wasi=meta.get("wasi") is True,
        http=list(texts_of(meta, "http")),
    )


def _config(meta: Meta) -> dict[str, str]:
    config = meta.get("config")
    if not isinstance(config, dict):
        raise Garbled("a frame has no config")
    return config


def _call(meta: Meta, envelope: bytes) -> Call:
    environment = meta.get("environment", ())
    return Call(
        event=text_of(meta, "event"),
        envelope=envelope,
        gate=meta.get("gate") is True,
        timeout_seconds=number_of(meta, "timeout"),
        memory_bytes=int(number_of(meta, "memory")),
        output_bytes=int(number_of(meta, "output")),
        environment=environment if isinstance(environment, list) else (),
    )


def _answered(answer: Answer) -> tuple[Meta, bytes]:
    stdout, stderr = answer.output.kept
    meta: Meta = {
        "end": answer.end.value,
        "message": answer.message,
        "cut": answer.cut,
        "seconds": answer.seconds,
        "stdout": len(stdout),
        "seen": answer.output.seen,
    }
    return meta, bytes(stdout + stderr)
