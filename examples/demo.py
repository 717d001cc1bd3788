"""The main job, from end to end: events come in, and their hooks run in throwaway sandboxes.

Makes a workspace with four example hooks, emits all eight lifecycle events on every backend that
works here, and shows what became of each run. One hook tries the network, and must fail fast with
a reason; the others must end ok. Exits 1 if anything is otherwise. Run as root or as anybody.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import anyio
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from executor import Executor, Receipt, Record, Unavailable
from executor.disk.identity import identity_for
from executor.testing import SAMPLE_PAYLOADS

SESSION = "sess_demo"
BACKENDS = ("docker", "namespace")
SCRIPTS = Path(__file__).resolve().parent / "hooks"

HOOKS: Mapping[str, Sequence[Mapping[str, object]]] = {
    "agent_start": [{"command": "hooks/session_tracker.sh", "args": ["start"]}],
    "agent_end": [{"command": "hooks/session_tracker.sh", "args": ["end"]}],
    "llm_response": [{"command": "python3", "args": ["hooks/metrics.py"], "stdin_json": True}],
    "tool_call": [{"command": "hooks/audit_log.sh", "env": {"AUDIT_LOG": "{logs}/audit.jsonl"}}],
    "error": [{"command": "python3", "args": ["hooks/notify.py"], "stdin_json": True}],
}
POLICY = """\
name = "log"
description = "As audit, with the demo's log directory."
extends = "audit"

