"""Are policies read strictly, inherited plainly, and met by the stricter value of each field?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from executor.admission import PROTECTED_NAMES
from executor.errors import InvalidConfig, Refused
from executor.globs import any_glob_matches
from executor.policy import (
    Policy,
    RawPolicy,
    describe,
    grant_fault,
    parse_policy,
    resolve_policies,
    stricter,
    unbuilt,
    write_faults,
)
from executor.policy.merge import RULES, path_covers
from executor.sizes import format_size, parse_size

FOLDER = Path(__file__).parents[2] / "policies"
WORKSPACE = "/home/me/work"


def raw(text: str, name: str = "x") -> RawPolicy:
    return parse_policy(text.encode(), where=f"policies/{name}.toml")


def shipped() -> dict[str, RawPolicy]:
    return {
        path.stem: parse_policy(path.read_bytes(), where=f"policies/{path.name}")
        for path in FOLDER.glob("*.toml")
    }


def faults(text: str | bytes, name: str = "x") -> dict[str, str]:
    data = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(InvalidConfig) as caught:
        parse_policy(data, where=f"policies/{name}.toml")
    return {fault.pointer: fault.message for fault in caught.value.faults}


def policy(name: str = "x", **sections: Any) -> Policy:
    return Policy.model_validate({"name": name, **sections})


# ---------------------------------------------------------------------------- what ships


def test_four_policies_ship_and_each_says_what_it_is_for() -> None:
    policies = resolve_policies(shipped(), {})
    assert set(policies) == {"default", "strict", "audit", "notify"}
    assert all(one.description for one in policies.values())
    assert all(path.read_text().startswith("# ") for path in FOLDER.glob("*.toml"))


def test_the_default_policy_is_what_a_file_gets_that_says_nothing() -> None:
    default = resolve_policies(shipped(), {})["default"]
    assert default == Policy(name="default", description=default.description)


def test_the_shipped_default_lists_every_key() -> None:
    values = shipped()["default"].values
    assert {section: set(keys) for section, keys in values.items() if isinstance(keys, dict)} == {
        section: set(rules) for section, rules in RULES.items()
    }


def test_the_shipped_policies_hold_what_the_contract_says() -> None:
    policies = resolve_policies(shipped(), {})
    assert policies["strict"].limits.enforce == "cgroup"
    assert policies["audit"].filesystem.write == ("/var/log/prx",)
    assert policies["audit"].limits.file_size > policies["default"].limits.file_size
    assert policies["notify"].network.allow
    for one in policies.values():
        assert write_faults(one, workspace=WORKSPACE, protected=()) == []


def test_only_the_policy_with_a_network_cannot_be_served_yet() -> None:
    policies = resolve_policies(shipped(), {})
    assert [name for name, one in policies.items() if unbuilt(one)] == ["notify"]


# ------------------------------------------------------------------------------- reading


def test_a_file_sets_only_what_it_says() -> None:
    one = raw('name = "x"\nextends = "audit"\n[limits]\nmemory = "64MiB"\ncpus = 2\n')
    assert one.extends == "audit"
    assert one.values == {"name": "x", "limits": {"memory": 64 * 1024**2, "cpus": 2}}


@pytest.mark.parametrize(
    ("text", "pointer", "reason"),
    [
        ("", "/name", "required"),
        ('name = "y"', "/name", "differs from the name of its file"),
        ('name = "X"', "/name", "lower-case"),
        ('name = "a+b"', "/name", "lower-case"),
        ("name = 3", "/name", "must be a string"),
        ('name = "x"\nextends = 3', "/extends", "must be a string"),
        ('name = "x"\nextend = "default"', "/extend", 'did you mean "extends"?'),
        ('name = "x"\n[limit]', "/limit", 'did you mean "limits"?'),
        ('name = "x"\nlimits = 3', "/limits", "must be an object, not a whole number"),
        ('name = "x"\n[limits]\nmemroy = 1', "/limits/memroy", 'did you mean "memory"?'),
        ('name = "x"\n[limits]\nmemory = "128MB"', "/limits/memory", "128MiB"),
        ('name = "x"\n[limits]\nmemory = "128"', "/limits/memory", "number of bytes"),
        ('name = "x"\n[limits]\nmemory = "-1MiB"', "/limits/memory", "must be a size"),
        ('name = "x"\n[limits]\nmemory = 1.5', "/limits/memory", "whole number"),
        ('name = "x"\n[limits]\nmemory = "1KiB"', "/limits/memory", "at least"),
        ('name = "x"\n[limits]\nmemory = "999999999GiB"', "/limits/memory", "at most"),
        ('name = "x"\n[limits]\npids = true', "/limits/pids", "not true or false"),
        ('name = "x"\n[limits]\npids = 1', "/limits/pids", "at least 2"),
        ('name = "x"\n[limits]\ncpus = 0', "/limits/cpus", "at least 0.01"),
        ('name = "x"\n[limits]\ncpus = nan', "/limits/cpus", "finite"),
        ('name = "x"\n[limits]\ncpus = inf', "/limits/cpus", "finite"),
        ('name = "x"\n[limits]\ncpus = true', "/limits/cpus", "must be a number"),
        ('name = "x"\n[limits]\ntimeout_ms = 0', "/limits/timeout_ms", "at least 1"),
        ('name = "x"\n[limits]\nopen_files = 2026-01-01', "/limits/open_files", "another type"),
        ('name = "x"\n[limits]\nenforce = "none"', "/limits/enforce", "'best' or 'cgroup'"),
        ('name = "x"\n[sandbox]\nbackend = "none"', "/sandbox/backend", "must be one of"),
        ('name = "x"\n[sandbox]\nbackend = "dokcer"', "/sandbox/backend", 'mean "docker"?'),
        ('name = "x"\n[sandbox]\nimage = "python:3"', "/sandbox/image", "a tag may change"),
        ('name = "x"\n[sandbox]\nroot = "../x"', "/sandbox/root", "must match"),
        ('name = "x"\n[sandbox]\nwarm = -1', "/sandbox/warm", "at least 0"),
        ('name = "x"\n[filesystem]\nworkspace = "rw"', "/filesystem/workspace", "'none' or 'ro'"),
        ('name = "x"\n[filesystem]\nwrite = "/x"', "/filesystem/write", "must be a list"),
        ('name = "x"\n[filesystem]\nread = ["/a", "~/x"]', "/filesystem/read/1", "~"),
        ('name = "x"\n[filesystem]\nread = ["../x"]', "/filesystem/read/0", "leaves"),
        ('name = "x"\n[filesystem]\nread = ["/a/../b"]', "/filesystem/read/0", "holds .."),
        ('name = "x"\n[filesystem]\nread = [""]', "/filesystem/read/0", "empty"),
        ('name = "x"\n[filesystem]\nread = ["a\\u0000"]', "/filesystem/read/0", "NUL"),
        ('name = "x"\n[network]\nallow = ["example.com"]', "/network/allow/0", "host:port"),
        ('name = "x"\n[network]\nallow = ["a:70000"]', "/network/allow/0", "host:port"),
        ('name = "x"\n[commands]\nallow = ["a;b"]', "/commands/allow/0", "metacharacters"),
        ('name = "x"\n[gate]\non_failure = "ignore"', "/gate/on_failure", "must be one of"),
        ('name = "x"\n[bus]\nemit = 1', "/bus/emit", "must be true or false"),
        ('name = "x"\nname = "x"', "", "no valid TOML"),
        ("name = x", "", "no valid TOML"),
        ("x" + ".a" * 5000 + " = 1", "", "more than 64 parts"),
        ("x = " + "[" * 20_000, "", "nested deeper"),
    ],
)
def test_each_mistake_in_a_file_has_its_place(text: str, pointer: str, reason: str) -> None:
    assert reason in faults(text)[pointer]


@pytest.mark.parametrize("data", [b"\xef\xbb\xbfname='x'", b"name='\xff'", b"#" * 70_000])
def test_bytes_that_are_no_policy_file_are_refused(data: bytes) -> None:
    assert set(faults(data)) == {""}


def test_all_mistakes_of_a_file_come_at_once() -> None:
    found = faults('name = "y"\nfoo = 1\n[limits]\npids = true\ncpus = 0\n[bus]\nemit = 0\n')
    assert set(found) == {"/name", "/foo", "/limits/pids", "/limits/cpus", "/bus/emit"}


def test_paths_are_kept_in_one_spelling() -> None:
    one = policy(filesystem={"read": ["/a//b/./c/", "./d/../e", "."]})
    assert one.filesystem.read == ("/a/b/c", "e", ".")


@pytest.mark.parametrize(
    "image", ["base", "python", "sha256:" + "0" * 64, "x.example/y@sha256:" + "a" * 64]
)
def test_an_image_is_a_local_name_or_pinned(image: str) -> None:
    assert policy(sandbox={"image": image}).sandbox.image == image


@pytest.mark.parametrize(
    ("text", "size"), [("64KiB", 65536), ("128MiB", 134217728), ("1GiB", 1073741824), (77, 77)]
)
def test_sizes_are_bytes(text: object, size: int) -> None:
    assert parse_size(text) == size


@given(st.integers(0, 2**50))
def test_a_printed_size_is_exact(size: int) -> None:
    text = format_size(size)
    assert text == f"{size} bytes" or parse_size(text) == size


# -------------------------------------------------------------------------- inheritance


def test_a_policy_starts_from_its_parents_values() -> None:
    workspace = {
        "a": raw('name="a"\nextends="audit"\ndescription="A."\n[limits]\npids=7\n', "a"),
        "b": raw('name="b"\nextends="a"\n[limits]\ncpus=0.5\n[filesystem]\nwrite=[]\n', "b"),
    }
    policies = resolve_policies(shipped(), workspace)
    assert policies["a"].filesystem.write == ("/var/log/prx",)
    assert (policies["b"].limits.pids, policies["b"].limits.cpus) == (7, 0.5)
    assert policies["b"].limits.file_size == policies["audit"].limits.file_size
    assert policies["b"].filesystem.write == ()
    assert (policies["b"].name, policies["b"].description) == ("b", "")


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ({"audit": 'name="audit"'}, "cannot be redefined"),
        ({"a": 'name="a"\nextends="adit"'}, 'did you mean "audit"?'),
        ({"a": 'name="a"\nextends="a"'}, "leads back to itself"),
        ({"a": 'name="a"\nextends="b"', "b": 'name="b"\nextends="a"'}, "leads back to itself"),
    ],
)
def test_a_policy_that_cannot_be_made_is_refused(texts: dict[str, str], reason: str) -> None:
    workspace = {name: raw(text, name) for name, text in texts.items()}
    with pytest.raises(InvalidConfig, match=r"policies") as caught:
        resolve_policies(shipped(), workspace)
    assert all(reason in fault.message for fault in caught.value.faults)
    assert len(caught.value.faults) == len(texts)


def test_a_file_under_a_wrong_key_is_refused() -> None:
    with pytest.raises(InvalidConfig):
        resolve_policies({}, {"b": raw('name="a"', "a")})


# -------------------------------------------------------------------------------- meeting


def test_every_field_has_a_rule_and_says_it() -> None:
    for section, rules in RULES.items():
        fields = getattr(Policy(name="x"), section).__class__.model_fields
        assert set(rules) == set(fields)
        for field in fields.values():
            assert "Stricter: " in str(field.description)
    assert set(RULES) == set(Policy.model_fields) - {"name", "description"}


@pytest.mark.parametrize(
    ("field", "left", "right", "expected"),
    [
        ("sandbox.backend", "auto", "docker", "docker"),
        ("sandbox.backend", "namespace", "auto", "namespace"),
        ("sandbox.image", "base", "python", "base"),
        ("sandbox.root", "host", "base", "host"),
        ("sandbox.runtime", "", "runsc", "runsc"),
        ("sandbox.warm", 3, 1, 1),
        ("filesystem.workspace", "ro", "none", "none"),
        ("filesystem.tmp", 8192, 4096, 4096),
        ("filesystem.write", ["/a", "/b/c"], ["/a/x", "/b"], ("/a/x", "/b/c")),
        ("filesystem.write", ["/a"], ["/ab"], ()),
        ("filesystem.read", ["data"], ["/home/me/work/data"], ()),
        ("filesystem.read", ["."], ["data"], ("data",)),
        ("network.allow", ["a.example:1", "b.example:2"], ["b.example:2"], ("b.example:2",)),
        ("network.allow", ["*.example:1"], ["a.example:1"], ("a.example:1",)),
        ("network.allow", ["a.example:1"], [], ()),
        ("limits.enforce", "best", "cgroup", "cgroup"),
        ("limits.cpus", 1.0, 0.5, 0.5),
        ("environment.home", True, False, False),
        ("environment.home", True, True, True),
        ("bus.emit", False, True, False),
        ("commands.allow", ["*"], ["/opt/*"], ("/opt/*",)),
        ("commands.allow", ["/opt/*"], ["/opt/a/*", "curl"], ("/opt/a/*",)),
        ("commands.allow", ["/opt/*"], ["*.sh"], ()),
        ("gate.on_failure", "continue", "block", "block"),
        ("gate.on_failure", "continue", "continue", "continue"),
    ],
)
def test_the_stricter_value_wins(field: str, left: object, right: object, expected: object) -> None:
    section, key = field.split(".")
    met = stricter(policy("a", **{section: {key: left}}), policy("b", **{section: {key: right}}))
    assert getattr(getattr(met, section), key) == expected
    assert met.name == "a+b"


@pytest.mark.parametrize(
    ("field", "left", "right"),
    [("backend", "docker", "namespace"), ("runtime", "runc", "runsc")],
)
def test_values_without_a_stricter_one_are_refused(field: str, left: str, right: str) -> None:
    with pytest.raises(Refused, match=f"sandbox.{field}"):
        stricter(policy("a", sandbox={field: left}), policy("b", sandbox={field: right}))


paths = st.lists(
    st.sampled_from(["/a", "/a/b", "/a/b/c", "/ab", "/c", "a", "a/b", "."]), max_size=4
)
globs = st.lists(
    st.sampled_from(["*", "/opt/*", "/opt/a*", "/opt/a.sh", "*.sh", "curl"]), max_size=3
)
hosts = st.lists(st.sampled_from(["a.example:1", "*.example:1", "b.example:2"]), max_size=3)
sizes = st.integers(8 * 1024**2, 16 * 1024**2)
policies = st.builds(
    policy,
    st.sampled_from(["a", "b", "c"]),
    sandbox=st.fixed_dictionaries(
        {"backend": st.sampled_from(["auto", "docker"]), "warm": st.integers(0, 3)}
    ),
    filesystem=st.fixed_dictionaries(
        {
            "workspace": st.sampled_from(["none", "ro"]),
            "read": paths,
            "write": paths,
            "tmp": sizes,
        }
    ),
    network=st.fixed_dictionaries({"allow": hosts}),
    limits=st.fixed_dictionaries(
        {
            "enforce": st.sampled_from(["best", "cgroup"]),
            "memory": sizes,
            "pids": st.integers(2, 9),
            "cpus": st.sampled_from([0.5, 1, 2.0]),
            "output": sizes,
        }
    ),
    environment=st.fixed_dictionaries({"home": st.booleans()}),
    bus=st.fixed_dictionaries({"emit": st.booleans()}),
    commands=st.fixed_dictionaries({"allow": globs}),
    gate=st.fixed_dictionaries({"on_failure": st.sampled_from(["block", "continue"])}),
)


def values(one: Policy) -> dict[str, Any]:
    """Without the words about it, and lists as sets."""
    found = one.model_dump(exclude={"name", "description"})
    for section in found.values():
        for key, value in section.items():
            section[key] = frozenset(value) if isinstance(value, tuple) else value
    return found


def no_wider(narrow: Policy, wide: Policy) -> bool:
    left, right = narrow.limits, wide.limits
    return (
        left.memory <= right.memory
        and left.pids <= right.pids
        and left.cpus <= right.cpus
        and left.output <= right.output
        and narrow.filesystem.tmp <= wide.filesystem.tmp
        and narrow.environment.home <= wide.environment.home
        and narrow.bus.emit <= wide.bus.emit
        and all(
            any(path_covers(other, path) for other in getattr(wide.filesystem, key))
            for key in ("read", "write")
            for path in getattr(narrow.filesystem, key)
        )
    )


@given(policies)
def test_a_policy_meeting_itself_is_itself(one: Policy) -> None:
    assert stricter(one, one) == one
    assert values(stricter(one, one.model_copy(update={"name": "other"}))) == values(one)


@given(policies, policies)
def test_the_order_of_two_policies_does_not_matter(left: Policy, right: Policy) -> None:
    assert values(stricter(left, right)) == values(stricter(right, left))


@given(policies, policies)
def test_the_result_is_never_wider_than_either(left: Policy, right: Policy) -> None:
    met = stricter(left, right)
    for one in (left, right):
        assert no_wider(met, one)
        assert one.limits.enforce == "best" or met.limits.enforce == "cgroup"
        assert one.filesystem.workspace == "ro" or met.filesystem.workspace == "none"
        assert one.gate.on_failure == "continue" or met.gate.on_failure == "block"
        assert one.sandbox.backend == "auto" or met.sandbox.backend == "docker"


@given(policies, policies, st.sampled_from(["/opt/a.sh", "/opt/ab.sh", "curl", "/x.sh", "/opt/a"]))
def test_a_command_or_path_allowed_by_both_lists_was_allowed_by_each(
    left: Policy, right: Policy, command: str
) -> None:
    met = stricter(left, right)
    if any_glob_matches(met.commands.allow, command):
        assert any_glob_matches(left.commands.allow, command)
        assert any_glob_matches(right.commands.allow, command)


@given(policies, policies, policies)
def test_meeting_again_changes_nothing(left: Policy, right: Policy, third: Policy) -> None:
    met = stricter(left, right)
    assert values(stricter(met, left)) == values(met)
    assert no_wider(stricter(met, third), third)


def test_a_name_is_not_repeated() -> None:
    left, right = policy("a"), policy("b", limits={"pids": 3})
    assert stricter(stricter(left, right), right.model_copy(update={"name": "b"})).name == "a+b"


# --------------------------------------------------------------------------------- grants


@pytest.mark.parametrize(
    "path", ["/var/log/prx", "/data", "out", "a/b/out", "/home/me/logs", "/opt/hooks/out", "/tmp/x"]
)
def test_an_ordinary_directory_can_be_granted(path: str) -> None:
    assert grant_fault(path, workspace=WORKSPACE, protected=()) is None
    assert grant_fault(path, workspace=WORKSPACE, protected=(), writable=False) is None


@pytest.mark.parametrize(
    "path",
    [
        "/", "//", "/.", "/proc", "/proc/self", "/sys", "/dev", "/dev/shm", "/run", "/run/user/1",
        "/var/run", "/var", "/tmp", "/home", "", "~", "a\0", "../x", "/a/../b", "x" * 5000,
    ],
)  # fmt: skip
def test_what_nobody_may_even_see_is_refused(path: str) -> None:
    assert grant_fault(path, workspace=WORKSPACE, protected=())
    assert grant_fault(path, workspace=WORKSPACE, protected=(), writable=False)


@pytest.mark.parametrize(
    "path",
    [
        "/usr", "/usr/local/bin", "/etc", "/etc/cron.d", "/bin", "/sbin", "/lib", "/lib64/x",
        "/boot",         "/var/spool/cron", "/var/spool", "/var/lib", "/var/lib/docker/x",
        ".", "./", "/home/me/work", "/home/me", "a/..",
        "hooks.json", "config.toml", "policies", "policies/x", "plugins/y/z", ".git", ".git/hooks",
        "/home/me/work/policies", "vendor/lib/.git", "/srv/repo/.git/hooks",
    ],
)  # fmt: skip
def test_what_may_be_seen_but_never_written_is_refused(path: str) -> None:
    assert grant_fault(path, workspace=WORKSPACE, protected=())


@pytest.mark.parametrize(
    "path", ["/usr/share/dict", "/etc/ssl", "policies", ".", "/home/me", ".git"]
)
def test_reading_is_wider_than_writing(path: str) -> None:
    assert grant_fault(path, workspace=WORKSPACE, protected=(), writable=False) is None


@pytest.mark.parametrize(
    ("path", "protected"),
    [
        ("/opt/hooks", "/opt/hooks/audit.sh"),
        ("/opt", "/opt/hooks/audit.sh"),
        ("/opt/hooks/audit.sh", "/opt/hooks/audit.sh"),
        ("/state/store", "/state"),
        ("scripts", "scripts/a.sh"),
        ("scripts", "/home/me/work/scripts/a.sh"),
        ("/home/me/work/scripts", "scripts/a.sh"),
    ],
)
def test_a_grant_neither_holds_nor_lies_in_what_is_protected(path: str, protected: str) -> None:
    assert "protected" in str(grant_fault(path, workspace=WORKSPACE, protected=(protected,)))
    assert grant_fault(path, workspace=WORKSPACE, protected=("/elsewhere",)) is None


def test_a_neighbour_with_a_longer_name_is_not_protected() -> None:
    assert grant_fault("/opt/hooks2", workspace=WORKSPACE, protected=("/opt/hooks",)) is None
    assert grant_fault("policies2", workspace=WORKSPACE, protected=()) is None
    assert grant_fault("/home/me/work2", workspace=WORKSPACE, protected=()) is None


def test_each_refused_grant_of_a_policy_has_its_pointer() -> None:
    one = policy(filesystem={"read": ["/data", "/run/x", "/state/y"], "write": ["/etc", "out"]})
    found = write_faults(one, workspace=WORKSPACE, protected=(), private=("/state",))
    assert [fault.pointer for fault in found] == [
        "/filesystem/read/1",
        "/filesystem/read/2",
        "/filesystem/write/0",
    ]


@given(st.text(), st.booleans())
def test_grant_rules_are_total(path: str, writable: bool) -> None:
    fault = grant_fault(path, workspace=WORKSPACE, protected=("x",), writable=writable)
    assert fault is None or fault


@given(st.lists(st.sampled_from(["a", "..", ".", "", "hooks.json", "etc", ".git"]), min_size=1))
def test_no_spelling_of_a_path_hides_a_protected_one(parts: list[str]) -> None:
    spelling = "/".join(["x/..", *(part for part in parts if part != ".."), "", "."])
    for name in PROTECTED_NAMES:
        assert grant_fault(f"./{name}/{spelling}", workspace=WORKSPACE, protected=())


# ------------------------------------------------------------------------------- in words


def test_a_policy_can_be_read_by_people() -> None:
    text = "\n".join(describe(resolve_policies(shipped(), {})["audit"]))
    for words in ("audit: ", "can write in /var/log/prx", "128MiB", "network: none", "300000 ms"):
        assert words in text
    full = policy(
        sandbox={"backend": "docker", "runtime": "runsc", "warm": 2},
        network={"allow": ["a.example:1"]},
        commands={"allow": ["/opt/*"]},
        environment={"home": True},
        bus={"emit": True},
        gate={"on_failure": "continue"},
    )
    text = "\n".join(describe(full))
    for words in ("docker only", "runsc", "a.example:1", "/opt/*", "HOME", "emit", "goes on"):
        assert words in text
