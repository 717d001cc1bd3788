"""Cells for tests: the built one, and one with the sanitizers in it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from executor.backends.namespace import NamespaceBackend
from executor.cell import launch
from executor.disk.instance import Instance
from executor.errors import Unavailable
from executor.job import Enforce, Job, Limits, Mount, Sandbox
from executor.outcome import Outcome
from tests.support import missing

SOURCES = Path(launch.__file__).parent
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1")
OUTSIDE_ID = 64123
"""Whom hooks run as when root runs the tests."""

RunArgv = Callable[..., Awaitable[Outcome]]


def compile_with_sanitizers(output: Path, *sources: Path) -> Path:
    """A dynamic, instrumented binary; skips where the compiler has no sanitizers."""
    compiler = shutil.which("cc")
    if compiler is None:
        missing("cc", "no C compiler")
        raise AssertionError
    command = [compiler, *SANITIZERS, "-std=gnu11", f"-I{SOURCES}", "-o", str(output)]
    answer = subprocess.run(
        [*command, *map(str, sources)], capture_output=True, text=True, check=False
    )
    if "cannot find -l" in answer.stderr:
        missing("sanitizers", "cc has no libasan or libubsan")
    assert answer.returncode == 0, answer.stderr
    return output


def a_mount(path: Path, *, target: str | None = None, writable: bool = False) -> Mount:
    seen = path.stat()
    return Mount(
        source=str(path),
        target=target or str(path),
        device=seen.st_dev,
        inode=seen.st_ino,
        directory=path.is_dir(),
        writable=writable,
    )


def a_job(
    *argv: str,
    mounts: tuple[Mount, ...] = (),
    cwd: str = "/tmp",
    timeout: float = 30,
    grace: float = 5,
    payload: bytes = b"{}\n",
    stdin: bool = False,
    env: dict[str, str] | None = None,
    memory: int = 128 << 20,
    pids: int = 64,
    output: int = 65536,
    root: str = "",
    enforce: Enforce = Enforce.BEST,
) -> Job:
    privileged = os.geteuid() == 0
    sandbox = Sandbox(
        uid=OUTSIDE_ID if privileged else os.geteuid(),
        gid=OUTSIDE_ID if privileged else os.getegid(),
        limits=Limits(memory, pids, 1.0, 16 << 20, 256, 16 << 20, output, enforce),
        mounts=mounts,
        root=root,
        payload_capacity_bytes=max(4096, len(payload)),
    )
    return Job(
        run_id="r",
        sandbox=sandbox,
        command=argv[0],
        argv=argv,
        env=tuple({"PATH": "/usr/local/bin:/usr/bin:/bin", **(env or {})}.items()),
        cwd=cwd,
        timeout_seconds=timeout,
        payload=payload,
        stdin=stdin,
        grace_seconds=grace,
    )


def reachable(directory: Path) -> None:
    """Open pytest's private directories to the hook's user."""
    for each in (directory, *directory.parents[:2]):
        if each.stat().st_uid == os.geteuid():
            each.chmod(0o755)


@pytest.fixture(scope="session")
def native() -> None:
    """Skips where this machine cannot build a sandbox."""
    try:
        from executor.cell.probe import probe

        probe()
    except Unavailable as reason:
        missing("namespace", str(reason))


@pytest.fixture
async def backend(native: None) -> AsyncIterator[NamespaceBackend]:
    instance = Instance.open()
    async with NamespaceBackend(instance=instance) as opened:
        yield opened
    instance.close()


@pytest.fixture
def run(backend: NamespaceBackend) -> RunArgv:
    async def once(*argv: str, **changes: object) -> Outcome:
        return await backend.run(a_job(*argv, **changes))  # type: ignore[arg-type]

    return once


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory that the hook's user can reach, by a path of its own below /tmp."""
    reachable(tmp_path)
    (tmp_path / "file").write_text("content")
    return tmp_path


@pytest.fixture(scope="session")
def sanitized_cell(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("sanitized") / "cell"
    return compile_with_sanitizers(output, *sorted(SOURCES.glob("*.c")))
