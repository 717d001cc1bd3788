"""How is one tool call made, from permission to what the model sees?

Permission, PreToolUse hooks, the tool, PostToolUse hooks: in this order, each only where the one
before let it through; the tool never starts before the verdict. What runs is what was judged: the
input is copied once, and neither hooks nor the caller can change that copy.

Chat APIs want a tool call to be followed by its result and nothing in between. So a block's reason
*is* the result, and injected messages stand at the end of the result's text.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import anyio.to_thread

from executor.events import new_session_id
from executor.gate.handlers import copied
from executor.receipt import Receipt
from executor.verdict import INJECT, Verdict

Tool = Callable[[dict[str, object]], object]
"""Takes the input; returns the output or an awaitable of it. What it raises is its output too."""


class Gatekeeper(Protocol):
    """The verbs that a tool call needs: both are ``Executor``'s."""

    async def ask(
        self, event: str, payload: Mapping[str, object], *, session_id: str | None = None
    ) -> Verdict: ...

    def emit(
        self, name: str, payload: Mapping[str, object], *, session_id: str | None = None
    ) -> Receipt: ...


@dataclass(frozen=True, slots=True)
class ToolResult:
    """``content`` is what the model should see as the result; ``output`` the tool's own words.

    ``is_error``: the tool raised, or never ran. ``messages`` are already part of ``content``.
    ``value`` is what the tool returned, for the program.
    """

    content: str
    output: str
    blocked: bool
    is_error: bool
    messages: tuple[str, ...]
    before: Verdict
    after: Verdict | None = None
    value: object = None


async def call_tool(
    gatekeeper: Gatekeeper,
    name: str,
    tool_input: Mapping[str, object],
    tool: Tool,
    *,
    session_id: str | None = None,
) -> ToolResult:
    """Make the call. A synchronous tool runs in a worker thread.

    Raises InvalidEvent where name or input cannot be told to hooks; what the tool raises (but for
    cancellation and exits) is in the result.
    """
    session = new_session_id() if session_id is None else session_id
    judged = copied(tool_input)
    call: dict[str, object] = {"tool_name": name, "input": judged}
    before = await gatekeeper.ask("PreToolUse", call, session_id=session)
    if before.blocked:
        return ToolResult(
            before.message, "", blocked=True, is_error=True, messages=(), before=before
        )
    start = {"tool": name, "arguments": judged}
    gatekeeper.emit("tool_call_start", start, session_id=session)
    success, output, value = False, "", None
    try:
        value = await _run(tool, copied(judged))
        success, output = True, text_of(value)
    except Exception as raised:  # noqa: BLE001  (a tool's failure is what the model must see)
        output = f"{type(raised).__name__}: {raised}"
    finally:
        ended = {"tool": name, "success": success, "output": output}
        gatekeeper.emit("tool_call", ended, session_id=session)
    after = await gatekeeper.ask("PostToolUse", {**call, "output": output}, session_id=session)
    messages = tuple(one.message for one in (before, after) if one.exit_code == INJECT)
    return ToolResult(
        "\n\n".join(part for part in (output, *messages) if part),
        output,
        blocked=False,
        is_error=not success,
        messages=messages,
        before=before,
        after=after,
        value=value,
    )


def text_of(value: object) -> str:
    """A tool's return value as the text of its result: strings as they are, the rest as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return str(value)


async def _run(tool: Tool, tool_input: dict[str, object]) -> object:
    if inspect.iscoroutinefunction(tool):
        return await tool(tool_input)
    result = await anyio.to_thread.run_sync(functools.partial(tool, tool_input))
    return await result if inspect.isawaitable(result) else result
