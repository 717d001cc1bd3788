"""Run agent hooks that you did not write, each in a throwaway sandbox.

``Executor`` is the whole public interface; see ``executor.service``. Everything is imported on
first use: the command line's ``--help`` must not pay for an event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from executor.blocking import BlockingExecutor
    from executor.errors import ExecutorError, InvalidConfig, InvalidEvent, Refused, Unavailable
    from executor.gate.consent import Question
    from executor.gate.tool_call import ToolResult
    from executor.outcome import Cause, Outcome, Status
    from executor.pipeline import run_hooks
    from executor.receipt import Receipt
    from executor.record import Record
    from executor.service import Executor
    from executor.verdict import Verdict

_HOMES = {
    "Question": "gate.consent",
    "Verdict": "verdict",
    "ToolResult": "gate.tool_call",
    "run_hooks": "pipeline",
    "Executor": "service",
    "BlockingExecutor": "blocking",
    "Receipt": "receipt",
    "Record": "record",
    "Cause": "outcome",
    "Outcome": "outcome",
    "Status": "outcome",
    "ExecutorError": "errors",
    "InvalidConfig": "errors",
    "InvalidEvent": "errors",
    "Refused": "errors",
    "Unavailable": "errors",
}

__all__ = [
    "BlockingExecutor",
    "Cause",
    "Executor",
    "ExecutorError",
    "InvalidConfig",
    "InvalidEvent",
    "Outcome",
    "Question",
    "Receipt",
    "Record",
    "Refused",
    "Status",
    "ToolResult",
    "Unavailable",
    "Verdict",
    "run_hooks",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"executor.{_HOMES[name]}"), name)
