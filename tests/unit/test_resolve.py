"""Is what stands on the disk looked at truly, and refused where it must be?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from executor.configuration import shipped_policies
from executor.disk.store import Store
from executor.disk.workspace import open_workspace
from executor.errors import InvalidConfig
from executor.hooks import Action
from executor.outcome import Cause, Status
from executor.plan import Files, Identity
from executor.policy import Policy, resolve_policies
from executor.resolve import Resolver
from tests.support import Workspace

ME = Identity(os.geteuid(), os.getegid())
DEFAULT = resolve_policies(shipped_policies(), {})["default"]


def granting(*, read: tuple[str, ...] = (), write: tuple[str, ...] = ()) -> Policy:
    filesystem = DEFAULT.filesystem.model_copy(update={"read": read, "write": write})
    return DEFAULT.model_copy(update={"filesystem": filesystem})


@pytest.fixture
def resolver(workspace: Workspace, tmp_path: Path) -> Iterator[Resolver]:
    opened = open_workspace(workspace.path)
    state = tmp_path / "state"
    yield Resolver(
        opened,
        Store(state / "store"),
        ME,
        protected=(str(tmp_path / "hooks" / "audit.sh"),),
        private=(str(state),),
    )
    opened.close()


def look(resolver: Resolver, policy: Policy = DEFAULT, **action: object) -> Files:
    return resolver.files(Action.model_validate({"command": "true", **action}), policy)


def test_a_bare_name_needs_nothing_but_the_workspace(
    resolver: Resolver, workspace: Workspace
) -> None:
    files = look(resolver)
    assert [mount.target for mount in files.mounts] == [str(workspace.path)]
    assert (files.command, files.command_sha256, files.cwd) == ("true", None, str(workspace.path))
    assert not files.mounts[0].writable


def test_a_command_runs_from_the_store_at_its_own_path(
    resolver: Resolver, workspace: Workspace
) -> None:
    script = workspace.script("hooks/a.sh", "exit 0")
    files = look(resolver, command="hooks/a.sh")
    assert files.command == str(script)
    mount = files.mounts[-1]
    assert mount.target == str(script)
    assert Path(mount.source).read_bytes() == script.read_bytes()
    assert Path(mount.source).name == files.command_sha256
    script.write_text("#!/bin/sh\nexit 1\n")
    assert Path(mount.source).read_bytes() != script.read_bytes()


def test_changed_bytes_are_seen_at_the_next_look(resolver: Resolver, workspace: Workspace) -> None:
    workspace.script("a.sh", "exit 0")
    first = look(resolver, command="./a.sh").command_sha256
    workspace.script("a.sh", "exit 1")
    assert look(resolver, command="./a.sh").command_sha256 != first


def test_a_link_inside_the_workspace_shows_the_real_file(
    resolver: Resolver, workspace: Workspace
) -> None:
    real = workspace.script("real.sh", "exit 0")
    (workspace.path / "link.sh").symlink_to("real.sh")
    files = look(resolver, command="./link.sh")
    assert files.command == str(workspace.path / "link.sh")
    assert files.mounts[-1].target == str(real)


@pytest.mark.parametrize(
    ("make", "cause", "words"),
    [
        (lambda path: None, Cause.NOT_FOUND, "no such file"),
        (lambda path: path.mkdir(), Cause.NOT_EXECUTABLE, "regular file"),
        (lambda path: path.touch(0o644), Cause.NOT_EXECUTABLE, "chmod +x"),
        (os.mkfifo, Cause.NOT_EXECUTABLE, "regular file"),
    ],
)
def test_a_command_that_cannot_run_says_why(
    resolver: Resolver, workspace: Workspace, make: object, cause: Cause, words: str
) -> None:
    assert callable(make)
    make(workspace.path / "hook")
    failure = look(resolver, command="./hook").failure
    assert failure is not None
    assert (failure.status, failure.cause) == (Status.ERROR, cause)
    assert words in (failure.reason or "")


@pytest.mark.parametrize("link", ["hook", "sub/hook"])
def test_a_command_that_leads_out_of_the_workspace_is_a_fault(
    resolver: Resolver, workspace: Workspace, tmp_path: Path, link: str
) -> None:
    (tmp_path / "outside").write_text("#!/bin/sh\n")
    (tmp_path / "outside").chmod(0o755)
    target = workspace.path / link
    target.parent.mkdir(exist_ok=True)
    target.symlink_to(tmp_path / "outside")
    files = look(resolver, command=f"./{link}")
    assert files.mounts[-1].target == str(workspace.path)
    assert "leads out" in files.faults[0]


def test_cwd_is_the_real_directory(resolver: Resolver, workspace: Workspace) -> None:
    (workspace.path / "real").mkdir()
    (workspace.path / "link").symlink_to("real")
    assert look(resolver, cwd="link").cwd == str(workspace.path / "real")


@pytest.mark.parametrize("name", ["link", "file", "none", "loop"])
def test_cwd_that_is_no_directory_of_the_workspace_is_a_fault(
    resolver: Resolver, workspace: Workspace, name: str
) -> None:
    (workspace.path / "link").symlink_to("/etc")
    (workspace.path / "file").touch()
    (workspace.path / "loop").symlink_to("loop")
    files = look(resolver, cwd=name)
    assert len(files.faults) == 1
    assert "cwd" in files.faults[0]


def test_an_absolute_cwd_needs_the_workspace_or_a_grant(
    resolver: Resolver, workspace: Workspace, tmp_path: Path
) -> None:
    folder = tmp_path / "logs" / "deep"
    folder.mkdir(parents=True)
    assert look(resolver, cwd=str(workspace.path)).faults == ()
    assert "leaves the workspace" in look(resolver, cwd=str(folder)).faults[0]
    granted = granting(read=(str(tmp_path / "logs"),))
    files = look(resolver, granted, cwd=str(folder))
    assert (files.faults, files.cwd) == ((), str(folder))


def test_a_missing_grant_names_the_command_that_makes_it(
    resolver: Resolver, tmp_path: Path
) -> None:
    files = look(resolver, granting(write=(str(tmp_path / "none"),)))
    assert "does not exist" in files.faults[0]
    assert str(tmp_path / "none") in files.faults[0]


@pytest.mark.parametrize(
    "write",
    ["hooks", "../hooks", "nested", "link"],
)
def test_no_writable_grant_holds_a_protected_name(
    resolver: Resolver, workspace: Workspace, tmp_path: Path, write: str
) -> None:
    (tmp_path / "hooks").mkdir()
    (workspace.path / "policies" / "sub").mkdir(parents=True)
    (workspace.path / "nested" / ".git").mkdir(parents=True)
    (workspace.path / "link").symlink_to("policies/sub")
    (workspace.path / "hooks").symlink_to(tmp_path / "hooks")
    path = {"../hooks": str(tmp_path / "hooks")}.get(write, write)
    files = look(resolver, granting(write=(path,)))
    assert len(files.faults) == 1, files


def test_the_state_directory_cannot_even_be_read(resolver: Resolver, tmp_path: Path) -> None:
    for path in (tmp_path / "state", tmp_path / "state" / "store", tmp_path):
        assert look(resolver, granting(read=(str(path),))).faults, path


@pytest.mark.skipif(os.geteuid() != 0, reason="root: only root can lack write permission by id")
def test_a_grant_that_the_hooks_id_cannot_write_names_both_remedies(
    workspace: Workspace, tmp_path: Path
) -> None:
    opened = open_workspace(workspace.path)
    resolver = Resolver(opened, Store(tmp_path / "store"), Identity(4711, 4712))
    (workspace.path / "out").mkdir()
    (fault,) = look(resolver, granting(write=("out",))).faults
    assert f"chown 4711:4712 {workspace.path}/out" in fault
    assert f"setfacl -m u:4711:rwx {workspace.path}/out" in fault
    os.chown(workspace.path / "out", 4711, 4712)
    assert look(resolver, granting(write=("out",))).faults == ()
    opened.close()


def test_a_workspace_must_be_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "none"):
        with pytest.raises(InvalidConfig):
            open_workspace(path)


def test_looking_leaves_no_descriptor_open(resolver: Resolver, workspace: Workspace) -> None:
    workspace.script("a.sh", "exit 0")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        look(resolver, command="./a.sh", cwd=".")
        look(resolver, command="./none", cwd="none")
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="root: only root's hooks have another id")
def test_a_hook_cannot_turn_off_the_others_by_a_name_of_its_own(
    workspace: Workspace, tmp_path: Path
) -> None:
    opened = open_workspace(workspace.path)
    resolver = Resolver(opened, Store(tmp_path / "store"), Identity(4711, 4711))
    shared = tmp_path / "log"
    shared.mkdir()
    os.chown(shared, 4711, 4711)
    (shared / "hooks.json").touch()
    assert "hooks.json" in look(resolver, granting(write=(str(shared),))).faults[0]
    os.chown(shared / "hooks.json", 4711, 4711)
    assert look(resolver, granting(write=(str(shared),))).faults == ()
    opened.close()


def test_no_link_is_followed_below_what_another_policy_lets_hooks_write(
    workspace: Workspace, tmp_path: Path
) -> None:
    opened = open_workspace(workspace.path)
    shared = tmp_path / "log"
    (tmp_path / "secret").mkdir()
    shared.mkdir()
    (shared / "door").symlink_to(tmp_path / "secret")
    wanted = granting(read=(str(shared / "door"),))
    trusting = Resolver(opened, Store(tmp_path / "store"), ME)
    assert look(trusting, wanted).faults == ()
    careful = Resolver(opened, Store(tmp_path / "store"), ME, writable=(str(shared),))
    assert "symbolic link" in look(careful, wanted).faults[0]
    opened.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="root: only root sees more than the owner")
def test_root_reads_no_command_for_an_owner_who_may_not(
    workspace: Workspace, tmp_path: Path
) -> None:
    os.chown(workspace.path, 4711, 4711)
    hidden, plain = tmp_path / "hidden", tmp_path / "plain.sh"
    hidden.mkdir(mode=0o700)
    for script in (hidden / "a.sh", plain):
        script.write_text("#!/bin/sh\n")
        script.chmod(0o755)
    for parent in plain.parents:
        if parent.owner() == "root" and str(parent).startswith("/tmp/"):
            parent.chmod(0o755)
    opened = open_workspace(workspace.path)
    resolver = Resolver(opened, Store(tmp_path / "store"), Identity(4711, 4711))
    assert "may not read it" in look(resolver, command=str(hidden / "a.sh")).faults[0]
    assert look(resolver, command=str(plain)).faults == ()
    plain.chmod(0o711)
    assert "may not read it" in look(resolver, command=str(plain)).faults[0]
    opened.close()
