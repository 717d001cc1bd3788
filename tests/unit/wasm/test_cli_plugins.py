"""Do ``plugins list`` and ``plugins check`` tell what is there, and fail where something would?"""

from __future__ import annotations

import json
from typing import Any

import pytest

from executor.cli import main
from tests.support import Workspace
from tests.unit.wasm.components import guest

MANIFEST = """[plugin]
name = "{0}"
version = "2"
description = "Does \\u001b[31m things."
[[capabilities]]
type = "hook"
events = ["tool_call", "error"]
[permissions]
optional = ["http-outbound"]
"""


def plugin(workspace: Workspace, name: str, wasm: bytes) -> None:
    workspace.file(f"plugins/{name}/plugin.toml", MANIFEST.format(name))
    workspace.file(f"plugins/{name}/plugin.wasm", wasm)


def run(workspace: Workspace, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(["--workspace", str(workspace.path), "plugins", *words])
    return int(str(ended.value.code)), capsys.readouterr().out


def test_list_shows_each_plugin_and_compiles_nothing(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin(workspace, "one", b"not compiled")
    workspace.file("plugins/two/plugin.toml", "")
    code, text = run(workspace, capsys, "list")
    assert code == 0
    assert "tool_call error" in text
    assert "\x1b" not in text
    assert "broken" in text
    code, text = run(workspace, capsys, "list", "--json")
    one, two = json.loads(text)["plugins"]
    assert (one["name"], one["events"], one["fault"]) == ("one", ["tool_call", "error"], None)
    assert "/plugin: is required" in two["fault"]


def test_check_tells_limits_and_policies_and_fails_where_a_plugin_cannot_serve(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace.policy("tight", '[limits]\nmemory = "8MiB"\n')
    workspace.settings('[[bind]]\nevents = ["error"]\nplugins = ["o*"]\npolicy = "tight"\n')
    plugin(workspace, "one", guest())
    code, text = run(workspace, capsys, "check", "--json")
    assert code == 0
    report: dict[str, Any] = json.loads(text)
    runs = {one["event"]: one for one in report["plugins"][0]["runs"]}
    assert (runs["error"]["policy"], runs["error"]["memory_bytes"]) == ("tight", 8 * 1024 * 1024)
    assert runs["tool_call"]["policy"] == "default"
    assert "http-outbound" in runs["tool_call"]["notes"][0]
    plugin(workspace, "two", b"x")
    code, text = run(workspace, capsys, "check")
    assert code == 1
    assert "plugin:one  serves" in text
    assert "plugin:two  FAILS" in text
    assert "is no WebAssembly" in text


def test_no_plugins_is_no_failure(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(workspace, capsys, "check") == (0, "0 plugins, 0 would fail\n")
    assert run(workspace, capsys, "list", "--json") == (0, '{"plugins": []}\n')
