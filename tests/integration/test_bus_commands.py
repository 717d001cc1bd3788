"""``worker``, ``events follow`` and ``emit --bus`` as a person or a service manager calls them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from executor import depth
from tests.integration.nats_server import NatsServer, nats_server
from tests.support import Workspace

PAYLOAD = '{"tool":"bash","success":true,"output":"ok"}'


@pytest.fixture
def server() -> Iterator[NatsServer]:
    with nats_server() as one:
        yield one


def command(*words: str) -> list[str]:
    return [sys.executable, "-c", "from executor.cli import main; main()", *words]


def call(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*words),
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A command that has said that it is ready."""
    process = subprocess.Popen(
        command(*words),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        said = ""
        for line in process.stderr:
            said += line
            if "ready:" in line:
                break
        else:
            raise AssertionError(said)
        yield process
    finally:
        process.kill()
        process.communicate()


def test_emit_on_a_bus_only_publishes_and_follow_prints_it(
    server: NatsServer, workspace: Workspace
) -> None:
    workspace.hooks({"tool_call": [{"command": "/nowhere"}]})
    place = ("--workspace", str(workspace.path))
    with started(*place, "events", "follow", "--bus", server.url, "--json") as follower:
        words = (*place, "emit", "tool_call", "--payload", PAYLOAD, "--bus", server.url)
        answer = call(*words, "--json", "--session", "s")
        assert answer.returncode == 0, answer.stderr
        printed = json.loads(answer.stdout)
        assert printed["bus"] == {"topic": "prx.lifecycle.tool_call", "published": True}
        assert printed["runs"] == []
        assert follower.stdout is not None
        line = json.loads(follower.stdout.readline())
        assert line["topic"] == "prx.lifecycle.tool_call"
        assert (line["depth"], line["execute"]) == (1, "workers")
        assert line["data"] == printed["event"]
        with depth.handling(4):
            assert call(*words, **depth.environment()).returncode == 0
        assert json.loads(follower.stdout.readline())["depth"] == 5
        assert call(*words, ZERO_HOOK_DEPTH="nonsense").returncode == 0
        assert json.loads(follower.stdout.readline())["depth"] == 1
        deep = call(*words, "--strict", ZERO_HOOK_DEPTH="8")
        assert (deep.returncode, "depth" in deep.stderr) == (1, True)
        follower.send_signal(signal.SIGINT)
        assert follower.wait(30) == 130


def test_follow_takes_only_the_topics_that_are_asked_for(
    server: NatsServer, workspace: Workspace
) -> None:
    workspace.settings(f'[bus]\nurl = "{server.url}"\n')
    place = ("--workspace", str(workspace.path))
    with started(*place, "events", "follow", "--topic", "prx.lifecycle.tool_call") as follower:
        emit = (*place, "emit", "--bus", server.url)
        assert call(*emit, "turn_complete").returncode == 0
        assert call(*emit, "tool_call", "--payload", PAYLOAD).returncode == 0
        assert follower.stdout is not None
        assert follower.stdout.readline().startswith("prx.lifecycle.tool_call  {")


def test_a_worker_drains_on_sigterm_exits_0_and_shows_its_metrics(
    server: NatsServer, workspace: Workspace
) -> None:
    place = ("--workspace", str(workspace.path))
    with _free_port() as port:
        pass
    words = ("worker", "--bus", server.url, "--json", "--metrics-port", str(port))
    with started(*place, *words) as worker:
        for _ in range(3):
            assert call(*place, "emit", "turn_complete", "--bus", server.url).returncode == 0
        metrics = ""
        while 'prx_worker_events_total{what="ended"} 3.0' not in metrics:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
                metrics = answer.read().decode()
        assert "prx_bus_received_total 3.0" in metrics
        worker.send_signal(signal.SIGTERM)
        out, err = worker.communicate(timeout=60)
        assert worker.returncode == 0, err
    assert json.loads(out) == {
        "taken": 3,
        "ended": 3,
        "left_alone": 0,
        "malformed": 0,
        "lost": 0,
    }


@pytest.mark.parametrize("words", [("worker",), ("events", "follow"), ("emit", "turn_complete")])
def test_without_a_server_the_exit_code_is_4(
    words: tuple[str, ...], workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    from executor.cli import bus, main

    monkeypatch.setattr(bus, "FIRST_CONTACT_SECONDS", 0.3)
    with nats_server() as server:
        url = server.url
    with pytest.raises(SystemExit) as ended:
        main(["--workspace", str(workspace.path), *words, "--bus", url])
    assert ended.value.code == 4


@pytest.mark.parametrize(
    "words",
    [
        ("worker",),
        ("events", "follow"),
        ("worker", "--bus", "http://x"),
        ("worker", "--bus", "nats://user:secret@x"),
        ("events", "follow", "--bus", "nats://x", "--topic", "a*b"),
    ],
)
def test_a_bus_that_cannot_be_meant_is_a_mistake_of_usage(
    words: tuple[str, ...], workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    from executor.cli import main

    with pytest.raises(SystemExit) as ended:
        main(["--workspace", str(workspace.path), *words])
    assert ended.value.code == 2
    assert "secret" not in capsys.readouterr().err


@contextmanager
def _free_port() -> Iterator[int]:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        yield int(one.getsockname()[1])
