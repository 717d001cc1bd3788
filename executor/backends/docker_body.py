"""What exactly is a container engine asked for?

The body of ``POST /containers/create`` for one sandbox, whole: whatever an image or an engine's
default could set is said here, so that neither can. The cell is PID 1, under Docker's outer
seccomp profile; it gets its job (argv, environment, working directory, payload) over its stdin,
so that nothing of a run is visible in the engine's records, and no value of a hook ever reaches
the engine's parser.

Rules for editors: this is a security boundary, pure, and compared whole in its test. Mounts are
``Mounts``, never ``Binds`` (which create a missing source as root, and split at ":").
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from executor.job import Mount, Sandbox

CELL = "/.cell/cell"
PAYLOAD_DIRECTORY = "/run/hook"
NAME_PREFIX = "hook-executor-"
LABEL_INSTANCE = "hook-executor.instance"
LABEL_RUN = "hook-executor.run"
LABEL_DEADLINE = "hook-executor.deadline"

Body = dict[str, Any]

_IMMUTABLE = re.compile(r"(?:[^@\s]+@)?sha256:[0-9a-f]{64}")
_PAGE = 4096
_CELL_BYTES = 2 << 20
"""What the cell and the kernel's side of a sandbox take of the container's memory."""

MASKED_PATHS = (
    # the engine's own defaults, which a list of ours replaces
    "/proc/acpi",
    "/proc/asound",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    # what tells the hosts of this world apart, or lets one watch its load
    "/proc/cmdline",
    "/proc/config.gz",
    "/proc/diskstats",
    "/proc/interrupts",
    "/proc/iomem",
    "/proc/ioports",
    "/proc/kallsyms",
    "/proc/key-users",
    "/proc/kmsg",
    "/proc/locks",
    "/proc/modules",
    "/proc/partitions",
    "/proc/pressure",
    "/proc/swaps",
    "/proc/version",
    "/proc/zoneinfo",
    "/sys",
    # what is counted for the whole machine, and what no hook needs
    "/dev/mqueue",
    "/dev/pts",
)
READONLY_PATHS = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


@dataclass(frozen=True, slots=True)
class Placing:
    """What the engine and this executor add to a sandbox's walls.

    ``user`` is "uid:gid" as the engine counts them, ``processors`` what the engine has.
    ``seccomp`` is the outer profile's JSON. ``payload_bytes`` come on top of the hook's memory.
    """

    cell_path: str
    user: str
    seccomp: str
    processors: int
    payload_bytes: int
    labels: Mapping[str, str]


def immutable(image: str) -> bool:
    """Whether this names bytes: an image id or a digest, no tag (SPEC section 3.1)."""
    return _IMMUTABLE.fullmatch(image) is not None


def create_body(sandbox: Sandbox, placing: Placing) -> Body:
    """The body for ``sandbox``. ``sandbox.image`` must be ``immutable``, no id may be 0."""
    return {
        "Image": sandbox.image,
        "Entrypoint": [CELL],
        "Cmd": [],
        "User": placing.user,
        "Env": [],
        "WorkingDir": "/",
        "Hostname": "hook",
        "Domainname": "",
        "Tty": False,
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "NetworkDisabled": True,
        "StopSignal": "SIGKILL",
        "StopTimeout": 1,
        "Healthcheck": {"Test": ["NONE"]},
        "Volumes": {},
        "ExposedPorts": {},
        "Labels": dict(placing.labels),
        "HostConfig": _namespaces() | _privileges(placing) | _limits(sandbox, placing)
        | _files(sandbox, placing.cell_path, placing.user)
        | {
            "Runtime": sandbox.runtime,
            "Init": False,
            "AutoRemove": False,
            "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
            "LogConfig": {"Type": "none", "Config": {}},
        },
    }  # fmt: skip


def _namespaces() -> Body:
    return {
        "NetworkMode": "none",
        "IpcMode": "none",
        "PidMode": "",
        "UTSMode": "",
        "UsernsMode": "",
        "CgroupnsMode": "private",
        "PublishAllPorts": False,
        "PortBindings": {},
        "Links": [],
        "ExtraHosts": [],
        "Dns": [],
        "DnsOptions": [],
        "DnsSearch": [],
    }


def _privileges(placing: Placing) -> Body:
    return {
        "Privileged": False,
        "CapAdd": [],
        "CapDrop": ["ALL"],
        "GroupAdd": [],
        "SecurityOpt": ["no-new-privileges", f"seccomp={placing.seccomp}"],
        "Devices": [],
        "DeviceCgroupRules": [],
        "DeviceRequests": [],
        "Sysctls": {},
        "MaskedPaths": list(MASKED_PATHS),
        "ReadonlyPaths": list(READONLY_PATHS),
    }


def _limits(sandbox: Sandbox, placing: Placing) -> Body:
    """The cgroup's limits, and rlimits above which the cell cannot go.

    Open files and file size are the cell's to set, after the payload is written. Never ``nproc``:
    it counts a user's processes over all containers.
    """
    limits = sandbox.limits
    open_files = limits.open_files + 64  # the cell's own
    ulimits = {
        "core": 0,
        "memlock": 64 * 1024,
        "msgqueue": 0,
        "nice": 0,
        "nofile": open_files,
        "rtprio": 0,
        "sigpending": 256,
    }
    # Neither the payload nor the cell is a part of what the hook may use (SPEC section 2.2).
    memory = limits.memory_bytes + _pages(placing.payload_bytes) + _CELL_BYTES
    return {
        "Memory": memory,
        "MemorySwap": memory,  # the sum of both: no swap
        "OomKillDisable": False,
        "OomScoreAdj": 500,  # the cell gives its child 1000, and so survives to report
        "PidsLimit": limits.pids + 1,  # the cell
        "NanoCpus": round(min(limits.cpus, placing.processors) * 1e9),
        "CpuShares": 256,
        "Ulimits": [
            {"Name": name, "Soft": value, "Hard": value} for name, value in ulimits.items()
        ],
    }


def _pages(size: int) -> int:
    return (size // _PAGE + 1) * _PAGE


def _files(sandbox: Sandbox, cell_path: str, user: str) -> Body:
    uid, gid = user.split(":")
    tmp = max(sandbox.limits.tmp_bytes, _PAGE)  # a size of 0 would be no limit
    payload = sandbox.payload_capacity_bytes + 16 * _PAGE
    flags = "rw,nosuid,nodev,noexec"
    cell = _mount(cell_path, CELL, writable=False)
    return {
        "ReadonlyRootfs": True,
        "Binds": [],
        "VolumesFrom": [],
        "VolumeDriver": "",
        "Tmpfs": {
            "/tmp": f"{flags},size={tmp},nr_inodes={max(1024, tmp // _PAGE)},mode=1777",  # noqa: S108
            PAYLOAD_DIRECTORY: (
                f"{flags},size={payload},nr_inodes=16,mode=0700,uid={uid},gid={gid}"
            ),
        },
        "Mounts": [cell, *(_bind(mount) for mount in sandbox.mounts)],
    }


def _bind(mount: Mount) -> Body:
    return _mount(mount.source, mount.target, writable=mount.writable)


def _mount(source: str, target: str, *, writable: bool) -> Body:
    return {
        "Type": "bind",
        "Source": source,
        "Target": target,
        "ReadOnly": not writable,
        "BindOptions": {
            "Propagation": "rprivate",
            "NonRecursive": True,
            "CreateMountpoint": False,
        },
    }


_READ_BACK = (
    "Memory",
    "MemorySwap",
    "PidsLimit",
    "NanoCpus",
    "NetworkMode",
    "IpcMode",
    "ReadonlyRootfs",
    "Privileged",
)


def dishonoured(body: Body, document: Body) -> tuple[str, ...]:
    """What the engine's own record of a container (inspect) gives less of than was asked.

    An engine drops limits that its machine cannot give, with no more than a warning.
    """
    asked, given = body["HostConfig"], document.get("HostConfig") or {}
    differing = [
        f"{name} is {given.get(name)!r}, not {asked[name]!r}"
        for name in _READ_BACK
        if given.get(name) != asked[name]
    ]
    image = document.get("Image")
    if "@" not in body["Image"] and image != body["Image"]:
        differing.append(f"Image is {image!r}, not {body['Image']!r}")
    return tuple(differing)
