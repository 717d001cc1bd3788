"""What do all tests share? Requirements, workspaces, and an event loop of each kind."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

REQUIRED = frozenset(filter(None, os.environ.get("HOOK_EXECUTOR_REQUIRE", "").split(",")))
"""What must be there: a test that cannot run for want of it fails instead of being skipped."""


def missing(what: str, reason: str) -> None:
    """Skip, with the reason; fail where ``HOOK_EXECUTOR_REQUIRE`` names it."""
    if what in REQUIRED:
        pytest.fail(f"HOOK_EXECUTOR_REQUIRE names {what}, but: {reason}")
    pytest.skip(f"{what}: {reason}")


@pytest.fixture(autouse=True)
def private_state(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Each test's executors keep their state in a place of their own."""
    directory = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(directory))
    return directory


@dataclass(frozen=True)
class TestWorkspace:
    """A workspace that a test fills; readable by whoever the hooks run as."""

    __test__ = False
    path: Path

    def file(self, name: str, text: str | bytes, *, mode: int = 0o644) -> Path:
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        target.write_bytes(text.encode() if isinstance(text, str) else text)
        target.chmod(mode)
        return target

    def script(self, name: str, text: str, *, shell: str = "/bin/bash") -> Path:
        return self.file(name, f"#!{shell}\n{text}\n", mode=0o755)

    def hooks(self, hooks: Mapping[str, object]) -> None:
        self.file("hooks.json", json.dumps({"hooks": hooks}))

    def settings(self, text: str) -> None:
        self.file("config.toml", text)

    def policy(self, name: str, text: str) -> None:
        self.file(f"policies/{name}.toml", f'name = "{name}"\n{text}')

    def policy_for_all(self, text: str) -> None:
        """A policy of the test's own, bound to every hook."""
        self.policy("test", text)
        self.settings('[[bind]]\npolicy = "test"\n')

    def granted(self, name: str) -> Path:
        """A directory that the hooks' id may write, whoever that is."""
        target = self.path / name
        target.mkdir(parents=True)
        target.chmod(0o777)
        return target


@pytest.fixture
def workspace(tmp_path: Path) -> TestWorkspace:
    directory = tmp_path / "workspace"
    directory.mkdir(mode=0o755)
    directory.chmod(0o755)
    return TestWorkspace(directory)


@pytest.fixture
def open_descriptors() -> Iterator[Callable[[], int]]:
    """How many descriptors this process holds."""

    def count() -> int:
        return sum(
            1
            for name in os.listdir("/proc/self/fd")
            if not stat.S_ISDIR(_mode(f"/proc/self/fd/{name}"))
        )

    yield count


def _mode(path: str) -> int:
    try:
        return os.stat(path).st_mode
    except OSError:
        return 0
