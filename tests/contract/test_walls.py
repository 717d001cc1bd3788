"""What can a hook reach? (SPEC sections 2.1 and 3)"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from executor import Cause, Status
from tests.support import Run, Workspace, bash, python

pytestmark = pytest.mark.anyio


async def test_the_workspace_is_readable_at_its_own_path_and_never_writable(
    run: Run, workspace: Workspace
) -> None:
    workspace.file("data.txt", "hello")
    outcome = (
        await run(bash("pwd; cat data.txt; echo; echo x > new || echo x > data.txt"))
    ).outcome
    assert outcome.stdout.decode().splitlines() == [str(workspace.path), "hello"]
    assert outcome.exit_code == 1
    assert b"Read-only file system" in outcome.stderr
    assert not (workspace.path / "new").exists()


async def test_a_granted_directory_is_writable_by_the_hooks_id(
    run: Run, workspace: Workspace
) -> None:
    directory = workspace.granted("out")
    workspace.policy_for_all('[filesystem]\nwrite = ["out"]\n')
    outcome = (await run(bash("echo hi > out/file; id -u"))).outcome
    assert outcome.ok, outcome
    status = (directory / "file").stat()
    assert status.st_uid == int(outcome.stdout) != 0


async def test_nothing_else_of_the_host_is_there(run: Run, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    code = f"cat {tmp_path}/secret; ls /home /root /var/log; cat /etc/shadow /etc/hostname"
    outcome = (await run(bash(code))).outcome
    assert b"secret" not in outcome.stdout
    assert os.uname().nodename.encode() not in outcome.stdout


async def test_tmp_is_private_and_limited(run: Run) -> None:
    code = "head -c 64M /dev/zero > /tmp/fill; ls -l /tmp/fill | awk '{print $5}'"
    outcome = (await run(bash(code))).outcome
    assert 0 < int(outcome.stdout) <= 16 * 1024 * 1024
    assert not Path("/tmp/fill").exists()


async def test_there_is_no_network(run: Run) -> None:
    code = (
        "import socket\n"
        "for kind in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX):\n"
        "    try: socket.socket(kind); print('made')\n"
        "    except OSError as e: print(e.errno)"
    )
    outcome = (await run(python(code))).outcome
    assert b"made" not in outcome.stdout
    assert len(outcome.stdout.splitlines()) == 3


async def test_a_hook_that_tries_the_network_is_told_why_it_fails(run: Run) -> None:
    outcome = (await run({"command": "curl", "args": ["-s", "https://example.invalid/"]})).outcome
    if outcome.cause is Cause.NOT_FOUND:
        pytest.skip("curl: not installed on this host (root = host)")
    assert outcome.status is Status.FAILED
    assert outcome.reason is not None
    assert "network.allow" in outcome.reason


async def test_the_hook_has_no_privilege(run: Run) -> None:
    outcome = (await run(bash("cat /proc/self/status"))).outcome
    status = dict(line.split(":\t", 1) for line in outcome.stdout.decode().splitlines())
    for capabilities in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[capabilities], 16) == 0, capabilities
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert "0" not in status["Uid"].split()


@pytest.mark.parametrize("cwd", ["reports", "./reports/../reports"])
async def test_cwd_below_the_workspace(run: Run, workspace: Workspace, cwd: str) -> None:
    (workspace.path / "reports").mkdir(mode=0o755)
    outcome = (await run({"command": "pwd", "cwd": cwd})).outcome
    assert outcome.stdout.decode().strip() == str(workspace.path / "reports")


async def test_cwd_through_a_link_that_leaves_the_workspace_is_refused(
    run: Run, workspace: Workspace
) -> None:
    (workspace.path / "out").symlink_to("/etc")
    outcome = (await run({"command": "pwd", "cwd": "out"})).outcome
    assert (outcome.status, outcome.cause) == (Status.REFUSED, Cause.POLICY)
    assert outcome.reason is not None
    assert "leads out" in outcome.reason


async def test_a_command_through_a_link_that_leaves_the_workspace_is_refused(
    run: Run, workspace: Workspace, tmp_path: Path
) -> None:
    outside = tmp_path / "outside.sh"
    outside.write_text("#!/bin/sh\necho out\n")
    outside.chmod(0o755)
    (workspace.path / "hook.sh").symlink_to(outside)
    outcome = (await run({"command": "./hook.sh"})).outcome
    assert outcome.status is Status.REFUSED


async def test_an_absolute_command_is_shown_to_the_hook_by_itself(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "hooks"
    folder.mkdir()
    script = folder / "audit.sh"
    script.write_text('#!/bin/bash\necho "$0"; ls "$(dirname "$0")"\n')
    script.chmod(0o700)
    (folder / "neighbour").write_text("secret")
    outcome = (await run({"command": str(script)})).outcome
    assert outcome.stdout.decode().split() == [str(script), "audit.sh"]


async def test_a_hidden_workspace_is_hidden(run: Run, workspace: Workspace) -> None:
    workspace.policy_for_all('[filesystem]\nworkspace = "none"\n')
    outcome = (await run(bash(f"pwd; ls {workspace.path}"))).outcome
    assert outcome.stdout == b"/tmp\n"
    assert outcome.exit_code == 2


async def test_a_private_home_exists_only_where_the_policy_gives_one(
    run: Run, workspace: Workspace
) -> None:
    assert (await run(bash('[ -z "$HOME" ]'))).outcome.ok
    workspace.policy_for_all("[environment]\nhome = true\n")
    assert (await run(bash("touch ~/.x && [ -f ~/.x ]"))).outcome.ok


async def test_a_read_grant_shows_its_path_read_only(
    run: Run, workspace: Workspace, tmp_path: Path
) -> None:
    folder = tmp_path / "shared"
    folder.mkdir(mode=0o755)
    folder.chmod(0o777)
    (folder / "table").write_text("42")
    (folder / "table").chmod(0o644)
    workspace.policy_for_all(f'[filesystem]\nread = ["{folder}"]\n')
    outcome = (await run(bash(f"cat {folder}/table; echo x > {folder}/new"))).outcome
    assert outcome.stdout == b"42"
    assert not (folder / "new").exists()
