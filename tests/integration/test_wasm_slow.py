"""Does a plugin of a real toolchain work, built from its source? Does nothing grow?"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from executor import Executor, Status
from executor.testing import SAMPLE_PAYLOADS, FakeBackend
from tests.support import TOOL_CALL, Workspace, missing
from tests.unit.wasm.components import guest, says

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(600)]

EXAMPLES = Path(__file__).parents[2] / "examples" / "plugins"
ATTEMPTS = """
import os, socket, urllib.request
from componentize_py_types import Err
from wit_world import exports


def tried(attempt):
    try:
        return attempt()
    except Exception as failure:
        return type(failure).__name__


class Hooks(exports.Hooks):
    def on_event(self, event: str, payload_json: str) -> None:
        said = [
            tried(lambda: open("/etc/passwd").read()),
            tried(lambda: open("/proc/self/environ").read()),
            tried(lambda: open("/tmp/x", "w").write("x")),
            tried(lambda: os.listdir("/")),
            tried(lambda: socket.create_connection(("127.0.0.1", 9), 1)),
            tried(lambda: urllib.request.urlopen("http://127.0.0.1:9/")),
            dict(os.environ),
        ]
        raise Err(repr(said))
"""
NOWHERE = "'FileNotFoundError', 'FileNotFoundError', 'FileNotFoundError', 'FileNotFoundError'"


@pytest.fixture
def anyio_backend() -> str:
    """One loop is enough here; the other tests run on both."""
    return "asyncio"


@pytest.fixture(scope="module", autouse=True)
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One state directory for the module: a Python guest takes 20 seconds to compile."""
    directory = tmp_path_factory.mktemp("slow-state")
    yield directory
    shutil.rmtree(directory)


def build(directory: Path) -> None:
    """By the one command that the page for authors names."""
    name = directory.name
    script = directory.parent / "build.py"
    shutil.copy(EXAMPLES / "build.py", script)
    if (directory / "app.py").exists() and shutil.which("componentize-py") is None:
        missing("componentize-py", "not installed")
    if (directory / "hook.c").exists() and importlib.util.find_spec("ziglang") is None:
        missing("ziglang", "not installed")
    subprocess.run([sys.executable, str(script), name], check=True)
    script.unlink()


def example(workspace: Workspace, name: str) -> Path:
    target = workspace.path / "plugins" / name
    shutil.copytree(EXAMPLES / name, target, ignore=shutil.ignore_patterns("*.wasm"))
    for path in (target.parent, target, *target.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return target


async def test_the_python_example_gets_all_events_byte_for_byte(
    workspace: Workspace, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    workspace.hooks({event: [{"command": "a"}] for event in SAMPLE_PAYLOADS})
    target = example(workspace, "event-counter")
    build(target)
    manifest = target / "plugin.toml"
    manifest.write_text(manifest.read_text().replace('echo = "no"', 'echo = "yes"'))
    fake = FakeBackend()
    async with Executor.open(workspace.path, backends={"fake": fake}) as executor:
        for number in (1, 2):
            for event, payload in SAMPLE_PAYLOADS.items():
                _, record = await executor.emit(event, payload, session_id="é").wait()
                assert record.outcome.ok, record.outcome.reason
                assert record.outcome.stdout == fake.jobs[-1].payload
                assert record.outcome.stderr == f"info: {event} number {number}\n".encode()
        failure = {**TOOL_CALL, "success": False}
        _, record = await executor.emit("tool_call", failure).wait()
    assert record.outcome.status is Status.FAILED
    assert record.outcome.reason == "the tool bash failed"


async def test_a_python_guest_reaches_no_file_no_socket_and_no_variable(
    workspace: Workspace, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    target = example(workspace, "event-counter")
    (target / "app.py").write_text(ATTEMPTS)
    build(target)
    async with Executor.open(workspace.path, backends={"fake": FakeBackend()}) as executor:
        (record,) = await executor.emit("tool_call", TOOL_CALL).wait()
    said = record.outcome.reason or ""
    assert said.startswith(f"[{NOWHERE}, '"), said
    assert "root:" not in said
    assert said.endswith("{}]"), said


async def test_the_c_example_guards_the_gate(workspace: Workspace) -> None:
    build(example(workspace, "tool-guard"))
    async with Executor.open(workspace.path, backends={"fake": FakeBackend()}) as executor:
        answers = [
            (await executor.ask("PreToolUse", {"tool_name": "bash", "input": {"command": line}}))
            for line in ("ls", "sudo ls", "rm -rf /")
        ]
    assert [answer.exit_code for answer in answers] == [0, 2, 1]
    assert answers[2].message == "it would delete everything"


def footprint(pid: int) -> tuple[int, int]:
    """Resident bytes and open descriptors."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir(f"/proc/{pid}/fd"))


async def test_nothing_grows_over_20000_events(workspace: Workspace) -> None:
    for name, wasm in (("p", guest()), ("q", guest(code=says(1, "no")))):
        workspace.file(f"plugins/{name}/plugin.wasm", wasm)
        workspace.file(
            f"plugins/{name}/plugin.toml",
            f'[plugin]\nname = "{name}"\nversion = "1"\n'
            '[[capabilities]]\ntype = "hook"\nevents = ["*"]\n',
        )
    async with Executor.open(workspace.path, backends={"fake": FakeBackend()}) as executor:
        backend = executor.plugins.backend
        assert backend is not None

        async def some(count: int) -> dict[int, tuple[int, int]]:
            for _ in range(count // 100):
                receipts = [executor.emit("tool_call", TOOL_CALL) for _ in range(100)]
                for receipt in receipts:
                    assert len(await receipt.wait()) == 2
            return {pid: footprint(pid) for pid in (os.getpid(), *backend.pids(idle=True))}

        before = await some(2000)
        after = await some(20_000)
    assert before.keys() == after.keys()
    for pid, (size, descriptors) in after.items():
        assert descriptors == before[pid][1]
        assert size - before[pid][0] < 8 * 1024 * 1024
