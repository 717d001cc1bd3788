"""Who do hooks run as, and may that id do what a grant needs?"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from executor.disk.identity import identity_for, may
from executor.errors import InvalidConfig
from executor.plan import Identity

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="root: only root may choose")


@root_only
def test_root_runs_hooks_as_the_workspaces_owner(tmp_path: Path) -> None:
    os.chown(tmp_path, 4711, 4712)
    assert identity_for(tmp_path.stat(), "") == Identity(4711, 4712)


@root_only
def test_a_workspace_of_root_gets_a_private_id_that_nobody_has(tmp_path: Path) -> None:
    identity = identity_for(tmp_path.stat(), "")
    assert identity.uid == identity.gid
    assert identity.uid > 2_000_000_000


@root_only
@pytest.mark.parametrize("configured", ["0", "root", "no-such-user", "4294967295"])
def test_root_and_unknown_ids_are_refused(tmp_path: Path, configured: str) -> None:
    with pytest.raises(InvalidConfig):
        identity_for(tmp_path.stat(), configured)


@root_only
def test_the_configured_id_is_taken(tmp_path: Path) -> None:
    assert identity_for(tmp_path.stat(), "54321") == Identity(54321, 54321)


@pytest.mark.skipif(os.geteuid() == 0, reason="an ordinary user: root runs hooks as others")
def test_an_ordinary_user_runs_hooks_as_itself(tmp_path: Path) -> None:
    assert identity_for(tmp_path.stat(), "54321") == Identity(os.geteuid(), os.getegid())


@root_only
@pytest.mark.parametrize(
    ("owner", "group", "mode", "identity", "answer"),
    [
        (10, 20, 0o700, Identity(10, 99), True),
        (10, 20, 0o077, Identity(10, 20), False),
        (10, 20, 0o070, Identity(11, 20), True),
        (10, 20, 0o707, Identity(11, 20), False),
        (10, 20, 0o007, Identity(11, 21), True),
        (10, 20, 0o770, Identity(11, 21), False),
    ],
)
def test_permission_bits_are_read_as_the_kernel_reads_them(
    tmp_path: Path, owner: int, group: int, mode: int, identity: Identity, answer: bool
) -> None:
    tmp_path.chmod(mode)
    os.chown(tmp_path, owner, group)
    descriptor = os.open(tmp_path, os.O_PATH)
    try:
        assert may(identity, descriptor, 0o3) is answer
    finally:
        os.close(descriptor)


@root_only
@pytest.mark.skipif(shutil.which("setfacl") is None, reason="setfacl: not installed")
def test_an_acl_entry_grants_what_the_bits_do_not(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    subprocess.run(["setfacl", "-m", "u:4711:rwx", str(tmp_path)], check=True)
    descriptor = os.open(tmp_path, os.O_PATH)
    try:
        assert may(Identity(4711, 4711), descriptor, 0o3)
        assert not may(Identity(4712, 4712), descriptor, 0o3)
    finally:
        os.close(descriptor)
