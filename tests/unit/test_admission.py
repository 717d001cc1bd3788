"""Are the words of SPEC 2.1 refused, and no others?"""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from executor import admission
from executor.globs import any_glob_matches, glob_covers, glob_matches

STRIPPED = [
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "LD_AUDIT",
    "DYLD_INSERT_LIBRARIES",
    "DYLD_LIBRARY_PATH",
    "DYLD_X",
    "PATH",
    "HOME",
    "ZERO_HOOK_EVENT",
    "ZERO_HOOK_ANYTHING",
    "BASH_ENV",
    "ENV",
    "IFS",
    "CDPATH",
    "SHELLOPTS",
    "BASHOPTS",
    "PS4",
    "PROMPT_COMMAND",
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONSTARTUP",
    "NODE_OPTIONS",
    "NODE_PATH",
    "PERL5OPT",
    "PERL5LIB",
    "RUBYOPT",
    "RUBYLIB",
    "GLIBC_TUNABLES",
    "GIT_DIR",
    "GIT_SSH_COMMAND",
    "BASH_FUNC_x",
]


@pytest.mark.parametrize(
    "command",
    [
        "/usr/local/bin/notify",
        "python3",
        "curl",
        "./hooks/run.sh",
        "hooks/run.sh",
        "hooks/../other/run.sh",
        "/opt/my hooks/a b.sh",
        "/opt/hooks/été.sh",
        "/opt/x=y,z@1+2-3_4:5%6#7^8~9",
        "/opt/hooks/../run.sh",
        "/process",
        "a/..b",
    ],
)
def test_an_honest_command_is_fine(command: str) -> None:
    assert admission.command_faults(command) == []


@pytest.mark.parametrize("character", list(";|&$`<>(){}[]*?!'\"\\"))
def test_each_shell_metacharacter_is_refused_with_the_advice(character: str) -> None:
    (fault,) = admission.command_faults(f"/opt/a{character}b")
    assert character in fault
    assert "script" in fault


@pytest.mark.parametrize("character", ["\x00", "\x01", "\n", "\t", "\r", "\x1b", "\x7f", "\x85"])
def test_control_characters_in_command_and_cwd_are_refused(character: str) -> None:
    assert admission.command_faults(f"a{character}b")
    assert admission.cwd_faults(f"a{character}b")


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("", "empty"),
        ("~/run.sh", "~"),
        ("../run.sh", "leaves the workspace"),
        ("a/../../run.sh", "leaves the workspace"),
        (".", "directory"),
        ("..", "directory"),
        ("hooks/", "directory"),
        ("/", "directory"),
        ("/opt/..", "directory"),
        ("/proc/self/exe", "/proc"),
        ("/opt/../proc/1/root/bin/sh", "/proc"),
        ("//proc//self/fd/3", "/proc"),
        ("/dev/stdin", "/dev"),
        ("/sys/x", "/sys"),
        ("a\ud800", "surrogate"),
        ("/" + "a" * 4095, "longer"),
    ],
)
def test_what_is_no_command_is_refused_with_its_reason(command: str, reason: str) -> None:
    assert reason in "; ".join(admission.command_faults(command))


@pytest.mark.parametrize("text", ["", ";|&$(rm)", "a\nb\tc", "$HOME `x`", "é", "x" * 131_071])
def test_an_argument_may_hold_anything_else(text: str) -> None:
    assert admission.argument_faults(text) == []


@pytest.mark.parametrize("text", ["a\0b", "\0", "\udfff", "x" * 131_072, "é" * 65_536])
def test_an_argument_that_execve_cannot_carry_is_refused(text: str) -> None:
    assert admission.argument_faults(text)


@pytest.mark.parametrize("name", ["A", "_", "a1", "LOG_DIR", "_9"])
def test_a_plain_variable_name_is_fine(name: str) -> None:
    assert admission.environment_faults({name: "any\nvalue ;|"}) == []


