"""``init``: a workspace that works, and nothing overwritten."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from executor.testing import FakeBackend
from tests.unit.cli.conftest import Call

MADE = ("config.toml", "hooks/on_tool_call.sh", "hooks.json")


def modes(directory: Path) -> dict[str, int]:
    return {name: stat.S_IMODE((directory / name).stat().st_mode) for name in (*MADE, "hooks")}


def test_a_fresh_workspace_passes_check(call: Call, fake: FakeBackend) -> None:
    made = call("init", "--workspace", "fresh")
    assert made.out.splitlines() == [f"fresh/{name}" for name in MADE]
    report = call("check", "--workspace", "fresh", "--json")
    assert (report.code, report.json["ok"]) == (0, True)
    assert [hook["command"] for hook in report.json["hooks"]] == ["hooks/on_tool_call.sh"]
    assert 'strategy = "block-wins"' in Path("fresh/config.toml").read_text()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o277])
def test_the_modes_are_the_same_under_any_umask(call: Call, umask: int) -> None:
    before = os.umask(umask)
    try:
        assert call("init").code == 0
    finally:
        os.umask(before)
    assert modes(Path()) == {
        "config.toml": 0o644,
        "hooks.json": 0o644,
        "hooks": 0o755,
        "hooks/on_tool_call.sh": 0o755,
    }


@pytest.mark.parametrize("there", MADE)
def test_nothing_is_overwritten_and_nothing_else_made(call: Call, there: str) -> None:
    Path(there).parent.mkdir(exist_ok=True)
    Path(there).write_text("mine")
    answer = call("init")
    assert answer.code == 3
    assert there in answer.err
    assert Path(there).read_text() == "mine"
    assert [name for name in MADE if Path(name).exists()] == [there]


def test_a_dangling_link_is_something_there(call: Call, tmp_path: Path) -> None:
    Path("config.toml").symlink_to(tmp_path / "elsewhere")
    assert call("init").code == 3
    assert not (tmp_path / "elsewhere").exists()


def test_a_link_in_place_of_the_hooks_directory_is_not_followed(call: Call, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    Path("hooks").symlink_to(outside)
    assert call("init").code == 3
    assert list(outside.iterdir()) == []
    assert not Path("config.toml").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files away")
def test_root_gives_the_hooks_to_the_workspaces_owner_and_keeps_the_settings(call: Call) -> None:
    os.chown(".", 12345, 12345)
    assert call("init").code == 0
    owners = {name: Path(name).stat().st_uid for name in (*MADE, "hooks")}
    assert owners == {
        "config.toml": 0,
        "hooks.json": 12345,
        "hooks": 12345,
        "hooks/on_tool_call.sh": 12345,
    }
