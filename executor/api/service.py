"""What do all endpoints share?"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import anyio
from fastapi import Request, Response

from executor.api.idempotency import Replies
from executor.api.problems import Problem
from executor.api.tokens import Scope, Token, Tokens
from executor.document import decode_json, hint, kind_of
from executor.errors import Fault, InvalidConfig
from executor.hooks_file import HooksFile
from executor.ledger.recent import Recent
from executor.service import Executor

MAX_DOCUMENT_BYTES = 64 * 1024 * 1024
"""The shell has cut the body long before; the reader of JSON wants a number."""


@dataclass(slots=True)
class Service:
    """One running API. ``closing`` is set when the daemon begins to drain."""

    executor: Executor
    recent: Recent
    tokens: Tokens
    replies: Replies = field(default_factory=Replies)
    closing: anyio.Event = field(default_factory=anyio.Event)
    started: float = field(default_factory=time.monotonic)
    _file: HooksFile | None = None

    @property
    def file(self) -> HooksFile:
        """hooks.json, with the limits in force now."""
        live = self.executor.live
        if self._file is None:
            self._file = HooksFile(live.workspace, live.ids, live.state)
        self._file.max_timeout_ms = live.grounds.settings.limits.max_timeout_ms
        return self._file


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks: the owner of a token, or a peer on the Unix socket (``token`` None)."""

    name: str
    token: Token | None = None

    def allows(self, scope: Scope) -> bool:
        return self.token is None or self.token.allows(scope)


def service_of(request: Request) -> Service:
    """The service that this request came to."""
    return cast("Service", request.app.state.service)


def principal_of(request: Request) -> Principal:
    """Who asks; the shell found out."""
    return cast("Principal", request.scope["state"]["principal"])


def answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer."""
    return Response(
        encoded(value), status, media_type="application/json", headers=dict(headers or {})
    )


def encoded(value: object) -> bytes:
    """JSON in as few bytes as it takes."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


async def body_of(request: Request, *, known: frozenset[str]) -> dict[str, object]:
    """The request's JSON object. Raises Problem: 400 where it is none, 422 for unknown keys."""
    media = request.headers.get("content-type", "application/json").partition(";")[0].strip()
    if media.lower() != "application/json":
        raise Problem(400, "the body must be application/json")
    try:
        value = decode_json(await request.body(), where="", max_bytes=MAX_DOCUMENT_BYTES)
    except InvalidConfig as broken:
        raise Problem(400, faults=broken.faults) from None
    if not isinstance(value, dict):
        raise Problem(422, faults=[Fault("", f"must be an object, not {kind_of(value)}")])
    strange = [key for key in value if key not in known]
    if strange:
        faults = [Fault("", f"has an unknown key{hint(key, known)}") for key in strange[:20]]
        raise Problem(422, faults=faults)
    return value
