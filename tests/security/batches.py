"""How do the probes of one section run together, and where is each proven to be an attempt?"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import stat
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.security.canary import Canary
from tests.security.host import as_json
from tests.security.probe import Outside, Probe
from tests.security.stage import ROOT, SECRET, Stage

Results = Mapping[str, dict[str, Any]]

POLICY = """
[filesystem]
write = ["out"]
[limits]
memory = "256MiB"
"""

TOGETHER = ("AB", "CDEF", "GH", "ILS")
"""Sections whose probes share a sandbox."""

UNSHARE = (
    *("unshare", "--user", "--map-root-user", "--mount", "--net", "--pid", "--fork"),
    *("--ipc", "--uts", "--cgroup", "--mount-proc"),
)


@dataclass(frozen=True, slots=True)
class Batch:
    """What each probe of a section saw, in two sandboxes at the same time."""

    results: tuple[Results, Results]
    reached: tuple[str, ...]
    granted: tuple[str, ...]
    """What is left in the granted directory."""


def places(stage: Stage, network: Mapping[str, object], canary: Canary) -> dict[str, Any]:
    """What probes aim at, from inside."""
    workspace, own = stage.workspace, [ROOT / "executor", stage.top / "state", stage.top / "home"]
    workspace.file("data", "data")
    for name in ("data", "hooks.json"):
        if (workspace.path / name).exists():
            stage.own(workspace.path / name)
    canary.unix(f"workspace {stage.top}", str(workspace.path / "socket"))
    datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    datagrams.bind(str(workspace.path / "datagrams"))
    (workspace.path / "datagrams").chmod(0o777)
    canary.listen(f"workspace {stage.top} datagrams", datagrams)
    loopback = ["127.0.0.1", network["port"]]
    beyond = [[network["host"], network["host_port"]]] if network["has_host"] else []
    mapped = ["::ffff:127.0.0.1", network["port"]]
    return {
        **network,
        "workspace": str(workspace.path),
        "out": str(stage.out),
        "socket": str(workspace.path / "socket"),
        "datagrams": str(workspace.path / "datagrams"),
        "udp": [loopback, *beyond],
        "tcp6": [["::1", network["port6"]], mapped],
        "name": "name.invalid",
        "inside": True,
        "hostname": os.uname().nodename,
        "secrets": [
            *("/etc/shadow", "/root/.bashrc", "/root/.ssh/id_rsa", "/root/.profile"),
            *(str(stage.outside / "secret"), str(stage.outside / "open/file")),
        ],
        "system": ["/usr", "/etc", "", "/dev", "/lib", "/usr/bin", "/proc", "/run", "/run/hook"],
        "private_places": ["/home", "/root", "/opt", "/mnt", "/srv", "/media", "/boot", "/sys"],
        "services": ["/run", "/var/lib", "/var/run", "/var/log"],
        "service_names": ["docker.sock", "docker", "containerd", "docker.pid", "netns", "sudo"],
        # An engine's mount table names the sources of what is mounted: the cell, the workspace.
        "private": [str(stage.top / name) for name in ("state", "home", "outside")],
        "own": [str(path) for path in own],
        "nodes": [str(stage.out), str(workspace.path), "/tmp", "/dev"],
        "devices": [
            *([stat.S_IFBLK, 8, 0], [stat.S_IFBLK, 7, 0], [stat.S_IFCHR, 1, 1]),
            *([stat.S_IFCHR, 1, 11], [stat.S_IFCHR, 1, 3]),
        ],
        "host_pids": sorted(int(name) for name in os.listdir("/proc") if name.isdigit())[1:],
        "secret": str(stage.outside / "secret"),
        "tmp": "/tmp",
        "above": [str(workspace.path), "/usr", "/"],
        "sysctls": [
            "kernel/core_pattern",
            "kernel/modprobe",
            "vm/overcommit_memory",
            "user/max_user_namespaces",
            "net/ipv4/ip_forward",
        ],
        "fingerprints": fingerprints(),
        "mount_at": "/tmp",
        "needle": SECRET,
        "payload": "",
    }


def outside_places(stage: Stage, inside: Mapping[str, Any]) -> dict[str, Any]:
    """The same, for the positive controls: what they change is the tests' own."""
    free = str(stage.outside / "open")
    return {
        **inside,
        "inside": False,
        "name": "localhost",
        "secrets": [str(stage.outside / "secret")],
        "system": [free],
        "private_places": ["/sys"],
        "nodes": [free],
        "devices": [[stat.S_IFCHR, 1, 3]],
        "host_pids": [os.getpid()],
        "tmp": str(stage.outside),
        "above": [free],
        "sysctls": ["net/ipv4/ip_forward"],
        "needle": "driver.py",
        "mount_at": free,
        "payload": str(stage.outside / "open/file"),
    }


