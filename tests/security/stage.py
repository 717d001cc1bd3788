"""Where do the attempts take place?

A stage is a directory of one backend and one user: a workspace, canaries outside of it, and a
state directory; beside it whoever watches the host. Executors are programs of their own there,
with secrets in their environment, as root or as an ordinary user.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.security.host import Watch
from tests.support import TOOL_CALL, Workspace

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SECRET = "sikrit-canary"

HOSTILE = {
    "LD_PRELOAD": "",
    "BASH_ENV": "/nonexistent/evil",
    "ENV": "/nonexistent/evil",
    "IFS": "x",
    "PERL5OPT": "-Mevil",
    "PYTHONSTARTUP": "/nonexistent/evil",
    "GIT_DIR": "/nonexistent/evil",
    "SSH_AUTH_SOCK": "/nonexistent/agent",
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "DATABASE_URL": SECRET,
    "LANG": "de_DE.UTF-8",
}
"""What the parent of the hooks carries."""


@dataclass(frozen=True, slots=True)
class User:
    """Who runs the executor. ``groups`` beside the own one."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...] = ()

    @property
    def is_us(self) -> bool:
        return self.uid == os.geteuid()

    def options(self) -> dict[str, Any]:
        """For ``subprocess``."""
        if self.is_us:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": list(self.groups)}


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of one hook."""

    status: str
    cause: str
    exit_code: int | None
    signal: int | None
    stage: str | None
    stdout: bytes
    stderr: bytes
    truncated: bool
    seconds: float
    reason: str | None
    notes: tuple[str, ...]
    strays: int
    cpu_seconds: float | None
    stdout_bytes: int
    stderr_bytes: int

    @classmethod
    def read(cls, told: dict[str, Any]) -> Ran:
        decoded = {name: base64.b64decode(told[name]) for name in ("stdout", "stderr")}
        return cls(**{**told, **decoded, "notes": tuple(told["notes"])})

    @property
    def text(self) -> str:
        return self.stdout.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Python:
    """An interpreter and a path that a user can read."""

    program: str
    path: str


def python_for(user: User, spare: Path) -> Python:
    """Ours where the user may read it, else the system's with a copy of everything."""
    ours = Python(sys.executable, str(ROOT))
    if user.is_us or _can_import(user, ours):
        return ours
    packages = next(place for place in sys.path if place.endswith("site-packages"))
    for source, name in (
        (Path(packages), "packages"),
        (ROOT / "executor", "executor"),
        (ROOT / "tests", "tests"),
        (ROOT / "policies", "policies"),
        (ROOT / "sandbox-images", "sandbox-images"),
    ):
        shutil.copytree(source, spare / name, dirs_exist_ok=True)
    subprocess.run(["chmod", "-R", "a+rX", str(spare)], check=True)
    return Python("/usr/bin/python3", f"{spare}:{spare}/packages")


def _can_import(user: User, python: Python) -> bool:
    try:
        ended = subprocess.run(
            [python.program, "-c", "import executor.service, tests.security.hooked"],
            env={"PYTHONPATH": python.path, "PYTHONDONTWRITEBYTECODE": "1"},
            cwd="/",
            capture_output=True,
            check=False,
            **user.options(),
        )
    except OSError:
        return False
    return ended.returncode == 0


