"""Does the daemon serve, drain and leave nothing, and do the commands find it?"""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path

import httpx2
import pytest

from executor.disk.workspace import open_workspace
from executor.errors import Refused
from executor.in_force import state_directory
from tests.integration.daemons import Running, cli, daemon
from tests.support import TOOL_CALL, Workspace, bash

pytestmark = pytest.mark.namespace


def state(workspace: Workspace) -> Path:
    opened = open_workspace(workspace.path)
    try:
        return state_directory(opened, "")
    finally:
        opened.close()


def token(workspace: Workspace, scopes: str = "read,write,emit") -> dict[str, str]:
    made = cli(workspace, "token", "create", "--scopes", scopes, "--json")
    return {"Authorization": f"Bearer {made['token']}"}


def test_it_serves_over_tcp_with_a_token_made_beside_it(workspace: Workspace) -> None:
    with daemon(workspace, "--port", "0") as one:
        assert httpx2.get(f"{one.url}/healthz").text == "ok"
        assert httpx2.get(f"{one.url}/api/hooks").status_code == 401
        headers = token(workspace)
        assert httpx2.get(f"{one.url}/api/hooks", headers=headers).json() == {"hooks": []}
        assert any("token create" in line for line in one.lines)
        assert one.stop() == 0


def test_the_commands_go_through_the_daemon(workspace: Workspace) -> None:
    workspace.hooks({"error": [{"command": "false"}]})
    with daemon(workspace, "--port", "0"):
        hook = cli(workspace, "hooks", "add", "tool_call", "bash", "--json", "--", "-c", "echo hi")
        assert (hook["id"], hook["action"]["args"]) == ("hook_02", ["-c", "echo hi"])
        payload = json.dumps(TOOL_CALL)
        receipt = cli(workspace, "emit", "tool_call", "--payload", payload, "--json")
        (run,) = receipt["runs"]
        assert (run["hook"], run["status"], run["stdout"]) == ("hook_02", "ok", "hi\n")
        # The daemon knows of it, so it ran there.
        (told,) = cli(workspace, "runs", "list", "--json")["runs"]
        assert told["session_id"] == receipt["event"]["session_id"]
        assert cli(workspace, "runs", "show", told["id"], "--json")["stdout"] == "hi\n"
        assert cli(workspace, "hooks", "toggle", "hook_02", "--json")["enabled"] is False
        receipt = cli(workspace, "emit", "tool_call", "--payload", payload, "--json")
        assert receipt["runs"] == []
        cli(workspace, "hooks", "remove", "hook_02")
        listed = cli(workspace, "hooks", "list", "--json")["hooks"]
        assert [one["id"] for one in listed] == ["hook_01"]
        told = cli(workspace, "status", "--json")
        assert told["hooks"] == {"total": 1, "enabled": 1}
        assert told["generation"] > 1
        text = cli(workspace, "emit", "error", "--payload", '{"component":"c","message":"m"}')
        assert "hook_01" in text
        cli(workspace, "hooks", "remove", "hook_77", code=1)


def test_without_a_daemon_hooks_are_changed_in_the_file(workspace: Workspace) -> None:
    hook = cli(workspace, "hooks", "add", "error", "true", "--json")
    assert hook["id"] == "hook_01"
    assert cli(workspace, "hooks", "toggle", "hook_01", "--json")["enabled"] is False
    document = json.loads((workspace.path / "hooks.json").read_bytes())
    assert document["hooks"]["error"][0]["enabled"] is False
    cli(workspace, "hooks", "remove", "hook_01")
    assert cli(workspace, "hooks", "list", "--json") == {"hooks": []}
    cli(workspace, "status", code=4)
    cli(workspace, "runs", "list", code=4)


