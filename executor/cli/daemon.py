"""How does a command speak with the daemon of its workspace?

Over the socket in the state directory, where the kernel vouches for us: no token is needed.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from executor import control
from executor.cli.options import Where
from executor.configuration import load_settings
from executor.disk.workspace import Workspace, open_workspace
from executor.errors import ExecutorError, InvalidConfig, Unavailable
from executor.in_force import state_directory

_MAX_ANSWER = 256 * 1024 * 1024


class Failed(ExecutorError):
    """The daemon said no; its problem's words."""

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        self.status = status
        parts = [problem.get("detail") or problem.get("title", "")]
        parts += [
            f"{one.get('pointer') or '/'}: {one.get('message')}"
            for one in problem.get("errors", ())
        ]
        super().__init__("\n".join(part for part in parts if part))


class _Unix(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = control.connect(self._path)


class Daemon:
    """One running daemon."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """The answer's JSON; None for an empty one. Raises Failed, Unavailable."""
        headers = {} if body is None else {"Content-Type": "application/json"}
        content = None if body is None else json.dumps(body).encode()
        connection = _Unix(self._path)
        try:
            connection.request(method, path, content, headers)
            response = connection.getresponse()
            data = response.read(_MAX_ANSWER)
        except (OSError, http.client.HTTPException) as failure:
            raise Unavailable(f"the daemon went away: {failure}", engine=True) from failure
        finally:
            connection.close()
        told = json.loads(data) if data else None
        if response.status >= http.client.BAD_REQUEST:
            raise Failed(response.status, told if isinstance(told, dict) else {})
        return told


@contextmanager
def workspace_of(where: Where) -> Iterator[tuple[Workspace, Path]]:
    """The workspace and its state directory. Raises InvalidConfig, Unavailable."""
    workspace = open_workspace(where.workspace)
    try:
        yield workspace, state_directory(workspace, load_settings(workspace).state.dir)
    finally:
        workspace.close()


def state_of(where: Where) -> Path:
    """The state directory alone."""
    with workspace_of(where) as (_, state):
        return state


def daemon_of(where: Where) -> Daemon | None:
    """The daemon that serves this workspace now, if there is one."""
    try:
        path = state_of(where) / control.SOCKET
    except (InvalidConfig, Unavailable):
        return None
    return Daemon(path) if path.exists() and control.answers(path) else None


def needed(where: Where) -> Daemon:
    """The same. Raises Unavailable (exit code 4) where there is none."""
    found = daemon_of(where)
    if found is None:
        raise Unavailable(
            "no daemon serves this workspace", remedy="hook-executor serve", engine=True
        )
    return found
