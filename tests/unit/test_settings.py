"""Is config.toml read strictly, and does it bind the policy that it says?"""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from executor.errors import InvalidConfig, Unavailable
from executor.settings import (
    UNBUILT,
    Settings,
    check_state_dir,
    default_state_dir,
    parse_settings,
)

EVERYTHING = """
[sandbox]
uid = ""
[limits]
max_concurrency = 8
max_queue = 1024
max_timeout_ms = 300000
max_payload_bytes = 16777216
[[bind]]
events = ["tool_call"]
commands = ["/opt/hooks/*"]
plugins = []
policy = "audit"
[policies]
requestable = []
[gate]
strategy = "first"
budget_ms = 60000
[permission]
default = "allow"
rules = [{effect = "deny", tool = "bash", command = "rm -rf *"}]
[api]
host = "127.0.0.1"
port = 8787
[bus]
url = ""
format = "native"
execute = "local"
[trust]
mode = "off"
[state]
dir = ""
"""


def parse(text: str) -> Settings:
    return parse_settings(text.encode(), where="config.toml")


def faults(text: str) -> dict[str, str]:
    with pytest.raises(InvalidConfig) as caught:
        parse(text)
    return {fault.pointer: fault.message for fault in caught.value.faults}


def test_an_absent_or_empty_file_means_the_defaults() -> None:
    assert parse("") == Settings()
    assert parse("# nothing\n") == Settings()
    limits = Settings().limits
    assert (limits.max_concurrency, limits.max_queue) == (8, 1024)
    assert (limits.max_timeout_ms, limits.max_payload_bytes) == (300_000, 16 * 1024**2)


def test_the_listing_of_the_contract_parses_and_is_the_defaults() -> None:
    settings = parse(EVERYTHING)
    assert (
        settings.model_copy(update={"bind": (), "permission": Settings().permission}) == Settings()
    )
    (rule,) = settings.permission.rules
    assert (rule.effect, rule.tool, rule.model_extra) == ("deny", "bash", {"command": "rm -rf *"})


@pytest.mark.parametrize(
    ("text", "pointer", "reason"),
    [
        ("[limit]", "/limit", 'did you mean "limits"?'),
        ("limits = 3", "/limits", "must be an object"),
        ("[limits]\nmax_concurency = 3", "/limits/max_concurency", 'mean "max_concurrency"?'),
        ("[limits]\nmax_concurrency = 0", "/limits/max_concurrency", "at least 1"),
        ("[limits]\nmax_concurrency = true", "/limits/max_concurrency", "not true or false"),
        ("[limits]\nmax_timeout_ms = 0", "/limits/max_timeout_ms", "at least 1"),
        ("[limits]\nmax_payload_bytes = 17000000", "/limits/max_payload_bytes", "at most"),
        ('[sandbox]\nuid = "root"', "/sandbox/uid", "must not be root"),
        ("[sandbox]\nuid = 0", "/sandbox/uid", "must not be root"),
        ('[sandbox]\nuid = "00"', "/sandbox/uid", "must not be root"),
        ("[sandbox]\nuid = -1", "/sandbox/uid", "number or the name"),
        ("[sandbox]\nuid = 4294967295", "/sandbox/uid", "number or the name"),
        ("[sandbox]\nuid = true", "/sandbox/uid", "must be a string"),
        ("bind = {}", "/bind", "must be a list, not an object"),
        ("[[bind]]\nevents = []", "/bind/0/policy", "required"),
        ('[[bind]]\npolicy = "a"\nevent = []', "/bind/0/event", 'did you mean "events"?'),
        ('[[bind]]\npolicy = "a"\nevents = ["toolcall"]', "/bind/0/events/0", 'mean "tool_call"?'),
        ('[[bind]]\npolicy = "a"\nevents = ["tool_*"]', "/bind/0/events/0", "last segment"),
        ('[[bind]]\npolicy = "a"\nevents = ["prx.metrics.*"]', "/bind/0/events/0", "no event"),
        ('[[bind]]\npolicy = "A B"', "/bind/0/policy", "must match"),
        ('[policies]\nrequestable = ["../x"]', "/policies/requestable/0", "must match"),
        ('[gate]\nstrategy = "all"', "/gate/strategy", "'first' or 'block-wins'"),
        ("[gate]\nbudget_ms = 0", "/gate/budget_ms", "at least 1"),
        ('[permission]\ndefault = "maybe"', "/permission/default", "must be one of"),
        ('[permission]\nrules = [{tool = "x"}]', "/permission/rules/0/effect", "required"),
        ('[permission]\nrules = [{effect = "deny", x = 1}]', "/permission/rules/0/x", "a string"),
        ("[api]\nport = 70000", "/api/port", "at most 65535"),
        ('[bus]\nurl = "http://x"', "/bus/url", "nats://"),
        ('[bus]\nurl = "nats://me:pw@x"', "/bus/url", "must not hold credentials"),
        ('[trust]\nmode = "on"', "/trust/mode", "must be one of"),
        ('[state]\ndir = "state"', "/state/dir", "absolute"),
        ('[state]\ndir = "/a/../b"', "/state/dir", "absolute"),
        ("x = [", "", "no valid TOML"),
    ],
)
def test_each_mistake_has_its_place(text: str, pointer: str, reason: str) -> None:
    assert reason in faults(text)[pointer]


