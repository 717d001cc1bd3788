"""Each end of the program is one row of a table."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from executor.cli.endings import Terminated, UsageError, ending, exit_code
from executor.errors import (
    ExecutorError,
    Fault,
    InvalidConfig,
    InvalidEvent,
    InvalidInput,
    Refused,
    Unavailable,
)


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (InvalidConfig("broken"), 1),
        (ExecutorError("anything"), 1),
        (OSError("disk"), 1),
        (RuntimeError("ours"), 1),
        (InvalidEvent("no such event"), 2),
        (InvalidInput("no"), 2),
        (UsageError("no"), 2),
        (Refused("no"), 3),
        (Unavailable("no user namespaces"), 3),
        (Unavailable("no engine", engine=True), 4),
        (KeyboardInterrupt(), 130),
        (Terminated(), 143),
        (BrokenPipeError(), 141),
    ],
)
def test_every_error_has_its_exit_code(failure: BaseException, code: int) -> None:
    assert exit_code(failure) == code


@pytest.mark.parametrize("failure", [InvalidConfig("x"), Unavailable("x"), RuntimeError("x")])
def test_run_has_one_code_for_all_failures_of_its_own(failure: Exception) -> None:
    with pytest.raises(SystemExit) as end, ending("run"):
        raise failure
    assert end.value.code == 125


def test_an_interrupted_run_is_still_130() -> None:
    with pytest.raises(SystemExit) as end, ending("run"):
        raise KeyboardInterrupt
    assert end.value.code == 130


def test_the_error_inside_a_task_groups_group_is_what_counts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    inner = InvalidEvent([Fault("/payload/tool", "is required: a string")])
    with pytest.raises(SystemExit) as end, ending("emit"):
        raise ExceptionGroup("tasks", [ExceptionGroup("tasks", [inner])])
    assert end.value.code == 2
    assert capsys.readouterr().err == "hook-executor: /payload/tool: is required: a string\n"


def test_an_unforeseen_error_is_one_line_and_no_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as end, ending("emit"):
        raise ZeroDivisionError("by zero")
    assert end.value.code == 1
    assert capsys.readouterr().err == "hook-executor: internal error: ZeroDivisionError: by zero\n"


def test_no_control_character_of_an_error_reaches_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit), ending("emit"):
        raise Refused("a\x1b]0;title\x07b\x9bc")
    assert capsys.readouterr().err == "hook-executor: a\\x1b]0;title\\x07b\\x9bc\n"


def test_a_reader_that_went_away_is_met_with_silence() -> None:
    read, write = os.pipe()
    os.close(read)
    words = "from executor.cli import main; main(['schema', 'hooks'])"
    answer = subprocess.run(
        [sys.executable, "-c", words], stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert (answer.returncode, answer.stderr) == (141, b"")