def test_a_unix_socket_takes_the_place_of_tcp(workspace: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "own.sock"
    with daemon(workspace, "--unix", str(path)) as one:
        assert one.url == ""
        assert path.stat().st_mode & 0o777 == 0o600
        transport = httpx2.HTTPTransport(uds=str(path))
        with httpx2.Client(transport=transport, base_url="http://x") as client:
            assert client.get("/api/hooks").json() == {"hooks": []}
        assert one.stop() == 0
        assert not path.exists()


def test_a_second_daemon_of_one_workspace_is_refused(workspace: Workspace) -> None:
    with daemon(workspace, "--port", "0"):
        second = cli(workspace, "serve", "--sandbox", "namespace", "--port", "0", code=3)
        assert second == ""


def test_a_killed_daemons_socket_is_taken_over(workspace: Workspace) -> None:
    with daemon(workspace, "--port", "0") as one:
        one.process.kill()
        one.end()
    assert (state(workspace) / "api.sock").exists()
    with daemon(workspace, "--port", "0"):
        assert cli(workspace, "status", "--json")["reload"]["ok"] is True


def emitted(one: Running, headers: dict[str, str]) -> httpx2.Response:
    body = {"event": "tool_call", "session_id": "s", "payload": dict(TOOL_CALL)}
    return httpx2.post(f"{one.url}/api/events", json=body, headers=headers)


def marker(workspace: Workspace, name: str) -> tuple[Path, str]:
    """A FIFO in a granted directory: opening it to read waits for the hook to open it to write."""
    granted = workspace.granted("out")
    workspace.policy_for_all(f'[filesystem]\nwrite = ["{granted}"]\n')
    os.mkfifo(granted / name)
    (granted / name).chmod(0o666)
    return granted / name, str(granted / name)


def test_sigterm_finishes_what_is_in_hand_and_exits_0(workspace: Workspace) -> None:
    fifo, path = marker(workspace, "begun")
    workspace.hooks({"tool_call": [bash(f"echo begun > {path}; sleep 1; echo done")]})
    with daemon(workspace, "--port", "0") as one:
        assert emitted(one, token(workspace)).status_code == 202
        assert fifo.read_text() == "begun\n"
        assert one.stop() == 0
        assert any("status='ok'" in line for text in one.lines for line in text.splitlines())


def test_a_second_signal_interrupts(workspace: Workspace) -> None:
    fifo, path = marker(workspace, "begun")
    workspace.hooks({"tool_call": [bash(f"echo begun > {path}; sleep 600")]})
    with daemon(workspace, "--port", "0") as one:
        assert emitted(one, token(workspace)).status_code == 202
        assert fifo.read_text() == "begun\n"
        one.process.send_signal(signal.SIGTERM)
        one.until("draining")
        assert one.stop() == 1
        assert any("status='interrupted'" in text for text in one.lines)


def test_a_run_is_cancelled_whole(workspace: Workspace) -> None:
    fifo, path = marker(workspace, "begun")
    workspace.hooks({"tool_call": [bash(f"trap '' TERM; echo begun > {path}; sleep 600")]})
    with daemon(workspace, "--port", "0") as one:
        headers = token(workspace)
        assert emitted(one, headers).status_code == 202
        assert fifo.read_text() == "begun\n"
        (run,) = cli(workspace, "runs", "list", "--status", "running", "--json")["runs"]
        cli(workspace, "runs", "cancel", run["id"])
        one.until("status='interrupted'")
        told = cli(workspace, "runs", "show", run["id"], "--json")
        assert (told["status"], told["cause"]) == ("interrupted", "cancelled")
        cli(workspace, "runs", "cancel", run["id"], code=1)


def test_sighup_and_saving_both_reload(workspace: Workspace) -> None:
    workspace.hooks({"error": []})
    with daemon(workspace, "--port", "0") as one:
        workspace.hooks({"error": [{"command": "true"}]})
        one.until("level='info' event='reloaded' .*generation=2")
        workspace.file("hooks.json", "{")
        one.until("level='warning' event='not reloaded")
        cli(workspace, "status", code=1)
        one.process.send_signal(signal.SIGHUP)
        assert cli(workspace, "status", "--json")["generation"] == 2


def test_a_broken_file_at_the_start_is_an_error(workspace: Workspace) -> None:
    workspace.file("hooks.json", "{")
    assert cli(workspace, "serve", "--port", "0", "--sandbox", "namespace", code=1) == ""


def test_the_service_manager_hears_of_it_and_hands_over_its_socket(
    workspace: Workspace, tmp_path: Path
) -> None:
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        port = listener.getsockname()[1]

        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
        with daemon(workspace, environment=environment, descriptor=listener.fileno()) as one:
            assert manager.recv(100) == b"READY=1"
            assert httpx2.get(f"http://127.0.0.1:{port}/healthz").text == "ok"
            one.process.send_signal(signal.SIGTERM)
            assert manager.recv(100) == b"STOPPING=1"
            assert one.end() == 0


def test_a_path_that_is_no_socket_is_not_removed(tmp_path: Path) -> None:
    from executor.control import listen

    path = tmp_path / "precious"
    path.write_text("x")
    with pytest.raises(Refused):
        listen(path)
    assert path.read_text() == "x"


def test_a_long_path_is_reached_all_the_same(tmp_path: Path) -> None:
    from executor.control import answers, listen

    deep = tmp_path.joinpath(*["d" * 50] * 4)
    deep.mkdir(parents=True)
    with listen(deep / "api.sock"):
        assert answers(deep / "api.sock")
    assert not answers(deep / "api.sock")
