"""Who may come in, with how much, and from where?

A pure ASGI shell around the framework, because the framework parses bodies and answers 404, 405
and its own document before any check of its own would run. In order, for every request: is there
room; whose is it (401 before anything is parsed); is the host name ours and the page that asks
(DNS rebinding, foreign pages); has the token the scope; does the body come in time and fit. Only
then the framework sees it, body in hand.

Rules for editors: nothing here reads a body before the token was checked, and no answer or log
line holds anything that was sent.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol

import anyio

from executor.api.problems import MEDIA_TYPE, Problem
from executor.api.service import Principal
from executor.api.tokens import Scope, Tokens
from executor.errors import Unavailable

ASGIScope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[ASGIScope, Receive, Send], Awaitable[None]]

OPEN = frozenset({("GET", "/"), ("HEAD", "/"), ("GET", "/healthz"), ("HEAD", "/healthz")})
"""What needs no token (SPEC section 6): without data."""
_EMITTING = ("/api/events", "/api/gate/")
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_LINGER_BYTES = 1 << 20
_LINGER_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may come in. ``event_bytes`` is asked for each request, as it may be reloaded."""

    event_bytes: Callable[[], int]
    other_bytes: int = 1 << 20
    buffered_bytes: int = 256 << 20
    body_seconds: float = 20.0
    at_once: int = 512


class Observe(Protocol):
    """Told of each answer: the route as it is documented, never as it was sent."""

    def __call__(self, method: str, route: str, status: int, seconds: float, who: str) -> None: ...

    def crashed(self, failure: Exception) -> None:
        """A fault of ours; the framework has answered 500."""
        ...


class Shell:
    """The outermost application. ``hosts`` are the names it answers to, None for all."""

    def __init__(
        self,
        app: App,
        tokens: Tokens,
        bounds: Bounds,
        observe: Observe,
        hosts: Iterable[str] | None,
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._bounds = bounds
        self._observe = observe
        self._hosts = None if hosts is None else frozenset(hosts)
        self._inside = 0
        self._buffered = 0

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        began = time.perf_counter()
        status = 500
        who = "-"

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self._inside += 1
        held = 0
        try:
            principal = self._let_in(scope)
            who = principal.name
            scope.setdefault("state", {})["principal"] = principal
            body = await self._body(scope, receive)
            held = len(body)
            self._buffered += held
            await self._app(scope, _replayed(body, receive), noting)
        except Problem as problem:
            await _refuse(problem, scope, receive, noting)
        except Exception as failure:  # noqa: BLE001  (its words may hold what was sent)
            self._observe.crashed(failure)
        finally:
            self._inside -= 1
            self._buffered -= held
            route = getattr(scope.get("route"), "path", "-")
            self._observe(scope["method"], route, status, time.perf_counter() - began, who)

    def _let_in(self, scope: ASGIScope) -> Principal:
        """Whose request it is. Raises Problem."""
        if self._inside > self._bounds.at_once:
            raise Problem(503, "too many requests at once", headers={"Retry-After": "1"})
        headers = _headers(scope)
        principal = self._principal(scope, headers)
        if principal is None:
            challenge = {"WWW-Authenticate": 'Bearer realm="hook-executor"'}
            raise Problem(401, "a valid bearer token is needed", headers=challenge)
        self._refuse_foreign(scope, headers)
        if (scope["method"], scope["path"]) not in OPEN:
            wanted = scope_of(scope["method"], scope["path"])
            if not principal.allows(wanted):
                raise Problem(403, f'the token lacks the scope "{wanted.value}"')
        return principal

    def _principal(self, scope: ASGIScope, headers: dict[bytes, bytes]) -> Principal | None:
        if (scope["method"], scope["path"]) in OPEN:
            return Principal("anyone")
        if scope.get("state", {}).get("trusted_peer"):
            return Principal("peer")
        kind, _, secret = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        if kind.lower() != "bearer":
            return None
        try:
            token = self._tokens.find(secret.strip())
        except Unavailable:
            return None
        return None if token is None else Principal(token.id, token)

    def _refuse_foreign(self, scope: ASGIScope, headers: dict[bytes, bytes]) -> None:
        """A page of another site, or a name that somebody pointed at us."""
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if self._hosts is not None and scope.get("client") is not None:
            name = host_name(host)
            if name not in self._hosts:
                raise Problem(403, "this host name is not one of ours")
        origin = headers.get(b"origin")
        if origin is not None and origin.decode("latin-1").lower() not in (
            f"http://{host}",
            f"https://{host}",
        ):
            raise Problem(403, "pages of other origins may not ask")

    async def _body(self, scope: ASGIScope, receive: Receive) -> bytes:
        """All of it. Raises Problem where it is too much, or does not come in time."""
        headers = _headers(scope)
        most = self._bounds.other_bytes
        if scope["path"].startswith(_EMITTING):
            most = self._bounds.event_bytes()
        length = headers.get(b"content-length", b"")
        if length and (not length.isdigit() or int(length[:20]) > most):
            raise Problem(413, f"at most {most} bytes")
        if not length and b"transfer-encoding" not in headers:
            return b""
        room = self._bounds.buffered_bytes - self._buffered
        chunks: list[bytes] = []
        size = 0
        with anyio.move_on_after(self._bounds.body_seconds):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise Problem(400, "the request was not finished")
                chunks.append(message.get("body", b""))
                size += len(chunks[-1])
                if size > most:
                    raise Problem(413, f"at most {most} bytes")
                if size > room:
                    raise Problem(503, "too much is coming in", headers={"Retry-After": "1"})
                if not message.get("more_body", False):
                    return b"".join(chunks)
        raise Problem(400, "the request did not come in time")


def scope_of(method: str, path: str) -> Scope:
    """What a request needs, known path or not."""
    if method in _READING:
        return Scope.READ
    return Scope.EMIT if path.startswith(_EMITTING) else Scope.WRITE


def host_name(host: str) -> str:
    """A Host header without its port."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]


def names_of(host: str) -> tuple[str, ...] | None:
    """The names by which a listener on this address may be called; None where it cannot know."""
    try:
        loopback = ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        loopback = host == "localhost"
    return ("127.0.0.1", "localhost", "[::1]", host.lower()) if loopback else None


def _headers(scope: ASGIScope) -> dict[bytes, bytes]:
    return dict(reversed(scope["headers"]))


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body once, then whatever the connection says."""
    sent = False

    async def replay() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _refuse(problem: Problem, scope: ASGIScope, receive: Receive, send: Send) -> None:
    """Answer and hang up. What still comes is read for a moment, so that the answer is not lost in
    a reset connection; a gigabyte is not."""
    body = problem.body()
    unread = any(
        name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
        for name, value in scope["headers"]
    )
    headers = {"Content-Type": MEDIA_TYPE, "Content-Length": str(len(body)), **problem.headers}
    if unread:
        headers["Connection"] = "close"
    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": raw})
    head = scope["method"] == "HEAD"
    await send({"type": "http.response.body", "body": b"" if head else body, "more_body": unread})
    if unread:
        left = _LINGER_BYTES
        with anyio.move_on_after(_LINGER_SECONDS):
            while left > 0:
                message = await receive()
                if message["type"] != "http.request" or not message.get("more_body", False):
                    break
                left -= len(message.get("body", b""))
        await send({"type": "http.response.body", "body": b"", "more_body": False})
