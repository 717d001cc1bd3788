"""Is configuration that somebody else could have written refused?"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

import pytest

from executor.configuration import load_configuration, ownership_fault
from executor.disk.workspace import open_workspace
from executor.errors import InvalidConfig
from executor.registry import build_snapshot, wanted_policies
from executor.subscription import AnySubscription
from tests.support import Workspace


def owned(uid: int, mode: int, gid: int = 0) -> os.stat_result:
    return os.stat_result((stat.S_IFREG | mode, 0, 0, 1, uid, gid, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("uid", "gid", "mode", "runner", "owner", "by_workspace", "fine"),
    [
        (1000, 1000, 0o644, 1000, 1000, False, True),
        (0, 0, 0o644, 1000, 1000, False, True),
        (1001, 1001, 0o644, 1000, 1000, False, False),
        (1000, 1000, 0o664, 1000, 1000, False, True),  # the user's private group (umask 002)
        (1000, 100, 0o664, 1000, 1000, False, False),
        (1000, 1000, 0o646, 1000, 1000, False, False),
        (1000, 1000, 0o644, 0, 1000, True, True),  # root runs it for the workspace's owner
        (1000, 1000, 0o644, 0, 1000, False, False),
        (1001, 1001, 0o644, 0, 1000, True, False),
        (1001, 1001, 0o644, 1000, 1001, True, False),
    ],
)
def test_who_may_own_a_configuration_file(
    uid: int, gid: int, mode: int, runner: int, owner: int, by_workspace: bool, fine: bool
) -> None:
    fault = ownership_fault(
        owned(uid, mode, gid),
        runner=runner,
        workspace_owner=owner,
        owned_by_workspace=by_workspace,
    )
    assert (fault is None) is fine


def loaded(workspace: Workspace) -> Mapping[str, tuple[AnySubscription, ...]]:
    opened = open_workspace(workspace.path)
    try:
        configuration = load_configuration(opened)
    finally:
        opened.close()
    wanted_policies(configuration)
    snapshot = build_snapshot(configuration, generation=1, backend_of=lambda _: "fake")
    return snapshot.subscriptions


def test_an_empty_workspace_has_no_hooks(workspace: Workspace) -> None:
    assert loaded(workspace) == {}


def test_a_binding_decides_the_policy(workspace: Workspace) -> None:
    workspace.settings('[[bind]]\ncommands = ["/opt/hooks/*"]\npolicy = "audit"\n')
    workspace.hooks({"error": [{"command": "/opt/hooks/a"}, {"command": "/opt/b"}]})
    assert [bound.policy.name for bound in loaded(workspace)["error"]] == ["audit", "default"]


@pytest.mark.parametrize(
    ("settings", "asked", "words"),
    [
        ("", "strict", "requestable"),
        ('[policies]\nrequestable = ["nothing"]\n', "nothing", "does not exist"),
        ('[[bind]]\npolicy = "nothing"\n', None, "does not exist"),
    ],
)
def test_a_policy_that_may_not_be_had_refuses_the_hook(
    workspace: Workspace, settings: str, asked: str | None, words: str
) -> None:
    workspace.settings(settings)
    action: dict[str, object] = {"command": "true"}
    if asked is not None:
        action["policy"] = asked
    workspace.hooks({"error": [action]})
    (bound,) = loaded(workspace)["error"]
    assert words in (bound.refusal or "")


def test_a_requested_policy_makes_it_stricter_and_never_wider(workspace: Workspace) -> None:
    workspace.settings('[policies]\nrequestable = ["strict"]\n')
    workspace.hooks({"error": [{"command": "true", "policy": "strict"}]})
    (bound,) = loaded(workspace)["error"]
    assert bound.refusal is None
    assert bound.policy.limits.enforce == "cgroup"


@pytest.mark.parametrize("name", ["hooks.json", "config.toml", "policies/x.toml"])
def test_a_fifo_or_directory_in_place_of_a_file_is_refused_and_does_not_hang(
    workspace: Workspace, name: str
) -> None:
    (workspace.path / "policies").mkdir()
    os.mkfifo(workspace.path / name)
    with pytest.raises(InvalidConfig, match="regular file"):
        loaded(workspace)


@pytest.mark.parametrize("name", ["hooks.json", "config.toml", "policies/x.toml"])
def test_a_directory_in_place_of_a_file_is_refused_by_name(workspace: Workspace, name: str) -> None:
    (workspace.path / name).mkdir(parents=True)
    with pytest.raises(InvalidConfig, match="regular file"):
        loaded(workspace)


def test_a_policies_directory_that_others_may_write_is_refused(workspace: Workspace) -> None:
    (workspace.path / "policies").mkdir()
    (workspace.path / "policies").chmod(0o777)
    with pytest.raises(InvalidConfig, match="chmod go-w"):
        loaded(workspace)
