"""Can this machine build a sandbox natively, and if not, what mends it?

The probe is an attempt: a cell is started and told to build the smallest sandbox. What fails has a
stage and an errno, and the table below knows what they mean on the systems people have.
"""

from __future__ import annotations

import errno
import os
import platform
import select
import time
from pathlib import Path

from executor.cell import launch, protocol, seccomp
from executor.errors import Unavailable
from executor.job import Limits, Sandbox

PROBE_SECONDS = 10.0
PROBE_ID = 65533
"""As root, who builds the probe's sandbox. Nothing is run."""
MINIMUM_KERNEL = (5, 12)
"""mount_setattr(2). subset=pid came with 5.8, openat2 with 5.6."""

_USERS = Path("/proc/sys/user/max_user_namespaces")
_DEBIAN = Path("/proc/sys/kernel/unprivileged_userns_clone")
_APPARMOR = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")


def probe() -> None:
    """Blocking. Raises Unavailable with the exact reason and the remedy."""
    if platform.system() != "Linux":
        raise Unavailable("the namespace backend needs Linux", remedy="use the docker backend")
    kernel = _kernel()
    if kernel < MINIMUM_KERNEL:
        found, wanted = (".".join(map(str, version)) for version in (kernel, MINIMUM_KERNEL))
        raise Unavailable(f"Linux {found} is too old", remedy=f"Linux {wanted}, or docker")
    if platform.machine() not in seccomp.ARCHITECTURES:
        raise Unavailable(f"no system call filter for {platform.machine()}")
    seccomp.hook_program()
    kind, body = _attempt()
    if kind == protocol.READY:
        version = protocol.decode_ready(body).version
        if version != protocol.VERSION:
            raise Unavailable(
                f"the cell speaks version {version} of the protocol, not {protocol.VERSION}",
                remedy="python scripts/build_cell.py --force",
            )
        return
    last = protocol.decode_exit(body)
    raise explain(last.stage, last.number)


def explain(stage: str, number: int) -> Unavailable:
    """What a failure to build means here."""
    message = f"no sandbox can be built: {stage}: {os.strerror(number)}"
    return Unavailable(message, remedy=_remedy(stage.partition(" ")[0], number))


def _remedy(stage: str, number: int) -> str:
    if _says(_USERS, "0") or number == errno.ENOSPC:
        return "sysctl -w user.max_user_namespaces=15000 (and in /etc/sysctl.d)"
    if os.geteuid() != 0 and _says(_DEBIAN, "0"):
        return "sysctl -w kernel.unprivileged_userns_clone=1"
    if os.geteuid() != 0 and _says(_APPARMOR, "1"):
        return (
            "AppArmor takes the capabilities of user namespaces away: install a profile with "
            f'"userns," for {launch.cell_path()}, or '
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
        )
    if number in (errno.EPERM, errno.EACCES, errno.ENOSYS) and stage in (
        "namespaces", "root", "proc", "mount", "pivot_root", "uid_map", "gid_map", "setgroups",
    ):  # fmt: skip
        return (
            "the surroundings forbid it (a chroot; inside a container, its seccomp or AppArmor "
            "profile, or a masked /proc): run outside of it, or with the docker backend"
        )
    return "hook-executor doctor, or the docker backend"


def _attempt() -> tuple[bytes, bytes]:
    root = os.geteuid() == 0
    sandbox = Sandbox(
        uid=PROBE_ID if root else os.geteuid(),
        gid=PROBE_ID if root else os.getegid(),
        limits=Limits(16 << 20, 8, 1.0, 1 << 20, 64, 1 << 20, 1024),
        payload_capacity_bytes=4096,
    )
    try:
        process = launch.start("--enter", "--max-age", str(int(PROBE_SECONDS)))
    except OSError as fault:
        raise Unavailable(
            f"the cell cannot be started: {fault}", remedy=f"look at {launch.cell_path()}"
        ) from fault
    try:
        with process.sock as sock:
            sock.settimeout(PROBE_SECONDS)
            sock.sendall(protocol.build_frame(sandbox))
            return _first_frame(process)
    except OSError as fault:
        raise Unavailable(f"the cell does not answer: {fault}") from fault
    finally:
        process.kill()
        select.select([process.pidfd], [], [], PROBE_SECONDS)
        process.forget()


def _first_frame(process: launch.Launched) -> tuple[bytes, bytes]:
    parser, deadline = protocol.FrameParser(), time.monotonic() + PROBE_SECONDS
    while time.monotonic() < deadline:
        data = process.sock.recv(4096)
        if not data:
            raise Unavailable("the cell ended without a word", remedy="dmesg may say why")
        for frame in parser.feed(data):
            return frame
    raise Unavailable("the cell does not answer")


def _kernel() -> tuple[int, int]:
    numbers = platform.release().replace("-", ".").split(".")
    return (int(numbers[0]), int(numbers[1]))


def _says(path: Path, value: str) -> bool:
    try:
        return path.read_text(encoding="ascii").strip() == value
    except OSError:
        return False
