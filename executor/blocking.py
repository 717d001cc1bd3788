"""What does an agent without an event loop hold?

The same verbs, each waited for, usable from any thread. The loop runs in a thread of its own
(``Executor.open_blocking``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import anyio.from_thread

from executor.bus.listener import Callback, Listener
from executor.gate.consent import AskFunction
from executor.gate.handlers import AnyFunction
from executor.gate.tool_call import Tool, ToolResult
from executor.pipeline import run_blocking
from executor.receipt import Receipt
from executor.record import Record
from executor.verdict import Verdict

if TYPE_CHECKING:
    from executor.service import Executor


class BlockingExecutor:
    """The same verbs for a program without an event loop; usable from any thread."""

    def __init__(self, executor: Executor, portal: anyio.from_thread.BlockingPortal) -> None:
        self._executor = executor
        self._portal = portal

    def emit(
        self, name: str, payload: Mapping[str, object], *, session_id: str | None = None
    ) -> Receipt:
        """As ``Executor.emit``."""
        return self._executor.emit(name, payload, session_id=session_id)

    def publish(self, topic: str, payload: Mapping[str, object]) -> bool:
        """As ``Executor.publish``."""
        return self._executor.publish(topic, payload)

    @contextmanager
    def subscribe(self, pattern: str, callback: Callback) -> Iterator[Listener]:
        """Call back for each message while the block lasts, in a thread, one at a time.

        What a callback raises is logged and counted; a slow one misses messages (``dropped``).
        """
        bus = self._executor.bus
        listener = self._portal.call(bus.attach, pattern, callback)
        try:
            yield listener
        finally:
            self._portal.call(bus.detach, listener)

    def wait(self, receipt: Receipt) -> Sequence[Record]:
        """Until every hook of this event ended; their records."""
        return self._portal.call(receipt.wait)

    def on(
        self,
        event: str,
        *,
        matcher: str | None = None,
        on_failure: Literal["block", "continue"] = "block",
        in_thread: bool = False,
    ) -> Callable[[AnyFunction], AnyFunction]:
        """As ``Executor.on``; the functions are called in the executor's thread."""
        return self._executor.on(event, matcher=matcher, on_failure=on_failure, in_thread=in_thread)

    def on_ask(self, callback: AskFunction) -> AskFunction:
        """As ``Executor.on_ask``."""
        return self._executor.on_ask(callback)

    def ask(
        self,
        event: str | Mapping[str, object],
        payload: Mapping[str, object] | None = None,
        *,
        session_id: str | None = None,
    ) -> Verdict:
        """As ``Executor.ask``."""
        return self._portal.call(
            functools.partial(self._executor.ask, event, payload, session_id=session_id)
        )

    def run_hooks(
        self, event_name: str, payload: Mapping[str, object], *, session_id: str | None = None
    ) -> dict[str, object]:
        """The handlers of an event, Permission not among them: ``{"exit_code", "message"}``."""
        asker = self._executor.asker
        verdict = run_blocking(asker, self._portal.call, event_name, payload, session_id)
        return verdict.as_answer()

    def call_tool(
        self,
        name: str,
        tool_input: Mapping[str, object],
        tool: Tool,
        *,
        session_id: str | None = None,
    ) -> ToolResult:
        """As ``Executor.call_tool``; a synchronous tool runs in a worker thread."""
        return self._portal.call(
            functools.partial(
                self._executor.call_tool, name, tool_input, tool, session_id=session_id
            )
        )

    def drain(self) -> None:
        """As ``Executor.drain``."""
        self._portal.call(self._executor.drain)
