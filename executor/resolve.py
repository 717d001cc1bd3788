"""What is there, really?

The one look at the disk for a run: every path of an action and of its policy is opened by
descriptor, without a race, and handed on as values (real path, device, inode, digest). Rules about
*words* live in ``admission`` and ``policy``; here they are asked again about real paths, since a
symlink can make an innocent word lead anywhere. The cell looks a last time, from inside.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from executor.admission import PROTECTED_NAMES
from executor.disk.aliases import real_places, with_second_names
from executor.disk.beneath import open_beneath, open_plain, open_unlinked, real_path
from executor.disk.identity import may, may_read
from executor.disk.store import MAX_COMMAND_BYTES, CommandTooLarge, Store
from executor.disk.workspace import Workspace
from executor.hooks import Action
from executor.job import Mount
from executor.outcome import Cause, Outcome, error
from executor.plan import Files, Identity, belongs_to_root
from executor.policy import Policy, grant_fault

_FAULTS_OF_THE_FILE = (
    errno.EACCES,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOTDIR,
    errno.ENXIO,
    errno.EPERM,
)
"""Why a command cannot be had; anything else (a full disk, no descriptors) is the machine's."""
HIDDEN_WORKSPACE_CWD = "/tmp"  # noqa: S108  (inside the sandbox: its private tmpfs)


