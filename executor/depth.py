"""How deep in a causal chain does this code run?

Theory of operation
-------------------
The outermost event has depth 1; what is emitted while depth *d* is handled has depth *d + 1*. The
depth handled here and now is a context variable, not a counter: it follows the chain of causes, so
nine hooks on one event do not add up. A context is copied into each new task and into each thread
that anyio, asyncio or trio start; a bare ``threading.Thread`` begins a chain of its own.

A message carries its depth over the network, in a header that only executors write. A child
process that the handler itself starts gets ``environment()``; the command line reads it. A hook
can do neither: it has no network, every ``ZERO_HOOK_*`` of its action is stripped, and what it
sends through its emit channel is given the depth of the run that is talking.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

MAX_DEPTH = 8
"""Deeper events are dropped (SPEC section 5)."""
VARIABLE = "ZERO_HOOK_DEPTH"

_handled: ContextVar[int] = ContextVar("executor.depth", default=0)


def handled_depth() -> int:
    """The depth of the event that this code handles, 0 outside of any."""
    return _handled.get()


def next_depth() -> int:
    """The depth of an event that is emitted here and now."""
    return _handled.get() + 1


def handle(depth: int) -> None:
    """From here on, this context handles an event of that depth (0: none)."""
    _handled.set(depth)


@contextmanager
def handling(depth: int) -> Iterator[None]:
    """What is emitted inside this block was caused by an event of that depth."""
    token = _handled.set(depth)
    try:
        yield
    finally:
        _handled.reset(token)


def environment() -> dict[str, str]:
    """What a child process needs so that its ``hook-executor emit`` continues this chain."""
    handled = _handled.get()
    return {VARIABLE: str(handled)} if handled else {}


def inherited_depth(environ: Mapping[str, str]) -> int:
    """The depth handled by the process that started us; what is no such number counts as none.

    The answer can only make an event deeper than 1, so lying here gains nothing.
    """
    text = environ.get(VARIABLE, "")
    if not (text.isascii() and text.isdigit()):
        return 0
    return min(int(text[:4]), MAX_DEPTH)
