"""Was this very request answered before?

``Idempotency-Key``: the first request with a key is carried out, its repetitions get the same
answer, another body under the same key is a mistake. Remembered in memory for a day, at most
``KEPT`` keys, each principal's apart.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from dataclasses import dataclass

from executor.api.problems import Problem

KEPT = 10_000
MAX_KEY = 255
_SECONDS = 24 * 3600


@dataclass(slots=True)
class _Reply:
    digest: bytes
    at: float
    status: int = 0
    body: bytes = b""


class Replies:
    """In the event loop's thread only."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._replies: OrderedDict[tuple[str, str], _Reply] = OrderedDict()

    def begin(self, who: str, key: str, body: bytes) -> tuple[int, bytes] | None:
        """The earlier answer, or None: carry it out, then ``keep`` or ``forget``.

        Raises Problem: 409 while the first is being carried out, 422 for another body.
        """
        if not 1 <= len(key) <= MAX_KEY or not key.isprintable():
            raise Problem(400, f"Idempotency-Key must be 1 to {MAX_KEY} printable characters")
        digest = hashlib.sha256(body).digest()
        known = self._replies.get((who, key))
        if known is None or time.monotonic() - known.at > _SECONDS:
            self._replies[who, key] = _Reply(digest, time.monotonic())
            self._replies.move_to_end((who, key))
            while len(self._replies) > self._kept:
                self._replies.popitem(last=False)
            return None
        if known.digest != digest:
            raise Problem(422, "this Idempotency-Key was used for another request")
        if not known.status:
            raise Problem(
                409, "the first request with this key is in progress", headers={"Retry-After": "1"}
            )
        return known.status, known.body

    def keep(self, who: str, key: str, status: int, body: bytes) -> None:
        if (reply := self._replies.get((who, key))) is not None:
            reply.status, reply.body = status, body

    def forget(self, who: str, key: str) -> None:
        """It failed; the next one is the first again."""
        self._replies.pop((who, key), None)
