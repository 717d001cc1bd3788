"""What do the crash tests share? Traces, and a nursery of executors to kill."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from executor.backends.docker_engine import Engine
from tests.contract.conftest import available, sandbox
from tests.crash.traces import Traces
from tests.support import Workspace

__all__ = ["available", "sandbox"]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def mark() -> str:
    """Stands in the words of every hook of one test."""
    return f"mark-{secrets.token_hex(8)}"


@pytest.fixture
def traces(private_state: Path, mark: str, sandbox: str) -> Iterator[Traces]:
    """Of this test's executors, on the kind of sandbox that it tests."""
    if sandbox != "docker":
        yield Traces(private_state, mark)
        return
    engine = Engine()
    yield Traces(private_state, mark, engine)
    engine.close()


class Nursery:
    """Makes executors and kills them; see ``victims``."""

    def __init__(self, workspace: Workspace, sandbox: str) -> None:
        self._place = f"{workspace.path} {sandbox}"
        self._process = subprocess.Popen(
            [sys.executable, str(ROOT / "tests/crash/victims.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    def kill_one(self, seconds: float) -> None:
        """Start an executor that works for ever, and SIGKILL it after so long."""
        status = self._ask(0, seconds)
        assert os.WIFSIGNALED(status), f"it ended by itself: {status}"

    def let_one_live(self) -> None:
        """Start an executor that does one round and ends."""
        status = self._ask(1, 0)
        assert status == 0, f"the next start failed: {status}"

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(timeout=60) == 0
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _ask(self, cycles: int, seconds: float) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{self._place} {cycles} {seconds}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


@pytest.fixture
def nursery(workspace: Workspace, sandbox: str, private_state: Path) -> Iterator[Nursery]:
    opened = Nursery(workspace, sandbox)
    yield opened
    opened.close()
