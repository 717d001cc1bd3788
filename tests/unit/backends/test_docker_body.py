"""The create body is a security boundary: it is compared whole."""

from __future__ import annotations

from dataclasses import replace

import pytest

from executor.backends.docker_body import Placing, create_body, dishonoured, immutable
from executor.job import Limits, Mount, Sandbox

IMAGE = f"sha256:{'a' * 64}"
LIMITS = Limits(
    memory_bytes=128 << 20,
    pids=64,
    cpus=1.5,
    file_size_bytes=16 << 20,
    open_files=256,
    tmp_bytes=16 << 20,
    output_bytes=64 << 10,
)
SANDBOX = Sandbox(
    uid=64123,
    gid=64124,
    limits=LIMITS,
    image=IMAGE,
    runtime="runsc",
    mounts=(
        Mount("/home/u/ws", "/home/u/ws", 1, 2, directory=True),
        Mount("/home/u/ws/a:b", "/home/u/ws/a:b", 1, 3, directory=True, writable=True),
    ),
)
PLACING = Placing(
    cell_path="/opt/cell",
    user="64123:64124",
    seccomp='{"defaultAction": "SCMP_ACT_ERRNO"}',
    processors=2,
    payload_bytes=5000,
    labels={"hook-executor.run": "r1"},
)


def bound(source: str, target: str, *, read_only: bool) -> dict[str, object]:
    return {
        "Type": "bind",
        "Source": source,
        "Target": target,
        "ReadOnly": read_only,
        "BindOptions": {
            "Propagation": "rprivate",
            "NonRecursive": True,
            "CreateMountpoint": False,
        },
    }


def test_the_body_is_exactly_this() -> None:
    assert create_body(SANDBOX, PLACING) == {
        "Image": IMAGE,
        "Entrypoint": ["/.cell/cell"],
        "Cmd": [],
        "User": "64123:64124",
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
        "Labels": {"hook-executor.run": "r1"},
        "HostConfig": {
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
            "Privileged": False,
            "CapAdd": [],
            "CapDrop": ["ALL"],
            "GroupAdd": [],
            "SecurityOpt": [
                "no-new-privileges",
                'seccomp={"defaultAction": "SCMP_ACT_ERRNO"}',
            ],
            "Devices": [],
            "DeviceCgroupRules": [],
            "DeviceRequests": [],
            "Sysctls": {},
            "MaskedPaths": [
                "/proc/acpi",
                "/proc/asound",
                "/proc/kcore",
                "/proc/keys",
                "/proc/latency_stats",
                "/proc/sched_debug",
                "/proc/scsi",
                "/proc/timer_list",
                "/proc/timer_stats",
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
                "/dev/mqueue",
                "/dev/pts",
            ],
            "ReadonlyPaths": [
                "/proc/bus",
                "/proc/fs",
                "/proc/irq",
                "/proc/sys",
                "/proc/sysrq-trigger",
            ],
            "Memory": 134217728 + 8192 + (2 << 20),
            "MemorySwap": 134217728 + 8192 + (2 << 20),
            "OomKillDisable": False,
            "OomScoreAdj": 500,
            "PidsLimit": 65,
            "NanoCpus": 1500000000,
            "CpuShares": 256,
            "Ulimits": [
                {"Name": "core", "Soft": 0, "Hard": 0},
                {"Name": "memlock", "Soft": 65536, "Hard": 65536},
                {"Name": "msgqueue", "Soft": 0, "Hard": 0},
                {"Name": "nice", "Soft": 0, "Hard": 0},
                {"Name": "nofile", "Soft": 320, "Hard": 320},
                {"Name": "rtprio", "Soft": 0, "Hard": 0},
                {"Name": "sigpending", "Soft": 256, "Hard": 256},
            ],
            "ReadonlyRootfs": True,
            "Binds": [],
            "VolumesFrom": [],
            "VolumeDriver": "",
            "Tmpfs": {
                "/tmp": "rw,nosuid,nodev,noexec,size=16777216,nr_inodes=4096,mode=1777",
                "/run/hook": (
                    "rw,nosuid,nodev,noexec,size=16842752,nr_inodes=16,"
                    "mode=0700,uid=64123,gid=64124"
                ),
            },
            "Mounts": [
                bound("/opt/cell", "/.cell/cell", read_only=True),
                bound("/home/u/ws", "/home/u/ws", read_only=True),
                bound("/home/u/ws/a:b", "/home/u/ws/a:b", read_only=False),
            ],
            "Runtime": "runsc",
            "Init": False,
            "AutoRemove": False,
            "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
            "LogConfig": {"Type": "none", "Config": {}},
        },
    }


def test_more_processors_than_there_are_is_all_of_them() -> None:
    sandbox = replace(SANDBOX, limits=replace(LIMITS, cpus=64.0))
    assert create_body(sandbox, PLACING)["HostConfig"]["NanoCpus"] == 2_000_000_000


def test_no_tmp_at_all_is_a_page_and_not_a_tmpfs_without_a_limit() -> None:
    sandbox = replace(SANDBOX, limits=replace(LIMITS, tmp_bytes=0))
    assert ",size=4096," in create_body(sandbox, PLACING)["HostConfig"]["Tmpfs"]["/tmp"]


def test_only_ids_and_digests_are_immutable() -> None:
    assert immutable(IMAGE)
    assert immutable(f"python@{IMAGE}")
    for name in ("", "python", "python:3", "a" * 64, f"{IMAGE}0", f"{IMAGE}\n", f"a b@{IMAGE}"):
        assert not immutable(name)


def record(**changes: object) -> dict[str, object]:
    """What the engine says of a container that it made as asked."""
    return {"Image": IMAGE, "HostConfig": create_body(SANDBOX, PLACING)["HostConfig"] | changes}


def test_a_container_as_asked_is_honoured() -> None:
    assert dishonoured(create_body(SANDBOX, PLACING), record()) == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Memory", 0),
        ("MemorySwap", -1),
        ("PidsLimit", None),
        ("NanoCpus", 0),
        ("NetworkMode", "default"),
        ("IpcMode", "private"),
        ("ReadonlyRootfs", False),
        ("Privileged", True),
    ],
)
def test_what_the_engine_dropped_is_named(name: str, value: object) -> None:
    (fault,) = dishonoured(create_body(SANDBOX, PLACING), record(**{name: value}))
    assert fault.startswith(f"{name} is {value!r}, not ")


def test_another_image_is_named() -> None:
    other = record() | {"Image": f"sha256:{'b' * 64}"}
    (fault,) = dishonoured(create_body(SANDBOX, PLACING), other)
    assert fault == f"Image is 'sha256:{'b' * 64}', not '{IMAGE}'"
