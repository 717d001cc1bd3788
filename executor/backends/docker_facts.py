"""What kind of engine is it, and what follows from that? Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from executor.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from executor.job import Sandbox

Document = dict[str, Any]


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


def socket_urls(environment: Mapping[str, str], uid: int) -> tuple[str, ...]:
    """Where an engine may listen: DOCKER_HOST alone where it is set, else the usual sockets."""
    if host := environment.get("DOCKER_HOST"):
        return (host,)
    runtime = environment.get("XDG_RUNTIME_DIR") or f"/run/user/{uid}"
    paths = ["/var/run/docker.sock", f"{runtime}/docker.sock", f"{runtime}/podman/podman.sock"]
    if uid == 0:
        paths.append("/run/podman/podman.sock")
    return tuple(f"unix://{path}" for path in paths)


def read_facts(info: Document, api_version: str) -> Facts:
    """Pure: the answer to ``GET /info``."""
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
    }
    return Facts(
        version=str(info.get("ServerVersion", "")),
        api_version=api_version,
        processors=int(info.get("NCPU") or 1),
        runtimes=frozenset(info.get("Runtimes") or ()),
        rootless="rootless" in options,
        remapped="userns" in options,
        missing=tuple(name for name, given in needed.items() if not given),
    )


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
