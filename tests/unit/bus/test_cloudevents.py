"""The two forms on the network, and what must not be believed."""

from __future__ import annotations

import json

import pytest

from executor.bus.base import Execute, Message
from executor.bus.cloudevents import CONTENT_TYPE, Malformed, decode, encoder

ENVELOPE = (
    b'{"event":"tool_call","timestamp":"2026-03-21T08:15:30.123Z","session_id":"sess_1",'
    b'"payload":{"tool":"bash","success":true,"output":"\xc3\xbc"}}'
)
MESSAGE = Message("prx.lifecycle.tool_call", ENVELOPE, 3, Execute.WORKERS)


def test_the_native_form_is_the_messages_own_bytes_and_two_headers() -> None:
    body, headers = encoder("native")(MESSAGE)
    assert body == ENVELOPE
    assert headers == {"Prx-Depth": "3", "Prx-Execute": "workers"}


def test_the_cloudevents_form_has_every_required_attribute_and_the_same_bytes_as_data() -> None:
    encode = encoder("cloudevents")
    body, headers = encode(MESSAGE)
    content = json.loads(body)
    assert headers == {"Content-Type": CONTENT_TYPE}
    assert {key: content[key] for key in ("specversion", "type", "subject", "time")} == {
        "specversion": "1.0",
        "type": "prx.lifecycle.tool_call",
        "subject": "sess_1",
        "time": "2026-03-21T08:15:30.123Z",
    }
    assert content["source"].startswith("/hook-executor/")
    assert (content["prxdepth"], content["prxexecute"]) == (3, "workers")
    assert all(name.isalnum() and name.islower() and len(name) <= 20 for name in content)
    assert body.endswith(b',"data":' + ENVELOPE + b"}")
    again = json.loads(encode(MESSAGE)[0])
    assert again["source"] == content["source"]
    assert again["id"] != content["id"]


@pytest.mark.parametrize("form", ["native", "cloudevents"])
def test_both_forms_come_back_as_they_went(form: str) -> None:
    body, headers = encoder(form)(MESSAGE)
    assert decode(MESSAGE.topic, body, headers) == MESSAGE


def test_a_lone_surrogate_that_is_escaped_comes_back() -> None:
    message = Message("prx.x", b'{"x":"\\ud800"}')
    body, headers = encoder("cloudevents")(message)
    assert decode("prx.x", body, headers).json() == {"x": "\ud800"}


def test_a_depth_inside_the_payload_is_not_read() -> None:
    lie = b'{"Prx-Depth":"1","prxdepth":1,"depth":1}'
    assert decode("prx.x", lie, {"Prx-Depth": "5"}).depth == 5
    wrapped = b'{"data":' + lie + b',"prxdepth":6}'
    assert decode("prx.x", wrapped, {"content-type": f"{CONTENT_TYPE}; charset=utf-8"}).depth == 6


def test_without_headers_it_is_an_outermost_message_that_nobody_else_executes() -> None:
    assert decode("prx.x", b"{}", None) == Message("prx.x", b"{}", 1, Execute.LOCAL)


@pytest.mark.parametrize(
    ("topic", "body", "headers"),
    [
        ("prx.x y", b"{}", {}),
        ("prx.x", b"x", {}),
        ("prx.x", b"[]", {}),
        ("prx.x", b"[" * 100_000, {}),
        ("prx.x", b"{}", {"Prx-Depth": "00"}),
        ("prx.x", b"{}", {"Prx-Depth": "99999"}),
        ("prx.x", b"{}", {"Prx-Depth": ""}),
        ("prx.x", b"{}", {"Prx-Execute": ""}),
        ("prx.x", b'{"data":[]}', {"Content-Type": CONTENT_TYPE}),
        ("prx.x", b'{"data":{},"prxdepth":1.5}', {"Content-Type": CONTENT_TYPE}),
        ("prx.x", b'{"data":{},"prxexecute":[]}', {"Content-Type": CONTENT_TYPE}),
        ("prx.x", b'{"x":"' + b"y" * 65536 + b'"}', {}),
    ],
)
def test_what_is_no_message_is_malformed(topic: str, body: bytes, headers: dict[str, str]) -> None:
    with pytest.raises(Malformed):
        decode(topic, body, headers)