@pytest.mark.parametrize(
    "name", ["", "1A", "A-B", "A B", "A=B", "A\0", "É", "BASH_FUNC_x%%", "A\n"]
)
def test_another_variable_name_is_refused(name: str) -> None:
    assert admission.environment_faults({name: "x"})


def test_a_value_with_nul_is_refused_and_names_its_variable_not_the_value() -> None:
    assert admission.environment_faults({"LOG": "sec\0ret"}) == ["LOG holds a NUL byte"]


def test_name_and_value_share_what_one_string_may_have() -> None:
    assert admission.environment_faults({"AB": "x" * (131_071 - 3)}) == []
    assert admission.environment_faults({"AB": "x" * (131_071 - 2)})


@pytest.mark.parametrize("name", STRIPPED)
def test_a_reserved_variable_is_stripped(name: str) -> None:
    assert admission.stripped_names({"A": "1", name: "x", "B": "2"}) == (name,)


@pytest.mark.parametrize(
    "name", ["LOG_DIR", "path", "XLD_PRELOAD", "HOMES", "PATHS", "ENVIRON", "GIT"]
)
def test_a_variable_that_only_looks_reserved_is_kept(name: str) -> None:
    assert admission.stripped_names({name: "x"}) == ()


@pytest.mark.parametrize(
    "cwd", ["reports", ".", "./a", "a/../b", "/working/directory", "a b", "/w/../w", "..a", "/prox"]
)
def test_a_cwd_that_stays_is_fine(cwd: str) -> None:
    assert admission.cwd_faults(cwd) == []


@pytest.mark.parametrize(
    "cwd",
    [
        "",
        "..",
        "../x",
        "a/../..",
        "a/../../a",
        "./../x",
        "~",
        "~/x",
        "/proc",
        "/proc/1/cwd",
        "/x/../dev",
    ],
)
def test_a_cwd_that_leaves_is_refused(cwd: str) -> None:
    assert admission.cwd_faults(cwd)


@given(st.text(st.characters(codec=None)))
def test_every_rule_is_total(text: str) -> None:
    for rule in (admission.command_faults, admission.argument_faults, admission.cwd_faults):
        assert all(isinstance(fault, str) for fault in rule(text))
    admission.environment_faults({text: text})
    admission.stripped_names([text])


@given(st.text(st.sampled_from("ab;$`~/. \n\0"), max_size=8))
def test_an_accepted_command_holds_nothing_that_a_shell_reads(command: str) -> None:
    if not admission.command_faults(command):
        assert command
        assert not set(command) & set(admission.METACHARACTERS + "\n\0")
        assert not command.startswith("~")


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("*", "", True),
        ("*", "a/b", True),
        ("a*", "a", True),
        ("a*b", "ab", True),
        ("a*b", "a", False),
        ("a*a", "a", False),
        ("a*a", "aa", True),
        ("*b*", "abc", True),
        ("a**c", "abc", True),
        ("/opt/hooks/*", "/opt/hooks/deep/x.sh", True),
        ("/opt/hooks/*", "/opt/hooksx", False),
        ("mcp__*__read", "mcp__a__b__read", True),
        ("a?c", "abc", False),
        ("[ab]", "a", False),
        ("*ab*ba*", "aba", False),
    ],
)
def test_a_star_is_the_only_special_character(pattern: str, name: str, *, expected: bool) -> None:
    assert glob_matches(pattern, name) is expected


def test_a_glob_cannot_be_made_slow() -> None:
    assert not glob_matches("*a" * 5000 + "b", "a" * 20_000)


@given(st.text("ab*", max_size=6), st.text("ab*", max_size=6), st.text("ab", max_size=8))
def test_a_covering_glob_matches_all_that_the_covered_one_does(
    wide: str, narrow: str, name: str
) -> None:
    if glob_covers(wide, narrow) and glob_matches(narrow, name):
        assert glob_matches(wide, name)
    assert any_glob_matches([wide, narrow], name) is (
        glob_matches(wide, name) or glob_matches(narrow, name)
    )
