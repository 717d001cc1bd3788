"""Which bus does a command line mean, and how is one message put on it?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from executor.cli.endings import UsageError

if TYPE_CHECKING:
    from executor.cli.options import Where
    from executor.receipt import Receipt
    from executor.settings import BusSettings

FIRST_CONTACT_SECONDS = 10.0


def bus_settings(url: str | None, where: Where) -> BusSettings:
    """``[bus]`` of the workspace, with this address. Raises UsageError where there is none."""
    from executor.configuration import load_settings
    from executor.disk.workspace import open_workspace
    from executor.settings import BusSettings

    place = open_workspace(where.workspace)
    try:
        settings = load_settings(place).bus
    finally:
        place.close()
    if url is not None:
        try:
            settings = BusSettings.model_validate({**settings.model_dump(), "url": url})
        except ValueError as mistake:
            raise UsageError(f"--bus: {_first_words(mistake)}") from None
    if not settings.url:
        raise UsageError("which bus? Give --bus nats://…, or a url under [bus] in config.toml")
    return settings


async def publish_only(receipt: Receipt, settings: BusSettings) -> None:
    """Publish an event for workers to execute, and wait until the server has it.

    Raises Unavailable where there is no server; the receipt says what became of the event.
    """
    from executor.bus.base import Drop, Execute, Message, Published, running
    from executor.bus.choice import network_bus
    from executor.ledger.log import Log

    event = receipt.event
    message = Message(receipt.topic, event.envelope, event.depth, Execute.WORKERS)
    bus = network_bus(settings, Log().report)
    async with running(bus):
        await bus.connected(FIRST_CONTACT_SECONDS)
        published = bus.publish(message)
    lost = bus.counts.drops[Drop.SERVER] + bus.counts.drops[Drop.UNCONFIRMED]
    receipt.expect(0)
    receipt.published = published is Published.ACCEPTED and not lost
    receipt.accepted = receipt.published
    if published is not Published.ACCEPTED:
        receipt.reason = f"the bus does not take it: {published.value}"
    elif lost:
        receipt.reason = "the server did not confirm it"


def _first_words(mistake: ValueError) -> str:
    from pydantic import ValidationError

    if isinstance(mistake, ValidationError):
        return str(mistake.errors()[0]["msg"]).removeprefix("Value error, ")
    return str(mistake)
