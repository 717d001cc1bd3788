"""Which of the executors whose traces we find are still alive?

Every executor holds a lock on a file of its own. What carries the label of an instance whose lock
is free was left behind and may be swept; process ids would prove nothing (they are reused, and
mean nothing across namespaces). An id names its *realm*, the directory with the locks: an instance
judges only its own realm, so that two views of /tmp, two homes or two hosts at one engine never
take each other's living runs for dead ones.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from executor.disk.private import require_own
from executor.errors import Unavailable

_ATTEMPTS = 16


@dataclass(frozen=True, slots=True)
class Instance:
    """One running executor. ``id`` is ``<realm>-<random>``: letters, digits and one dash."""

    id: str
    realm: str
    directory: Path
    descriptor: int

    @classmethod
    def open(cls, directory: Path | None = None) -> Instance:
        """Make and lock this executor's file. Raises Unavailable where the directory cannot be
        had or could have been planted by somebody else."""
        place = default_directory() if directory is None else directory
        realm = _realm(place)
        for _ in range(_ATTEMPTS):
            name = f"{realm}-{secrets.token_hex(6)}"
            path = place / f"{name}.lock"
            try:
                descriptor = os.open(
                    path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
                )
            except OSError as failure:
                message = f"no lock file can be made in {place}: {failure.strerror}"
                raise Unavailable(message) from failure
            # A sweeper that sees it before it is locked holds it for a moment, and removes it.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _same_file(path, descriptor):
                return cls(name, realm, place, descriptor)
            os.close(descriptor)
        raise Unavailable(f"no lock file could be kept in {place}")

    def close(self) -> None:
        """Give the lock back; what is still labelled with this id may be swept from now on."""
        self._path(self.id).unlink(missing_ok=True)
        os.close(self.descriptor)

    def is_dead(self, other: str) -> bool:
        """Whether this id belongs to our realm and nobody holds its lock any more."""
        if not other.startswith(f"{self.realm}-") or other == self.id:
            return False
        try:
            with _only_lock(self._path(other)) as dead:
                return dead
        except FileNotFoundError:
            return True
        except OSError:
            return False

    def forget_dead(self) -> int:
        """Remove the lock files of dead instances; call after sweeping what they left."""
        removed = 0
        for path in self.directory.glob(f"{self.realm}-*.lock"):
            with contextlib.suppress(OSError), _only_lock(path) as dead:
                if dead:  # removed under its lock: nobody can have taken it meanwhile
                    path.unlink()
                    removed += 1
        return removed

    def _path(self, name: str) -> Path:
        return self.directory / f"{name}.lock"


def default_directory() -> Path:
    """Per user, and the same for all workspaces."""
    state = os.environ.get("XDG_STATE_HOME", "")
    if not state.startswith("/"):
        home = os.environ.get("HOME", "")
        if not home.startswith("/"):
            return Path(f"/tmp/hook-executor-{os.geteuid()}/instances")  # noqa: S108  (checked)
        state = f"{home}/.local/state"
    return Path(state) / "hook-executor" / "instances"


def _realm(place: Path) -> str:
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = os.stat(place, follow_symlinks=False)
    except OSError as failure:
        raise Unavailable(
            f"the directory {place} for lock files cannot be had: {failure.strerror}",
            remedy="set XDG_STATE_HOME to a directory that you may write",
        ) from failure
    require_own(place, status, setting="set XDG_STATE_HOME to a directory of your own")
    machine = _machine()
    identity = f"{machine}:{status.st_dev}:{status.st_ino}"
    return hashlib.sha256(identity.encode()).hexdigest()[:8]


@contextlib.contextmanager
def _only_lock(path: Path) -> Iterator[bool]:
    """Whether nobody else holds the lock; then we do, inside the block. Raises OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def _same_file(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(descriptor))
    except OSError:
        return False


def _machine() -> str:
    """Tells two hosts that share an engine or a home apart."""
    try:
        return Path("/etc/machine-id").read_text(encoding="ascii").strip() or os.uname().nodename
    except (OSError, UnicodeDecodeError):
        return os.uname().nodename
