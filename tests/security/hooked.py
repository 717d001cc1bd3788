"""How do hooks run as another user, or under a program that is killed?

A program of its own: ``hooked.py`` reads a JSON request from standard input, opens an executor
and emits one event, and prints what came of each hook as JSON.
"""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

import anyio

from executor import Executor, ExecutorError, Record


def told(record: Record) -> dict[str, Any]:
    """All that a test looks at."""
    outcome = record.outcome
    return {
        "status": outcome.status.value,
        "cause": outcome.cause.value,
        "exit_code": outcome.exit_code,
        "signal": outcome.signal,
        "stage": None if outcome.stage is None else outcome.stage.value,
        "stdout": base64.b64encode(outcome.stdout).decode(),
        "stderr": base64.b64encode(outcome.stderr).decode(),
        "truncated": outcome.truncated,
        "seconds": outcome.duration_seconds,
        "reason": outcome.reason,
        "notes": list(outcome.notes),
        "strays": outcome.killed_strays,
        "cpu_seconds": outcome.usage.cpu_seconds,
        "stdout_bytes": outcome.usage.stdout_bytes,
        "stderr_bytes": outcome.usage.stderr_bytes,
    }


async def emit(request: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Emit the event, ``times`` one after the other."""
    async with Executor.open(request["workspace"], sandbox=request["sandbox"]) as executor:
        answers = []
        for _ in range(request.get("times", 1)):
            receipt = executor.emit(request["event"], request["payload"], session_id="sess_test")
            answers.append([told(record) for record in await receipt.wait()])
        return answers


def main() -> int:
    """Print the records of every emission; a refusal of the executor itself is exit code 3."""
    try:
        json.dump(anyio.run(emit, json.load(sys.stdin)), sys.stdout)
    except ExecutorError as error:
        sys.stderr.write(f"{error}")
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