@dataclass(slots=True)
class Stage:
    """One backend, one user, one directory."""

    sandbox: str
    user: User
    python: Python
    top: Path
    watch: Watch
    owner: User

    @property
    def workspace(self) -> Workspace:
        return Workspace(self.top / "workspace")

    @property
    def outside(self) -> Path:
        return self.top / "outside"

    @property
    def out(self) -> Path:
        """The granted directory."""
        return self.workspace.path / "out"

    def hook(self, command: str, *arguments: str, **more: object) -> dict[str, Any]:
        """An action that carries our mark."""
        environment = {"SECURITY_MARK": self.watch.mark}
        return {"command": command, "args": list(arguments), "env": environment, **more}

    def bash(self, code: str, **more: object) -> dict[str, Any]:
        return self.hook("bash", "-c", code, **more)

    def python_hook(self, code: str, **more: object) -> dict[str, Any]:
        return self.hook("python3", "-c", code, **more)

    def request(
        self, hooks: Sequence[Mapping[str, Any]], payload: object = None, **more: Any
    ) -> str:
        """Write hooks.json; what ``hooked`` reads."""
        self.workspace.hooks({"tool_call": list(hooks)})
        self.own(self.workspace.path / "hooks.json")
        request = {
            "workspace": str(self.workspace.path),
            "sandbox": self.sandbox,
            "event": "tool_call",
            "payload": TOOL_CALL if payload is None else payload,
        }
        return json.dumps({**request, **more})

    def start(self, request: str, front: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        """An executor, as its user, that has read its request. ``front``: what starts it."""
        source = Path(self.python.path.split(":")[0])
        program = subprocess.Popen(
            [*front, self.python.program, str(source / "tests/security/hooked.py")],
            env=self.environment(),
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **self.user.options(),
        )
        assert program.stdin is not None
        program.stdin.write(request.encode())
        program.stdin.close()
        program.stdin = None
        return program

    def emit(
        self, *hooks: Mapping[str, Any], payload: object = None, **more: Any
    ) -> list[list[Ran]]:
        """Run these hooks at the same time, ``times`` times; afterwards nothing of it is left."""
        request = self.request(hooks, payload, **more)
        before = self.watch.host_state()
        program = self.start(request)
        try:
            output, errors = program.communicate(timeout=100)
        finally:
            if program.poll() is None:
                program.kill()
                program.wait()
        if program.returncode != 0:
            raise AssertionError(errors.decode("utf-8", "replace"))
        if left := self.watch.settled(before):
            raise AssertionError(f"changed on the host: {left}")
        return [[Ran.read(told) for told in answer] for answer in json.loads(output)]

    def run(self, hook: Mapping[str, Any], **more: Any) -> Ran:
        """One hook, once."""
        ((ran,),) = self.emit(hook, **more)
        return ran

    def environment(self) -> dict[str, str]:
        return {
            **{name: value for name, value in HOSTILE.items() if value},
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(self.top / "home"),
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")),
            "TMPDIR": str(self.top / "tmp"),
            "XDG_STATE_HOME": str(self.top / "state"),
            "PYTHONPATH": self.python.path,
            "PYTHONDONTWRITEBYTECODE": "1",
            "SECURITY_MARK": self.watch.mark,
        }

    def own(self, *paths: Path) -> None:
        """Give a path in the workspace to its owner."""
        if not self.owner.is_us:
            for path in paths:
                os.chown(path, self.owner.uid, self.owner.gid, follow_symlinks=False)

    def policy(self, text: str) -> None:
        """A policy of the test's own, bound to every hook."""
        self.workspace.policy_for_all(text)
        workspace = self.workspace.path
        for name in ("config.toml", "policies", "policies/test.toml"):
            os.chown(workspace / name, self.user.uid, self.user.gid)


def make_stage(sandbox: str, user: User, python: Python, owner: User | None = None) -> Stage:
    """A new stage below the system's directory for temporary files.

    ``owner``: whose the workspace is, where not the executor's own user's. Root's hooks run as
    that one; with none, as the private id.
    """
    top = Path(tempfile.mkdtemp(prefix="hook-security-"))
    top.chmod(0o755)
    for name, mode in (
        ("workspace", 0o755),
        ("workspace/sub", 0o755),
        ("workspace/out", 0o777),
        ("outside", 0o755),
        ("outside/open", 0o777),
        ("state", 0o700),
        ("tmp", 0o755),
        ("home", 0o700),
    ):
        (top / name).mkdir()
        (top / name).chmod(mode)
    for name, mode in (("outside/secret", 0o644), ("outside/open/file", 0o666)):
        (top / name).write_text(SECRET)
        (top / name).chmod(mode)
    watch = Watch(
        state_home=top / "state",
        places=(top / "workspace", top / "outside", top / "tmp", top / "home"),
        mark=f"mark-{top.name}",
        uid=None if (owner or user).is_us else (owner or user).uid,
        granted=top / "workspace" / "out",
        engine=sandbox == "docker",
    )
    stage = Stage(sandbox, user, python, top, watch, owner or user)
    stage.own(top, *top.rglob("*"))
    for path in (top / "state", top / "home", top / "tmp"):
        os.chown(path, user.uid, user.gid)
    shutil.copy(HERE / "driver.py", stage.workspace.path / "driver.py")
    (stage.workspace.path / "driver.py").chmod(0o644)
    return stage
