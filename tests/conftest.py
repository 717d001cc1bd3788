"""What do all tests share? Private state, and workspaces."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support import Workspace


def pytest_configure() -> None:
    """A shell that starts us in the background ignores SIGINT, and all that we start inherit it."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def private_state(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Each test's executors keep their state in a place of their own."""
    directory = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(directory))
    return directory


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    directory = tmp_path / "workspace"
    directory.mkdir()
    directory.chmod(0o755)
    return Workspace(directory)
