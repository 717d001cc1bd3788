"""What is there to say about one hook?

The nouns of ``explain`` and ``lint``. Names of variables, never their values: those may be secrets.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from executor.grants import inside
from executor.job import Mount
from executor.plan import Identity, Place
from executor.subscription import Subscription


class Weight(StrEnum):
    """What a finding means: it would fail, or it may surprise."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know. ``read``/``write`` are the grants that would mend it."""

    weight: Weight
    pointer: str
    message: str
    read: str | None = None
    write: str | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """One hook as it would run. ``environment`` and ``stripped`` are names only; values may be
    secrets. ``timeout_ms`` is after every clamp."""

    id: str
    subscription: Subscription
    because: str
    runs_as: Identity
    place: Place | None
    cwd: str
    timeout_ms: int
    mounts: tuple[Mount, ...]
    environment: tuple[str, ...]
    stripped: tuple[str, ...]
    command_sha256: str | None
    findings: tuple[Finding, ...] = ()

    @property
    def pointer(self) -> str:
        """The entry's place in hooks.json."""
        return self.subscription.hook.pointer

    def mount_of(self, path: str) -> Mount | None:
        """The mount through which the hook sees a path of the host."""
        holding = [mount for mount in self.mounts if inside(path, mount.target)]
        return max(holding, key=lambda mount: len(mount.target), default=None)

    def grants(self, path: str) -> bool:
        """Whether the policy names the path, be there what may: a fault of its own tells that."""
        files = self.subscription.policy.filesystem
        return any(inside(path, one) for one in (*files.read, *files.write))

    @property
    def fails(self) -> bool:
        return any(finding.weight is Weight.ERROR for finding in self.findings)

    @property
    def reads(self) -> tuple[str, ...]:
        """The paths that ``filesystem.read`` lacks."""
        return tuple(dict.fromkeys(found.read for found in self.findings if found.read))

    @property
    def writes(self) -> tuple[str, ...]:
        """The directories that ``filesystem.write`` lacks."""
        return tuple(dict.fromkeys(found.write for found in self.findings if found.write))


class Look(Protocol):
    """The questions about this machine that no pure rule can answer."""

    def kind(self, path: str) -> str | None:
        """Whether the host has a "file", a "directory" or an "other" there, or None."""
        ...

    def readable(self, path: str, below: str) -> bool:
        """Whether the hook's id can read ``path``, when ``below`` is mounted for it."""
        ...

    def writable(self, path: str) -> bool:
        """Whether the hook's id can make files in an existing directory."""
        ...

    def ours(self, path: str) -> bool:
        """Whether whoever runs us can make the missing ``path``, without sudo."""
        ...

    def privileged(self) -> bool:
        """Whether root runs us."""
        ...

    def interpreter(self, path: str) -> str | None:
        """What the first line of a script names: a path, or a bare name after ``env``."""
        ...

    def offers(self, command: str) -> bool | None:
        """Whether the sandbox's root has this bare name or path; None where nobody can tell."""
        ...
