"""How do the parts become one executor?

The composition root: opens everything in one task group, closes it in order. Users see
``Executor.open`` for an event loop and ``Executor.open_blocking`` for agents without one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Literal

import anyio
import anyio.abc
import anyio.from_thread

from executor.backends.base import Backend
from executor.blocking import BlockingExecutor
from executor.bus.base import Bus, Execute, Published, compose, running
from executor.bus.choice import bus_for
from executor.bus.listener import Listener
from executor.bus.metrics import BusCollector
from executor.configuration import Configuration
from executor.depth import next_depth
from executor.disk.workspace import open_workspace
from executor.dispatcher import Dispatcher
from executor.events import new_session_id
from executor.flights import Flights
from executor.gate.asker import Asker, event_of
from executor.gate.consent import AskFunction
from executor.gate.handlers import AnyFunction
from executor.gate.tool_call import Tool, ToolResult, call_tool
from executor.gauges import Gauges
from executor.in_force import InForce
from executor.ledger.base import Ledger, Sink
from executor.ledger.log import Log
from executor.ledger.metrics import Metrics
from executor.pipeline import current, opened_gate
from executor.receipt import Receipt
from executor.reload import Reloader
from executor.runner import Runner
from executor.settings import BusSettings
from executor.verdict import Verdict
from executor.wasm.opened import OpenedPlugins


class Executor:
    """Runs the hooks of one workspace. Made by ``open``; one per process and workspace."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        bus: Bus,
        metrics: Metrics,
        asker: Asker,
        live: InForce,
        reloader: Reloader,
    ) -> None:
        self.dispatcher = dispatcher
        self.bus = bus
        self.metrics = metrics
        self.asker = asker
        self.live = live
        self.reloader = reloader

    @property
    def plugins(self) -> OpenedPlugins:
        """The plugins as they serve now."""
        return self.live.plugins

    @property
    def flights(self) -> Flights:
        """The runs that have begun; any of them can be cancelled."""
        return self.dispatcher.flights

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        workspace: str | Path = ".",
        *,
        sandbox: str | None = None,
        backends: Mapping[str, Backend] | None = None,
        sinks: Sequence[Sink] = (),
        configuration: Configuration | None = None,
        bus: BusSettings | None = None,
        watch: bool = True,
    ) -> AsyncIterator[Executor]:
        """Open the workspace's executor; leaving the block runs what is queued, then stops.

        ``sandbox`` overrides the policies' backend ("auto", "docker", "namespace"); ``backends``
        replaces the real ones (tests), ``configuration`` what the files say (``run``; then no
        plugin is opened), ``bus`` only their [bus] (workers); without
        ``watch`` changes of the files are not followed. Waits until each plugin is compiled
        or refused. Raises InvalidConfig (a broken file, at start-up), and Unavailable where no
        sandbox can be had: there is no unsandboxed mode.
        """
        async with AsyncExitStack() as stack:
            place = await anyio.to_thread.run_sync(open_workspace, workspace)
            stack.callback(place.close)
            live = await InForce.open(
                stack, place, configuration, sandbox=sandbox, backends=backends
            )
            metrics = Metrics()
            report = Log().report
            reloader = live.reloader(report)
            bus = live.grounds.settings.bus if bus is None else bus
            channel = bus_for(bus, report)
            await stack.enter_async_context(running(channel))
            metrics.registry.register(BusCollector(channel.counts))
            runner = Runner(live.sandboxes.backends, live.plugins.backend)
            dispatcher = Dispatcher(
                live.registry,
                runner,
                channel,
                Ledger((metrics, *sinks)),
                metrics,
                live.grounds,
                execute=Execute(bus.execute),
                report=report,
            )
            runner.emit = dispatcher.emit
            metrics.registry.register(Gauges(dispatcher, runner, reloader))
            failure: Exception | None = None
            stack.callback(dispatcher.abandon)
            asker = stack.enter_context(
                opened_gate(
                    live.registry,
                    runner,
                    dispatcher,
                    metrics,
                    sinks,
                    workspace=place.path,
                    state=live.state,
                    report=report,
                )
            )

            def adopt() -> None:
                dispatcher.grounds = live.grounds
                runner.plugins = live.plugins.backend
                runner.breaker.clear()

            live.adopt = adopt
            async with anyio.create_task_group() as tasks:
                await tasks.start(dispatcher.work)
                if watch and configuration is None:
                    await tasks.start(reloader.watch)
                tasks.start_soon(live.plugins.warm)
                try:
                    yield cls(dispatcher, channel, metrics, asker, live, reloader)
                except Exception as raised:  # noqa: BLE001  (kept, to leave as it came)
                    # Raised inside the task group it would reach the caller wrapped in a group.
                    failure = raised
                    tasks.cancel_scope.cancel()
                finally:
                    reloader.close()
                    live.plugins.settle()
                    dispatcher.finish()
            if failure is not None:
                raise failure

    @classmethod
    @contextmanager
    def open_blocking(
        cls,
        workspace: str | Path = ".",
        *,
        sandbox: str | None = None,
        backends: Mapping[str, Backend] | None = None,
        sinks: Sequence[Sink] = (),
    ) -> Iterator[BlockingExecutor]:
        """As ``open``, for programs without an event loop: it runs in a thread of its own."""
        with anyio.from_thread.start_blocking_portal() as portal:
            opened = cls.open(workspace, sandbox=sandbox, backends=backends, sinks=sinks)
            with (
                portal.wrap_async_context_manager(opened) as executor,
                current(executor.asker, portal.call),
            ):
                yield BlockingExecutor(executor, portal)

    def emit(
        self, name: str, payload: Mapping[str, object], *, session_id: str | None = None
    ) -> Receipt:
        """Tell the hooks that something happened; returns at once, from any thread.

        Raises InvalidEvent where name or payload are not what SPEC section 1 allows. Whatever a
        hook, a queue or a backend does is in the receipt, never an exception.
        """
        session = new_session_id() if session_id is None else session_id
        return self.dispatcher.emit(name, payload, session_id=session)

    def publish(self, topic: str, payload: Mapping[str, object]) -> bool:
        """Tell subscribers something on another topic; returns at once, from any thread.

        Whether the bus took it. Raises InvalidInput for what is no topic or no JSON object, and
        for ``prx.lifecycle.*``, where only events are.
        """
        return self.bus.publish(compose(topic, payload, next_depth())) is Published.ACCEPTED

    @asynccontextmanager
    async def subscribe(self, pattern: str) -> AsyncIterator[Listener]:
        """An async stream of the messages whose topic the pattern means.

        What is emitted between two messages counts as caused by the first of them. A reader that
        does not keep up misses messages (``dropped``) and delays nobody.
        """
        async with self.bus.subscribe(pattern) as listener:
            yield listener

    def on(
        self,
        event: str,
        *,
        matcher: str | None = None,
        on_failure: Literal["block", "continue"] = "block",
        in_thread: bool = False,
    ) -> Callable[[AnyFunction], AnyFunction]:
        """Decorate a Python handler of a gate event; see ``executor.gate.handlers``.

        It is called with the payload and returns ``{"exit_code", "message"}``. ``matcher`` is as
        in hooks.json; ``in_thread`` is for functions that block. Raises InvalidConfig.
        """
        return self.asker.handlers.on(
            event, matcher=matcher, on_failure=on_failure, in_thread=in_thread
        )

    def on_ask(self, callback: AskFunction) -> AskFunction:
        """Say who is asked where a permission rule says ask; only ``True`` is a yes."""
        self.asker.consent.callback = callback
        return callback

    async def ask(
        self,
        event: str | Mapping[str, object],
        payload: Mapping[str, object] | None = None,
        *,
        session_id: str | None = None,
    ) -> Verdict:
        """May this go on, and what is to be added? For PreToolUse Permission comes first.

        Also takes ``{"name", "payload"}``. Raises InvalidEvent; a hook's failure is a verdict.
        """
        return await self.asker.ask(*event_of(event, payload), session_id)

    async def run_hooks(
        self, event_name: str, payload: Mapping[str, object], *, session_id: str | None = None
    ) -> Verdict:
        """As ``ask``, without Permission."""
        return await self.asker.run_hooks(event_name, payload, session_id)

    async def call_tool(
        self,
        name: str,
        tool_input: Mapping[str, object],
        tool: Tool,
        *,
        session_id: str | None = None,
    ) -> ToolResult:
        """Permission, hooks, the tool, hooks: see ``executor.gate.tool_call``."""
        return await call_tool(self, name, tool_input, tool, session_id=session_id)

    async def drain(self) -> None:
        """Until every event emitted so far has had its hooks ended."""
        await self.dispatcher.drain()
