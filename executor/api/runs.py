"""What became of the runs, and how is one stopped?

History on the disk is another issue; until then the last 1,000 runs are told from memory, newest
first, and those in flight with ``status=running``.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from executor.api import schemas
from executor.api.problems import Problem
from executor.api.service import answer, service_of
from executor.errors import Fault
from executor.hooks_file import Conflict, Unknown
from executor.outcome import Status
from executor.record import Record

router = APIRouter()

RUNNING = "running"
_STATUSES = frozenset({RUNNING, *(status.value for status in Status)})


@router.get("/api/runs", **schemas.LIST_RUNS)
async def list_runs(
    request: Request,
    event: Annotated[str | None, Query(max_length=64)] = None,
    hook: Annotated[str | None, Query(max_length=128)] = None,
    status: Annotated[str | None, Query(max_length=32)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: Annotated[str | None, Query(max_length=64)] = None,
) -> Response:
    """Runs, newest first; ``next`` is the cursor of the following page."""
    service = service_of(request)
    if status is not None and status not in _STATUSES:
        raise Problem(422, faults=[Fault("", "status is none of the known ones")])
    before = None if cursor is None else _number(cursor)
    if status == RUNNING:
        flying = [
            flight.as_history()
            for flight in service.executor.flights
            if event in (None, flight.event.name) and hook in (None, flight.subscription.id)
        ]
        return answer({"runs": flying[::-1][:limit], "next": None})

    def wanted(record: Record) -> bool:
        return (
            event in (None, record.event)
            and hook in (None, record.hook)
            and status in (None, record.outcome.status.value)
        )

    records, last = service.recent.page(wanted, limit=limit, before=before)
    told = [record.as_history() for record in records]
    return answer({"runs": told, "next": None if last is None else _cursor(last)})


@router.get("/api/runs/{id}", **schemas.GET_RUN)
async def get_run(request: Request, id: str) -> Response:  # noqa: A002  (the parameter's name)
    """One run, in flight or ended."""
    service = service_of(request)
    if (flight := service.executor.flights.find(id)) is not None:
        return answer(flight.as_history())
    if (record := service.recent.find(id)) is not None:
        return answer(record.as_history())
    raise Unknown("there is no run with this id among the last ones")


@router.delete("/api/runs/{id}", **schemas.CANCEL_RUN)
async def cancel_run(request: Request, id: str) -> Response:  # noqa: A002
    """Stop a run in flight as a timeout does; it ends as ``interrupted``."""
    service = service_of(request)
    if service.executor.flights.cancel(id):
        return answer({"id": id, "status": "cancelling"}, 202)
    if service.recent.find(id) is not None:
        raise Conflict("the run has ended")
    raise Unknown("there is no run with this id among the last ones")


def _cursor(number: int) -> str:
    return base64.urlsafe_b64encode(f"n{number}".encode()).decode().rstrip("=")


def _number(cursor: str) -> int:
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
        if text.startswith("n") and text[1:].isdigit() and len(text) < 20:
            return int(text[1:])
    except (binascii.Error, ValueError):
        pass
    raise Problem(422, faults=[Fault("", "cursor is none that was given")])
