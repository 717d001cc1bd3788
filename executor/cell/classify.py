"""What do the cell's report and the kernel's counters mean, in the words of SPEC section 3?

Pure, and shared by both backends. The order of the questions is the rule: were we asked to stop,
did our clock run out, did the kernel's OOM killer act on a hook that then was not ok, and only
then what the hook's process made of itself. An exit code proves nothing: 137 is any program's to
give. Two codes are read as what shells make of a child's signal (128 + n), as no program that
means something else by them is known.
"""

from __future__ import annotations

import errno
import os
import signal
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from executor.cell.protocol import Exit, Kind, Stopped
from executor.cell.session import End
from executor.outcome import Cause, Outcome, Stage, Status, Usage

if TYPE_CHECKING:
    from executor.cell.session import Report
    from executor.job import Job


@dataclass(frozen=True, slots=True)
class Counters:
    """What the kernel counted for one run; ``None`` where nothing could tell.

    ``pids_refused``: how often a process could not be made because of the limit.
    """

    oom_kills: int | None = None
    pids_refused: int | None = None
    peak_memory_bytes: int | None = None


def classified(
    report: Report,
    counters: Counters,
    elapsed_seconds: float,
    *,
    job: Job | None = None,
    notes: tuple[str, ...] = (),
) -> Outcome:
    """The outcome of one conversation. ``elapsed_seconds``: everything, set-up included."""
    if report.exit is None:
        verdict = _without_report(report, counters)
    else:
        verdict = _with_report(report.exit, counters, job)
        if report.stop_asked and report.exit.kind is Kind.NOT_STARTED:
            verdict = _INTERRUPTED
    last = report.exit
    duration = report.hook_seconds if last is None else last.wall_seconds
    peaks = (counters.peak_memory_bytes, None if last is None else last.peak_memory_bytes)
    return replace(
        verdict,
        stdout=report.stdout,
        stderr=report.stderr,
        truncated=report.truncated,
        duration_seconds=duration,
        killed_strays=0 if last is None else last.strays,
        usage=Usage(
            start_seconds=max(0.0, elapsed_seconds - report.hook_seconds),
            cpu_seconds=None if last is None else last.cpu_seconds,
            peak_memory_bytes=next((peak for peak in peaks if peak is not None), None),
            stdout_bytes=len(report.stdout) if last is None else last.stdout_bytes,
            stderr_bytes=len(report.stderr) if last is None else last.stderr_bytes,
        ),
        notes=(*notes, *_weaker(report)),
    )


def _weaker(report: Report) -> tuple[str, ...]:
    """Walls that this kernel cannot give and a run does without, as told by the cell."""
    if report.ready is None or report.ready.landlock:
        return ()
    return ("Landlock is not offered by this kernel: the mounts alone say what can be reached",)


_INTERRUPTED = Outcome(Status.INTERRUPTED, Cause.STOPPED, reason="stopped before it ended")
_OUT_OF_MEMORY = "the kernel's OOM killer ended a process of the run: it reached its memory limit"

_STOPPED = {
    Stopped.DEADLINE_TERM: (Status.TIMEOUT, Cause.WALL_CLOCK, Stage.TERM, "passed its deadline"),
    Stopped.DEADLINE_KILL: (
        Status.TIMEOUT,
        Cause.WALL_CLOCK,
        Stage.KILL,
        "passed its deadline, and did not end on SIGTERM",
    ),
    Stopped.ASKED_TERM: (Status.INTERRUPTED, Cause.STOPPED, None, "stopped before it ended"),
    Stopped.ASKED_KILL: (Status.INTERRUPTED, Cause.STOPPED, None, "stopped before it ended"),
}
_SIGNALS = {
    signal.SIGXFSZ: (Cause.FILE_SIZE, "a file grew beyond the limit for its size"),
    signal.SIGSYS: (Cause.SECCOMP, "it made a system call of another architecture"),
}


def _without_report(report: Report, counters: Counters) -> Outcome:
    if report.end is End.OVERDUE:
        return Outcome(Status.TIMEOUT, Cause.WALL_CLOCK, stage=Stage.KILL, reason=report.reason)
    if report.end is End.STOPPED or report.stop_asked:
        return _INTERRUPTED
    if report.end is End.LOST and counters.oom_kills:
        return Outcome(Status.OOM, Cause.MEMORY, reason=_OUT_OF_MEMORY)
    return Outcome(Status.ERROR, Cause.SETUP, reason=report.reason)


