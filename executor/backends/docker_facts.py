"""What kind of engine is it, and what follows from that? Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from executor.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from executor.job import Sandbox

Document = dict[str, Any]

_WANTED = {"runc": ((1, 2, 8), "CVE-2025-31133, CVE-2025-52565, CVE-2025-52881")}
"""Component → the first version without known ways out of a container, and those."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What an engine says of itself."""

    version: str
    api_version: str
    processors: int
    runtimes: frozenset[str]
    rootless: bool
    remapped: bool
    """The engine maps container ids to other host ids (userns-remap)."""
    missing: tuple[str, ...]
    """Controls that this engine cannot give, and that no run may lack."""
    warnings: tuple[str, ...]
    """What its administrator should know; no reason to refuse."""

    @property
    def described(self) -> str:
        """One line for people."""
        kinds = [name for name in ("rootless", "remapped") if getattr(self, name)]
        parts = [f"version {self.version}", f"API {self.api_version}", *kinds, *self.warnings]
        return ", ".join(parts)


def socket_urls(environment: Mapping[str, str], uid: int) -> tuple[str, ...]:
    """Where an engine may listen: DOCKER_HOST alone where it is set, else the usual sockets."""
    if host := environment.get("DOCKER_HOST"):
        return (host,)
    runtime = environment.get("XDG_RUNTIME_DIR") or f"/run/user/{uid}"
    paths = ["/var/run/docker.sock", f"{runtime}/docker.sock", f"{runtime}/podman/podman.sock"]
    if uid == 0:
        paths.append("/run/podman/podman.sock")
    return tuple(f"unix://{path}" for path in paths)


def read_facts(info: Document, version: Document, api_version: str) -> Facts:
    """The answers to ``GET /info`` and ``GET /version``."""
    options = {
        option.split(",")[0].removeprefix("name=") for option in info.get("SecurityOptions") or ()
    }
    needed = {
        "linux containers": info.get("OSType", "linux") == "linux",
        "seccomp": "seccomp" in options,
        "a memory limit": info.get("MemoryLimit", True),
        "a swap limit": info.get("SwapLimit", True),
        "a limit of processes": info.get("PidsLimit", True),
        "a cpu quota": info.get("CpuCfsQuota", True),
        # It wants a profile's path instead of its JSON, too, but these it refuses (seen: 4.3.1).
        "tmpfs mounts with uid, gid and nr_inodes (it is Podman)": "Podman Engine"
        not in {one.get("Name") for one in version.get("Components") or ()},
    }
    return Facts(
        version=str(info.get("ServerVersion", "")),
        api_version=api_version,
        processors=int(info.get("NCPU") or 1),
        runtimes=frozenset(info.get("Runtimes") or ()),
        rootless="rootless" in options,
        remapped="userns" in options,
        missing=tuple(name for name, given in needed.items() if not given),
        warnings=tuple(_outdated(version)),
    )


def _outdated(version: Document) -> Iterator[str]:
    for component in version.get("Components") or ():
        name, number = str(component.get("Name")), str(component.get("Version"))
        wanted, why = _WANTED.get(name, ((), ""))
        found = re.match(r"v?(\d+)\.(\d+)\.(\d+)", number)
        if found and wanted and tuple(map(int, found.groups())) < wanted:
            yield f"{name} {number} is older than {'.'.join(map(str, wanted))} ({why})"


def container_user(sandbox: Sandbox, facts: Facts, own_uid: int) -> str:
    """Pure: "uid:gid" inside, so that the host sees ``sandbox.uid``. Raises ``Refused``.

    A rootless engine maps its own user to 0 inside: the one case in which "0:0" is asked for.
    """
    if sandbox.uid == 0 or sandbox.gid == 0:
        raise Refused("a hook never runs as host root (uid or gid 0)")
    if facts.rootless:
        if sandbox.uid != own_uid:
            raise Refused(f"a rootless engine cannot run a hook as host uid {sandbox.uid}")
        return "0:0"
    if facts.remapped and any(mount.writable for mount in sandbox.mounts):
        raise Refused("this engine remaps user ids (userns-remap): no directory can be writable")
    return f"{sandbox.uid}:{sandbox.gid}"
