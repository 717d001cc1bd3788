"""How do Python functions answer a gate event?

A function gets the payload as an object of its own, so that no handler can change what the next
one sees or what the tool then gets. A synchronous one is called in the event loop's thread: quick
functions cost nothing, but one that blocks holds up everything, and its overrun is only noticed
when it returns. For those ``in_thread`` runs it beside the loop, where the budget can leave it
behind.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import anyio.to_thread

from executor.errors import InvalidConfig
from executor.events import GATE, Event
from executor.globs import any_glob_matches
from executor.verdict import Answer, answer_of

Function = Callable[[dict[str, object]], object]
"""Takes the payload; returns ``{"exit_code", "message"}``, or an awaitable of it."""
AnyFunction = TypeVar("AnyFunction", bound=Callable[..., object])


@dataclass(frozen=True, slots=True)
class PythonHandler:
    """One registered function."""

    id: str
    function: Function
    matcher: tuple[str, ...] | None = None
    goes_on: bool = False
    in_thread: bool = False

    def wants(self, tool: object) -> bool:
        """Whether its matcher means the tool: full match, ``*`` globs, ``|`` alternatives."""
        if self.matcher is None:
            return True
        return isinstance(tool, str) and any_glob_matches(self.matcher, tool)

    @property
    def waits(self) -> bool:
        """Whether it is known that its answer must be waited for."""
        return self.in_thread or inspect.iscoroutinefunction(self.function)

    def begin(self, event: Event) -> Answer | Awaitable[Answer]:
        payload = copied(event.payload)
        if self.in_thread:
            return self._beside(payload)
        result = self.function(payload)
        if inspect.isawaitable(result):
            return self._later(result)
        return answer_of(result, self.id)

    async def _later(self, result: Awaitable[object]) -> Answer:
        return answer_of(await result, self.id)

    async def _beside(self, payload: dict[str, object]) -> Answer:
        call = functools.partial(self.function, payload)
        result = await anyio.to_thread.run_sync(call, abandon_on_cancel=True)
        return answer_of(await result if inspect.isawaitable(result) else result, self.id)


class Handlers:
    """The registered functions, by event, in the order of registration."""

    def __init__(self) -> None:
        self._by_event: dict[str, tuple[PythonHandler, ...]] = {}

    def on(
        self, event: str, *, matcher: str | None, on_failure: str, in_thread: bool
    ) -> Callable[[AnyFunction], AnyFunction]:
        """A decorator that registers. Raises InvalidConfig for what could never be called."""
        if event not in GATE:
            known = ", ".join(sorted(GATE))
            raise InvalidConfig(f"{event[:80]!r} is no gate event; those are {known}")
        if on_failure not in ("block", "continue"):
            raise InvalidConfig('on_failure must be "block" or "continue"')
        tools = None if matcher is None else tuple(matcher.split("|"))
        if tools is not None and (not all(tools) or event == "SessionStart"):
            raise InvalidConfig("the matcher can match no tool")

        def register(function: AnyFunction) -> AnyFunction:
            name = getattr(function, "__qualname__", type(function).__qualname__)
            handler = PythonHandler(
                f"python:{name}", function, tools, on_failure == "continue", in_thread
            )
            self._by_event[event] = (*self._by_event.get(event, ()), handler)
            return function

        return register

    def match(self, event: Event) -> list[PythonHandler]:
        """The functions for this event and its tool."""
        tool = event.payload.get("tool_name")
        return [one for one in self._by_event.get(event.name, ()) if one.wants(tool)]


def copied(payload: Mapping[str, object]) -> dict[str, object]:
    """The payload's containers anew; JSON values, so nothing else can be changed."""
    return {key: _copy(value) for key, value in payload.items()}


def _copy(value: object) -> object:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copy(item) for item in value]
    return value
