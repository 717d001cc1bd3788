"""How is a failure told over HTTP?

As ``application/problem+json`` (RFC 9457), always: the closed table below says which error is which
status. No problem repeats a rejected *value*, which may be a secret: pointers go as far as they
consist of names that we know, and texts are our own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus

from executor.action import Action, ManagedFields
from executor.errors import Fault, InvalidConfig, InvalidInput, Refused, Unavailable
from executor.events import GATE_FIELDS, LIFECYCLE_FIELDS
from executor.hooks_file import Conflict, Stale, Unknown

MEDIA_TYPE = "application/problem+json"
_MAX_FAULTS = 50

_STATUS: tuple[tuple[type[Exception], HTTPStatus], ...] = (
    (InvalidConfig, HTTPStatus.UNPROCESSABLE_ENTITY),
    (InvalidInput, HTTPStatus.UNPROCESSABLE_ENTITY),
    (Unknown, HTTPStatus.NOT_FOUND),
    (Stale, HTTPStatus.PRECONDITION_FAILED),
    (Conflict, HTTPStatus.CONFLICT),
    (Refused, HTTPStatus.FORBIDDEN),
    (Unavailable, HTTPStatus.SERVICE_UNAVAILABLE),
)
_NAMES = frozenset(
    {
        "event",
        "action",
        "enabled",
        "session_id",
        "payload",
        "hooks",
        *Action.model_fields,
        *ManagedFields.model_fields,
        *(name for fields in LIFECYCLE_FIELDS.values() for name in fields),
        *(name for fields in GATE_FIELDS.values() for name in fields),
    }
)


@dataclass(slots=True)
class Problem(Exception):
    """Raised where an answer cannot be given; ``faults`` point into the request's body."""

    status: int
    detail: str = ""
    faults: Sequence[Fault] = ()
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> bytes:
        told: dict[str, object] = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
        }
        if self.detail:
            told["detail"] = self.detail
        if self.faults:
            told["errors"] = [
                {"pointer": known_pointer(fault.pointer), "message": fault.message}
                for fault in self.faults[:_MAX_FAULTS]
            ]
        return json.dumps(told, ensure_ascii=False).encode("utf-8", "replace")


def problem_of(failure: Exception) -> Problem | None:
    """The problem that an error of ours is; None for what nobody foresaw."""
    for kind, status in _STATUS:
        if isinstance(failure, kind):
            faults = failure.faults if isinstance(failure, InvalidInput) else ()
            detail = "" if faults else str(failure)
            headers = {"Retry-After": "1"} if status is HTTPStatus.SERVICE_UNAVAILABLE else {}
            return Problem(int(status), detail, faults, headers)
    return None


def known_pointer(pointer: str) -> str:
    """As much of a JSON pointer as consists of our own names and of numbers."""
    return "".join(f"/{part}" for part in _known(pointer.split("/")[1:]))


def _known(parts: Iterable[str]) -> Iterable[str]:
    for part in parts:
        if part not in _NAMES and not (part.isascii() and part.isdigit() and len(part) < 8):
            return
        yield part
