"""How does a test call the command line, in this process and without a sandbox?"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from executor.cli import main
from executor.disk.instance import Instance
from executor.plan import Place
from executor.policy import Policy
from executor.sandboxes import Sandboxes
from executor.testing import FakeBackend
from tests.support import Workspace


@dataclass(frozen=True)
class Answer:
    """What one call gave."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Call = Callable[..., Answer]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    """Every sandbox is this one."""
    backend = FakeBackend()

    async def place(self: Sandboxes, name: str, policy: Policy, instance: Instance) -> Place:
        self.backends[name] = backend
        return Place()

    monkeypatch.setattr(Sandboxes, "_place", place)
    return backend


@pytest.fixture
def call(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Call:
    """Call ``hook-executor`` in the test's workspace."""
    monkeypatch.chdir(workspace.path)

    def run(*words: str, stdin: bytes = b"") -> Answer:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as end:
            main(words)
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Answer(int(end.value.code or 0), captured.out, captured.err)

    return run
