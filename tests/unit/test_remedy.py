"""The lines that mend a configuration are valid, least, and reach the hooks that need them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence

import pytest

from executor.check.explain import explain
from executor.check.explanation import Explanation
from executor.check.remedy import Act, Step, steps
from executor.configuration import Configuration, shipped_policies
from executor.hooks import Hook, parse_action
from executor.plan import Files, Identity, Place
from executor.policy import parse_policy, resolve_policies
from executor.registry import subscribe
from executor.settings import Settings, parse_settings

WORKSPACE = "/srv/workspace"


class Look:
    """A host on which everything is there and belongs to the hooks."""

    def kind(self, path: str) -> str | None:
        return "file" if "." in path.rpartition("/")[2] else "directory"

    def readable(self, path: str, below: str) -> bool:
        return True

    def writable(self, path: str) -> bool:
        return True

    def ours(self, path: str) -> bool:
        return True

    def privileged(self) -> bool:
        return True

    def interpreter(self, path: str) -> str | None:
        return None

    def offers(self, command: str) -> bool | None:
        return None


class Empty(Look):
    """A host on which nothing is there, seen by an ordinary user."""

    def kind(self, path: str) -> str | None:
        return None

    def ours(self, path: str) -> bool:
        return path.startswith("/home/")

    def privileged(self) -> bool:
        return False


def hook(event: str, action: Mapping[str, object]) -> Hook:
    at = f"/hooks/{event}"
    return Hook(None, event, parse_action(dict(action), event=event), True, None, None, at)


def configured(*hooks: Hook, settings: str = "") -> Configuration:
    return Configuration(
        parse_settings(settings.encode()), resolve_policies(shipped_policies(), {}), hooks
    )


def explained(configuration: Configuration, look: Look) -> Sequence[Explanation]:
    return [
        explain(
            subscribe(f"hook_{number}", one, configuration, lambda _: "namespace"),
            Files((), one.action.command, WORKSPACE),
            Place(),
            Identity(1000, 1000),
            configuration.settings,
            look,
        )
        for number, one in enumerate(configuration.hooks)
    ]


def remedies(configuration: Configuration, look: Look | None = None) -> tuple[Step, ...]:
    seen = look or Look()
    return steps(explained(configuration, seen), configuration, shipped_policies(), seen)


def script(event: str, path: str, command: str = "python3") -> Hook:
    return hook(event, {"command": command, "args": [path]})


def test_nothing_lacks_nothing_is_said() -> None:
    assert remedies(configured(hook("tool_call", {"command": "true"}))) == ()


def test_the_new_files_are_valid_and_bind_what_they_are_for() -> None:
    before = configured(script("tool_call", "/opt/h/ä b.py".replace(" ", "_")))
    policy, bind = remedies(before)
    assert (policy.act, bind.act) == (Act.CREATE, Act.APPEND)
    raw = parse_policy(policy.text.encode(), where=policy.file)
    settings = parse_settings(bind.text.encode())
    assert settings.policy_for("tool_call", "python3") == raw.name
    assert settings.policy_for("error", "python3") == "default"
    assert settings.policy_for("tool_call", "bash") == "default"
    after = Configuration(
        settings, resolve_policies(shipped_policies(), {raw.name: raw}), before.hooks
    )
    assert after.policies[raw.name].filesystem.read == ("/opt/h/ä_b.py",)
    assert remedies(after) == ()


def test_hooks_that_a_binding_cannot_tell_apart_share_a_policy() -> None:
    policy, bind = remedies(
        configured(script("tool_call", "/opt/h/a.py"), script("tool_call", "/opt/h/b.py"))
    )
    assert tomllib.loads(policy.text)["filesystem"]["read"] == ["/opt/h/a.py", "/opt/h/b.py"]
    assert bind.text.count("[[bind]]") == 1


def test_other_hooks_get_nothing_of_it() -> None:
    made = remedies(
        configured(
            script("tool_call", "/opt/h/a.py"),
            script("error", "/opt/h/b.py", command="perl"),
            hook("tool_call", {"command": "true"}),
        )
    )
    assert [step.file for step in made] == [
        *("policies/a.toml", "config.toml"),
        *("policies/b.toml", "config.toml"),
    ]
    assert "perl" not in made[1].text
    assert "python3" not in made[3].text


def test_one_command_on_two_events_needs_one_binding() -> None:
    policy, bind = remedies(
        configured(script("tool_call", "/opt/h/a.py"), script("error", "/opt/h/a.py"))
    )
    assert policy.file == "policies/a.toml"
    assert tomllib.loads(bind.text)["bind"][0]["events"] == ["tool_call", "error"]


def test_a_second_command_with_the_same_need_reuses_the_policy() -> None:
    made = remedies(
        configured(script("tool_call", "/opt/h/a.py"), script("tool_call", "/opt/h/a.py", "perl"))
    )
    assert [step.act for step in made] == [Act.CREATE, Act.APPEND, Act.APPEND]
    assert [tomllib.loads(step.text)["bind"][0]["policy"] for step in made[1:]] == ["a", "a"]


def test_a_taken_name_is_not_taken_again() -> None:
    policy, _ = remedies(configured(script("tool_call", "/opt/h/audit.py")))
    assert policy.file == "policies/audit-2.toml"


@pytest.mark.parametrize(("path", "sudo"), [("/srv/logs/prx", "sudo "), ("/home/u/logs", "")])
def test_a_missing_directory_is_made_with_sudo_only_where_it_takes_that(
    path: str, sudo: str
) -> None:
    action = {"command": "true", "env": {"LOG_DIR": path}}
    made, *_ = remedies(configured(hook("tool_call", action)), Empty())
    assert made == Step(Act.RUN, "", f"{sudo}install -d -o 1000 -g 1000 {path}")


def test_quotes_and_spaces_in_a_path_stay_one_word_of_the_shell() -> None:
    text = "/srv/logs/it's;rm"
    action = {"command": "true", "env": {"LOG_DIR": text}}
    made, *_ = remedies(configured(hook("tool_call", action)), Empty())
    assert made.text.endswith("""'/srv/logs/it'"'"'s;rm'""")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("/etc/cron.d/x", "belongs to the system"),
        ("/run/x/y", "sockets"),
        ("/var/log/x.log", "shared by the whole system"),
        ("/srv/a/../../etc/x", "holds .."),
    ],
)
def test_what_must_not_be_granted_is_never_proposed(value: str, told: str) -> None:
    configuration = configured(hook("tool_call", {"command": "true", "env": {"LOG": value}}))
    (one,) = explained(configuration, Empty())
    assert [told in finding.message for finding in one.findings] == [True]
    assert remedies(configuration, Empty()) == ()


@pytest.mark.parametrize(
    "value",
    ["red", "/usr/bin/env", "/dev/null", "/tmp/x", "/a:/b", "/a b", "https://x/y", "", "/bin"],
)
def test_other_values_are_left_alone(value: str) -> None:
    configuration = configured(hook("tool_call", {"command": "true", "env": {"X": value}}))
    (one,) = explained(configuration, Empty())
    assert one.findings == ()


def test_a_hook_that_configuration_refuses_is_told_just_that() -> None:
    configuration = configured(
        script("tool_call", "/opt/h/a.py"), settings='[[bind]]\npolicy = "nope"\n'
    )
    (one,) = explained(configuration, Look())
    assert ["nope" in finding.message for finding in one.findings] == [True]
    assert Settings() is not configuration.settings
    assert remedies(configuration) == ()
