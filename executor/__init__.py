"""Run agent hooks that you did not write, each in a throwaway sandbox.

``Executor`` is the whole public interface; see ``executor.service``. Everything is imported on
first use: the command line's ``--help`` must not pay for an event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from executor.errors import ExecutorError, InvalidConfig, InvalidEvent, Refused, Unavailable
    from executor.outcome import Cause, Outcome, Status
    from executor.receipt import Receipt
    from executor.record import Record
    from executor.service import BlockingExecutor, Executor

_HOMES = {
    "Executor": "service",
    "BlockingExecutor": "service",
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
    "Receipt",
    "Record",
    "Refused",
    "Status",
    "Unavailable",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"executor.{_HOMES[name]}"), name)
