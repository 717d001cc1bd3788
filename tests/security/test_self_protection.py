"""Can a hook change what decides what runs: configuration, its own script, .git?"""

from __future__ import annotations

import os

import pytest

from executor import Executor, InvalidConfig
from tests.security.stage import Stage
from tests.support import TOOL_CALL, Workspace

REFUSED = (
    *(".", "policies", "plugins", ".git", ".git/hooks", "policies/deep", "..", "nested", "scripts"),
    *("/", "/proc", "/sys/fs", "/dev", "/run", "/var/run", "/etc", "/usr/local", "/tmp", "/home"),
    *("/var/spool/cron", "/var/lib/docker", "hooks.json", "config.toml", "socket", "linked"),
    "~/x",
)


@pytest.mark.probe("N1", "a policy that grants writing what decides what runs", "refused")
@pytest.mark.parametrize("path", REFUSED)
@pytest.mark.anyio
async def test_grants_that_would_undo_the_walls_are_refused(
    workspace: Workspace, available: dict[str, str | None], path: str
) -> None:
    for name in (".git/hooks/x", "nested/.git/config", "plugins/x", "policies/deep/x"):
        workspace.file(name, "")
    workspace.script("scripts/run.sh", "exit 0")
    (workspace.path / "linked").symlink_to("policies")
    for name in ("nested", "scripts", "plugins", ".git", ".git/hooks", "policies/deep"):
        (workspace.path / name).chmod(0o777)
    workspace.hooks({"tool_call": [{"command": "scripts/run.sh"}]})
    workspace.policy("test", f'[filesystem]\nwrite = ["{path}"]\n')
    workspace.settings('[[bind]]\npolicy = "test"\n')
    kind = next(name for name in ("namespace", "docker") if available[name] is None)
    try:
        async with Executor.open(workspace.path, sandbox=kind) as executor:
            (record,) = await executor.emit("tool_call", TOOL_CALL).wait()
    except InvalidConfig:
        return
    assert record.outcome.status.value == "refused", record


@pytest.mark.probe("N2", "a hook that changes its own script", "a read-only copy by its digest")
def test_a_hook_cannot_change_its_own_script(stage: Stage) -> None:
    code = (
        'echo same; echo "echo changed" >> "$0"; chmod 777 "$0"; mv "$0" "$0.old"; rm -f "$0"; '
        'cp /bin/true "$0"; ln -sf /bin/true "$0"'
    )
    inside = stage.workspace.script("scripts/own.sh", code)
    inside.chmod(0o777)
    outside = stage.outside / "open" / "own.sh"
    outside.write_text(f"#!/bin/bash\n{code}\n")
    outside.chmod(0o777)
    stage.own(inside, outside)
    answers = stage.emit(stage.hook("scripts/own.sh"), stage.hook(str(outside)), times=2)
    # emit has seen that no file changed
    assert [ran.text for pair in answers for ran in pair] == ["same\n"] * 4


@pytest.mark.probe("N3", "a script that is reached by a link into a grant", "the grant is refused")
def test_a_script_behind_a_link_is_protected_too(stage: Stage) -> None:
    real = stage.out / "real.sh"
    real.write_text("#!/bin/bash\necho one\n")
    real.chmod(0o777)
    stage.own(real)
    (stage.workspace.path / "linked.sh").symlink_to("out/real.sh")
    stage.policy('[filesystem]\nwrite = ["out"]\n')
    change = f'echo "echo two" >> {real}; rm -f {real}; echo "echo three" > {real}'
    stage.emit(stage.hook("./linked.sh"), stage.bash(change))
    assert real.read_text() == "#!/bin/bash\necho one\n"


@pytest.mark.probe("N4", "a second name of hooks.json in a grant, made by somebody else", "refused")
def test_a_second_name_of_the_configuration_is_no_way_in(stage: Stage) -> None:
    stage.workspace.hooks({"tool_call": []})
    configuration = stage.workspace.path / "hooks.json"
    stage.own(configuration)
    os.link(configuration, stage.out / "second")
    stage.policy('[filesystem]\nwrite = ["out"]\n')
    hook = stage.bash(f"echo >> {stage.out}/second")
    # Rewritten in place, so that it keeps its second name; emit sees that it does not change.
    stage.request([hook])
    assert configuration.stat().st_nlink == 2
    (((ran,)),) = stage.emit(hook)
    assert ran.status == "refused", ran
    assert ran.reason is not None
    assert "second name" in ran.reason


@pytest.mark.probe("N5", "special files that a hook leaves in its grant", "reported")
def test_what_is_left_in_a_grant_is_plain(stage: Stage) -> None:
    stage.policy('[filesystem]\nwrite = ["out"]\n')
    code = (
        "cd out; mkfifo fifo; mknod null c 1 3; mknod disk b 8 0; touch plain; chmod 6777 plain;"
        "mkdir -m 2777 directory; ln -s /etc/shadow link; ls"
    )
    stage.run(stage.bash(code))
    for path in stage.out.iterdir():
        status = path.lstat()
        assert not status.st_mode & 0o6000, path
        assert status.st_rdev == 0, path
        assert status.st_uid != 0 or os.geteuid() != 0, path
