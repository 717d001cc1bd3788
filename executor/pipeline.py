"""What does the module-level ``run_hooks`` walk?

The handlers of the executor that this process opened last. It is synchronous, as an agent's loop
without ``await`` wants it: from ``Executor.open_blocking`` it waits for anything; inside an event
loop's own thread it can only walk handlers that answer at once, and says so otherwise, before any
of them was called.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio.from_thread

from executor.dispatcher import Dispatcher
from executor.gate.asker import Asker, Place
from executor.gate.sessions import Sessions
from executor.ledger.base import Ledger, Sink
from executor.ledger.metrics import Metrics
from executor.ledger.verdicts import Verdicts
from executor.registry import Registry
from executor.runner import Runner
from executor.verdict import Verdict

SESSIONS_FILE = "sessions.db"

Wait = Callable[[Callable[[], Coroutine[Any, Any, Verdict]]], Verdict]
"""Runs an asynchronous function in the executor's loop, from another thread, to its end."""

_open: list[tuple[Asker, Wait | None]] = []


def run_hooks(event_name: str, payload: Mapping[str, object]) -> dict[str, object]:
    """``{"exit_code", "message"}`` of the event's handlers, Permission not among them.

    Raises InvalidEvent for what is no gate event, RuntimeError where no executor is open or where
    this thread is the event loop's and a handler must be waited for (``await ex.run_hooks``).
    """
    if not _open:
        message = "no executor is open: use this inside Executor.open or Executor.open_blocking"
        raise RuntimeError(message)
    asker, wait = _open[-1]
    return run_blocking(asker, wait, event_name, payload, None).as_answer()


def run_blocking(
    asker: Asker,
    wait: Wait | None,
    name: str,
    payload: Mapping[str, object],
    session_id: str | None,
) -> Verdict:
    """The hooks of an event, from a thread that may not await."""
    start = functools.partial(asker.run_hooks, name, payload, session_id)
    if threading.get_ident() != asker.thread:
        return anyio.from_thread.run(start) if wait is None else wait(start)
    waiting = asker.waits(name, payload)
    if waiting is not None:
        message = f"{waiting} must be waited for, and this is the event loop: await ex.run_hooks"
        raise RuntimeError(message)
    return _at_once(start())


@contextmanager
def opened_gate(
    registry: Registry,
    runner: Runner,
    dispatcher: Dispatcher,
    metrics: Metrics,
    sinks: Sequence[Sink],
    *,
    workspace: str,
    state: Path,
    report: Callable[[str], None],
) -> Iterator[Asker]:
    """The gate of one executor, closed at the end of the block. Raises InvalidConfig."""
    sessions = Sessions(state / SESSIONS_FILE, report)
    asker = Asker(
        registry,
        runner,
        Ledger((metrics, *sinks)),
        lambda: dispatcher.grounds,
        sessions,
        Place(workspace, os.environ.get("HOME", "")),
        Verdicts(sinks, metrics.registry).append,
    )
    try:
        with current(asker):
            yield asker
    finally:
        asker.closed = True
        sessions.close()


@contextmanager
def current(asker: Asker, wait: Wait | None = None) -> Iterator[None]:
    """Inside the block this is the executor that ``run_hooks`` means."""
    entry = (asker, wait)
    _open.append(entry)
    try:
        yield
    finally:
        _open.remove(entry)


def _at_once(coroutine: Coroutine[Any, Any, Verdict]) -> Verdict:
    """Step a coroutine that has nothing to wait for."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        verdict: Verdict = ended.value
        return verdict
    coroutine.close()
    raise RuntimeError("a handler returned something to wait for: await ex.run_hooks")
