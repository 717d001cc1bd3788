#!/usr/bin/env python3
"""Does anything grow, or fail once in a while, over thousands of runs?

    scripts/soak.py                             10,000 runs on namespaces, 300 on the engine
    scripts/soak.py --namespace 2000 --docker 100

One executor runs hooks of every kind (ok, failing, flooding, leaving children, late, with a large
payload), a few at a time. After a warm-up, and again at the end, it is quiet: then its descriptors,
threads, children, zombies, memory, and the machine's cgroups, mounts and containers of this
executor are counted. Prints one table; exit 1 where something grew or a run did not end as its
hook must.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread

from executor import Executor
from executor.backends.docker_body import LABEL_INSTANCE
from executor.backends.docker_engine import Engine
from executor.disk.instance import default_directory
from executor.errors import Unavailable
from executor.outcome import Outcome

KINDS: Mapping[str, tuple[str, str, int]] = {
    # event: (bash, what must become of it, timeout_ms)
    "agent_start": ("exit 0", "ok exit 0", 20_000),
    "agent_end": ("cat | wc -c; exit 3", "failed exit 3", 20_000),
    "llm_request": ("head -c 300000 /dev/zero; head -c 100000 /dev/zero >&2", "ok exit 0", 20_000),
    "llm_response": ("sleep 60 & setsid sleep 60 & exit 0", "ok exit 0", 20_000),
    "tool_call": ('test "$(wc -c)" -gt 1000000', "ok exit 0", 20_000),
    "turn_complete": ("sleep 60", "timeout wall_clock None", 30),
    "error": ("kill -9 $$", "signalled signal None", 20_000),
}
PAYLOADS: Mapping[str, Mapping[str, object]] = {
    "agent_start": {"agent": "soak", "session": "soak"},
    "agent_end": {"success": True, "messages_count": 1},
    "llm_request": {"provider": "p", "model": "m", "messages_count": 1},
    "llm_response": {"provider": "p", "model": "m", "duration_ms": 1, "success": True},
    "tool_call": {"tool": "bash", "success": True, "output": "x" * 1_000_000},
    "turn_complete": {},
    "error": {"component": "c", "message": "m"},
}
AT_ONCE = 4
PLACE = "hook-executor-soak-"
WARM_UP = {"namespace": 300, "docker": 40}
NOISE = {"descriptors": 8, "threads": 4, "memory_kib": 8 * 1024}
"""Above this, it grew. Pools of threads and connections reach their bounds late, and allocators
keep something; a leak of one thing in a thousand runs, or of 1 KiB a run, is more."""


@dataclass(frozen=True)
class Look:
    """What there is while nothing runs."""

    descriptors: int
    threads: int
    children: int
    zombies: int
    cgroups: int
    mounts: int
    containers: int
    memory_kib: int


@dataclass
class Soaked:
    """One sandbox's result."""

    sandbox: str
    runs: int
    seconds: float
    before: Look
    after: Look
    wrong: Counter[str]

    @property
    def grown(self) -> list[str]:
        """Names of what is more than it was."""
        return [
            name
            for name in Look.__dataclass_fields__
            if getattr(self.after, name) > getattr(self.before, name) + NOISE.get(name, 0)
        ]


def look(instance: str, engine: Engine | None) -> Look:
    """Count, after a collection of garbage."""
    gc.collect()
    status = Path("/proc/self/status").read_text(encoding="ascii")
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]
    children = list(states_of_children())
    return Look(
        descriptors=len(os.listdir("/proc/self/fd")),
        threads=len(os.listdir("/proc/self/task")),
        children=len(children),
        zombies=children.count("Z"),
        cgroups=sum(
            instance in name for _, names, _ in os.walk("/sys/fs/cgroup") for name in names
        ),
        mounts=Path("/proc/self/mountinfo").read_text(encoding="utf-8").count(PLACE),
        containers=0 if engine is None else len(engine.labelled(f"{LABEL_INSTANCE}={instance}")),
        memory_kib=int(resident),
    )


