"""Who says yes when a rule says ask?

The agent's callback, given by ``Executor.on_ask``; nobody means no. Only a plain ``True`` is a yes:
whatever else a callback returns or raises is a no, and says so. A synchronous callback runs in a
worker thread, because it may wait for a person.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import anyio.to_thread

from executor.gate.handlers import copied
from executor.permission.decide import Decision


@dataclass(frozen=True, slots=True)
class Question:
    """One call that needs consent; ``rule`` is the place of the rule in config.toml."""

    tool: str
    input: Mapping[str, object]
    reason: str
    rule: int | None


AskFunction = Callable[[Question], object]
"""Returns ``True`` to let the call pass, or an awaitable of it."""


class Consent:
    """The one callback of an executor."""

    def __init__(self) -> None:
        self.callback: AskFunction | None = None

    async def refusal(
        self, tool: str, tool_input: Mapping[str, object], decision: Decision
    ) -> str | None:
        """Why the call may not go on; None where somebody consented."""
        if self.callback is None:
            return "it needs a person's consent, and nobody can be asked here"
        question = Question(tool, copied(tool_input), decision.reason, decision.rule)
        try:
            answer = await _called(self.callback, question)
        except Exception as raised:  # noqa: BLE001  (no answer is a no)
            return f"asking for consent failed: {type(raised).__name__}: {str(raised)[:300]}"
        return None if answer is True else "consent was not given"


async def _called(callback: AskFunction, question: Question) -> object:
    if inspect.iscoroutinefunction(callback):
        return await callback(question)
    call = functools.partial(callback, question)
    answer = await anyio.to_thread.run_sync(call, abandon_on_cancel=True)
    return await answer if inspect.isawaitable(answer) else answer
