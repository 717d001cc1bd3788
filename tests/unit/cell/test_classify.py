"""Each end of a conversation has one meaning."""

from __future__ import annotations

import errno
import signal

import pytest

from executor.cell.classify import Counters, classified
from executor.cell.protocol import Exit, Kind, Stopped
from executor.cell.session import End, Report
from executor.outcome import Cause, Outcome, Stage, Status
from tests.unit.cell.conftest import a_job


def a_report(
    kind: Kind | None = Kind.EXITED,
    number: int = 0,
    *,
    stage: str = "",
    stopped: Stopped = Stopped.NO,
    end: End = End.EXIT,
    stop_asked: bool = False,
) -> Report:
    last = None
    if kind is not None:
        last = Exit(kind, number, stage, stopped, 1.5, 0.25, 4096, 100, 7, 2)
    return Report(
        end=end,
        exit=last,
        ready=None,
        stdout=b"out",
        stderr=b"err",
        truncated=True,
        stop_asked=stop_asked,
        reason="what the session said",
        began_at=10.0,
        ready_at=10.1,
        started_at=11.0,
        ended_at=13.0,
    )


def of(report: Report, **counters: int) -> Outcome:
    return classified(report, Counters(**counters), 3.5, job=a_job("audit", cwd="/w"))


EXITED, SIGNALLED, NOT_STARTED = Kind.EXITED, Kind.SIGNALLED, Kind.NOT_STARTED
TERM, KILL = Stopped.DEADLINE_TERM, Stopped.DEADLINE_KILL
KILLED = int(signal.SIGKILL)
TABLE = [
    (a_report(), {}, Status.OK, Cause.EXIT),
    (a_report(), {"oom_kills": 1}, Status.OK, Cause.EXIT),
    (a_report(), {"pids_refused": 9}, Status.OK, Cause.EXIT),
    (a_report(EXITED, 3), {}, Status.FAILED, Cause.EXIT),
    (a_report(EXITED, 137), {}, Status.FAILED, Cause.EXIT),
    (a_report(EXITED, 137), {"oom_kills": 0}, Status.FAILED, Cause.EXIT),
    (a_report(EXITED, 137), {"oom_kills": 1}, Status.OOM, Cause.MEMORY),
    (a_report(SIGNALLED, KILLED), {"oom_kills": 1}, Status.OOM, Cause.MEMORY),
    (a_report(SIGNALLED, KILLED), {}, Status.SIGNALLED, Cause.SIGNAL),
    (a_report(SIGNALLED, 64), {}, Status.SIGNALLED, Cause.SIGNAL),
    (a_report(SIGNALLED, signal.SIGXFSZ), {}, Status.SIGNALLED, Cause.FILE_SIZE),
    (a_report(EXITED, 128 + signal.SIGXFSZ), {}, Status.FAILED, Cause.FILE_SIZE),
    (a_report(SIGNALLED, signal.SIGSYS), {}, Status.SIGNALLED, Cause.SECCOMP),
    (a_report(EXITED, 1), {"pids_refused": 1}, Status.FAILED, Cause.PIDS),
    (a_report(SIGNALLED, signal.SIGABRT), {"pids_refused": 1}, Status.SIGNALLED, Cause.PIDS),
    (a_report(EXITED, 0, stopped=TERM), {}, Status.TIMEOUT, Cause.WALL_CLOCK),
    (a_report(SIGNALLED, KILLED, stopped=KILL), {"oom_kills": 1}, Status.TIMEOUT, Cause.WALL_CLOCK),
    (a_report(EXITED, 0, stopped=Stopped.ASKED_TERM), {}, Status.INTERRUPTED, Cause.STOPPED),
    (a_report(SIGNALLED, 9, stopped=Stopped.ASKED_KILL), {}, Status.INTERRUPTED, Cause.STOPPED),
    (a_report(EXITED, 0, stop_asked=True), {}, Status.OK, Cause.EXIT),
    (a_report(NOT_STARTED, errno.ECANCELED, stage="job", stop_asked=True), {}, Status.INTERRUPTED,
     Cause.STOPPED),
    (a_report(NOT_STARTED, errno.ENOENT, stage="exec"), {}, Status.ERROR, Cause.NOT_FOUND),
    (a_report(NOT_STARTED, errno.ENOTDIR, stage="exec"), {}, Status.ERROR, Cause.NOT_FOUND),
    (a_report(NOT_STARTED, errno.ENOENT, stage="interpreter"), {}, Status.ERROR, Cause.NOT_FOUND),
    (a_report(NOT_STARTED, errno.EACCES, stage="exec"), {}, Status.ERROR, Cause.NOT_EXECUTABLE),
    (a_report(NOT_STARTED, errno.ENOEXEC, stage="exec"), {}, Status.ERROR, Cause.NOT_EXECUTABLE),
    (a_report(NOT_STARTED, errno.E2BIG, stage="exec"), {}, Status.ERROR, Cause.SETUP),
    (a_report(NOT_STARTED, errno.ESTALE, stage="mount /a b"), {}, Status.ERROR, Cause.SETUP),
    (a_report(None, end=End.LOST), {}, Status.ERROR, Cause.SETUP),
    (a_report(None, end=End.LOST), {"oom_kills": 2}, Status.OOM, Cause.MEMORY),
    (a_report(None, end=End.LOST, stop_asked=True), {}, Status.INTERRUPTED, Cause.STOPPED),
    (a_report(None, end=End.SETUP), {}, Status.ERROR, Cause.SETUP),
    (a_report(None, end=End.OVERDUE), {}, Status.TIMEOUT, Cause.WALL_CLOCK),
    (a_report(None, end=End.STOPPED), {}, Status.INTERRUPTED, Cause.STOPPED),
]  # fmt: skip


