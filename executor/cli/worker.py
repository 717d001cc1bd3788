"""``hook-executor worker``: how does this machine take its share of the events?"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Annotated, cast

import anyio
from cyclopts import Parameter

from executor.cli.endings import OK
from executor.cli.options import HERE, Json, Where

if TYPE_CHECKING:
    from executor.bus.nats import NatsBus
    from executor.worker import Totals, Worker


def worker(
    *,
    bus: Annotated[
        str | None, Parameter(help="nats://… or tls://…; else url under [bus] in config.toml.")
    ] = None,
    group: Annotated[
        str, Parameter(help="Workers of one group share the events; each group gets them all.")
    ] = "hook-executor",
    metrics_port: Annotated[
        int | None, Parameter(help="Serve Prometheus metrics on this port of 127.0.0.1.")
    ] = None,
    json: Json = False,
    where: Where = HERE,
) -> int:
    """Execute the hooks of events that agents publish for workers, until SIGTERM.

    The first SIGTERM or Ctrl-C stops taking events and runs those in hand; the second interrupts
    them. Credentials come from the files that [bus] in config.toml names.
    """
    from dataclasses import asdict

    from executor.cli.output import print_json, talk

    totals = anyio.run(_work, bus, group, metrics_port, where)
    if json:
        print_json(asdict(totals))
    else:
        talk(", ".join(f"{count} {what}" for what, count in asdict(totals).items()))
    return OK


async def _work(url: str | None, group: str, metrics_port: int | None, where: Where) -> Totals:
    from executor.cli.bus import FIRST_CONTACT_SECONDS, bus_settings
    from executor.cli.output import talk
    from executor.disk.instance import default_directory
    from executor.ledger.log import Log
    from executor.service import Executor
    from executor.tally import Tally

    settings = bus_settings(url, where).model_copy(update={"execute": "local"})
    log = Log()
    with Tally.open(default_directory().parent / "workers") as tally:
        async with Executor.open(
            where.workspace, sandbox=where.sandbox, sinks=(log,), bus=settings
        ) as executor:
            from executor.worker import Worker  # needs the extra, as opening has found

            bus = cast("NatsBus", executor.bus)  # the settings have a url
            await bus.connected(FIRST_CONTACT_SECONDS)
            one = Worker(executor, bus, tally, group=group, report=log.report)
            if metrics_port is not None:
                from prometheus_client import start_http_server

                start_http_server(metrics_port, "127.0.0.1", executor.metrics.registry)
            return await until_signalled(
                one, lambda: talk(f"ready: taking events from {settings.url} in group {group}")
            )


async def until_signalled(one: Worker, ready: Callable[[], None]) -> Totals:
    """Run a worker; the first signal drains it, the second cancels what runs."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_drain_then_cancel, signals, one, tasks.cancel_scope.cancel)
            async with anyio.create_task_group() as working:
                await working.start(one.run)
                ready()
            tasks.cancel_scope.cancel()
    return one.totals


async def _drain_then_cancel(
    signals: AsyncIterator[signal.Signals], one: Worker, cancel: Callable[[], None]
) -> None:
    from executor.cli.output import talk

    asked = False
    async for _ in signals:
        if asked:
            cancel()
            return
        asked = True
        talk(f"stopping: {one.in_hand} events in hand")
        one.stop()
