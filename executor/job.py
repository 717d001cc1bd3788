"""What may a sandbox know?

A backend sees a ``Job`` and nothing else: not hooks.json, no policy, not the event. So "what can
a hook influence?" is answered by this file alone. The static half, ``Sandbox``, is everything
that must be settled before the first process starts; it is the key by which two runs could share
a prepared (never a used) sandbox. ``Job.digest`` is what the record keeps: what was authorised is
what ran.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from enum import StrEnum

GRACE_SECONDS = 5.0
"""Between SIGTERM and SIGKILL (SPEC section 3, Timeout)."""

EMIT_DESCRIPTOR = 3
"""The hook's end of its emit channel, where its policy grants one."""

PAYLOAD_DIRECTORY = "/run/hook"
PAYLOAD_FILE = f"{PAYLOAD_DIRECTORY}/payload.json"


class Enforce(StrEnum):
    """How memory, pids and cpu must be limited: by a cgroup, or as well as the machine can."""

    BEST = "best"
    CGROUP = "cgroup"


@dataclass(frozen=True, slots=True)
class Mount:
    """One host file or directory shown to the hook, bound non-recursively, nosuid, nodev.

    ``device``/``inode`` are what ``resolve`` saw; the cell looks again, from inside, before it
    runs anything (mount-source races: CVE-2021-30465, CVE-2023-27561).
    """

    source: str
    target: str
    device: int
    inode: int
    directory: bool
    writable: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, ``cpus`` in cores. ``output_bytes`` is captured of stdout and stderr each."""

    memory_bytes: int
    pids: int
    cpus: float
    file_size_bytes: int
    open_files: int
    tmp_bytes: int
    output_bytes: int
    enforce: Enforce = Enforce.BEST


@dataclass(frozen=True, slots=True)
class Sandbox:
    """The static half: the walls.

    ``image``: docker, the image's id (``sha256:…``). ``root``: namespace, "" for the host's
    ``/usr``, else the path of an unpacked image root. ``uid``/``gid`` are host ids, never 0.
    ``payload_capacity_bytes`` sizes the payload's own tmpfs.
    """

    uid: int
    gid: int
    limits: Limits
    mounts: tuple[Mount, ...] = ()
    image: str = ""
    root: str = ""
    runtime: str = ""
    payload_capacity_bytes: int = 16 * 1024 * 1024

    @property
    def key(self) -> str:
        """Sha256 of the canonical form: equal keys may share a prepared sandbox."""
        return _digest(asdict(self))


@dataclass(frozen=True, slots=True)
class Job:
    """The walls and what runs inside them, once.

    ``command`` is a bare name, looked up in PATH inside the sandbox, or an absolute path inside
    it. ``argv[0]`` is what the process sees as its name. ``env`` is the complete environment.
    ``emit_bytes`` is how much it may write to descriptor ``EMIT_DESCRIPTOR``; 0: it has none.
    """

    run_id: str
    sandbox: Sandbox
    command: str
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    cwd: str
    timeout_seconds: float
    payload: bytes
    stdin: bool = False
    grace_seconds: float = GRACE_SECONDS
    command_sha256: str | None = None
    emit_bytes: int = 0

    @property
    def digest(self) -> str:
        """Sha256 over everything that is authorised, without the run's own id."""
        parts = asdict(self)
        del parts["run_id"]
        parts["payload"] = hashlib.sha256(self.payload).hexdigest()
        return _digest(parts)


def _digest(parts: dict[str, object]) -> str:
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