[filesystem]
write = ["{logs}"]
"""
SETTINGS = """\
[[bind]]
events = ["tool_call"]
policy = "log"
"""
SAYS = {
    "agent_start": "session sess_demo: start at ",
    "agent_end": "session sess_demo: end at ",
    "llm_response": (
        "prx.llm.duration,provider=openai,model=gpt-4o 1842\n"
        "prx.llm.success,provider=openai,model=gpt-4o 1\n"
    ),
    "tool_call": "",
}
FAST_MS = 5000


def main() -> int:
    """Run the demo; 0 if everything was as expected."""
    console = Console(width=None if sys.stdout.isatty() else 150, highlight=False)
    left_out: dict[str, str] = {}
    faults: list[str] = []
    with workspace() as (directory, logs):
        console.print(f"A workspace with {sum(map(len, HOOKS.values()))} hooks: {directory}")
        for sandbox in BACKENDS:
            try:
                receipts = anyio.run(emit_all, directory, sandbox)
            except Unavailable as missing:
                left_out[sandbox] = str(missing)
                continue
            console.print(table(sandbox, receipts))
            faults += [f"{sandbox}: {fault}" for fault in surprises(receipts)]
        faults += audit(console, logs, runs=len(BACKENDS) - len(left_out))
    for sandbox, reason in left_out.items():
        console.print(f"Left out: {sandbox}. {escape(reason)}", soft_wrap=True)
    if len(left_out) == len(BACKENDS):
        faults.append("no sandbox works here; see: hook-executor doctor")
    required = os.environ.get("HOOK_EXECUTOR_REQUIRE", "").split(",")
    faults += [
        f"{sandbox} is required, and was left out" for sandbox in left_out if sandbox in required
    ]
    for fault in faults:
        console.print(f"NOT AS EXPECTED: {escape(fault)}", soft_wrap=True)
    if not faults:
        console.print(
            "Everything was as expected: the network hook failed fast, the others are ok."
        )
    return 1 if faults else 0


@contextmanager
def workspace() -> Iterator[tuple[Path, Path]]:
    """A workspace and a log directory that its hooks may write; gone afterwards."""
    base = Path(tempfile.mkdtemp(prefix="hook-executor-demo-"))
    previous = os.environ.get("XDG_STATE_HOME")
    try:
        base.chmod(0o755)
        directory, logs = base / "workspace", base / "logs"
        for path in (directory, logs, directory / "hooks", directory / "policies"):
            path.mkdir()
            path.chmod(0o755)
        for script in SCRIPTS.iterdir():
            target = directory / "hooks" / script.name
            shutil.copyfile(script, target)
            target.chmod(0o755)
        write(directory / "hooks.json", json.dumps({"hooks": HOOKS}).replace("{logs}", str(logs)))
        write(directory / "config.toml", SETTINGS)
        write(directory / "policies" / "log.toml", POLICY.replace("{logs}", str(logs)))
        # Hooks never run as root: where root runs this, they get an id of their own.
        identity = identity_for(directory.stat(), "")
        if os.geteuid() == 0:
            os.chown(logs, identity.uid, identity.gid)
        os.environ["XDG_STATE_HOME"] = str(base / "state")
        yield directory, logs
    finally:
        if previous is None:
            os.environ.pop("XDG_STATE_HOME", None)
        else:
            os.environ["XDG_STATE_HOME"] = previous
        shutil.rmtree(base, ignore_errors=True)


def write(path: Path, text: str) -> None:
    """A file that only its owner can write, whatever the umask: hook-executor insists."""
    path.write_text(text, encoding="utf-8")
    path.chmod(0o644)


async def emit_all(directory: Path, sandbox: str) -> list[Receipt]:
    """All eight events at once, and wait for every hook."""
    async with Executor.open(directory, sandbox=sandbox) as executor:
        receipts = [
            executor.emit(event, payload, session_id=SESSION)
            for event, payload in SAMPLE_PAYLOADS.items()
        ]
        await executor.drain()
    return receipts


def table(sandbox: str, receipts: Sequence[Receipt]) -> Table:
    """What became of each run."""
    result = Table(title=f"Eight events on {sandbox}", title_justify="left")
    for heading in ("event", "hook", "policy", "status", "cause", "code", "ms", "what it said"):
        result.add_column(heading, overflow="fold")
    for receipt in receipts:
        for record in records(receipt):
            outcome = record.outcome
            code = outcome.exit_code if outcome.signal is None else f"signal {outcome.signal}"
            cells = (
                receipt.event.name,
                record.hook,
                record.policy,
                outcome.status.value,
                outcome.cause.value,
                "" if code is None else str(code),
                f"{outcome.duration_seconds * 1000:.1f}",
                outcome.reason or outcome.stdout.decode("utf-8", "replace").strip(),
            )
            result.add_row(*(escape(cell) for cell in cells))
        if not receipt.records:
            result.add_row(receipt.event.name, "(no hook)")
    return result


def surprises(receipts: Sequence[Receipt]) -> Iterator[str]:
    """Everything that is not as the docstring says."""
    for receipt in receipts:
        event = receipt.event.name
        if not receipt.accepted or not receipt.published:
            yield f"{event}: not accepted, or not on the bus: {receipt.reason}"
        found = records(receipt)
        if len(found) != len(HOOKS.get(event, ())):
            yield f"{event}: {len(found)} runs"
        for record in found:
            outcome = record.outcome
            said = outcome.stdout.decode("utf-8", "replace")
            if event == "error":
                told = outcome.reason is not None and "network" in outcome.reason
                fast = outcome.duration_seconds * 1000 < FAST_MS
                if outcome.status.value != "failed" or not told or not fast:
                    yield f"{event}: {outcome.status} ({outcome.reason}), not a fast failure"
            elif not outcome.ok or not said.startswith(SAYS[event]):
                yield f"{event}: {outcome.status} ({outcome.reason}), said {said!r}"


def audit(console: Console, logs: Path, *, runs: int) -> Iterator[str]:
    """Show the audit file: one line for each tool_call."""
    file = logs / "audit.jsonl"
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    console.print("What the audit hook wrote, one line a backend:")
    for line in text.splitlines():
        console.print(f"  {escape(line)}", soft_wrap=True)
    if [json.loads(line)["payload"] for line in text.splitlines()] != [
        SAMPLE_PAYLOADS["tool_call"]
    ] * runs:
        yield f"the audit file does not hold {runs} events"


def records(receipt: Receipt) -> list[Record]:
    """The runs of one event that ended."""
    return [record for record in receipt.records if record is not None]


if __name__ == "__main__":
    sys.exit(main())
