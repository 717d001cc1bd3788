# mypy: ignore-errors
# (its imports exist while it is built)
"""How many events of each kind were there? A plugin in Python.

Build it: ``python ../build.py event-counter``. Import everything here at the top: only what is
imported when the plugin is built becomes part of it.
"""

from __future__ import annotations

import json

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports import config, kv, log


class Hooks(exports.Hooks):
    """The exported interface. Raise ``Err`` for an error; any other exception is a trap."""

    def on_event(self, event: str, payload_json: str) -> None:
        if config.get("echo") == "yes":
            print(payload_json)
        count = int(kv.get(event) or b"0") + 1
        kv.set(event, str(count).encode())
        log.log(log.Level.INFO, f"{event} number {count}")
        envelope = json.loads(payload_json)
        if event == "tool_call" and not envelope["payload"]["success"]:
            raise Err(f"the tool {envelope['payload']['tool']} failed")
