"""What does a hook say through its emit channel, and who hears it?

A hook whose policy grants ``[bus] emit`` finds a descriptor (``ZERO_HOOK_EMIT_FD``) and writes one
event a line: ``{"event": "error", "payload": {…}}``. The cell relays the bytes. Which run is
talking is known from where they arrive, so session and depth are the executor's own: the event
belongs to the session of the run's event and is one level deeper. Whatever else the line claims is
not read.

A backend sees a Job and nothing else; so the listener of a run is a context variable, which
``cell.session`` finds in the task that runs the job.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from executor.errors import InvalidEvent
from executor.events import LIFECYCLE, Event

EMIT_BYTES = 1024 * 1024
"""What one run may write to its channel; the cell counts the rest and throws it away."""
MAX_LINE_BYTES = 128 * 1024
"""One event as a hook writes it: twice a message, for escapes and spaces."""
MAX_EVENTS = 100
"""Events that one run may emit."""

Listener = Callable[[bytes], None]

_listener: ContextVar[Listener | None] = ContextVar("executor.emission", default=None)


class Emit(Protocol):
    """``Dispatcher.emit``, as far as a hook gets to use it."""

    def __call__(
        self, name: str, payload: Mapping[str, object], *, session_id: str, depth: int
    ) -> object: ...


@contextmanager
def hearing(listener: Listener) -> Iterator[None]:
    """Jobs that are run inside the block are heard by this listener."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def heard(data: bytes) -> None:
    """Some bytes that the hook of this context's run wrote to its channel."""
    listener = _listener.get()
    if listener is not None:
        listener(data)


class Emissions:
    """The events of one run. ``faults`` are told in the run's report, each kind once."""

    def __init__(self, event: Event, emit: Emit) -> None:
        self._event = event
        self._emit = emit
        self._rest = bytearray()
        self._lines = 0
        self._received = 0
        self.faults: dict[str, int] = {}

    def hear(self, data: bytes) -> None:
        """Some bytes; every whole line is an event. Never raises."""
        self._received += len(data)
        if self._received >= EMIT_BYTES:
            self._fault(f"wrote {EMIT_BYTES} bytes and more; the rest was not read")
        self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            self._take(bytes(line))

    def end(self) -> tuple[str, ...]:
        """The run is over; a last line without its newline counts. What went wrong, to be read."""
        self._take(bytes(self._rest))
        self._rest = bytearray()
        return tuple(
            f"emit: {text}" + (f" ({count} times)" if count > 1 else "")
            for text, count in self.faults.items()
        )

    def _take(self, line: bytes) -> None:
        if not line.strip():
            return
        self._lines += 1
        if self._lines > MAX_EVENTS:
            self._fault(f"more than {MAX_EVENTS} events in one run; the others were dropped")
        elif len(line) > MAX_LINE_BYTES:
            self._fault(f"a line longer than {MAX_LINE_BYTES} bytes was dropped")
        else:
            self._say(line)

    def _say(self, line: bytes) -> None:
        try:
            content = json.loads(line)
        except (ValueError, RecursionError):
            self._fault("a line is no JSON")
            return
        name = content.get("event") if isinstance(content, dict) else None
        payload = content.get("payload", {}) if isinstance(content, dict) else None
        if not isinstance(name, str) or name not in LIFECYCLE or not isinstance(payload, dict):
            self._fault('a line is not {"event": a lifecycle event, "payload": an object}')
            return
        try:
            self._emit(
                name, payload, session_id=self._event.session_id, depth=self._event.depth + 1
            )
        except InvalidEvent as mistake:
            self._fault(f"{name}: {mistake.faults[0]}")

    def _fault(self, text: str) -> None:
        if text in self.faults or len(self.faults) < 8:
            self.faults[text] = self.faults.get(text, 0) + 1
