"""What do tests in several rooms need? Requirements and workspaces."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from executor import Record

REQUIRED = frozenset(filter(None, os.environ.get("HOOK_EXECUTOR_REQUIRE", "").split(",")))
"""What must be there: a test that cannot run for want of it fails instead of being skipped."""

TOOL_CALL: Mapping[str, object] = {"tool": "bash", "success": True, "output": "ok"}

Run = Callable[..., Awaitable[Record]]
"""Run one hook on one backend: ``await run(action, event=…, payload=…, session_id=…)``."""


def missing(what: str, reason: str) -> None:
    """Skip, with the reason; fail where ``HOOK_EXECUTOR_REQUIRE`` names it."""
    if what in REQUIRED:
        pytest.fail(f"HOOK_EXECUTOR_REQUIRE names {what}, but: {reason}")
    pytest.skip(f"{what}: {reason}")


@dataclass(frozen=True)
class Workspace:
    """A workspace that a test fills; readable by whoever the hooks run as."""

    path: Path

    def file(self, name: str, text: str | bytes, *, mode: int = 0o644) -> Path:
        target = self.path / name
        for parent in reversed(target.relative_to(self.path).parents[:-1]):
            directory = self.path / parent
            directory.mkdir(exist_ok=True)
            directory.chmod(0o755)
        target.write_bytes(text.encode() if isinstance(text, str) else text)
        target.chmod(mode)
        return target

    def script(self, name: str, text: str, *, interpreter: str = "/bin/bash") -> Path:
        return self.file(name, f"#!{interpreter}\n{text}\n", mode=0o755)

    def hooks(self, hooks: Mapping[str, object]) -> None:
        self.file("hooks.json", json.dumps({"hooks": hooks}))

    def settings(self, text: str) -> None:
        self.file("config.toml", text)

    def policy(self, name: str, text: str) -> None:
        self.file(
            f"policies/{name}.toml", f'name = "{name}"\ndescription = "A test\'s own."\n{text}'
        )

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


def python(code: str, **action: object) -> dict[str, object]:
    """An action that runs this Python."""
    return {"command": "python3", "args": ["-c", code], **action}


def bash(code: str, **action: object) -> dict[str, object]:
    """An action that runs this bash."""
    return {"command": "bash", "args": ["-c", code], **action}