def states_of_children() -> Iterator[str]:
    """One letter for each direct child of this process."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = entry.read_text(encoding="utf-8").rpartition(")")[2].split()[:2]
            if int(parent) == os.getpid():
                yield state


def prepare(workspace: Path) -> None:
    """One hook for each event."""
    hooks = ",".join(
        f'"{event}": [{{"command": "bash", "args": ["-c", {_quoted(code)}], '
        f'"stdin_json": true, "timeout_ms": {timeout}}}]'
        for event, (code, _, timeout) in KINDS.items()
    )
    workspace.chmod(0o755)
    (workspace / "hooks.json").write_text(f'{{"hooks": {{{hooks}}}}}', encoding="utf-8")
    (workspace / "hooks.json").chmod(0o644)


def _quoted(code: str) -> str:
    escaped = code.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def told(outcome: Outcome) -> str:
    """An outcome as KINDS writes it."""
    return f"{outcome.status} {outcome.cause} {outcome.exit_code}"


async def run_many(executor: Executor, runs: int, wrong: Counter[str], sandbox: str) -> None:
    """That many, ``AT_ONCE`` at a time; unexpected ends are counted in ``wrong``."""
    numbers = iter(range(runs))
    events = list(KINDS)

    async def one_after_the_other() -> None:
        for number in numbers:
            event = events[number % len(events)]
            for record in await executor.emit(event, PAYLOADS[event]).wait():
                if told(record.outcome) != KINDS[event][1]:
                    wrong[f"{event}: {told(record.outcome)}: {record.outcome.reason}"] += 1
            if sys.stderr.isatty() and number % 100 == 0:
                sys.stderr.write(f"\r{sandbox} {number}/{runs} ")

    async with anyio.create_task_group() as tasks:
        for _ in range(AT_ONCE):
            tasks.start_soon(one_after_the_other)


async def soak(sandbox: str, runs: int, workspace: Path) -> Soaked:
    """Run them all in one executor."""
    engine = Engine() if sandbox == "docker" else None
    wrong: Counter[str] = Counter()
    async with Executor.open(workspace, sandbox=sandbox) as executor:
        # The only one in a state directory of our own: its lock file bears its name.
        (lock,) = default_directory().glob("*.lock")
        instance = lock.stem
        await run_many(executor, min(runs, WARM_UP[sandbox]), wrong, sandbox)
        before = await quiet(executor, instance, engine)
        began = time.monotonic()
        await run_many(executor, runs, wrong, sandbox)
        seconds = time.monotonic() - began
        after = await quiet(executor, instance, engine)
    if engine is not None:
        engine.close()
    return Soaked(sandbox, runs, seconds, before, after, wrong)


async def quiet(executor: Executor, instance: str, engine: Engine | None) -> Look:
    """A look once nothing runs and deletions in the background are done."""
    await executor.drain()
    for backend in executor.live.sandboxes.backends.values():
        drain = getattr(backend, "drain", None)
        if drain is not None:
            await drain()
    return await anyio.to_thread.run_sync(look, instance, engine)


def table(results: list[Soaked]) -> str:
    """All results: a line for each thing that was counted."""
    head = f"{'':14}" + "".join(f"{result.sandbox:>28}" for result in results)
    lines = [head, f"{'runs':14}" + "".join(f"{result.runs:>28}" for result in results)]
    rates = (f"{result.runs / result.seconds:.1f}/s" for result in results)
    lines.append(f"{'rate':14}" + "".join(f"{rate:>28}" for rate in rates))
    for name in Look.__dataclass_fields__:
        pairs = (
            f"{getattr(result.before, name)} → {getattr(result.after, name)}"
            + (" GREW" if name in result.grown else "")
            for result in results
        )
        lines.append(f"{name:14}" + "".join(f"{pair:>28}" for pair in pairs))
    failures = (str(result.wrong.total()) for result in results)
    lines.append(f"{'wrong ends':14}" + "".join(f"{number:>28}" for number in failures))
    for result in results:
        lines += [
            f"  {result.sandbox}: {count} times {what}" for what, count in result.wrong.items()
        ]
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Soak what works here; 1 where something grew, or ended as it must not."""
    parser = argparse.ArgumentParser(description="Thousands of runs: does anything grow or fail?")
    parser.add_argument("--namespace", type=int, default=10_000, help="runs on namespaces")
    parser.add_argument("--docker", type=int, default=300, help="runs on the container engine")
    options = parser.parse_args(arguments)
    results = []
    with tempfile.TemporaryDirectory(prefix=PLACE) as place:
        Path(place).chmod(0o711)
        os.environ["XDG_STATE_HOME"] = f"{place}/state"
        workspace = Path(place, "workspace")
        workspace.mkdir()
        prepare(workspace)
        for sandbox in ("namespace", "docker"):
            runs = getattr(options, sandbox)
            if runs:
                try:
                    results.append(anyio.run(soak, sandbox, runs, workspace))
                except Unavailable as reason:
                    print(f"left out: {sandbox}: {reason}", file=sys.stderr)
    print(table(results))
    return 0 if results and not any(one.grown or one.wrong for one in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
