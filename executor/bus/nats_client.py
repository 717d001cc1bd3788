"""How is a NATS server reached, and trusted?

Credentials stand in files, read at each connection, so that they can be changed while agents run.
"""

from __future__ import annotations

import asyncio
import ssl
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nats.errors
from nats.aio.client import Client
from nats.aio.subscription import Subscription

from executor.errors import InvalidConfig, Unavailable

if TYPE_CHECKING:
    from executor.settings import BusSettings

CONNECT_SECONDS = 5
CONFIRM_SECONDS = 10
FAILURES = (nats.errors.Error, OSError, EOFError, InvalidConfig)
"""What a connection may end with. (Time-outs and TLS errors are OSErrors.)"""
_JWT = "BEGIN NATS USER JWT"


class OneConnection(Client):
    """The client, for one connection, with three promises that the library does not keep.

    It sends credentials in the clear where a server (or somebody between) does not ask for TLS,
    whatever the address says. And it puts a PING *before* what it has not written yet, so that the
    answer to its ``flush`` proves nothing, and its ``drain`` loses what the server sent meanwhile.
    """

    def __init__(self, settings: BusSettings) -> None:
        super().__init__()
        self._wants_tls = wants_tls(settings)

    async def settle(self) -> None:
        """Until the server has read everything that was said so far."""
        await self.flush(CONFIRM_SECONDS)  # whose PING goes first; all else is written with it
        await self.flush(CONFIRM_SECONDS)  # whose PING therefore comes last

    async def leave(self, subscription: Subscription) -> None:
        """End a subscription; all that the server had sent for it is delivered first."""
        await self._send_unsubscribe(subscription._id)  # noqa: SLF001
        await self.settle()
        await subscription._pending_queue.join()  # noqa: SLF001
        await subscription.unsubscribe()

    async def _process_info(
        self,
        info: dict[str, Any],
        initial_connection: bool = False,  # noqa: FBT001, FBT002  (the library's own signature)
    ) -> None:
        if self._wants_tls and not info.get("tls_required"):
            raise nats.errors.Error("the server does not require TLS, and [bus] does")
        await super()._process_info(info, initial_connection)


def wants_tls(settings: BusSettings) -> bool:
    """Whether nothing may be said unencrypted."""
    return bool(settings.tls) or settings.url.startswith("tls://")


def connect_options(settings: BusSettings) -> dict[str, Any]:
    """What ``Client.connect`` is given, secrets read from their files.

    ``credentials`` is a .creds file (a JWT and its seed) or holds a token. Raises InvalidConfig
    where a file cannot be used, Unavailable where the library for nkeys is missing.
    """
    options: dict[str, Any] = {
        "servers": [settings.url],
        "name": "hook-executor",
        "allow_reconnect": False,
        "max_reconnect_attempts": 1,
        "reconnect_time_wait": 0,
        "connect_timeout": CONNECT_SECONDS,
        "ping_interval": 20,
        "max_outstanding_pings": 2,
        "no_echo": True,
    }
    try:
        if wants_tls(settings):
            options["servers"] = [f"tls://{settings.url.partition('://')[2]}"]
            options["tls"] = ssl.create_default_context(cafile=settings.tls or None)
        if settings.credentials:
            text = Path(settings.credentials).read_text()
            if _JWT in text:
                options["user_credentials"] = settings.credentials
            else:
                options["token"] = text.strip()
        if settings.nkey:
            options["nkeys_seed_str"] = Path(settings.nkey).read_text().strip()
        if settings.user:
            options["user"] = settings.user
        if settings.password_file:
            options["password"] = Path(settings.password_file).read_text().strip("\r\n")
    except (OSError, ValueError) as failure:
        raise InvalidConfig(f"[bus]: {failure}", where="config.toml") from None
    if settings.password_file and not settings.user:
        raise InvalidConfig("[bus]: password_file needs user", where="config.toml")
    if {"user_credentials", "nkeys_seed_str"} & options.keys():
        _require_nkeys()
    return options


def require_asyncio() -> None:
    """Raise Unavailable in any other event loop: the library knows no other."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise Unavailable(
            "the network bus works in an asyncio event loop only",
            remedy="run the program on asyncio, or use Executor.open_blocking",
        ) from None


def _require_nkeys() -> None:
    try:
        import_module("nkeys")
    except ImportError:
        raise Unavailable(
            "an nkey or a .creds file needs the library nkeys", remedy="pip install nkeys"
        ) from None