def fingerprints() -> dict[str, str]:
    """What tells this machine from others."""
    known = {}
    for path in ("/proc/cmdline", "/proc/version", "/etc/machine-id", "/etc/hostname"):
        with contextlib.suppress(OSError):
            known[path] = Path(path).read_text(encoding="utf-8").strip()
    return known


def write_probes(stage: Stage, probes: Mapping[str, str], at: Mapping[str, Any]) -> tuple[str, str]:
    """The files that the driver reads."""
    code, aims = stage.workspace.path / "probes.json", stage.workspace.path / "places.json"
    for file, value in ((code, probes), (aims, at)):
        file.write_text(as_json(value))
        file.chmod(0o644)
    return str(code), str(aims)


def run_batch(
    stage: Stage, probes: tuple[Probe, ...], at: Mapping[str, Any], canary: Canary
) -> Batch:
    """All probes of a section in one hook, and in a second one at the same time."""
    stage.policy(POLICY)
    arguments = write_probes(stage, {probe.number: probe.program for probe in probes}, at)
    seen = len(canary.seen())
    hooks = []
    for number in ("1", "2"):
        hook = stage.hook("python3", str(stage.workspace.path / "driver.py"), *arguments)
        hook["env"]["PAIR"] = number
        hooks.append({**hook, "timeout_ms": 90_000})
    (pair,) = stage.emit(*hooks)
    for ran in pair:
        assert ran.status == "ok", ran
    one, other = (json.loads(ran.stdout) for ran in pair)
    return Batch((one, other), canary.seen()[seen:], tuple(sorted(os.listdir(stage.out))))


@dataclass(slots=True)
class Controls:
    """Makes the same attempts outside, once a session."""

    make: Callable[[], tuple[Stage, dict[str, Any]]]
    known: dict[Outside, Results] = field(default_factory=dict)

    def result(self, probe: Probe, everything: tuple[Probe, ...]) -> dict[str, Any] | None:
        """What the attempt saw outside; None where it cannot be made there."""
        outside = probe.outside
        if outside is Outside.NOWHERE or (outside is Outside.ROOT and os.geteuid() != 0):
            return None
        if outside not in self.known:
            chosen = {one.number: one.program for one in everything if one.outside is outside}
            self.known[outside] = self._run(outside, chosen)
        return self.known[outside][probe.number]

    def _run(self, outside: Outside, chosen: Mapping[str, str]) -> Results:
        stage, inside = self.make()
        try:
            for name in ("hooks.json", "config.toml"):
                stage.workspace.file(name, "{}")
            arguments = write_probes(stage, chosen, outside_places(stage, inside))
            ended = subprocess.run(
                [
                    *(UNSHARE if outside is Outside.NAMESPACES else ()),
                    *("/usr/bin/python3", str(stage.workspace.path / "driver.py"), *arguments),
                ],
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "TMPDIR": str(stage.top / "tmp")},
                cwd=stage.top,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                start_new_session=True,
            )
        finally:
            shutil.rmtree(stage.top)
        assert ended.returncode == 0, ended.stderr.decode()
        results: Results = json.loads(ended.stdout)
        return results