class Resolver:
    """Looks things up for one snapshot of the configuration; safe to call from threads.

    ``protected`` are absolute paths that no writable grant may hold or lie below: the
    configuration, the state directory and every hook's command. ``private`` may not even be read.
    ``writable`` are the grants of all policies: below one of them a link may be a hook's.
    """

    def __init__(
        self,
        workspace: Workspace,
        store: Store,
        identity: Identity,
        *,
        protected: Sequence[str] = (),
        private: Sequence[str] = (),
        writable: Sequence[str] = (),
    ) -> None:
        self._workspace = workspace
        self._store = store
        self._identity = identity
        self._private = tuple(private)
        # Run by root for a user's workspace: hooks.json may be that user's, and must not name
        # what only root can read.
        self._lent_eyes = os.geteuid() == 0 and workspace.status.st_uid != 0
        self._writable = tuple(self._absolute(path) for path in writable)
        self._protected = (
            *(os.path.join(workspace.path, name) for name in PROTECTED_NAMES),
            *protected,
            *private,
        )

    def files(self, action: Action, policy: Policy) -> Files:
        """Everything of one hook that lives on the disk. Faults are values; no OSError leaves."""
        mounts: dict[str, Mount] = {}
        faults: list[str] = []
        shown = policy.filesystem.workspace != "none"
        if shown:
            workspace = self._workspace
            mounts[workspace.path] = Mount(
                workspace.path, workspace.path, workspace.device, workspace.inode, directory=True
            )
        for path in policy.filesystem.read:
            self._grant(self._absolute(path), mounts, faults, writable=False, policy=policy.name)
        for path in policy.filesystem.write:
            self._grant(self._absolute(path), mounts, faults, writable=True, policy=policy.name)
        cwd = self._cwd(action.cwd, mounts, faults, shown=shown)
        command = self._command(action.command, mounts, faults, shown=shown)
        ordered = tuple(sorted(mounts.values(), key=lambda mount: mount.target.count("/")))
        return replace(command, mounts=ordered, cwd=cwd, faults=tuple(faults))

    def _absolute(self, path: str) -> str:
        return os.path.normpath(os.path.join(self._workspace.path, path))

    def _grant(
        self, path: str, mounts: dict[str, Mount], faults: list[str], *, writable: bool, policy: str
    ) -> None:
        key = "filesystem.write" if writable else "filesystem.read"
        where = f'policy "{policy}": {key} {path}'
        flags = os.O_PATH | (os.O_DIRECTORY if writable else 0)
        try:
            with _opened(self._open_grant, path, flags) as descriptor:
                real = real_path(descriptor)
                status = os.fstat(descriptor)
                fault = self._grant_fault(path, real, descriptor, writable=writable)
        except FileNotFoundError:
            faults.append(f"{where} does not exist; create it: {self._creation(path)}")
            return
        except NotADirectoryError:
            faults.append(f"{where} is not a directory; only directories can be granted writable")
            return
        except OSError as failure:
            loop = failure.errno == errno.ELOOP
            why = "a symbolic link is on the way; name its target" if loop else failure.strerror
            faults.append(f"{where}: {why}")
            return
        if fault is not None:
            faults.append(f"{where}: {fault}")
            return
        mounts[path] = Mount(
            real,
            path,
            status.st_dev,
            status.st_ino,
            directory=stat.S_ISDIR(status.st_mode),
            writable=writable,
        )

    def _open_grant(self, path: str, flags: int) -> int:
        """In the workspace and in what hooks may write, a link may be somebody's who is not
        trusted, and may change meanwhile: there none is followed."""
        workspace = self._workspace
        if _within(path, workspace.path):
            return open_unlinked(workspace.descriptor, os.path.relpath(path, workspace.path), flags)
        around = [one for one in self._writable if path != one and _within(path, one)]
        if not around:
            return open_plain(path, flags)
        outermost = min(around, key=len)
        with _opened(open_plain, outermost, os.O_PATH | os.O_DIRECTORY) as base:
            return open_unlinked(base, os.path.relpath(path, outermost), flags)

    def _grant_fault(self, path: str, real: str, descriptor: int, *, writable: bool) -> str | None:
        """Why an existing path cannot be granted: by its words, its real place, or what it is."""
        protected = self._protected if writable else self._private
        for name in dict.fromkeys((path, real)):
            fault = grant_fault(
                name, workspace=self._workspace.path, protected=protected, writable=writable
            )
            if fault is not None:
                return fault
        mode = os.fstat(descriptor).st_mode
        if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            return "it is neither a directory nor a regular file"
        if not writable:
            return None
        for name in PROTECTED_NAMES:
            with contextlib.suppress(FileNotFoundError):
                owner = os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_uid
                # What a hook made itself protects nothing: refusing it would let one hook turn
                # off all that share the directory. (An ordinary user's hooks have the user's id.)
                if owner != self._identity.uid or owner == os.geteuid():
                    return f'it holds "{name}", which no hook may ever write; grant one below'
        if (fault := self._alias_fault(real)) is not None:
            return fault
        if not may(self._identity, descriptor, 0o3):
            uid, gid = self._identity.uid, self._identity.gid
            return (
                f"hooks run as uid {uid}, which cannot write there; "
                f"run: chown {uid}:{gid} {real}   or: setfacl -m u:{uid}:rwx {real}"
            )
        return None

    def _alias_fault(self, place: str) -> str | None:
        """Whether something protected could be written there under another name."""
        for name, real in real_places(self._protected):
            if grant_fault(place, workspace="", protected=(real,)) is not None:
                return f"the link {name}, which is protected, leads there"
        for name in with_second_names(self._protected):
            return f"{name}, which is protected, has a second name (a hard link); make it a copy"
        return None

    def _creation(self, path: str) -> str:
        uid, gid = self._identity.uid, self._identity.gid
        if os.geteuid() != 0:
            return f"mkdir -p {path}"
        return f"install -d -o {uid} -g {gid} {path}"

    def _cwd(
        self, cwd: str | None, mounts: dict[str, Mount], faults: list[str], *, shown: bool
    ) -> str:
        root = self._workspace.path
        if cwd is None:
            return root if shown else HIDDEN_WORKSPACE_CWD
        path = self._absolute(cwd)
        allowed = [mount for mount in mounts.values() if mount.directory]
        inside = [mount for mount in allowed if _within(path, mount.target)]
        if not inside:
            reason = "leaves the workspace" if shown or not _within(path, root) else "is hidden"
            faults.append(f"cwd {path} {reason} and the policy grants no directory that holds it")
            return HIDDEN_WORKSPACE_CWD
        nearest = max(inside, key=lambda mount: len(mount.target))
        relative = os.path.relpath(path, nearest.target)
        flags = os.O_PATH | os.O_DIRECTORY
        try:
            with (
                _opened(open_plain, nearest.source, flags) as base,
                _opened(lambda name, how: open_beneath(base, name, how), relative, flags) as target,
            ):
                real = os.path.relpath(real_path(target), real_path(base))
        except OSError as failure:
            reason = (
                f"leads out of {nearest.target}"
                if failure.errno == errno.EXDEV
                else str(failure.strerror)
            )
            faults.append(f"cwd {path}: {reason}")
            return HIDDEN_WORKSPACE_CWD
        return os.path.normpath(os.path.join(nearest.target, real))

    def _command(
        self, command: str, mounts: dict[str, Mount], faults: list[str], *, shown: bool
    ) -> Files:
        if belongs_to_root(command):
            return Files((), command, "")
        inside = not command.startswith("/") or _within(command, self._workspace.path)
        path = self._absolute(command)
        relative = os.path.relpath(path, self._workspace.path)
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
        try:
            with _opened(
                (lambda name, how: open_beneath(self._workspace.descriptor, name, how))
                if inside
                else open_plain,
                relative if inside else path,
                flags,
            ) as descriptor:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    return _unusable(path, Cause.NOT_EXECUTABLE, "it is not a regular file")
                if not os.fstat(descriptor).st_mode & 0o111:
                    return _unusable(
                        path, Cause.NOT_EXECUTABLE, f"no execute bit; run: chmod +x {path}"
                    )
                if self._lent_eyes and not may_read(
                    self._identity, descriptor, real_path(descriptor)
                ):
                    faults.append(
                        f"command {path}: uid {self._identity.uid}, whose workspace this is, may "
                        "not read it; root does not read files for others"
                    )
                    return Files((), path, "")
                stored = self._store.put(descriptor)
                target = real_path(descriptor) if inside and shown else path
        except FileNotFoundError:
            return _unusable(path, Cause.NOT_FOUND, "there is no such file on this host")
        except CommandTooLarge:
            return _unusable(
                path, Cause.NOT_EXECUTABLE, f"it is larger than {MAX_COMMAND_BYTES} bytes"
            )
        except OSError as failure:
            if failure.errno == errno.EXDEV:
                faults.append(f"command {path}: leads out of the workspace; give its absolute path")
                return Files((), path, "")
            its_own = failure.errno in _FAULTS_OF_THE_FILE
            cause = Cause.NOT_EXECUTABLE if its_own else Cause.SETUP
            return _unusable(path, cause, str(failure.strerror))
        mounts[target] = Mount(stored.path, target, stored.device, stored.inode, directory=False)
        return Files((), path, "", command_sha256=stored.sha256)


def _unusable(path: str, cause: Cause, why: str) -> Files:
    failure: Outcome = error(f"command {path}: {why}", cause)
    return Files((), path, "", failure=failure)


def _within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


@contextlib.contextmanager
def _opened(opener: Callable[[str, int], int], path: str, flags: int) -> Iterator[int]:
    descriptor = opener(path, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
