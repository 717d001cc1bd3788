"""``check``: every fault at once, every hook explained, and a remedy that mends."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from executor import Executor
from executor.cli.endings import FAILED, OK
from executor.errors import ExecutorError, Unavailable
from executor.sandboxes import Sandboxes
from executor.testing import FakeBackend
from tests.support import Workspace
from tests.unit.cli.conftest import Call


@pytest.fixture(autouse=True)
def somewhere(fake: FakeBackend) -> None:
    """Each policy has its sandbox."""


def messages(report: Mapping[str, Any], number: int = 0) -> str:
    return "\n".join(
        f"{found['weight']} {found['pointer']}: {found['message']}"
        for found in report["hooks"][number]["findings"]
    )


def test_a_workspace_without_files_is_fine(call: Call) -> None:
    answer = call("check")
    assert (answer.code, answer.err) == (OK, "")
    assert "no hooks, nothing would fail" in answer.out


def test_all_faults_of_all_files_are_told_at_once(call: Call, workspace: Workspace) -> None:
    workspace.settings("[limits]\nmax_queu = 1\n[sandbox]\nuid = 0\n")
    workspace.policy("mine", "[filesystem]\nwrit = []\n")
    workspace.hooks({"tool_cal": [], "tool_call": [{"command": "a;b", "timeout_ms": 0}]})
    answer = call("check", "--json")
    assert answer.code == FAILED
    told = {
        (broken["file"], fault["pointer"])
        for broken in answer.json["files"]
        for fault in broken["faults"]
    }
    assert told == {
        ("config.toml", "/limits/max_queu"),
        ("config.toml", "/sandbox/uid"),
        ("policies/mine.toml", "/filesystem/writ"),
        ("hooks.json", "/hooks/tool_cal"),
        ("hooks.json", "/hooks/tool_call/0/command"),
        ("hooks.json", "/hooks/tool_call/0/timeout_ms"),
    }
    human = call("check")
    assert human.code == FAILED
    assert all(file in human.out and pointer in human.out for file, pointer in told)


def test_a_broken_settings_file_does_not_hide_what_is_wrong_with_a_hook(
    call: Call, workspace: Workspace
) -> None:
    workspace.settings("nonsense")
    workspace.hooks({"tool_call": [{"command": "/nonexistent/hook.sh"}]})
    report = call("check", "--json").json
    assert report["files"][0]["file"] == "config.toml"
    assert "no such file" in messages(report)


def test_a_hook_is_explained(call: Call, workspace: Workspace) -> None:
    workspace.script("hooks/a.sh", "true")
    workspace.hooks(
        {
            "tool_call": [
                {
                    "command": "hooks/a.sh",
                    "env": {"COLOR": "red", "LD_PRELOAD": "x", "GIT_DIR": "y"},
                    "timeout_ms": 20000,
                    "stdin_json": True,
                }
            ]
        }
    )
    workspace.policy("short", 'extends = "default"\n[limits]\ntimeout_ms = 1500\n')
    workspace.settings('[[bind]]\nevents = ["prx.lifecycle.*"]\npolicy = "short"\n')
    answer = call("check", "--json")
    assert answer.code == OK
    (hook,) = answer.json["hooks"]
    assert hook["id"] == "hook_01"
    assert (hook["policy"], hook["because"]) == ("short", "config.toml /bind/0")
    assert hook["cwd"] == str(workspace.path)
    assert hook["timeout_ms"] == 1500
    assert hook["stripped"] == ["LD_PRELOAD", "GIT_DIR"]
    assert hook["environment"] == [
        *("PATH", "ZERO_HOOK_EVENT", "ZERO_HOOK_SESSION", "ZERO_HOOK_TIMESTAMP"),
        *("ZERO_HOOK_PAYLOAD_FILE", "ZERO_HOOK_PAYLOAD", "COLOR"),
    ]
    assert {mount["path"]: mount["writable"] for mount in hook["mounts"]} == {
        str(workspace.path): False,
        str(workspace.path / "hooks/a.sh"): False,
    }
    assert hook["uid"] != 0
    assert "20000 ms is more than is allowed: 1500 ms" in messages(answer.json)
    human = call("check").out
    for words in ("short (config.toml /bind/0)", "1500 ms", "COLOR", "LD_PRELOAD, GIT_DIR"):
        assert words in human
    assert "red" not in human


def test_a_script_in_args_that_is_not_visible_is_named_with_its_grant(
    call: Call, workspace: Workspace, tmp_path: Path
) -> None:
    script = tmp_path / "opt" / "log_latency.py"
    script.parent.mkdir()
    script.parent.chmod(0o755)
    script.write_text("")
    script.chmod(0o644)
    workspace.hooks({"llm_response": [{"command": "python3", "args": [str(script)]}]})
    answer = call("check", "--json")
    assert answer.code == FAILED
    assert (
        f"error /hooks/llm_response/0/args/0: `{script}` in `args[0]` is not visible: "
        "add it to `filesystem.read`"
    ) in messages(answer.json)
    policy, bind = answer.json["remedies"]
    assert (policy["act"], policy["file"]) == ("create", "policies/log_latency.toml")
    assert bind["act"] == "append"
    workspace.file(policy["file"], policy["text"])
    workspace.settings(bind["text"])
    after = call("check", "--json")
    assert (after.code, after.json["remedies"]) == (OK, [])
    assert after.json["hooks"][0]["policy"] == "log_latency"


def test_a_log_file_in_env_is_named_with_its_write_grant(
    call: Call, workspace: Workspace, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    workspace.hooks(
        {"tool_call": [{"command": "true", "env": {"AUDIT_LOG": f"{logs}/audit.jsonl"}}]}
    )
    answer = call("check", "--json")
    assert answer.code == FAILED
    assert f"add `{logs}` to `filesystem.write`" in messages(answer.json)
    made, policy, bind = answer.json["remedies"]
    uid, gid = answer.json["hooks"][0]["uid"], answer.json["hooks"][0]["gid"]
    assert made == {
        "act": "run", "file": "", "bind": None, "text": f"install -d -o {uid} -g {gid} {logs}",
    }  # fmt: skip
    assert 'extends = "audit"' in policy["text"]
    workspace.file(policy["file"], policy["text"])
    workspace.settings(bind["text"])
    missing = call("check", "--json")
    assert "does not exist; create it" in messages(missing.json)
    assert [step["text"] for step in missing.json["remedies"]] == [made["text"]]
    assert os.system(made["text"]) == 0
    assert call("check", "--json").code == OK


def test_a_shipped_policy_that_suffices_is_bound_rather_than_a_new_one(
    call: Call, workspace: Workspace
) -> None:
    workspace.hooks({"tool_call": [{"command": "true", "env": {"LOG_DIR": "/var/log/prx/audit"}}]})
    *made, bind = call("check", "--json").json["remedies"]
    assert (bind["act"], bind["file"]) == ("append", "config.toml")
    assert 'policy = "audit"' in bind["text"]
    if not Path("/var/log/prx").exists():
        assert [step["text"].split()[-1] for step in made] == [
            "/var/log/prx",
            "/var/log/prx/audit",
        ]


def test_the_binding_goes_above_the_one_that_would_win(
    call: Call, workspace: Workspace, tmp_path: Path
) -> None:
    workspace.settings('[[bind]]\nevents = ["error"]\npolicy = "strict"\n'
                       '[[bind]]\npolicy = "default"\n')  # fmt: skip
    (tmp_path / "x.py").write_text("")
    (tmp_path / "x.py").chmod(0o644)
    workspace.hooks({"tool_call": [{"command": "python3", "args": [f"{tmp_path}/x.py"]}]})
    *_, bind = call("check", "--json").json["remedies"]
    assert (bind["act"], bind["bind"]) == ("insert", 1)


def test_a_policy_of_the_workspaces_own_gets_the_missing_path(
    call: Call, workspace: Workspace, tmp_path: Path
) -> None:
    (tmp_path / "x.py").write_text("")
    (tmp_path / "x.py").chmod(0o644)
    workspace.policy_for_all('extends = "default"\n')
    workspace.hooks({"tool_call": [{"command": "python3", "args": [f"{tmp_path}/x.py"]}]})
    (step,) = call("check", "--json").json["remedies"]
    assert (step["act"], step["file"]) == ("edit", "policies/test.toml")
    assert step["text"] == f'[filesystem]\nread = ["{tmp_path}/x.py"]\n'


def test_a_network_address_in_args_names_network_allow(call: Call, workspace: Workspace) -> None:
    arguments = ["-d", "@-", "https://hooks.example.com/services/x"]
    workspace.hooks({"error": [{"command": "sh", "args": arguments}]})
    answer = call("check", "--json")
    assert answer.code == FAILED
    assert "network.allow" in messages(answer.json)


@pytest.mark.parametrize(
    ("text", "mode", "told"),
    [
        ("#!/bin/sh\n", 0o644, "chmod +x"),
        ("#!/opt/none/python\n", 0o755, "script for /opt/none/python"),
        ("#!/usr/bin/env no-such-interpreter\n", 0o755, "script for no-such-interpreter"),
        ("#!/usr/bin/env -S no-such-interpreter\n", 0o755, "script for no-such-interpreter"),
    ],
)
def test_a_command_that_could_not_start_is_told(
    call: Call, workspace: Workspace, text: str, mode: int, told: str
) -> None:
    workspace.file("hook", text, mode=mode)
    workspace.hooks({"tool_call": [{"command": "./hook"}]})
    answer = call("check", "--sandbox", "namespace", "--json")
    assert answer.code == FAILED
    assert told in messages(answer.json)


def test_a_bare_name_that_the_sandbox_has_not_is_told(call: Call, workspace: Workspace) -> None:
    workspace.hooks({"tool_call": [{"command": "no-such-command"}]})
    answer = call("check", "--sandbox", "namespace", "--json")
    assert answer.code == FAILED
    assert "has no no-such-command in PATH=" in messages(answer.json)


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's hooks run as that user")
def test_a_workspace_that_the_hooks_cannot_read_is_told(call: Call, workspace: Workspace) -> None:
    workspace.path.chmod(0o700)
    workspace.hooks({"tool_call": [{"command": "true"}]})
    answer = call("check", "--json")
    assert answer.code == FAILED
    assert f"chmod o+rx {workspace.path}" in messages(answer.json)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a directory of somebody else's")
def test_a_grant_that_the_hooks_cannot_write_has_its_chown_line(
    call: Call, workspace: Workspace, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    logs.mkdir(mode=0o755)
    workspace.policy_for_all(f'extends = "default"\n[filesystem]\nwrite = ["{logs}"]\n')
    workspace.hooks({"tool_call": [{"command": "true"}]})
    answer = call("check", "--json")
    uid, gid = answer.json["hooks"][0]["uid"], answer.json["hooks"][0]["gid"]
    assert f"setfacl -m u:{uid}:rwx {logs}" in messages(answer.json)
    assert [step["text"] for step in answer.json["remedies"]] == [f"chown {uid}:{gid} {logs}"]


def test_a_disabled_hook_is_listed_and_not_judged(call: Call, workspace: Workspace) -> None:
    workspace.hooks({"tool_call": [{"command": "/nonexistent", "enabled": False}]})
    answer = call("check")
    assert answer.code == OK
    assert "disabled" in answer.out


def test_settings_without_effect_are_warned_of(call: Call, workspace: Workspace) -> None:
    workspace.settings('[trust]\nmode = "warn"\n[[bind]]\nevents = ["error"]\npolicy = "nope"\n')
    answer = call("check", "--json")
    assert answer.code == OK
    assert any("trust.mode" in warning for warning in answer.json["warnings"])
    assert any('"nope"' in warning for warning in answer.json["warnings"])


def test_a_binding_to_a_policy_that_is_not_there_fails_its_hooks(
    call: Call, workspace: Workspace
) -> None:
    workspace.settings('[[bind]]\npolicy = "nope"\n')
    workspace.hooks({"tool_call": [{"command": "true"}]})
    answer = call("check", "--json")
    assert answer.code == FAILED
    assert '"nope", which does not exist' in messages(answer.json)


def test_a_sandbox_that_cannot_be_had_is_told_with_its_remedy(
    call: Call, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nowhere(*arguments: object) -> None:
        raise Unavailable("no engine answers", remedy="systemctl start docker", engine=True)

    monkeypatch.setattr(Sandboxes, "_place", nowhere)
    workspace.hooks({"tool_call": [{"command": "true"}]})
    answer = call("check", "--json")
    assert answer.code == FAILED
    assert answer.json["sandboxes"][0]["policy"] == "default"
    assert "systemctl start docker" in call("check", "--sandbox", "docker").out


def test_a_gate_hook_is_explained_like_any_other(call: Call, workspace: Workspace) -> None:
    workspace.hooks({"PreToolUse": [{"command": "true"}]})
    answer = call("check", "--json")
    assert answer.code == OK
    assert [hook["event"] for hook in answer.json["hooks"]] == ["PreToolUse"]
    assert "never runs" not in messages(answer.json)


def test_check_writes_nothing_into_the_workspace(call: Call, workspace: Workspace) -> None:
    workspace.script("hook.sh", "true")
    workspace.hooks({"tool_call": [{"command": "./hook.sh"}]})
    before = sorted(workspace.path.rglob("*"))
    call("check")
    assert sorted(workspace.path.rglob("*")) == before


def opens(workspace: Workspace) -> bool:
    async def attempt() -> None:
        async with Executor.open(workspace.path, watch=False):
            pass

    try:
        anyio.run(attempt)
    except ExecutorError:
        return False
    return True


SETTINGS = {
    "workers without a url": ('[bus]\nexecute = "workers"\n', "needs a url"),
    "a password without a user": (
        '[bus]\nurl = "nats://127.0.0.1:1"\npassword_file = "/dev/null"\n',
        "password_file needs user",
    ),
    "credentials that are not there": (
        '[bus]\nurl = "nats://127.0.0.1:1"\ncredentials = "/nonexistent/c"\n',
        "/nonexistent/c",
    ),
    "a certificate that is none": (
        '[bus]\nurl = "tls://127.0.0.1:1"\ntls = "/dev/null"\n',
        "[bus]: ",
    ),
    "state in the workspace": ('[state]\ndir = "{workspace}/state"\n', "inside the workspace"),
    "state that cannot be made": ('[state]\ndir = "/dev/null/state"\n', "cannot be used"),
    "a rule that cannot be read": (
        '[permission]\nrules = [{{effect = "deny", tool = "bash", command = ""}}]\n',
        "/permission/rules/0",
    ),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_what_keeps_an_executor_from_opening_fails(
    call: Call, workspace: Workspace, case: str
) -> None:
    text, told = SETTINGS[case]
    workspace.settings(text.format(workspace=workspace.path))
    workspace.hooks({"tool_call": [{"command": "true"}]})
    assert not opens(workspace)
    answer = call("check")
    assert answer.code == FAILED
    assert told in answer.out
    assert answer.out.count(told) == 1
    assert not call("check", "--json").json["ok"]


def test_a_lock_directory_that_cannot_be_had_fails_without_any_hook(
    call: Call, workspace: Workspace, private_state: Path
) -> None:
    (private_state / "hook-executor").mkdir(mode=0o700)
    (private_state / "hook-executor" / "instances").write_text("")
    assert not opens(workspace)
    answer = call("check", "--json")
    assert answer.code == FAILED
    assert "lock files" in answer.json["refusals"][0]["message"]
    workspace.hooks({"tool_call": [{"command": "true"}], "error": [{"command": "true"}]})
    assert call("check").out.count("lock files") == 1


def test_everything_is_told_at_once_where_an_executor_does_not_open(
    call: Call, workspace: Workspace
) -> None:
    workspace.settings('[bus]\nexecute = "workers"\n')
    workspace.file("hooks.json", "{")
    workspace.file("plugins/p/plugin.toml", "")
    answer = call("check", "--json")
    assert {broken["file"] for broken in answer.json["files"]} == {"hooks.json", "config.toml"}
    assert [one["name"] for one in answer.json["plugins"]] == ["p"]


def test_a_plugin_that_cannot_serve_fails(call: Call, workspace: Workspace) -> None:
    workspace.file("plugins/p/plugin.toml", "[plugin]\n")
    assert opens(workspace)
    answer = call("check", "--json")
    assert answer.code == FAILED
    (told,) = answer.json["plugins"]
    assert told == call("plugins", "check", "--json").json["plugins"][0]
    human = call("check").out
    assert "plugin:p  FAILS" in human
    assert "1 of 1 plugins would fail" in human


def test_the_ids_are_those_of_the_runs(call: Call, workspace: Workspace) -> None:
    workspace.hooks({"tool_call": [{"command": "first"}]})
    call("check")
    workspace.hooks({"tool_call": [{"command": "second"}, {"command": "first"}]})
    hooks = call("check", "--json").json["hooks"]
    assert [(hook["id"], hook["command"]) for hook in hooks] == [
        ("hook_02", "second"),
        ("hook_01", "first"),
    ]


def test_keys_of_a_policy_without_effect_are_warned_of(call: Call, workspace: Workspace) -> None:
    workspace.policy("mine", 'extends = "default"\n[sandbox]\nwarm = 3\n')
    answer = call("check", "--json")
    assert answer.code == OK
    warning = 'policy "mine": sandbox.warm is set, and has no effect in this version'
    assert warning in answer.json["warnings"]


def test_a_policy_that_may_not_be_asked_for_makes_nothing_stricter(
    call: Call, workspace: Workspace
) -> None:
    workspace.hooks({"tool_call": [{"command": "true", "policy": "audit"}]})
    answer = call("check")
    assert answer.code == FAILED
    assert "made stricter" not in answer.out
    assert 'asks for "audit", and is refused' in answer.out
    workspace.settings('[policies]\nrequestable = ["audit"]\n')
    workspace.hooks({"tool_call": [{"command": "true", "policy": "audit"}]})
    assert 'made stricter by "audit"' in call("check").out
    workspace.settings('[[bind]]\npolicy = "audit"\n')
    assert "made stricter" not in call("check").out


def test_a_timeout_that_nobody_set_is_clamped_without_a_word(
    call: Call, workspace: Workspace
) -> None:
    workspace.settings('[[bind]]\npolicy = "strict"\n')
    workspace.hooks({"error": [{"command": "true"}, {"command": "true", "timeout_ms": 30000}]})
    report = call("check", "--json").json
    assert "more than is allowed" not in messages(report, 0)
    assert "30000 ms is more than is allowed: 10000 ms" in messages(report, 1)


def test_policies_that_lack_a_sandbox_for_one_reason_are_told_together(
    call: Call, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nowhere(*arguments: object) -> None:
        raise Unavailable("nothing works", remedy="mend it")

    monkeypatch.setattr(Sandboxes, "_place", nowhere)
    workspace.settings('[[bind]]\nevents = ["error"]\npolicy = "strict"\n')
    workspace.hooks({"tool_call": [{"command": "true"}], "error": [{"command": "true"}]})
    out = call("check").out
    assert out.count("nothing works") == 1
    assert 'for policy "default", policy "strict": nothing works. Remedy: mend it' in out