def _with_report(last: Exit, counters: Counters, job: Job | None) -> Outcome:
    if last.kind is Kind.NOT_STARTED:
        return _not_started(last, job)
    exit_code = last.number if last.kind is Kind.EXITED else None
    number = last.number if last.kind is Kind.SIGNALLED else None

    def outcome(
        status: Status, cause: Cause, reason: str | None, stage: Stage | None = None
    ) -> Outcome:
        return Outcome(
            status, cause, exit_code=exit_code, signal=number, reason=reason, stage=stage
        )

    if last.stopped is not Stopped.NO:
        status, cause, stage, reason = _STOPPED[last.stopped]
        return outcome(status, cause, reason, stage)
    if exit_code == 0:
        return outcome(Status.OK, Cause.EXIT, None)
    if counters.oom_kills:
        return outcome(Status.OOM, Cause.MEMORY, _OUT_OF_MEMORY)
    status = Status.FAILED if number is None else Status.SIGNALLED
    for special, (cause, reason) in _SIGNALS.items():
        if special in (number, (exit_code or 0) - 128):
            return outcome(status, cause, reason)
    if counters.pids_refused:
        return outcome(status, Cause.PIDS, "it reached its limit of processes and threads")
    if number is not None:
        return outcome(status, Cause.SIGNAL, f"ended by {_signal_name(number)}")
    return outcome(status, Cause.EXIT, f"exit code {exit_code}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# ---------------------------------------------------------------------------------- not started

_NOT_FOUND = (errno.ENOENT, errno.ENOTDIR)
_NOT_EXECUTABLE = (errno.EACCES, errno.ENOEXEC, errno.EISDIR, errno.ELIBBAD)

_STAGES = {
    "verify": "{detail} is not the file that was checked (it was replaced meanwhile)",
    "mount": "{detail} cannot be shown: {error}",
    "target": "nothing can be shown at {detail} inside the sandbox: {error}",
    "submount": "a file system is mounted below {detail}; an ordinary user cannot leave it out",
    "cwd": "the working directory {cwd} cannot be entered inside the sandbox: {error}",
    "exec": "{command} cannot be executed: {error}",
    "cgroup": "the cgroup {detail} cannot be entered: {error}",
    "setup": "the hook's process was not ready in time",
}


def _not_started(last: Exit, job: Job | None) -> Outcome:
    stage, _, detail = last.stage.partition(" ")
    command = "the command" if job is None else job.command
    if stage == "interpreter":
        reason = (
            f"{command}: the interpreter of its first line, or its loader, does not exist "
            "inside the sandbox"
        )
        return Outcome(Status.ERROR, Cause.NOT_FOUND, reason=reason)
    if stage == "exec" and last.number in _NOT_FOUND:
        return Outcome(Status.ERROR, Cause.NOT_FOUND, reason=_not_found(command, job))
    if stage == "exec" and last.number in _NOT_EXECUTABLE:
        reason = {
            errno.EACCES: f"{command} may not be executed by the hook's user (chmod +x?)",
            errno.ENOEXEC: f"{command} is no program; a script begins with a line like #!/bin/sh",
        }.get(last.number, f"{command} cannot be executed: {os.strerror(last.number)}")
        return Outcome(Status.ERROR, Cause.NOT_EXECUTABLE, reason=reason)
    error = os.strerror(last.number)
    if stage == "mount" and last.number == errno.ESTALE:
        stage = "verify"
    if stage == "target" and last.number in (errno.ENOENT, errno.EROFS):
        error = "it does not exist there, and what is around it is read-only"
    form = _STAGES.get(stage, "the sandbox could not be built ({stage} {detail}): {error}")
    cwd = "" if job is None else job.cwd
    reason = form.format(stage=stage, detail=detail, error=error, command=command, cwd=cwd)
    return Outcome(Status.ERROR, Cause.SETUP, reason=reason)


def _not_found(command: str, job: Job | None) -> str:
    if job is None or "/" in command:
        return f"{command} does not exist inside the sandbox"
    path = dict(job.env).get("PATH", "")
    return f"{command} was not found in PATH={path} inside the sandbox"
