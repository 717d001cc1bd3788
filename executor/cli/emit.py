"""``hook-executor emit``: what happens when this event comes in?"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from executor.cli.endings import FAILED, OK, UsageError
from executor.cli.options import HERE, Json, Where
from executor.depth import handling, inherited_depth

if TYPE_CHECKING:
    from executor.receipt import Receipt
    from executor.record import Record

MAX_DOCUMENT_BYTES = 256 * 1024 * 1024
"""Of a payload as text: far above ``max_payload_bytes``, whose excess is a drop, no mistake."""


def emit(
    event: Annotated[str, Parameter(help="A lifecycle event, like tool_call.")],
    /,
    *,
    payload: Annotated[
        str | None, Parameter(help="The payload, a JSON object.", allow_leading_hyphen=True)
    ] = None,
    payload_file: Annotated[
        str | None,
        Parameter(help="A file that holds it; - for stdin.", allow_leading_hyphen=True),
    ] = None,
    session: Annotated[str | None, Parameter(help="The session id; one is made up.")] = None,
    bus: Annotated[str | None, Parameter(help="Only publish it there, for workers.")] = None,
    strict: Annotated[bool, Parameter(negative="", help="Exit 1 where a hook did not end ok.")] = (
        False
    ),
    json: Json = False,
    where: Where = HERE,
) -> int:
    """Emit one event and wait for its hooks; with --bus, only until the server has it."""
    from executor.cli.signals import run_until_signalled

    content = read_payload(payload, payload_file)
    if bus is None and (told := _through_the_daemon(event, content, session, where)):
        return _tell(told, strict=strict, json=json)
    if bus is not None:
        receipt = run_until_signalled(_publish, event, content, session, bus, where)
    else:
        receipt = run_until_signalled(_emit, event, content, session, where)
    records = [record for record in receipt.records if record is not None]
    if json:
        from executor.cli.output import print_json

        print_json(receipt.as_json())
    else:
        _describe(receipt, records, only_published=bus is not None)
    bad = not receipt.accepted or any(not record.outcome.ok for record in records)
    return FAILED if strict and bad else OK


def _through_the_daemon(
    event: str, payload: Mapping[str, object], session: str | None, where: Where
) -> Mapping[str, Any] | None:
    """What the workspace's daemon answers; None where this process is to run the hooks."""
    # Inside a hook the depth of the chain counts, which no request could be trusted with.
    if where.sandbox is not None or inherited_depth(os.environ):
        return None
    from executor.cli.daemon import daemon_of
    from executor.events import new_session_id

    daemon = daemon_of(where)
    if daemon is None:
        return None
    session_id = new_session_id() if session is None else session
    check_event(event, payload, session_id)
    body = {"event": event, "session_id": session_id, "payload": payload}
    told: Mapping[str, Any] = daemon.ask("POST", "/api/events?wait=true", body)
    return told


def _tell(told: Mapping[str, Any], *, strict: bool, json: bool) -> int:
    from executor.cli.output import print_json, say
    from executor.cli.runs import print_runs, record_of

    if json:
        print_json(told)
    else:
        event = told["event"]
        say(f"{event['event']}  {event['timestamp']}  {event['session_id']}")
        if told["runs"]:
            print_runs(record_of(run) for run in told["runs"])
        else:
            say("no hook reacts to it here")
    bad = any(run["status"] != "ok" for run in told["runs"])
    return FAILED if strict and bad else OK


def read_payload(text: str | None, file: str | None) -> Mapping[str, object]:
    """The payload from the command line, a file or stdin; nothing is the empty object.

    Raises UsageError for anything that is no JSON object.
    """
    from executor.document import decode_json, kind_of
    from executor.errors import InvalidConfig

    if text is not None and file is not None:
        raise UsageError("give --payload or --payload-file, not both")
    if text is None and file is None:
        return {}
    origin = "--payload" if file is None else f"--payload-file {file}"
    try:
        data = _bytes(text, file)
        value = decode_json(data, where=origin, max_bytes=MAX_DOCUMENT_BYTES)
    except InvalidConfig as mistake:
        raise UsageError(mistake.faults, where=mistake.where) from None
    if not isinstance(value, dict):
        raise UsageError(f"must be an object, not {kind_of(value)}", where=origin)
    return value


def check_event(event: str, payload: Mapping[str, object], session: str) -> None:
    """Raises InvalidEvent before anything is started for a mistake."""
    from executor.events import LIFECYCLE, make_event, require_family

    require_family(event, LIFECYCLE, way="use hook-executor gate")
    make_event(event, payload, session_id=session, now=datetime.now(UTC))


async def _emit(
    event: str, payload: Mapping[str, object], session: str | None, where: Where
) -> Receipt:
    from executor.events import new_session_id
    from executor.service import Executor

    session_id = new_session_id() if session is None else session
    check_event(event, payload, session_id)
    opened = Executor.open(where.workspace, sandbox=where.sandbox, watch=False)
    async with opened as executor:  # one event: nothing to reload for
        with handling(inherited_depth(os.environ)):
            receipt = executor.emit(event, payload, session_id=session_id)
        await receipt.wait()
    return receipt


async def _publish(
    event: str, payload: Mapping[str, object], session: str | None, url: str, where: Where
) -> Receipt:
    from executor.cli.bus import bus_settings, publish_only
    from executor.events import make_event, new_session_id
    from executor.receipt import Receipt
    from executor.topics import topic_of

    session_id = new_session_id() if session is None else session
    check_event(event, payload, session_id)
    depth = inherited_depth(os.environ) + 1
    made = make_event(event, payload, session_id=session_id, now=datetime.now(UTC), depth=depth)
    receipt = Receipt(made, topic_of(event))
    await publish_only(receipt, bus_settings(url, where))
    return receipt


def _bytes(text: str | None, file: str | None) -> bytes:
    if text is not None:
        return text.encode("utf-8", "surrogateescape")
    try:
        if file == "-":
            return sys.stdin.buffer.read(MAX_DOCUMENT_BYTES + 1)
        with Path(file or "").open("rb") as stream:
            return stream.read(MAX_DOCUMENT_BYTES + 1)
    except OSError as failure:
        raise UsageError(f"{failure.strerror}", where=f"--payload-file {file}") from None


def _describe(receipt: Receipt, records: Sequence[Record], *, only_published: bool) -> None:
    from executor.cli.output import say, talk
    from executor.cli.runs import print_runs

    event = receipt.event
    say(f"{event.name}  {event.timestamp}  {event.session_id}")
    if not receipt.accepted:
        talk(f"the event was dropped: {receipt.reason}")
    elif records:
        print_runs(records)
    elif only_published:
        say(f"published on {receipt.topic}")
    else:
        say("no hook reacts to it here")
