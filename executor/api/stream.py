"""How does a program follow events as they happen?

Server-sent events of one topic pattern. Each follower has a bounded queue of its own: who does not
keep up misses messages, is told how many, and delays nobody. A comment line every
``HEARTBEAT_SECONDS`` keeps proxies from hanging up, and finds out that a follower is gone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

import anyio
from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse

from executor.api import schemas
from executor.api.problems import Problem, problem_of
from executor.api.service import Service, service_of
from executor.bus.base import Message
from executor.bus.listener import Listener
from executor.errors import InvalidInput
from executor.topics import LIFECYCLE_PREFIX, compiled

HEARTBEAT_SECONDS = 15.0
MAX_FOLLOWERS = 64
_WAITING = 512

router = APIRouter()
_followers: set[int] = set()


@router.get("/api/events/stream", **schemas.STREAM)
async def stream(
    request: Request,
    topic: Annotated[str, Query(max_length=256)] = f"{LIFECYCLE_PREFIX}*",
) -> StreamingResponse:
    """Every message of the topics that the pattern means, from now on."""
    service = service_of(request)
    try:
        compiled(topic)
    except InvalidInput as mistake:
        raise problem_of(mistake) or mistake from None
    if len(_followers) >= MAX_FOLLOWERS:
        raise Problem(503, "too many followers", headers={"Retry-After": "5"})
    return StreamingResponse(
        _lines(service, topic),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _lines(service: Service, topic: str) -> AsyncIterator[bytes]:
    async with service.executor.bus.subscribe(topic, capacity=_WAITING) as listener:
        me = id(listener)
        _followers.add(me)
        try:
            yield b": following\n\n"
            number = told = 0
            while not (service.closing.is_set() or listener.closed):
                message = await _next(service, listener)
                if listener.dropped > told:
                    told = listener.dropped
                    yield f'event: dropped\ndata: {{"dropped":{told}}}\n\n'.encode()
                if message is None:
                    yield b": still here\n\n"
                    continue
                number += 1
                yield _line(number, message)
        finally:
            _followers.discard(me)


async def _next(service: Service, listener: Listener) -> Message | None:
    """The next message; None after a while, and when the daemon closes."""
    found: Message | None = None
    with anyio.move_on_after(HEARTBEAT_SECONDS):
        async with anyio.create_task_group() as tasks:

            async def until_closing() -> None:
                await service.closing.wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(until_closing)
            found = await anext(listener, None)
            tasks.cancel_scope.cancel()
    return found


def _line(number: int, message: Message) -> bytes:
    # JSON of ours holds no line ends, and a topic neither.
    head = f"id: {number}\nevent: {message.topic}\ndata: "
    return head.encode() + message.data + b"\n\n"
