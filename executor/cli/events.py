"""``hook-executor events``: what happens on the bus?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from executor.cli.endings import OK
from executor.cli.options import HERE, Json, Where

if TYPE_CHECKING:
    from executor.bus.base import Message
    from executor.settings import BusSettings

app = App(name="events", help="What happens on the bus.", help_format="plaintext")


@app.command
def follow(
    *,
    topic: Annotated[
        str, Parameter(help="Which topics: exact, prx.lifecycle.*, prx.* or *.")
    ] = "prx.*",
    bus: Annotated[
        str | None, Parameter(help="nats://… or tls://…; else url under [bus] in config.toml.")
    ] = None,
    json: Json = False,
    where: Where = HERE,
) -> int:
    """Print each message as it comes, one line each, until Ctrl-C."""
    from executor.cli.bus import bus_settings
    from executor.cli.signals import run_until_signalled
    from executor.topics import validate

    validate(topic)
    run_until_signalled(_follow, topic, bus_settings(bus, where), json)
    return OK


async def _follow(topic: str, settings: BusSettings, json: bool) -> None:  # noqa: FBT001
    from executor.bus.base import running
    from executor.bus.choice import network_bus
    from executor.cli.bus import FIRST_CONTACT_SECONDS
    from executor.cli.output import talk
    from executor.ledger.log import Log

    channel = network_bus(settings, Log().report)
    async with running(channel):
        await channel.connected(FIRST_CONTACT_SECONDS)
        async with channel.subscribe(topic) as messages:
            talk(f"ready: following {topic} on {settings.url}")
            async for message in messages:
                _print(message, json=json)


def _print(message: Message, *, json: bool) -> None:
    from executor.cli.output import json_text, say

    if json:
        text = json_text(
            {
                "topic": message.topic,
                "depth": message.depth,
                "execute": message.execute.value,
                "data": message.json(),
            },
            ascii_only=True,
        )
        sys.stdout.write(text + "\n")
    else:
        say(f"{message.topic}  {message.data.decode(errors='replace')}")
    sys.stdout.flush()
