"""An engine is found, understood, and never waited for longer than said."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from executor.backends.docker_engine import Engine, EngineLost, EngineRefusal
from executor.backends.docker_facts import Facts, container_user, read_facts, socket_urls
from executor.backends.docker_remover import Remover
from executor.errors import Refused, Unavailable
from executor.job import Limits, Mount, Sandbox

LIMITS = Limits(1 << 27, 64, 1.0, 1 << 24, 256, 1 << 24, 1 << 16)
SANDBOX = Sandbox(uid=1000, gid=1000, limits=LIMITS)
INFO: dict[str, Any] = {
    "ServerVersion": "27.0",
    "OSType": "linux",
    "NCPU": 4,
    "Runtimes": {"runc": {}, "runsc": {}},
    "SecurityOptions": ["name=apparmor", "name=seccomp,profile=builtin", "name=cgroupns"],
    "MemoryLimit": True,
    "SwapLimit": True,
    "PidsLimit": True,
    "CpuCfsQuota": True,
}
VERSION = {"Components": [{"Name": "runc", "Version": "1.2.8"}, {"Name": "docker-init"}]}
FACTS = read_facts(INFO, VERSION, "1.46")


def test_what_an_engine_says_of_itself_is_read() -> None:
    assert (
        Facts(
            version="27.0",
            api_version="1.46",
            processors=4,
            runtimes=frozenset({"runc", "runsc"}),
            rootless=False,
            remapped=False,
            missing=(),
            warnings=(),
        )
        == FACTS
    )


def test_old_engines_name_their_security_options_without_a_key() -> None:
    facts = read_facts(INFO | {"SecurityOptions": ["seccomp", "rootless", "userns"]}, {}, "1.41")
    assert (facts.rootless, facts.remapped, facts.missing) == (True, True, ())


def test_an_old_runc_is_a_warning() -> None:
    old = {"Components": [{"Name": "runc", "Version": "1.1.5+ds1"}]}
    facts = read_facts(INFO, old, "1.46")
    (warning,) = facts.warnings
    assert warning.startswith("runc 1.1.5+ds1 is older than 1.2.8 (CVE-2025-31133")
    assert facts.described == f"version 27.0, API 1.46, {warning}"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"SecurityOptions": None}, "seccomp"),
        ({"MemoryLimit": False}, "a memory limit"),
        ({"SwapLimit": False}, "a swap limit"),
        ({"PidsLimit": False}, "a limit of processes"),
        ({"CpuCfsQuota": False}, "a cpu quota"),
        ({"OSType": "windows"}, "linux containers"),
    ],
)
def test_what_no_run_may_lack_is_named(change: dict[str, Any], named: str) -> None:
    assert read_facts(INFO | change, {}, "1.41").missing == (named,)


def test_podman_is_refused_for_what_its_tmpfs_mounts_lack() -> None:
    version = {"Components": [{"Name": "Podman Engine", "Version": "4.3.1"}]}
    (missing,) = read_facts(INFO, version, "1.41").missing
    assert missing.startswith("tmpfs mounts with uid, gid and nr_inodes")


def test_a_hook_runs_as_the_host_id_that_it_was_given() -> None:
    assert container_user(SANDBOX, FACTS, own_uid=0) == "1000:1000"


@pytest.mark.parametrize("sandbox", [replace(SANDBOX, uid=0), replace(SANDBOX, gid=0)])
@pytest.mark.parametrize("rootless", [False, True])
def test_host_root_is_refused(sandbox: Sandbox, rootless: bool) -> None:
    with pytest.raises(Refused, match="never runs as host root"):
        container_user(sandbox, replace(FACTS, rootless=rootless), own_uid=sandbox.uid)


def test_a_rootless_engine_knows_its_own_user_as_0() -> None:
    rootless = replace(FACTS, rootless=True)
    assert container_user(SANDBOX, rootless, own_uid=1000) == "0:0"
    with pytest.raises(Refused, match="rootless"):
        container_user(SANDBOX, rootless, own_uid=1001)


def test_an_engine_that_remaps_ids_has_no_writable_directory() -> None:
    remapped = replace(FACTS, remapped=True)
    shown = Mount("/a", "/a", 1, 1, directory=True)
    assert container_user(replace(SANDBOX, mounts=(shown,)), remapped, 0) == "1000:1000"
    with pytest.raises(Refused, match="remaps"):
        container_user(replace(SANDBOX, mounts=(replace(shown, writable=True),)), remapped, 0)


def test_docker_host_is_the_only_place_to_look_where_it_is_set() -> None:
    assert socket_urls({"DOCKER_HOST": "unix:///x", "XDG_RUNTIME_DIR": "/y"}, 7) == ("unix:///x",)


def test_the_usual_sockets_are_tried_in_order() -> None:
    assert socket_urls({}, 1000) == (
        "unix:///var/run/docker.sock",
        "unix:///run/user/1000/docker.sock",
        "unix:///run/user/1000/podman/podman.sock",
    )
    assert socket_urls({}, 0)[-1] == "unix:///run/podman/podman.sock"


@pytest.mark.parametrize("url", ["tcp://engine:2375", "ssh://engine", "engine"])
def test_an_engine_of_another_machine_is_not_used(url: str) -> None:
    with pytest.raises(Unavailable, match="Unix socket") as error:
        Engine(url).client()
    assert error.value.engine


def test_no_engine_at_all_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(Unavailable) as error:
        Engine(f"unix://{tmp_path}/none").client()
    assert f"{tmp_path}/none: No such file or directory" in str(error.value)
    assert error.value.engine
    assert error.value.remedy


def test_a_socket_that_is_no_engine_is_no_engine(tmp_path: Path) -> None:
    path = tmp_path / "sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(2)

        def answer() -> None:
            knock, _ = listener.accept()
            knock.close()
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(Unavailable):
            Engine(f"unix://{path}").client()
        thread.join()


@pytest.mark.anyio
async def test_a_call_that_takes_too_long_is_lost_and_undone_when_it_ends() -> None:
    engine, release, undone = Engine(), threading.Event(), threading.Event()

    def slow() -> str:
        release.wait()
        return "late"

    def undo(result: str) -> None:
        assert result == "late"
        undone.set()

    with pytest.raises(EngineLost, match=r"within 0\.5 s"):
        await engine.call(slow, seconds=0.5, undo=undo)
    assert not undone.is_set()
    release.set()
    await anyio.to_thread.run_sync(engine.settle, 30)
    assert undone.is_set()


@pytest.mark.anyio
async def test_a_cancelled_call_is_undone_when_it_ends() -> None:
    engine, begun, release, undone = Engine(), anyio.Event(), threading.Event(), threading.Event()

    def slow() -> None:
        anyio.from_thread.run_sync(begun.set)
        release.wait()

    async def call() -> None:
        await engine.call(slow, undo=lambda _: undone.set())

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        await begun.wait()
        group.cancel_scope.cancel()
    assert not undone.is_set()
    release.set()
    await anyio.to_thread.run_sync(engine.settle, 30)
    assert undone.is_set()


@pytest.mark.anyio
async def test_a_call_that_was_cancelled_in_the_queue_is_never_made() -> None:
    engine, begun, release = Engine(calls_at_once=1), anyio.Event(), threading.Event()
    made: list[str] = []

    def slow() -> None:
        anyio.from_thread.run_sync(begun.set)
        release.wait()

    async with anyio.create_task_group() as group:
        group.start_soon(engine.call, slow)
        await begun.wait()
        with anyio.move_on_after(0.02):
            await engine.call(lambda: made.append("call"))
        release.set()
    await anyio.to_thread.run_sync(engine.settle, 30)
    assert made == []


@pytest.mark.anyio
async def test_a_call_that_succeeds_is_not_undone() -> None:
    undone: list[int] = []
    assert await Engine().call(lambda: 7, undo=undone.append) == 7
    assert undone == []


class Containers:
    """Answers to ``remove`` in order: whether there was one, or what went wrong."""

    def __init__(self, *answers: bool | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def remove(self, name: str) -> bool:
        self.asked.append(name)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("executor.backends.docker_remover._PAUSES", (0.0, 0.0))


def removed(containers: Containers, *, expected: bool = False) -> list[str]:
    remover = Remover(containers.remove)
    remover.submit("c", expected=expected)
    assert remover.drain(30)
    assert remover.close(30)
    return containers.asked


@pytest.mark.usefixtures("hasty")
def test_a_deletion_is_tried_again_until_the_engine_is_back() -> None:
    assert removed(Containers(EngineLost("no"), EngineRefusal("busy"), True)) == ["c"] * 3


@pytest.mark.usefixtures("hasty")
def test_a_deletion_is_given_up_some_time() -> None:
    assert removed(Containers(EngineLost("1"), EngineLost("2"), EngineLost("3"))) == ["c"] * 3


@pytest.mark.usefixtures("hasty")
def test_a_container_that_is_gone_needs_no_deletion() -> None:
    assert removed(Containers(False)) == ["c"]


@pytest.mark.usefixtures("hasty")
def test_a_container_that_may_yet_appear_is_waited_for() -> None:
    assert removed(Containers(False, False, True), expected=True) == ["c"] * 3


def test_what_comes_after_the_end_is_deleted_all_the_same() -> None:
    deleted = threading.Event()

    class Last(Containers):
        def remove(self, name: str) -> bool:
            deleted.set()
            return super().remove(name)

    remover = Remover(Last(True).remove)
    remover.close(30)
    remover.submit("c")
    assert deleted.wait(30)


def test_closing_cuts_the_pauses_short_and_tries_once_more() -> None:
    asked = threading.Semaphore(0)

    class Watched(Containers):
        def remove(self, name: str) -> bool:
            try:
                return super().remove(name)
            finally:
                asked.release()

    containers = Watched(EngineLost("1"), True)
    remover = Remover(containers.remove)
    remover.submit("c")
    assert asked.acquire(timeout=30)
    assert remover.close(30)
    assert containers.asked == ["c", "c"]


def test_nothing_is_opened_before_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Callable[[], None]] = []
    monkeypatch.setattr("docker.APIClient", opened.append)
    Engine("unix:///x")
    assert opened == []
