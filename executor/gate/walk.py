"""What do all handlers of a gate event come to?

Theory of operation. One ``Walk`` is one gate call: handlers in configured order, each asked once.
``first`` asks one after the other and stops at the first that blocks or injects; ``block-wins``
asks all, those that wait at the same time, and merges in configured order, whoever ended first. The
tables below say what a code means for an event (SPEC section 7). All handlers of a call share one
budget; who has not answered when it is spent is a failed gate.

Rules for editors: a failed gate of PreToolUse blocks, unless its policy says otherwise; no path
through this file may turn a failure into silence. Handlers that answer at once never touch the
event loop: three of them must cost less than 100 microseconds together.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import anyio

from executor.events import Event
from executor.verdict import BLOCK, GO, INJECT, Answer, Decided, Verdict, failed

Strategy = Literal["first", "block-wins"]

_BLOCKABLE = frozenset({"PreToolUse"})
"""Events where 1 and a failed gate block. Elsewhere 1 is a warning that counts as 0."""


class Handler(Protocol):
    """Anything that answers a gate event: a Python function, a shell hook, a plugin."""

    @property
    def id(self) -> str:
        """As records and reasons name it."""
        ...

    @property
    def goes_on(self) -> bool:
        """Whether its failure lets the call pass (``on_failure = "continue"``)."""
        ...

    def begin(self, event: Event) -> Answer | Awaitable[Answer]:
        """Its answer, or something to wait for. May raise: that is a failed gate."""
        ...


@dataclass(frozen=True, slots=True)
class Rules:
    """``budget_seconds`` is for all handlers of one call together."""

    strategy: Strategy = "first"
    budget_seconds: float = 60.0


async def walk(event: Event, handlers: Sequence[Handler], rules: Rules) -> Verdict:
    """Ask the handlers, in this order. Never raises but for cancellation."""
    started = time.perf_counter()
    if not handlers:
        return Verdict(event.name, event.session_id)
    one = _Walk(event, handlers, rules.budget_seconds)
    if rules.strategy == "first":
        await one.until_first()
    else:
        await one.all()
    return merged(event, one.decisions(), time.perf_counter() - started)


def merged(event: Event, decisions: Sequence[Decided], seconds: float) -> Verdict:
    """One verdict from the handlers' parts: a block anywhere wins, else all that was injected."""
    code = GO
    for one in decisions:
        if one.code == BLOCK:
            code = BLOCK
            break
        code = max(code, one.code)
    speaking = [one for one in decisions if one.code == code] if code != GO else []
    return Verdict(
        event.name,
        event.session_id,
        code,
        "\n".join(one.message for one in speaking),
        speaking[0].decider if speaking else None,
        _reason(code, speaking, decisions),
        tuple(decisions),
        seconds,
    )


class _Walk:
    def __init__(self, event: Event, handlers: Sequence[Handler], budget: float) -> None:
        self._event = event
        self._handlers = handlers
        self._budget = budget
        self._deadline = time.perf_counter() + budget
        self._decided: list[Decided | None] = [None] * len(handlers)

    def decisions(self) -> tuple[Decided, ...]:
        return tuple(one for one in self._decided if one is not None)

    async def until_first(self) -> None:
        for place in range(len(self._handlers)):
            begun = time.perf_counter()
            answer = self._begin(place)
            if not isinstance(answer, Answer):
                answer = await self._wait(answer)
            if self._settle(place, answer, begun).code != GO:
                return

    async def all(self) -> None:
        waiting: list[tuple[int, Awaitable[Answer], float]] = []
        for place in range(len(self._handlers)):
            begun = time.perf_counter()
            answer = self._begin(place)
            if isinstance(answer, Answer):
                self._settle(place, answer, begun)
            else:
                waiting.append((place, answer, begun))
        if waiting:
            async with anyio.create_task_group() as tasks:
                for place, awaitable, begun in waiting:
                    tasks.start_soon(self._finish, place, awaitable, begun)

    async def _finish(self, place: int, awaitable: Awaitable[Answer], begun: float) -> None:
        self._settle(place, await self._wait(awaitable), begun)

    def _begin(self, place: int) -> Answer | Awaitable[Answer]:
        if time.perf_counter() >= self._deadline:
            return failed(f"the gate's time ({self._budget:g} s) was spent before its turn")
        try:
            return self._handlers[place].begin(self._event)
        except (Exception, SystemExit) as raised:  # noqa: BLE001  (a handler's fault is its answer)
            return _raised(raised)

    async def _wait(self, awaitable: Awaitable[Answer]) -> Answer:
        left = self._deadline - time.perf_counter()
        answer: Answer | None = None
        with anyio.move_on_after(left):
            try:
                answer = await awaitable
            except (Exception, SystemExit) as raised:  # noqa: BLE001  (as above)
                answer = _raised(raised)
        return answer or failed(
            f"it had not answered when the gate's {self._budget:g} s were spent"
        )

    def _settle(self, place: int, answer: Answer, begun: float) -> Decided:
        """What the answer counts for. A late one is none: the budget is a promise to the agent."""
        handler, now = self._handlers[place], time.perf_counter()
        if now > self._deadline and answer.failure is None:
            answer = failed(f"it answered after the gate's {self._budget:g} s were spent")
        code, message = answer.code, answer.message
        if answer.failure is not None:
            blocks = self._event.name in _BLOCKABLE and not handler.goes_on
            code, message = (BLOCK, _blocked(handler.id, answer.failure)) if blocks else (GO, "")
        elif code == BLOCK and self._event.name not in _BLOCKABLE:
            code = GO
        decided = Decided(handler.id, code, message, answer.failure, now - begun)
        self._decided[place] = decided
        return decided


def _raised(raised: BaseException) -> Answer:
    return failed(f"it raised {type(raised).__name__}: {str(raised)[:300]}")


def _blocked(decider: str, failure: str) -> str:
    return (
        f"{decider} gave no verdict: {failure}. The call is blocked to be safe; mend the hook, or "
        'let its failures pass with on_failure = "continue"'
    )


def _reason(code: int, speaking: Sequence[Decided], decisions: Sequence[Decided]) -> str:
    names = ", ".join(one.decider for one in speaking)
    if code == BLOCK:
        first = speaking[0]
        return f"blocked by {names}: {first.failure or first.message}"
    if code == INJECT:
        return f"message injected by {names}"
    if quiet := [one for one in decisions if one.failure is not None or one.message]:
        first = quiet[0]
        return f"{first.decider} counted as 0: {first.failure or first.message}"
    return "nobody had anything to say"
