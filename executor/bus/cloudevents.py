"""How is a message written for other machines?

Two forms, told apart by the Content-Type header; every executor reads both.

- **native**: the message's own bytes, with ``Prx-Depth`` and ``Prx-Execute`` as headers.
- **cloudevents**: CloudEvents 1.0 in structured mode (its NATS binding): one JSON object whose
  ``data`` is what the native form would have sent; depth and execute are the extension attributes
  ``prxdepth`` and ``prxexecute``. ``type`` is the topic, ``subject`` the session.

Rules for editors: depth and execute come from the frame around the message alone, never from its
payload, which a hook may have written.
"""

from __future__ import annotations

import itertools
import json
import re
import secrets
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from executor.bus.base import MAX_MESSAGE_BYTES, Execute, Message
from executor.topics import topic_fault

CONTENT_TYPE = "application/cloudevents+json"
DEPTH, EXECUTE = "Prx-Depth", "Prx-Execute"
_DEPTH_ATTRIBUTE, _EXECUTE_ATTRIBUTE = "prxdepth", "prxexecute"
_DEPTH_TEXT = re.compile(r"[1-9][0-9]{0,3}")
_MAX_FRAME_BYTES = 8192
"""What the attributes around ``data`` may add."""


class Malformed(ValueError):
    """It came from the network and is no message of ours."""


def encoder(form: str) -> Callable[[Message], tuple[bytes, dict[str, str]]]:
    """What writes messages in this form, "native" or "cloudevents", for one process."""
    if form == "native":
        return native
    source, numbers = f"/hook-executor/{secrets.token_hex(8)}", itertools.count(1)
    return lambda message: structured(message, source=source, number=next(numbers))


def native(message: Message) -> tuple[bytes, dict[str, str]]:
    """Body and headers of the native form."""
    return message.data, {DEPTH: str(message.depth), EXECUTE: message.execute.value}


def structured(message: Message, *, source: str, number: int) -> tuple[bytes, dict[str, str]]:
    """Body and headers of the CloudEvents form; ``source`` and ``number`` together are unique."""
    body = json.loads(message.data)
    attributes: dict[str, object] = {
        "specversion": "1.0",
        "id": str(number),
        "source": source,
        "type": message.topic,
        "time": body.get("timestamp") or datetime.now(UTC).isoformat(),
        "datacontenttype": "application/json",
        _DEPTH_ATTRIBUTE: message.depth,
        _EXECUTE_ATTRIBUTE: message.execute.value,
    }
    if isinstance(session := body.get("session_id"), str) and session:
        attributes["subject"] = session
    head = json.dumps(attributes, ensure_ascii=False, separators=(",", ":")).encode()
    # The message's bytes stay as they are: what subscribers compare and sign does not change.
    return head[:-1] + b',"data":' + message.data + b"}", {"Content-Type": CONTENT_TYPE}


def decode(topic: str, body: bytes, headers: Mapping[str, str] | None) -> Message:
    """The message in either form. Raises Malformed."""
    if topic_fault(topic) is not None:
        raise Malformed("the subject is no topic")
    if len(body) > MAX_MESSAGE_BYTES + _MAX_FRAME_BYTES:
        raise Malformed("it is too large")
    fields = {name.lower(): value for name, value in (headers or {}).items()}
    content = _object(body)
    if fields.get("content-type", "").partition(";")[0].strip().lower() == CONTENT_TYPE:
        data = _data(content)
        depth, execute = content.get(_DEPTH_ATTRIBUTE, 1), content.get(_EXECUTE_ATTRIBUTE, "local")
    else:
        data = body
        depth, execute = fields.get(DEPTH.lower(), 1), fields.get(EXECUTE.lower(), "local")
    if len(data) > MAX_MESSAGE_BYTES:
        raise Malformed("it is too large")
    return Message(topic, data, _depth(depth), _execute(execute))


def _object(body: bytes) -> dict[str, object]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        raise Malformed("it is no JSON") from None
    if not isinstance(content, dict):
        raise Malformed("it is no JSON object")
    return content


def _data(content: dict[str, object]) -> bytes:
    data = content.get("data")
    if not isinstance(data, dict):
        raise Malformed("data is no JSON object")
    try:
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        raise Malformed("data is nested too deeply") from None
    try:
        return text.encode()
    except UnicodeEncodeError:  # a lone surrogate, legal when it is escaped
        return json.dumps(data, separators=(",", ":")).encode()


def _depth(value: object) -> int:
    text = str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    if not _DEPTH_TEXT.fullmatch(text):
        raise Malformed("its depth is none")
    return int(text)


def _execute(value: object) -> Execute:
    if value not in tuple(Execute):
        raise Malformed("nobody is named to execute it")
    return Execute(str(value))
