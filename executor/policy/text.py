"""What does a policy mean, in words?

The lines that ``policy show``, ``policy explain`` and ``check`` print.
"""

from __future__ import annotations

from executor.policy.model import Policy
from executor.sizes import format_size


def describe(policy: Policy) -> list[str]:
    """The policy as short sentences, one a line, without a final newline."""
    title = f"{policy.name}: {policy.description}" if policy.description else policy.name
    return [title, *_walls(policy), *_files(policy), *_limits(policy), *_rest(policy)]


def _walls(policy: Policy) -> list[str]:
    sandbox = policy.sandbox
    where = {"auto": "on Docker, or on Linux namespaces where there is no engine"}.get(
        sandbox.backend, f"on {sandbox.backend} only"
    )
    lines = [f"runs {where}"]
    if sandbox.backend != "namespace":
        runtime = f", runtime {sandbox.runtime}" if sandbox.runtime else ""
        lines.append(f"docker image: {sandbox.image}{runtime}")
    if sandbox.backend != "docker":
        root = "the host's /usr" if sandbox.root == "host" else f"the image {sandbox.root}"
        lines.append(f"namespace root: {root}")
    return lines


def _files(policy: Policy) -> list[str]:
    files = policy.filesystem
    shown = {"ro": "read-only", "none": "hidden"}[files.workspace]
    lines = [f"workspace: {shown}"]
    lines += [f"can read {path}" for path in files.read]
    lines += [f"can write in {path}" for path in files.write] or ["can write nothing but /tmp"]
    lines.append(f"private /tmp: {format_size(files.tmp)}")
    return lines


def _limits(policy: Policy) -> list[str]:
    limits = policy.limits
    enforce = {"best": "cgroup, else rlimits", "cgroup": "cgroup, else refused"}[limits.enforce]
    return [
        f"memory {format_size(limits.memory)}, no swap ({enforce})",
        f"{limits.pids} processes, {limits.cpus:g} CPU",
        f"files up to {format_size(limits.file_size)}, {limits.open_files} open at once",
        f"output kept: {format_size(limits.output)} of stdout and of stderr",
        f"time: at most {limits.timeout_ms} ms",
    ]


def _rest(policy: Policy) -> list[str]:
    allowed = policy.network.allow
    lines = [f"network: {', '.join(allowed)}" if allowed else "network: none"]
    commands = policy.commands.allow
    if commands != ("*",):
        lines.append(f"commands: {', '.join(commands) or 'none'}")
    if policy.environment.home:
        lines.append("HOME: a private directory on /tmp")
    if policy.bus.emit:
        lines.append("may emit events")
    failure = {"block": "blocks", "continue": "is recorded and goes on"}[policy.gate.on_failure]
    lines.append(f"a gate hook that fails {failure}")
    return lines
