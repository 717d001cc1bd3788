"""Does a changed file come into force, and a broken one never?"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import anyio
import pytest

from executor import Executor
from executor.reload import Reloader
from executor.testing import FakeBackend
from tests.support import TOOL_CALL, Workspace

pytestmark = pytest.mark.anyio

Save = Callable[[Workspace, str, bytes], None]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    loop: str = request.param
    return loop


def document(*commands: str) -> bytes:
    return json.dumps({"hooks": {"tool_call": [{"command": name} for name in commands]}}).encode()


def by_rename(workspace: Workspace, name: str, data: bytes) -> None:
    workspace.file(f".{name}.swp", data)
    os.rename(workspace.path / f".{name}.swp", workspace.path / name)


def in_place(workspace: Workspace, name: str, data: bytes) -> None:
    (workspace.path / name).write_bytes(data)


def in_pieces(workspace: Workspace, name: str, data: bytes) -> None:
    with (workspace.path / name).open("wb", buffering=0) as file:
        for start in range(0, len(data), 7):
            file.write(data[start : start + 7])
            os.fsync(file.fileno())


def with_backup(workspace: Workspace, name: str, data: bytes) -> None:
    os.rename(workspace.path / name, workspace.path / f"{name}~")
    workspace.file(name, data)


def anew(workspace: Workspace, name: str, data: bytes) -> None:
    (workspace.path / name).unlink()
    workspace.file(name, data)


def in_a_burst(workspace: Workspace, name: str, data: bytes) -> None:
    for round_ in range(30):
        by_rename(workspace, name, document(f"passing{round_}"))
    by_rename(workspace, name, data)


STYLES: Mapping[str, Save] = {
    save.__name__: save for save in (by_rename, in_place, in_pieces, with_backup, anew, in_a_burst)
}


async def until(reloader: Reloader, condition: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not condition():
            await reloader.turn.wait()


async def ran(executor: Executor) -> list[str]:
    receipt = executor.emit("tool_call", TOOL_CALL, session_id="s")
    await receipt.wait()
    backend = executor.live.sandboxes.backends["fake"]
    assert isinstance(backend, FakeBackend)
    jobs = [job.command for job in backend.jobs]
    backend.jobs.clear()
    return sorted(jobs)


def commands(executor: Executor) -> list[str]:
    return [hook.action.command for hook in executor.live.registry.snapshot.configuration.hooks]


@pytest.mark.parametrize("style", STYLES)
async def test_a_valid_save_is_what_the_next_event_runs(workspace: Workspace, style: str) -> None:
    workspace.file("hooks.json", document("old"))
    async with Executor.open(workspace.path, backends={"fake": FakeBackend()}) as executor:
        STYLES[style](workspace, "hooks.json", document("new", "more"))
        await until(executor.reloader, lambda: commands(executor) == ["new", "more"])
        assert await ran(executor) == ["more", "new"]
        assert executor.live.registry.snapshot.generation == executor.reloader.state.generation
        await until(executor.reloader, lambda: not executor.reloader.state.failures)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(
    "data",
    [document("new")[:-9], b"", b'{"hooks": {"tool_cal": []}}', b"\0" * 64],
    ids=["half-written", "empty", "invalid", "zeros"],
)
async def test_a_broken_save_changes_nothing_and_is_told(
    workspace: Workspace, style: str, data: bytes
) -> None:
    workspace.file("hooks.json", document("old"))
    async with Executor.open(workspace.path, backends={"fake": FakeBackend()}) as executor:
        STYLES[style](workspace, "hooks.json", data)
        state = executor.reloader.state
        await until(executor.reloader, lambda: "hooks.json" in state.failures)
        assert state.results["rejected"] >= 1
        if style != "in_a_burst":
            assert await ran(executor) == ["old"]
            assert state.generation == 1
        by_rename(workspace, "hooks.json", document("mended"))
        await until(executor.reloader, lambda: commands(executor) == ["mended"])
        assert state.failures == {}
        assert await ran(executor) == ["mended"]


@pytest.mark.parametrize("name", ["hooks.json", "config.toml", "policies"])
async def test_a_deleted_part_stays_in_force(workspace: Workspace, name: str) -> None:
    workspace.file("hooks.json", document("old"))
    workspace.policy_for_all("")
    async with Executor.open(workspace.path, backends={"fake": FakeBackend()}) as executor:
        os.rename(workspace.path / name, workspace.path / "away")
        await until(executor.reloader, lambda: name in executor.reloader.state.failures)
        (fault,) = executor.reloader.state.failures[name]
        assert "gone" in fault.message
        receipt = executor.emit("tool_call", TOOL_CALL, session_id="s")
        (record,) = await receipt.wait()
        assert record.outcome.ok
        assert record.policy == "test"


async def test_a_file_that_was_absent_is_watched(workspace: Workspace) -> None:
    async with Executor.open(workspace.path, backends={"fake": FakeBackend()}) as executor:
        assert await ran(executor) == []
        workspace.file("hooks.json", document("first"))
        await until(executor.reloader, lambda: commands(executor) == ["first"])
        assert await ran(executor) == ["first"]


async def test_links_swapped_as_kubernetes_does_it_are_followed(
    workspace: Workspace, tmp_path: Path
) -> None:
    volume = tmp_path / "volume"
    for name in ("1", "2"):
        (volume / name).mkdir(parents=True)
        (volume / name / "hooks.json").write_bytes(document(f"of{name}"))
        (volume / name / "hooks.json").chmod(0o644)
    (volume / "..data").symlink_to("1")
    (workspace.path / "hooks.json").symlink_to(volume / "..data" / "hooks.json")
    async with Executor.open(workspace.path, backends={"fake": FakeBackend()}) as executor:
        assert await ran(executor) == ["of1"]
        (volume / "..new").symlink_to("2")
        os.rename(volume / "..new", volume / "..data")
        await until(executor.reloader, lambda: commands(executor) == ["of2"])
        assert await ran(executor) == ["of2"]


async def test_policies_and_settings_come_into_force(workspace: Workspace) -> None:
    workspace.file("hooks.json", document("a"))
    async with Executor.open(workspace.path, backends={"fake": FakeBackend()}) as executor:
        workspace.policy_for_all('[limits]\nmemory = "32MiB"\n')
        reloader = executor.reloader
        await until(
            reloader,
            lambda: (
                executor.live.registry.snapshot.subscriptions["tool_call"][0].policy.name == "test"
            ),
        )
        workspace.policy("test", '[limits]\nmemory = "16MiB"\n')

        def memory() -> int:
            found = executor.live.registry.snapshot.subscriptions["tool_call"][0]
            return found.policy.limits.memory

        await until(reloader, lambda: memory() == 16 << 20)
        workspace.policy("test", '[limits]\nmemory = "lots"\n')
        await until(reloader, lambda: "policies" in reloader.state.failures)
        assert memory() == 16 << 20


async def test_a_broken_part_does_not_hold_up_the_others(workspace: Workspace) -> None:
    workspace.file("hooks.json", document("old"))
    async with Executor.open(workspace.path, backends={"fake": FakeBackend()}) as executor:
        workspace.settings("[limit]\n")
        await until(executor.reloader, lambda: "config.toml" in executor.reloader.state.failures)
        workspace.file("hooks.json", document("new"))
        await until(executor.reloader, lambda: commands(executor) == ["new"])
        assert set(executor.reloader.state.failures) == {"config.toml"}


async def test_an_emptied_config_toml_is_half_written(workspace: Workspace) -> None:
    workspace.file("hooks.json", document("a"))
    workspace.policy_for_all("")
    async with Executor.open(workspace.path, backends={"fake": FakeBackend()}) as executor:
        workspace.settings("")
        await until(executor.reloader, lambda: "config.toml" in executor.reloader.state.failures)
        found = executor.live.registry.snapshot.subscriptions["tool_call"][0]
        assert found.policy.name == "test"


async def test_what_cannot_change_while_running_is_named(workspace: Workspace) -> None:
    workspace.file("hooks.json", document("a"))
    async with Executor.open(workspace.path, backends={"fake": FakeBackend()}) as executor:
        workspace.settings("[limits]\nmax_concurrency = 3\nmax_timeout_ms = 1000\n")
        state = executor.reloader.state
        await until(executor.reloader, lambda: bool(state.waiting))
        assert state.waiting == ("limits.max_concurrency",)


async def test_ids_stay_over_edits_of_others_reloads_and_restarts(workspace: Workspace) -> None:
    def ids(executor: Executor) -> dict[str, str | None]:
        hooks = executor.live.registry.snapshot.configuration.hooks
        return {hook.action.command: hook.id for hook in hooks}

    workspace.file("hooks.json", document("a", "b", "c"))
    async with Executor.open(workspace.path, backends={"fake": FakeBackend()}) as executor:
        assert ids(executor) == {"a": "hook_01", "b": "hook_02", "c": "hook_03"}
        by_rename(workspace, "hooks.json", document("new", "c", "a"))
        await until(executor.reloader, lambda: len(ids(executor)) == 3 and "new" in ids(executor))
        assert ids(executor) == {"new": "hook_04", "c": "hook_03", "a": "hook_01"}
    by_rename(workspace, "hooks.json", document("b", "a"))
    async with Executor.open(workspace.path, backends={"fake": FakeBackend()}) as executor:
        assert ids(executor) == {"b": "hook_05", "a": "hook_01"}


async def test_runs_in_flight_keep_what_they_started_with(workspace: Workspace) -> None:
    class Slow(FakeBackend):
        def __init__(self) -> None:
            super().__init__()
            self.go = anyio.Event()

        async def run(self, job):  # type: ignore[no-untyped-def]
            await self.go.wait()
            return await super().run(job)

    workspace.file("hooks.json", document("old", "older"))
    slow = Slow()
    async with Executor.open(workspace.path, backends={"fake": slow}) as executor:
        receipt = executor.emit("tool_call", TOOL_CALL, session_id="s")
        workspace.file("hooks.json", document("new"))
        await until(executor.reloader, lambda: commands(executor) == ["new"])
        slow.go.set()
        await receipt.wait()
        assert sorted(job.command for job in slow.jobs) == ["old", "older"]


@pytest.mark.parametrize("name", ["hooks.json", "config.toml"])
async def test_a_directory_in_place_of_a_file_ends_nobody(workspace: Workspace, name: str) -> None:
    workspace.file("hooks.json", document("old"))
    workspace.settings("")
    async with Executor.open(workspace.path, backends={"fake": FakeBackend()}) as executor:
        (workspace.path / name).unlink()
        (workspace.path / name).mkdir()
        await until(executor.reloader, lambda: bool(executor.reloader.state.failures))
        assert await ran(executor) == ["old"]


async def test_a_look_that_the_system_refuses_is_told_and_repeated(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.file("hooks.json", document("old"))
    async with Executor.open(workspace.path, backends={"fake": FakeBackend()}) as executor:

        def refused(_: object) -> object:
            raise OSError(24, "Too many open files")

        with monkeypatch.context() as patched:
            patched.setattr("executor.reload.marks_of", refused)
            await executor.reloader.refresh()
            assert executor.reloader.state.failures
        by_rename(workspace, "hooks.json", document("new"))
        await until(executor.reloader, lambda: commands(executor) == ["new"])
        assert executor.reloader.state.failures == {}
