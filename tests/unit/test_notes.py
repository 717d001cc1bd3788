"""What a control could not do is noted on the run, and said in every report of it."""

from __future__ import annotations

import pytest

from executor.cli.runs import print_runs, record_of
from executor.ledger.log import Log
from executor.outcome import Cause, Outcome, Status
from executor.record import Record

KEYS = (
    *("hook", "backend", "sandbox", "status", "cause", "exit_code", "signal", "duration_ms"),
    *("stdout", "stderr", "truncated", "reason"),
)
LONG = "memory is limited for each process, not for all together (" + "x" * 500 + ")"


def record(*notes: str, hook: str = "hook_01") -> Record:
    outcome = Outcome(Status.OK, Cause.EXIT, exit_code=0, stdout=b"said", notes=notes)
    times = ("2026-01-01T00:00:00.000Z",) * 2
    return Record("run_1", hook, "error", "s", "shell", "namespace", "default", *times, outcome)


def test_a_run_without_notes_has_exactly_the_keys_of_the_contract() -> None:
    assert tuple(record().as_run()) == KEYS
    assert "notes" not in record().as_history()


def test_notes_are_told_where_there_are_some() -> None:
    run = record("weaker").as_run()
    assert tuple(run) == (*KEYS, "notes")
    assert run["notes"] == ["weaker"]
    assert record("weaker").as_history()["notes"] == ["weaker"]


def test_what_came_from_a_daemon_keeps_its_notes() -> None:
    assert record_of(record("weaker").as_run()).outcome.notes == ("weaker",)


def test_the_table_is_followed_by_each_note_once_and_whole(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_runs([record(LONG), record(LONG, "other", hook="hook_02")])
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("note: ")] == [
        f"note: {LONG} (hook_01, hook_02)",
        "note: other (hook_02)",
    ]


def test_the_log_line_has_them(capsys: pytest.CaptureFixture[str]) -> None:
    log = Log()
    log.append(record())
    assert "notes" not in capsys.readouterr().err
    log.append(record("weaker\nline", "other"))
    (line,) = capsys.readouterr().err.splitlines()
    assert "; other" in line


def test_good_news_are_no_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    log = Log()
    log.report("reloaded", good=True, generation=2)
    log.report("not reloaded", part="hooks.json")
    good, bad = capsys.readouterr().err.splitlines()
    assert "level='info'" in good
    assert "level='warning'" in bad
    assert "good" not in good + bad
