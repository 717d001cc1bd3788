"""What does the road cost before any sandbox: emit, an idle executor, --help?"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import anyio

from benchmarks.table import Row, median_of, microseconds, milliseconds, timed
from executor import Executor
from executor.testing import FakeBackend

IDLE = """
import anyio, sys
from executor import Executor
async def main():
    async with Executor.open(sys.argv[1], sandbox="namespace"):
        await anyio.sleep(0.2)
        for line in open("/proc/self/status"):
            if line.startswith("VmRSS"):
                print(line.split()[1])
anyio.run(main)
"""


def rows() -> Sequence[Row]:
    with tempfile.TemporaryDirectory() as directory:
        workspace = Path(directory)
        workspace.chmod(0o755)
        ten = [{"command": "true"}] * 10
        (workspace / "hooks.json").write_text(json.dumps({"hooks": {"tool_call": ten}}))
        return [_emit(workspace), _idle(workspace), _help()]


def _emit(workspace: Path) -> Row:
    async def measure() -> float:
        payload = {"tool": "bash", "success": True, "output": "ok"}
        taken = []
        async with Executor.open(workspace, backends={"fake": FakeBackend()}) as executor:
            for _ in range(40):
                # A burst that the queue holds; then everything is run, outside of the clock.
                taken += [
                    timed(lambda: executor.emit("tool_call", payload, session_id="sess_1"))
                    for _ in range(50)
                ]
                await executor.drain()
        return sorted(taken)[len(taken) // 2]

    median = anyio.run(measure)
    return Row(
        "emit() with ten hooks returns in",
        microseconds(median),
        goal="≤ 50 µs",
        met=median <= 50e-6,
    )


def _idle(workspace: Path) -> Row:
    answer = subprocess.run(
        [sys.executable, "-c", IDLE, str(workspace)], capture_output=True, text=True, check=False
    )
    if answer.returncode != 0:
        return Row("an idle executor, resident", "", answer.stderr.strip().splitlines()[-1])
    megabytes = int(answer.stdout) / 1024
    return Row(
        "an idle executor, resident", f"{megabytes:.0f} MB", goal="≤ 80 MB", met=megabytes <= 80
    )


def _help() -> Row:
    command = [str(Path(sys.executable).parent / "hook-executor"), "--help"]

    def once() -> None:
        subprocess.run(command, check=True, capture_output=True)

    median = median_of(once, times=11)
    return Row("hook-executor --help", milliseconds(median), goal="≤ 350 ms", met=median <= 0.35)