def test_all_mistakes_come_at_once() -> None:
    text = '[limits]\nmax_queue = "x"\n[api]\nport = -1\n[gate]\nstrategy = 1\n[foo]\n'
    assert set(faults(text)) == {"/limits/max_queue", "/api/port", "/gate/strategy", "/foo"}


@pytest.mark.parametrize(
    ("value", "uid"), [("1001", "1001"), ('"1001"', "1001"), ('"www-data"', "www-data")]
)
def test_the_uid_is_a_number_or_a_name_and_always_text(value: str, uid: str) -> None:
    assert parse(f"[sandbox]\nuid = {value}").sandbox.uid == uid


BINDINGS = """
[[bind]]
events = ["tool_call"]
commands = ["/opt/hooks/*", "curl"]
policy = "audit"
[[bind]]
events = ["prx.lifecycle.*"]
commands = ["/opt/*"]
policy = "wide"
[[bind]]
events = ["PreToolUse"]
policy = "gate"
[[bind]]
plugins = ["logger*"]
policy = "plugins"
[[bind]]
commands = ["python3"]
policy = "python"
"""


@pytest.mark.parametrize(
    ("event", "command", "policy"),
    [
        ("tool_call", "/opt/hooks/x.sh", "audit"),
        ("tool_call", "curl", "audit"),
        ("tool_call", "/opt/x.sh", "wide"),
        ("error", "/opt/hooks/x.sh", "wide"),
        ("PreToolUse", "/opt/hooks/x.sh", "gate"),
        ("PostToolUse", "/opt/hooks/x.sh", "default"),
        ("PostToolUse", "python3", "python"),
        ("error", "/usr/bin/python3", "default"),
    ],
)
def test_the_first_binding_that_covers_a_hook_wins(event: str, command: str, policy: str) -> None:
    assert parse(BINDINGS).policy_for(event, command) == policy


@pytest.mark.parametrize(
    ("event", "plugin", "policy"),
    [("error", "logger2", "plugins"), ("error", "other", "default"), ("PreToolUse", "x", "gate")],
)
def test_a_binding_that_names_plugins_is_for_plugins(event: str, plugin: str, policy: str) -> None:
    assert parse(BINDINGS).policy_for_plugin(event, plugin) == policy


def test_the_names_of_policies_can_be_looked_up_with_their_places() -> None:
    settings = parse('[[bind]]\npolicy = "a"\n[policies]\nrequestable = ["b"]')
    assert [(fault.pointer, fault.message) for fault in settings.named_policies()] == [
        ("/bind/0/policy", "a"),
        ("/policies/requestable/0", "b"),
    ]


def test_what_has_no_effect_yet_is_said_and_nothing_else() -> None:
    assert Settings().unbuilt() == ()
    assert parse(EVERYTHING.replace("rules = [{", "# [{")).unbuilt() == ()


@pytest.mark.parametrize(
    ("section", "key"), [(section, key) for section, keys in UNBUILT.items() for key in keys]
)
def test_each_key_without_effect_warns_where_it_is_set(section: str, key: str) -> None:
    class Another:
        """Equal to no default."""

    part = getattr(Settings(), section).model_copy(update={key: Another()})
    (warning,) = Settings().model_copy(update={section: part}).unbuilt()
    assert warning.startswith(f"{section}.{key} is set")


# ------------------------------------------------------------------------------ state


def test_state_lies_in_the_users_state_directory_one_folder_a_workspace() -> None:
    first = default_state_dir({"XDG_STATE_HOME": "/s", "HOME": "/h"}, "/w/my project")
    assert first.startswith("/s/hook-executor/my_project-")
    assert default_state_dir({"HOME": "/h"}, "/w/a").startswith("/h/.local/state/hook-executor/a-")
    assert default_state_dir({"HOME": "/h"}, "/w/a/") == default_state_dir({"HOME": "/h"}, "/w/a")
    assert default_state_dir({"HOME": "/h"}, "/v/a") != default_state_dir({"HOME": "/h"}, "/w/a")


def test_a_relative_xdg_directory_is_ignored_as_its_specification_says() -> None:
    place = default_state_dir({"XDG_STATE_HOME": "s", "HOME": "/h"}, "/w/a")
    assert place.startswith("/h/.local/state/")


def test_without_any_home_the_remedy_is_told() -> None:
    with pytest.raises(Unavailable, match="XDG_STATE_HOME"):
        default_state_dir({}, "/w/a")


def test_state_never_lies_inside_the_workspace() -> None:
    with pytest.raises(InvalidConfig, match="/state/dir"):
        default_state_dir({"HOME": "/home/me"}, "/home/me")
    with pytest.raises(InvalidConfig):
        check_state_dir("/w/a/state", "/w/a")
    check_state_dir("/w/ab", "/w/a")


@given(st.text(st.characters(exclude_characters="/\0"), min_size=1, max_size=30))
def test_every_workspace_has_one_plain_folder(name: str) -> None:
    place = default_state_dir({"HOME": "/h"}, f"/w/{name}")
    assert place.startswith("/h/.local/state/hook-executor/")
    assert place.count("/") == 5
