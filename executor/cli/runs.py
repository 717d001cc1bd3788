"""``hook-executor runs``: how does a person read what became of some runs?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from cyclopts import App, Parameter

from executor.cli.endings import OK
from executor.cli.options import HERE, Json, Where
from executor.cli.output import print_json, print_table, say
from executor.outcome import Cause, Outcome, Status
from executor.record import Record

app = App(name="runs", help="List, show and cancel runs of the daemon.")

Id = Annotated[str, Parameter(help="As `runs list` shows it.")]

HEADINGS = ("hook", "sandbox", "policy", "status", "cause", "code", "ms", "what it said")
_LINES = 6


@app.command(name="list")
def list_(
    *,
    event: Annotated[str | None, Parameter(help="Only of this event.")] = None,
    hook: Annotated[str | None, Parameter(help="Only of this hook, by its id.")] = None,
    status: Annotated[str | None, Parameter(help="Like failed; running: those in flight.")] = None,
    limit: Annotated[int, Parameter(help="At most this many, 1 to 200.")] = 50,
    json: Json = False,
    where: Where = HERE,
) -> int:
    """List the daemon's last runs, newest first."""
    from executor.cli.daemon import needed

    given = {"event": event, "hook": hook, "status": status, "limit": limit}
    query = urlencode({name: value for name, value in given.items() if value is not None})
    told = needed(where).ask("GET", f"/api/runs?{query}")
    if json:
        print_json(told)
    else:
        print_table(
            ("id", "started", *HEADINGS),
            [(run["id"], run["started_at"], *_cells(run)) for run in told["runs"]],
        )
        print_notes(record_of(run) for run in told["runs"] if run["status"] != "running")
    return OK


@app.command
def show(id: Id, /, *, json: Json = False, where: Where = HERE) -> int:  # noqa: A002
    """One run, whole."""
    from executor.cli.daemon import needed

    run = needed(where).ask("GET", f"/api/runs/{quote(id, safe='')}")
    if json:
        print_json(run)
        return OK
    for name, value in run.items():
        for number, line in enumerate(str("" if value is None else value).splitlines() or [""]):
            say(f"{name if number == 0 else '':<18} {line}")
    return OK


@app.command
def cancel(id: Id, /, *, where: Where = HERE) -> int:  # noqa: A002
    """Stop a run in flight: SIGTERM to all of it, the grace, SIGKILL."""
    from executor.cli.daemon import needed

    needed(where).ask("DELETE", f"/api/runs/{quote(id, safe='')}")
    return OK


def _cells(run: Mapping[str, Any]) -> tuple[str, ...]:
    if run["status"] == "running":
        return (run["hook"], run["sandbox"] or "", run["policy"], "running", "", "", "", "")
    return row(record_of(run))


def record_of(run: Mapping[str, Any]) -> Record:
    """A record from what ``Record.as_run`` made of one, as far as that goes."""
    outcome = Outcome(
        Status(run["status"]),
        Cause(run["cause"]),
        run["exit_code"],
        run["signal"],
        run["stdout"].encode(),
        run["stderr"].encode(),
        run["truncated"],
        run["duration_ms"] / 1000,
        run["reason"],
        notes=tuple(run.get("notes", ())),
    )
    return Record(
        run.get("id", ""),
        run["hook"],
        run.get("event", ""),
        run.get("session_id", ""),
        run["backend"],
        run["sandbox"],
        run.get("policy", ""),
        run.get("started_at", ""),
        run.get("ended_at", ""),
        outcome,
    )


def print_runs(records: Iterable[Record]) -> None:
    """A table with one row a run, and what is to be noted of them, each note once."""
    kept = list(records)
    print_table(HEADINGS, (row(record) for record in kept))
    print_notes(kept)


def print_notes(records: Iterable[Record]) -> None:
    """Below the table: a note says what was weaker than it could be, and must not be cut."""
    notes: dict[str, dict[str, None]] = {}
    for record in records:
        for note in record.outcome.notes:
            notes.setdefault(note, {})[record.hook] = None
    for note, hooks in notes.items():
        say(f"note: {note} ({', '.join(hooks)})")


def row(record: Record) -> tuple[str, ...]:
    """The cells below ``HEADINGS``."""
    outcome = record.outcome
    return (
        record.hook,
        record.sandbox or "",
        record.policy,
        outcome.status.value,
        outcome.cause.value,
        code(outcome),
        f"{outcome.duration_seconds * 1000:.1f}",
        said(outcome),
    )


def code(outcome: Outcome) -> str:
    """The exit code, or the signal that ended it; nothing where it never ran."""
    if outcome.signal is not None:
        return f"signal {outcome.signal}"
    return "" if outcome.exit_code is None else str(outcome.exit_code)


def said(outcome: Outcome) -> str:
    """Our reason, then the beginning of what the hook wrote."""
    parts = [] if outcome.reason is None else [outcome.reason]
    for data, mark in ((outcome.stdout, ""), (outcome.stderr, "stderr: ")):
        lines = data.decode("utf-8", "replace").strip().splitlines()
        parts += [mark + line for line in lines[:_LINES]]
        if len(lines) > _LINES:
            parts.append(f"… {len(lines) - _LINES} more lines")
    if outcome.truncated:
        parts.append("(output cut at the policy's limit)")
    return "\n".join(parts)
