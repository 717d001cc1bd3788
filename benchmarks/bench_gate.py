"""What does the gate cost an agent, when its handlers cost nothing?

``ask`` with three Python handlers, Permission included, and one decision among 200 rules: by
command, by path and by field, each for a call that no rule matches (the longest way).
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence

import anyio

from benchmarks.table import Row, microseconds, print_table
from executor import Executor
from executor.permission.decide import Permission
from executor.settings import parse_settings
from executor.testing import FakeBackend

CALLS = 5_000
GATE_LIMIT, PERMISSION_LIMIT = 100e-6, 50e-6
_RULES = {
    "command": ('command = "program{0} part{0} *"', "bash", {"command": "pytest -x 'tests/unit'"}),
    "path": ('path = "directory{0}/*"', "write", {"path": "src/module.py"}),
    "field": ('url = "https://host{0}.example/*"', "fetch", {"url": "https://other.example/x"}),
}


def rows() -> Sequence[Row]:
    """The gate's row, then one for each kind of rule."""
    gate = anyio.run(_gate)
    result = [_row("gate, 3 Python handlers", gate, GATE_LIMIT, "≤ 100 µs")]
    for kind in _RULES:
        measured = _permission(kind)
        result.append(
            _row(f"permission, 200 rules by {kind}", measured, PERMISSION_LIMIT, "≤ 50 µs")
        )
    return result


def _row(name: str, seconds: float, limit: float, target: str) -> Row:
    return Row(name, microseconds(seconds), "", None, target, seconds <= limit)


async def _gate() -> float:
    taken = []
    with tempfile.TemporaryDirectory() as workspace:
        async with Executor.open(workspace, backends={"fake": FakeBackend()}) as executor:
            for _ in range(3):
                executor.on("PreToolUse")(_go_on)
            call = {"tool_name": "bash", "input": {"command": "pytest -x"}}
            for _ in range(CALLS):
                started = time.perf_counter()
                await executor.ask("PreToolUse", call, session_id="sess_1")
                taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def _go_on(payload: dict[str, object]) -> dict[str, object]:
    del payload
    return {"exit_code": 0, "message": ""}


def _permission(kind: str) -> float:
    condition, tool, tool_input = _RULES[kind]
    lines = (f'{{effect = "deny", tool = "{tool}", {condition.format(n)}}}' for n in range(200))
    settings = parse_settings(f"[permission]\nrules = [{', '.join(lines)}]".encode())
    permission = Permission.compile(settings.permission, workspace="/work")
    taken = []
    for _ in range(CALLS):
        started = time.perf_counter()
        permission.decide(tool, tool_input)
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


if __name__ == "__main__":
    print_table(rows())
