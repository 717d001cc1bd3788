"""Where do the source systems' own examples run? Under the very paths that they print.

Those are the host's ``/opt/hooks`` and ``/var/log/prx``: made here and removed afterwards, by root
only, and never where something is there already.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.contract.conftest import available, sandbox
from tests.support import Workspace

__all__ = ["available", "sandbox"]

PLACES = (Path("/opt/hooks"), Path("/var/log/prx"), Path("/usr/local/bin/notify"))


@dataclass(frozen=True)
class CommandLine:
    """``hook-executor`` in one workspace, on one kind of sandbox."""

    workspace: Workspace
    sandbox: str

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                *(sys.executable, "-c", "from executor.cli import main; main()"),
                *("--workspace", str(self.workspace.path), "--sandbox", self.sandbox, *words),
            ],
            capture_output=True,
            text=True,
            check=False,
        )

    def check(self) -> tuple[int, Any]:
        """The exit code and the report of ``check``."""
        answer = self.call("check", "--json")
        assert answer.returncode in (0, 1), answer.stderr
        return answer.returncode, json.loads(answer.stdout)

    def mend(self, report: Any) -> None:
        """Do what ``check`` says, to the letter."""
        for step in report["remedies"]:
            match step["act"]:
                case "run":
                    subprocess.run(["sh", "-c", step["text"]], check=True)
                case "create":
                    assert not (self.workspace.path / step["file"]).exists()
                    self.workspace.file(step["file"], step["text"])
                case "append":
                    settings = self.workspace.path / step["file"]
                    before = settings.read_text() if settings.exists() else ""
                    self.workspace.file(step["file"], before + step["text"])
                case other:
                    pytest.fail(f"no example needs a step like {other}")

    def emit(self, event: str, payload: Mapping[str, object]) -> list[Any]:
        """The runs of one event."""
        answer = self.call(
            *("emit", event, "--session", "sess_abc123", "--json"),
            *("--payload", json.dumps(payload)),
        )
        assert answer.returncode == 0, answer.stderr
        runs: list[Any] = json.loads(answer.stdout)["runs"]
        return runs


@pytest.fixture
def shell(workspace: Workspace, sandbox: str) -> CommandLine:
    return CommandLine(workspace, sandbox)


@pytest.fixture
def opt_hooks() -> Iterator[Path]:
    """``/opt/hooks``, for the length of one test."""
    if os.geteuid() != 0:
        pytest.skip("only root can make /opt/hooks and /var/log/prx, which the examples print")
    taken = [str(place) for place in PLACES if place.exists()]
    if taken:
        pytest.skip(f"{', '.join(taken)}: there already, and not ours to touch")
    try:
        PLACES[0].mkdir()
        PLACES[0].chmod(0o755)
        yield PLACES[0]
    finally:
        for place in PLACES:
            if place.is_dir():
                shutil.rmtree(place)
            else:
                place.unlink(missing_ok=True)
