"""Words on the command line: where options stand, what is a mistake, what help costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from executor.cli import hoisted
from tests.unit.cli.conftest import Call


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["emit", "x"], ["emit", "x"]),
        (["--workspace", "W", "emit", "x"], ["emit", "x", "--workspace", "W"]),
        (["--workspace=W", "--sandbox", "docker", "check"],
         ["check", "--workspace=W", "--sandbox", "docker"]),
        (["--sandbox", "auto", "run", "--", "ls", "--sandbox", "x"],
         ["run", "--sandbox", "auto", "--", "ls", "--sandbox", "x"]),
        (["emit", "x", "--workspace", "W"], ["emit", "x", "--workspace", "W"]),
        (["--workspace"], ["--workspace"]),
        ([], []),
    ],
)  # fmt: skip
def test_global_options_may_stand_before_the_command(words: list[str], expected: list[str]) -> None:
    assert hoisted(words) == expected


def test_help_imports_no_command_and_no_library_of_theirs() -> None:
    words = (
        "import sys\n"
        "from executor.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "loaded = {'anyio', 'pydantic', 'docker', 'executor.service', 'executor.cli.emit',"
        " 'structlog', 'prometheus_client'} & set(sys.modules)\n"
        "print(sorted(loaded))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", words], capture_output=True, text=True, check=True
    )
    assert answer.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    "words",
    [
        ["bogus"],
        ["--workspace"],
        ["emit"],
        ["emit", "tool_call", "extra"],
        ["emit", "tool_call", "--bogus"],
        ["emit", "tool_call", "--sandbox", "none"],
        ["schema", "bogus"],
        ["policy", "show"],
        ["policy", "show", "nope"],
        ["emit", "turn_complete", "--bus", "http://x"],
    ],
)
def test_a_mistaken_word_is_exit_code_2_with_a_reason(call: Call, words: list[str]) -> None:
    answer = call(*words)
    assert answer.code == 2
    assert answer.err
    assert answer.out == ""


@pytest.mark.parametrize("words", [["run"], ["run", "--bogus", "--", "true"]])
def test_a_mistaken_word_of_run_is_125(call: Call, words: list[str]) -> None:
    assert call(*words).code == 125


def test_a_workspace_that_is_not_there_is_an_error(call: Call) -> None:
    answer = call("check", "--workspace", "/nonexistent")
    assert answer.code == 1
    assert "/nonexistent" in answer.err


@pytest.mark.parametrize("kind", ["hooks", "policy", "event"])
def test_schema_prints_json(call: Call, kind: str) -> None:
    assert call("schema", kind, "--workspace", ".").json["$schema"].startswith("https://")
