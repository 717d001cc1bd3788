"""Which bus do the settings ask for?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from executor.bus.memory import MemoryBus
from executor.errors import InvalidConfig, Unavailable

if TYPE_CHECKING:
    from executor.bus.base import Bus, Report
    from executor.bus.nats import NatsBus
    from executor.settings import BusSettings


def bus_for(settings: BusSettings, report: Report) -> Bus:
    """The bus, not yet running. Raises InvalidConfig and Unavailable."""
    if settings.url:
        return network_bus(settings, report)
    if settings.execute == "workers":
        raise InvalidConfig('[bus]: execute = "workers" needs a url', where="config.toml")
    return MemoryBus(report)


def network_bus(settings: BusSettings, report: Report) -> NatsBus:
    """The bus over NATS, whose library only its users have."""
    try:
        from executor.bus.nats import NatsBus  # noqa: PLC0415  (an extra)
    except ImportError:
        raise Unavailable(
            "the network bus needs the client library of NATS",
            remedy="pip install 'hook-executor[nats]'",
        ) from None
    return NatsBus(settings, report)
