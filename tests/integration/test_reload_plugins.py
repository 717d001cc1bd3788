"""Do plugins come, change and go without a restart, and survive other reloads?"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import anyio
import pytest

from executor import Executor, Record
from executor.testing import FakeBackend
from tests.support import TOOL_CALL, Workspace
from tests.unit.wasm.components import guest, says

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def plugin(workspace: Workspace, name: str, wasm: bytes) -> None:
    """Put in place as an installer does: made beside, renamed at once."""
    hook = '[[capabilities]]\ntype = "hook"\nevents = ["*"]\n'
    workspace.file(f"plugins/.{name}/plugin.wasm", wasm)
    workspace.file(
        f"plugins/.{name}/plugin.toml", f'[plugin]\nname = "{name}"\nversion = "1"\n{hook}'
    )
    target = workspace.path / "plugins" / name
    if target.exists():
        shutil.rmtree(target)
    os.rename(workspace.path / "plugins" / f".{name}", target)


async def until(executor: Executor, condition: Callable[[], bool]) -> None:
    with anyio.fail_after(90):
        while not condition():
            await executor.reloader.turn.wait()


async def emit(executor: Executor) -> dict[str, Record]:
    records = await executor.emit("tool_call", TOOL_CALL, session_id="s").wait()
    return {record.hook: record for record in records}


def serving(executor: Executor) -> dict[str, str]:
    return {
        one.name: one.compiled.sha256
        for one in executor.plugins.plugins
        if one.compiled is not None
    }


async def test_the_first_plugin_ever_comes_changes_and_goes(workspace: Workspace) -> None:
    async with Executor.open(workspace.path, backends={"fake": FakeBackend()}) as executor:
        assert await emit(executor) == {}
        plugin(workspace, "p", guest(code=says(1, "old")))
        await until(executor, lambda: "p" in serving(executor))
        record = (await emit(executor))["plugin:p"]
        assert (record.outcome.reason or "").endswith("old")
        old = serving(executor)["p"]
        plugin(workspace, "p", guest(code=says(1, "new")))
        await until(executor, lambda: serving(executor).get("p") not in (None, old))
        assert ((await emit(executor))["plugin:p"].outcome.reason or "").endswith("new")
        shutil.rmtree(workspace.path / "plugins" / "p")
        await until(executor, lambda: serving(executor) == {})
        assert await emit(executor) == {}


async def test_a_changed_hooks_json_leaves_the_plugins_serving(workspace: Workspace) -> None:
    plugin(workspace, "p", guest(code=says(1, "here")))
    async with Executor.open(workspace.path, backends={"fake": FakeBackend()}) as executor:
        assert set(await emit(executor)) == {"plugin:p"}
        workspace.hooks({"tool_call": [{"command": "a"}]})
        await until(executor, lambda: executor.reloader.state.generation == 2)
        records = await emit(executor)
        assert set(records) == {"hook_01", "plugin:p"}
        assert (records["plugin:p"].outcome.reason or "").endswith("here")


async def test_a_plugin_broken_by_an_update_serves_as_it_was(workspace: Workspace) -> None:
    plugin(workspace, "p", guest(code=says(1, "good")))
    async with Executor.open(workspace.path, backends={"fake": FakeBackend()}) as executor:
        plugin(workspace, "p", b"broken")
        await until(executor, lambda: any(one.stale for one in executor.plugins.plugins))
        record = (await emit(executor))["plugin:p"]
        assert (record.outcome.reason or "").endswith("good")
