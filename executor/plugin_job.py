"""What may a plugin's run know?

``PluginJob`` is to the WASM backend what ``Job`` is to the others: the backend sees this and
nothing else. The static half, ``PluginSandbox``, is what manifest, policy and compiler agreed on;
it is made once a snapshot. ``digest`` is what the record keeps.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Granted:
    """One directory that a plugin may reach, as it was seen when it was granted.

    ``source`` is the grant's real path and ``below`` the way down from it ("" for itself), opened
    without leaving it; ``path`` is what the plugin calls it. ``device``/``inode`` are the source's.
    """

    path: str
    source: str
    below: str
    device: int
    inode: int
    writable: bool


@dataclass(frozen=True, slots=True)
class PluginSandbox:
    """The static half. Sizes in bytes, times in seconds.

    ``sha256`` is the component's, ``native`` its compiled code in the cache; ``interface``,
    ``imports``, ``wasi`` and ``http`` are the compiler's facts. ``environment``: whether the guest
    sees the ``ZERO_HOOK_*`` variables.
    """

    name: str
    sha256: str
    native: Path
    interface: str
    imports: Mapping[str, str]
    wasi: bool
    http: Sequence[str]
    config: Mapping[str, str]
    directories: tuple[Granted, ...]
    environment: bool
    memory_bytes: int
    timeout_seconds: float
    output_bytes: int
    kv_bytes: int
    static_digest: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = {
            "name": self.name,
            "sha256": self.sha256,
            "config": dict(self.config),
            "directories": [
                (one.path, one.source, one.below, one.writable) for one in self.directories
            ],
            "environment": self.environment,
            "limits": [self.memory_bytes, self.timeout_seconds, self.output_bytes, self.kv_bytes],
        }
        text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
        object.__setattr__(self, "static_digest", hashlib.sha256(text.encode()).hexdigest())

    @property
    def remembers(self) -> bool:
        """Whether it has a key-value store: then its events come one after the other."""
        return "kv" in self.imports


@dataclass(frozen=True, slots=True)
class PluginJob:
    """One event for one plugin. ``gate``: on-gate is called, and answers."""

    sandbox: PluginSandbox
    event: str
    session_id: str
    timestamp: str
    envelope: bytes
    gate: bool = False

    @property
    def digest(self) -> str:
        """Sha256 over everything that is authorised."""
        parts = f"{self.sandbox.static_digest}\n{self.event}\n{self.gate}\n".encode()
        return hashlib.sha256(parts + hashlib.sha256(self.envelope).digest()).hexdigest()

    @property
    def environment(self) -> list[tuple[str, str]]:
        """What the guest sees as its environment; nothing where nothing was granted."""
        if not self.sandbox.environment:
            return []
        return [
            ("ZERO_HOOK_EVENT", self.event),
            ("ZERO_HOOK_SESSION", self.session_id),
            ("ZERO_HOOK_TIMESTAMP", self.timestamp),
        ]
