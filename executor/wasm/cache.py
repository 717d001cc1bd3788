"""Which native code belongs to these bytes?

A component is compiled once, in a process of its own, and kept in a private directory below the
executor's state, keyed by the sha256 of the component, the version of wasmtime and the machine. It
is memory-mapped code: nothing is ever loaded from a plugin's folder, the directory must be ours and
nobody else's to write, and a file appears in it complete or not at all.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

import anyio
import anyio.to_thread

from executor.cell import seccomp
from executor.disk import scratch
from executor.disk.private import require_own
from executor.errors import Unavailable
from executor.plan import Identity

COMPILE_SECONDS = 180.0
REVISION = "1"
"""Counts the changes of ``guest.make_engine`` and of what ``compiler`` reports."""
_PROGRAM = "from executor.wasm.compiler import main; main()"
_MAX_FACTS_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Compiled:
    """Native code in the cache, and what its compiler learned (``interface.Facts``)."""

    sha256: str
    native: Path
    interface: str
    on_event: bool
    on_gate: bool
    imports: Mapping[str, str]
    wasi: bool
    http: Sequence[str]

    @property
    def kv(self) -> bool:
        return "kv" in self.imports


class Rejected(Exception):
    """The component cannot be used; the message says why."""


class Cache:
    """The compiled components of one executor."""

    def __init__(self, directory: Path, identity: Identity) -> None:
        """Create the directory (0700); ``identity`` is whom the compiler becomes. Raises
        Unavailable where the directory could not be trusted."""
        self.directory = directory
        self._identity = identity
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = os.stat(directory, follow_symlinks=False)
        except OSError as failure:
            raise Unavailable(
                f"the cache {directory} cannot be used: {failure.strerror}",
                remedy="set XDG_STATE_HOME, or [state] dir in config.toml, to one you may write",
            ) from failure
        require_own(
            directory,
            status,
            setting="set XDG_STATE_HOME, or [state] dir in config.toml, to a directory of your own",
        )
        scratch.sweep(directory)

    def find(self, sha256: str) -> Compiled | None:
        """What is there already; None where it has to be compiled."""
        native, facts = self._paths(sha256)
        try:
            if not stat.S_ISREG(os.stat(native, follow_symlinks=False).st_mode):
                return None
            found = _compiled(sha256, native, facts.read_bytes())
        except (OSError, Rejected):
            return None
        with contextlib.suppress(OSError):
            os.utime(native)
        return found

    def forget(self, sha256: str) -> None:
        """Native code that a worker could not load: the next look compiles again."""
        for path in self._paths(sha256):
            path.unlink(missing_ok=True)

    async def compile(self, sha256: str, wasm: bytes) -> Compiled:
        """Compile it now. Raises Rejected; cancelling ends the process."""
        native, facts = self._paths(sha256)
        with scratch.unfinished(self.directory) as temporary:
            handle = os.open(temporary, os.O_RDWR | os.O_CLOEXEC)
            try:
                report = await _run_compiler(wasm, handle, self._identity)
                compiled = _compiled(sha256, native, report)
                os.fchmod(handle, 0o444)
            finally:
                os.close(handle)
            self._write(facts, report)
            os.replace(temporary, native)
        return compiled

    def _write(self, path: Path, data: bytes) -> None:
        with scratch.unfinished(self.directory) as temporary:
            Path(temporary).write_bytes(data)
            os.replace(temporary, path)

    def _paths(self, sha256: str) -> tuple[Path, Path]:
        stem = f"{sha256}-{_engine()}"
        return self.directory / f"{stem}.cwasm", self.directory / f"{stem}.json"


@cache
def _engine() -> str:
    """The part of the key that says who may load it. Without importing wasmtime."""
    try:
        version = metadata.version("wasmtime")
    except metadata.PackageNotFoundError:
        raise Unavailable(
            "wasmtime is not installed, so plugins cannot run", remedy="pip install wasmtime"
        ) from None
    return f"wasmtime{version}-{platform.machine()}-{REVISION}"


async def _run_compiler(wasm: bytes, native: int, identity: Identity) -> bytes:
    """The compiler's report. Native code goes to the open file ``native``."""
    with tempfile.TemporaryFile() as source:
        await anyio.to_thread.run_sync(source.write, wasm)
        source.seek(0)
        os.set_inheritable(native, True)
        # Descriptor 3 is the compiler's; dup2 there would close whatever we have at 3.
        program = f"import os; os.dup2({native}, 3); {_PROGRAM}"
        orders = {
            "uid": identity.uid,
            "gid": identity.gid,
            "seccomp": seccomp.hook_program().hex(),
        }
        try:
            with anyio.fail_after(COMPILE_SECONDS):
                process = await anyio.run_process(
                    [sys.executable, "-I", "-c", program, json.dumps(orders)],
                    stdin=source.fileno(),
                    stderr=subprocess.PIPE,
                    check=False,
                    env={},
                    start_new_session=True,
                    pass_fds=(native,),
                )
        except TimeoutError:
            raise Rejected(f"takes longer than {COMPILE_SECONDS:g} seconds to compile") from None
    if process.returncode != 0:
        last = process.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        why = f": {last[0]}" if last else ""
        raise Rejected(f"cannot be compiled, the compiler ended with {process.returncode}{why}")
    return process.stdout


def _compiled(sha256: str, native: Path, report: bytes) -> Compiled:
    """What the compiler said, strictly: it has read bytes that nobody trusts."""
    try:
        facts = json.loads(report) if len(report) <= _MAX_FACTS_BYTES else None
    except ValueError:
        facts = None
    if not isinstance(facts, dict):
        raise Rejected("cannot be compiled: the compiler said nothing that makes sense")
    faults, imports, http = facts.get("faults"), facts.get("imports"), facts.get("http")
    interface = facts.get("interface")
    if (
        not isinstance(faults, list)
        or not isinstance(imports, dict)
        or not isinstance(http, list)
        or not isinstance(interface, str)
        or not all(isinstance(one, str) for one in (*faults, *http, *imports, *imports.values()))
    ):
        raise Rejected("cannot be compiled: the compiler's report is malformed")
    if faults:
        raise Rejected("; ".join(faults))
    return Compiled(
        sha256=sha256,
        native=native,
        interface=interface,
        on_event=facts.get("on_event") is True,
        on_gate=facts.get("on_gate") is True,
        imports=imports,
        wasi=facts.get("wasi") is True,
        http=tuple(http),
    )
