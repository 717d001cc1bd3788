"""The command line as a program of its own, on real sandboxes."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.contract.conftest import available, sandbox
from tests.support import TOOL_CALL, Workspace

__all__ = ["available", "sandbox"]

PROGRAM = (sys.executable, "-c", "from executor.cli import main; main()")


def hook_executor(
    workspace: Workspace, *words: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *words],
        cwd=workspace.path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


@pytest.fixture
def where(sandbox: str, workspace: Workspace) -> tuple[str, ...]:
    return ("--workspace", str(workspace.path), "--sandbox", sandbox)


def test_a_new_workspace_runs_its_example_hook(
    workspace: Workspace, where: tuple[str, ...]
) -> None:
    assert hook_executor(workspace, *where[:2], "init").returncode == 0
    assert hook_executor(workspace, *where, "check").returncode == 0
    words = ("emit", "tool_call", "--payload", json.dumps(TOOL_CALL), "--json", "--strict")
    answer = hook_executor(workspace, *where, *words)
    assert answer.returncode == 0, answer.stderr
    (run,) = json.loads(answer.stdout)["runs"]
    assert run["sandbox"] == where[3]
    assert (run["status"], run["cause"], run["exit_code"]) == ("ok", "exit", 0)
    assert run["stdout"].startswith("tool_call in session sess_")
    assert '"output":"ok"' in run["stdout"]


@pytest.mark.parametrize(
    ("command", "code", "out", "err"),
    [
        (["sh", "-c", "echo out; echo err >&2; exit 7"], 7, "out\n", "err\n"),
        (["sh", "-c", "kill -9 $$"], 137, "", "SIGKILL"),
        (["true"], 0, "", ""),
        (["cat"], 0, '{"event":"tool_call"', ""),
        (["no-such-command"], 125, "", "not_found"),
    ],
)
def test_run_gives_the_commands_own_code_and_output(
    workspace: Workspace,
    where: tuple[str, ...],
    command: list[str],
    code: int,
    out: str,
    err: str,
) -> None:
    answer = hook_executor(workspace, "run", *where, "--", *command)
    assert answer.returncode == code, answer.stderr
    assert answer.stdout.startswith(out)
    assert err in answer.stderr


def test_doctor_reads_back_what_is_in_force(workspace: Workspace, where: tuple[str, ...]) -> None:
    answer = hook_executor(workspace, "doctor", "--isolation", "--json", *where)
    assert answer.returncode == 0, answer.stderr
    (backend,) = json.loads(answer.stdout)["backends"]
    assert backend["works"]
    assert backend["controls"]
    assert all(one["in_force"] for one in backend["controls"] if one["mandatory"])


def test_doctor_leaves_nothing_behind(
    workspace: Workspace, where: tuple[str, ...], private_state: Path, tmp_path: Path
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    temporary.chmod(0o755)
    environment = {**os.environ, "TMPDIR": str(temporary)}
    assert hook_executor(workspace, "doctor", *where, env=environment).returncode == 0
    assert list(temporary.iterdir()) == []
    assert [path for path in private_state.rglob("*") if not path.is_dir()] == []


def test_an_interrupted_emit_is_130_and_stops_its_hooks(
    workspace: Workspace, where: tuple[str, ...]
) -> None:
    marker = f"hook-executor-test-{os.getpid()}-{time.monotonic_ns()}"
    workspace.hooks({"turn_complete": [{"command": "sh", "args": ["-c", f": {marker}; sleep 60"]}]})
    words = [*PROGRAM, "emit", "turn_complete", *where]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as program:
        await_that(lambda: marker in running(program.pid))
        program.send_signal(signal.SIGINT)
        _, err = program.communicate(timeout=60)
    assert program.returncode == 130
    assert "Traceback" not in err
    await_that(lambda: marker not in running(program.pid))


def test_a_terminal_is_shown_nothing_that_it_would_obey(
    workspace: Workspace, where: tuple[str, ...]
) -> None:
    command = ["printf", r"\033]0;owned\007\302\233"]
    primary, secondary = pty.openpty()
    program = subprocess.Popen(
        [*PROGRAM, "run", *where, "--", *command], stdout=secondary, stderr=subprocess.DEVNULL
    )
    os.close(secondary)
    shown = b"".join(read_all(primary))
    assert program.wait(60) == 0
    assert shown == rb"\x1b]0;owned\x07\x9b"
    piped = hook_executor(workspace, "run", *where, "--", *command)
    assert piped.stdout == "\x1b]0;owned\x07\x9b"


def test_no_engine_is_exit_code_4(workspace: Workspace) -> None:
    workspace.hooks({"turn_complete": [{"command": "true"}]})
    environment: Mapping[str, str] = {**os.environ, "DOCKER_HOST": "unix:///nonexistent.sock"}
    for words in (["emit", "turn_complete"], ["doctor"]):
        answer = hook_executor(workspace, *words, "--sandbox", "docker", env=environment)
        assert answer.returncode == 4, answer.stderr
        assert "Traceback" not in answer.stderr
    ran = hook_executor(workspace, "run", "--sandbox", "docker", "--", "true", env=environment)
    assert ran.returncode == 125


def read_all(descriptor: int) -> Iterator[bytes]:
    try:
        while data := os.read(descriptor, 65536):
            yield data
    except OSError:  # a terminal whose other end is closed gives EIO (pty(7))
        pass
    finally:
        os.close(descriptor)


def running(but: int) -> str:
    """The command lines of all processes that can be seen, without our own."""
    lines = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) not in (but, os.getpid()):
            try:
                lines.append((entry / "cmdline").read_bytes().decode("utf-8", "replace"))
            except OSError:
                continue
    return "\n".join(lines)


def await_that(condition: object, seconds: float = 60) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
