"""Given an event, a hook and what the disk holds: exactly what will run, or why not?

Pure: everything that needed the disk stands in ``Files`` (made by ``resolve``), everything that
needed an engine in ``Place``. The order of the rules is the order of the reasons a person sees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from executor.admission import SAFE_PATH, stripped_names
from executor.emission import EMIT_BYTES
from executor.events import Event
from executor.globs import any_glob_matches
from executor.job import EMIT_DESCRIPTOR, PAYLOAD_FILE, Enforce, Job, Limits, Mount, Sandbox
from executor.outcome import Outcome, refused
from executor.policy import Policy
from executor.subscription import Subscription

ENVIRONMENT_PAYLOAD_LIMIT_BYTES = 8192
"""Longer envelopes travel by file and stdin only (SPEC section 2.2)."""

ROOT_DIRECTORIES = ("/usr/bin/", "/usr/sbin/", "/bin/", "/sbin/")
"""A command here belongs to the sandbox's root file system, like a bare name: the image's own
binary runs in an image, never the host's copy with the image's libraries."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The host ids that hooks run under. Never 0."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Files:
    """What ``resolve`` saw for one hook.

    ``faults`` are reasons to refuse, each with its remedy; ``failure`` is set where the command
    itself cannot be had (``not_found``, ``not_executable``). ``command`` is what the sandbox
    executes: a bare name or an absolute path; ``command_sha256`` is None where the root file
    system itself holds it.
    """

    mounts: tuple[Mount, ...]
    command: str
    cwd: str
    command_sha256: str | None = None
    faults: tuple[str, ...] = ()
    failure: Outcome | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where it runs: the resolved root of one policy on one backend.

    ``image`` is an engine's image id, ``root`` an unpacked image root ("" for the host's /usr),
    ``digest`` what the record keeps. ``fault`` is set where the image is missing.
    """

    image: str = ""
    root: str = ""
    digest: str | None = None
    fault: str | None = None


def compile_job(
    event: Event,
    subscription: Subscription,
    files: Files,
    place: Place,
    identity: Identity,
    *,
    run_id: str,
    max_payload_bytes: int,
    max_timeout_ms: int,
) -> Job | Outcome:
    """The Job, or an Outcome ``refused`` whose reason a person can act on."""
    action, policy = subscription.hook.action, subscription.policy
    reason = _refusal(subscription, files, place)
    if reason is not None:
        return refused(reason)
    if files.failure is not None:
        return files.failure
    return Job(
        run_id=run_id,
        sandbox=Sandbox(
            uid=identity.uid,
            gid=identity.gid,
            limits=_limits(policy),
            mounts=files.mounts,
            image=place.image,
            root=place.root,
            runtime=policy.sandbox.runtime,
            payload_capacity_bytes=max_payload_bytes + 1,
        ),
        command=files.command,
        argv=(files.command, *action.args),
        env=tuple(
            environment(
                event, action.env, home=policy.environment.home, emit=policy.bus.emit
            ).items()
        ),
        cwd=files.cwd,
        timeout_seconds=timeout_ms(action.timeout_ms, policy, max_timeout_ms) / 1000,
        payload=event.envelope + b"\n",
        stdin=action.stdin_json,
        command_sha256=files.command_sha256,
        emit_bytes=EMIT_BYTES if policy.bus.emit else 0,
    )


def environment(
    event: Event, extra: Mapping[str, str], *, home: bool, emit: bool = False
) -> dict[str, str]:
    """The hook's whole environment (SPEC section 2.2); reserved names in ``extra`` are stripped."""
    stripped = set(stripped_names(extra))
    result = {
        "PATH": SAFE_PATH,
        "ZERO_HOOK_EVENT": event.name,
        "ZERO_HOOK_SESSION": event.session_id,
        "ZERO_HOOK_TIMESTAMP": event.timestamp,
        "ZERO_HOOK_PAYLOAD_FILE": PAYLOAD_FILE,
    }
    if len(event.envelope) <= ENVIRONMENT_PAYLOAD_LIMIT_BYTES:
        result["ZERO_HOOK_PAYLOAD"] = event.envelope.decode()
    if emit:
        result["ZERO_HOOK_EMIT_FD"] = str(EMIT_DESCRIPTOR)
    if home:
        result["HOME"] = "/tmp"  # noqa: S108  (inside the sandbox: its private tmpfs)
    result.update((name, value) for name, value in extra.items() if name not in stripped)
    return result


def timeout_ms(asked_ms: int, policy: Policy, max_timeout_ms: int) -> int:
    """The action's own timeout, clamped by its policy and by config.toml."""
    return min(asked_ms, policy.limits.timeout_ms, max_timeout_ms)


def belongs_to_root(command: str) -> bool:
    """Whether the sandbox's root file system, not the host, provides this command."""
    return "/" not in command or command.startswith(ROOT_DIRECTORIES)


def _refusal(subscription: Subscription, files: Files, place: Place) -> str | None:
    policy = subscription.policy
    if subscription.refusal is not None:
        return subscription.refusal
    if policy.network.allow:
        return (
            f'policy "{policy.name}": network.allow names hosts, and this version has no egress '
            "proxy yet; nothing runs rather than with more or less network than asked"
        )
    if not any_glob_matches(policy.commands.allow, files.command):
        return (
            f'policy "{policy.name}": commands.allow does not match {files.command}; '
            f"add it there, or bind the hook to another policy in config.toml"
        )
    if files.faults:
        return "; ".join(files.faults)
    return place.fault


def _limits(policy: Policy) -> Limits:
    limits = policy.limits
    return Limits(
        memory_bytes=limits.memory,
        pids=limits.pids,
        cpus=limits.cpus,
        file_size_bytes=limits.file_size,
        open_files=limits.open_files,
        tmp_bytes=policy.filesystem.tmp,
        output_bytes=limits.output,
        enforce=Enforce(limits.enforce),
    )
