"""Is a plugin.toml read strictly, and does it say exactly which events?"""

from __future__ import annotations

import pytest

from executor.errors import InvalidConfig
from executor.events import GATE, LIFECYCLE, LIFECYCLE_FIELDS
from executor.plugins import Manifest, events_of, parse_manifest

HEAD = '[plugin]\nname = "p"\nversion = "1"\n'
HOOK = '[[capabilities]]\ntype = "hook"\nevents = ["*"]\n'
ALL = tuple(LIFECYCLE_FIELDS)


def parse(text: str, directory: str | None = None) -> Manifest:
    return parse_manifest(text.encode(), where="plugins/p/plugin.toml", directory=directory)


def faults(text: str) -> dict[str, str]:
    with pytest.raises(InvalidConfig) as caught:
        parse(text)
    return {fault.pointer: fault.message for fault in caught.value.faults}


@pytest.mark.parametrize(
    ("patterns", "events"),
    [
        (["tool_call"], ("tool_call",)),
        (["prx.lifecycle.tool_call"], ("tool_call",)),
        (["tool_call", "prx.lifecycle.tool_call"], ("tool_call",)),
        (["error", "agent_start"], ("agent_start", "error")),
        (["prx.lifecycle.*"], ALL),
        (["prx.lifecycle.**"], ALL),
        (["prx.*"], ALL),
        (["*"], ALL),
        (["**"], ALL),
        (["*", "tool_call", "prx.lifecycle.*"], ALL),
        (["PreToolUse"], ("PreToolUse",)),
        (["*", "PreToolUse"], (*ALL, "PreToolUse")),
        (["PostToolUse", "error"], ("error", "PostToolUse")),
    ],
)
def test_patterns_are_a_union_without_doubles(patterns: list[str], events: tuple[str, ...]) -> None:
    assert events_of(patterns) == events
    blocks = "".join(f'[[capabilities]]\ntype = "hook"\nevents = ["{one}"]\n' for one in patterns)
    assert parse(HEAD + blocks).events == events


def test_no_wildcard_means_a_gate_event() -> None:
    for pattern in ("*", "**", "prx.*", "prx.lifecycle.*"):
        assert not set(events_of([pattern])) & GATE
        assert set(events_of([pattern])) == LIFECYCLE


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("tool_cal", 'can match no event; did you mean "tool_call"?'),
        ("prx.lifecycle.tool_cal", 'can match no event; did you mean "tool_call"?'),
        ("prx.metrics.*", "can match no event"),
        ("tool.call", "can match no event"),
        ("prx.lifecycle", "can match no event"),
        ("tool_*", "may have a star only as its last segment, as in prx.lifecycle.*"),
        ("*.tool_call", "may have a star only as its last segment, as in prx.lifecycle.*"),
        ("prx.lifecycle.PreToolUse", "can match no event"),
        ("", "is empty"),
    ],
)
def test_a_pattern_that_can_match_no_event_is_an_error(pattern: str, message: str) -> None:
    text = f'{HEAD}[[capabilities]]\ntype = "hook"\nevents = ["{pattern}"]\n'
    assert faults(text)["/capabilities/0/events/0"].startswith(message)


def test_every_mistake_is_told_at_its_place_in_the_file() -> None:
    text = f"""{HEAD}[[capabilities]]
type = "tool"
anything = "goes"
[[capabilities]]
type = "hok"
events = ["*"]
[[capabilities]]
type = "hook"
events = ["*", 3]
prority = 1
[permissions]
required = ["kvv"]
[resources]
max_memory_mb = 0
[config]
number = 1
[more]
"""
    found = faults(text)
    assert found["/capabilities/1/type"] == ('is no known type of capability; did you mean "hook"?')
    assert found["/capabilities/2/events/1"] == "must be a string, not a whole number"
    assert found["/capabilities/2/prority"] == 'is no known key; did you mean "priority"?'
    assert found["/permissions/required/0"] == 'is no known permission; did you mean "kv"?'
    assert found["/resources/max_memory_mb"] == "must be at least 1"
    assert found["/config/number"] == "must be a string, not a whole number"
    assert found["/more"].startswith("is no known key")
    assert len(found) == 7


def test_a_manifest_as_prx_writes_it_reads_unchanged() -> None:
    manifest = parse(
        """
[plugin]
name = "audit"
version = "0.1.0"
description = "Counts."
author = "Somebody"
wasm = "plugin.wasm"

[[capabilities]]
type = "hook"
name = "audit"
description = "Observes"

[[capabilities.events]]
pattern = "prx.lifecycle.*"
description = "all of them"

[[capabilities.events]]
pattern = "error"

[permissions]
required = ["log", "kv", "events"]
optional = ["http-outbound"]
http_allowlist = ["https://hooks.invalid/"]

[resources]
max_fuel = 50_000_000
max_memory_mb = 8
max_execution_time_ms = 500
max_kv_storage_kb = 10

[config]
topic = "x"
"""
    )
    assert manifest.events == ALL
    assert (manifest.capability, manifest.priority) == ("audit", 50)
    assert manifest.resources.kv_bytes == 10 * 1024
    assert manifest.config == {"topic": "x"}
    assert any("max_fuel is ignored" in note for note in manifest.notes)


def test_the_folder_gives_the_name() -> None:
    assert parse(HEAD + HOOK, "p").name == "p"
    with pytest.raises(InvalidConfig, match='must be "other"'):
        parse(HEAD + HOOK, "other")


@pytest.mark.parametrize("wasm", ["/etc/x.wasm", "../x.wasm", "a/../../x", "plugin.cwasm", ""])
def test_the_component_lies_in_the_folder_and_is_no_native_code(wasm: str) -> None:
    text = f'[plugin]\nname = "p"\nversion = "1"\nwasm = "{wasm}"\n{HOOK}'
    assert "/plugin/wasm" in faults(text)


def test_a_plugin_without_a_hook_is_none_of_ours() -> None:
    text = f'{HEAD}[[capabilities]]\ntype = "tool"\n'
    assert faults(text) == {
        "/capabilities": "must hold one of type hook; tool is no business of hooks"
    }


def test_the_lowest_priority_of_all_blocks_counts() -> None:
    blocks = "".join(f"{HOOK}priority = {number}\n" for number in (60, 20, 40))
    assert parse(HEAD + blocks).priority == 20