@pytest.mark.parametrize(("report", "counters", "status", "cause"), TABLE)
def test_each_end_has_one_meaning(
    report: Report, counters: dict[str, int], status: Status, cause: Cause
) -> None:
    outcome = of(report, **counters)
    assert (outcome.status, outcome.cause) == (status, cause)
    assert (outcome.reason is None) == (status is Status.OK)


@pytest.mark.parametrize(
    ("stopped", "stage"), [(TERM, Stage.TERM), (KILL, Stage.KILL), (Stopped.ASKED_KILL, None)]
)
def test_a_timeout_names_the_signal_that_ended_it(stopped: Stopped, stage: Stage | None) -> None:
    assert of(a_report(SIGNALLED, 9, stopped=stopped)).stage is stage


def test_what_was_captured_and_used_is_kept() -> None:
    outcome = of(a_report(EXITED, 3), peak_memory_bytes=9000)
    assert (outcome.exit_code, outcome.signal) == (3, None)
    assert (outcome.stdout, outcome.stderr, outcome.truncated) == (b"out", b"err", True)
    assert (outcome.duration_seconds, outcome.killed_strays) == (1.5, 2)
    assert outcome.usage.start_seconds == 1.5
    assert outcome.usage.peak_memory_bytes == 9000
    assert (outcome.usage.stdout_bytes, outcome.usage.stderr_bytes) == (100, 7)
    assert of(a_report()).usage.peak_memory_bytes == 4096


@pytest.mark.parametrize(
    ("number", "stage", "said"),
    [
        (errno.ENOENT, "exec", "audit was not found in PATH=/usr/local/bin:/usr/bin:/bin"),
        (errno.ENOENT, "interpreter", "interpreter"),
        (errno.ENOEXEC, "exec", "#!/bin/sh"),
        (errno.EACCES, "exec", "chmod +x"),
        (errno.E2BIG, "exec", "audit cannot be executed: Argument list too long"),
        (errno.ESTALE, "mount /a b", "/a b is not the file that was checked"),
        (errno.ESTALE, "verify /a", "/a is not the file that was checked"),
        (errno.ENOENT, "target /usr/x", "/usr/x inside the sandbox: it does not exist there"),
        (errno.ELOOP, "cwd", "/w cannot be entered"),
        (errno.EPERM, "uid_map", "uid_map"),
    ],
)
def test_what_could_not_start_says_why(number: int, stage: str, said: str) -> None:
    reason = of(a_report(NOT_STARTED, number, stage=stage)).reason
    assert reason is not None
    assert said in reason
