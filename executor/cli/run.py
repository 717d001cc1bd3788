"""``hook-executor run``: what does this command do, as a hook in its sandbox?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from executor.cli.endings import RUN_FAILED, UsageError
from executor.cli.options import HERE, Where

if TYPE_CHECKING:
    from executor.configuration import Configuration
    from executor.hooks import Action, Hook
    from executor.outcome import Outcome
    from executor.record import Record

HOOK_ID = "run"
_SIGNAL_BASE = 128


def run(
    *command: Annotated[str, Parameter(allow_leading_hyphen=True, help="After --.")],
    policy: Annotated[str | None, Parameter(help="Run under this policy.")] = None,
    event: Annotated[str, Parameter(help="The event that it reacts to.")] = "tool_call",
    payload: Annotated[
        str | None, Parameter(help="The payload; an example's.", allow_leading_hyphen=True)
    ] = None,
    where: Where = HERE,
) -> int:
    """Run one command by hand, as a hook of EVENT, in its sandbox.

    The envelope is on stdin too. Exits with the command's own code, 128 and the signal that ended
    it, or 125 where it has none to give: it could not run, ran out of time or memory, was refused.
    """
    from executor.cli.emit import check_event, read_payload
    from executor.cli.output import pass_through, talk
    from executor.cli.signals import run_until_signalled
    from executor.testing import SAMPLE_PAYLOADS

    if not command:
        raise UsageError("what is to run? Write: hook-executor run -- COMMAND ARGS…")
    content: Mapping[str, object] = (
        SAMPLE_PAYLOADS.get(event, {}) if payload is None else read_payload(payload, None)
    )
    check_event(event, content, HOOK_ID)
    record = run_until_signalled(_run, command, policy, event, content, where)
    outcome = record.outcome
    pass_through(outcome.stdout)
    pass_through(outcome.stderr, to_stderr=True)
    if outcome.reason is not None or not _has_own_code(outcome):
        talk(f"{outcome.status} ({outcome.cause}): {outcome.reason or _limit(outcome)}")
    if outcome.truncated:
        talk("the output was cut at the policy's limit")
    for note in outcome.notes:
        talk(f"note: {note}")
    return own_code(outcome)


def own_code(outcome: Outcome) -> int:
    """The hook's own code; 125 where it has none, whatever its process gave back (SPEC 10)."""
    if not _has_own_code(outcome):
        return RUN_FAILED
    if outcome.signal is not None:
        return _SIGNAL_BASE + outcome.signal
    return RUN_FAILED if outcome.exit_code is None else outcome.exit_code


def with_only(
    configuration: Configuration, action: Action, event: str, policy: str | None
) -> Configuration:
    """The configuration in which nothing but this action runs.

    The workspace's own hooks stay, disabled: their commands are as protected as ever. A policy
    chosen by hand needs no leave from config.toml: whoever runs this could edit that.
    """
    from executor.settings import Binding

    hook = _hook(action, event)
    hooks = (*(replace(one, enabled=False) for one in configuration.hooks), hook)
    settings = configuration.settings
    if policy is not None:
        settings = settings.model_copy(update={"bind": (Binding(policy=policy),)})
    return replace(configuration, hooks=hooks, settings=settings)


async def _run(
    command: tuple[str, ...],
    policy: str | None,
    event: str,
    payload: Mapping[str, object],
    where: Where,
) -> Record:
    from executor.service import Executor

    configuration = await _configuration(command, policy, event, where)
    async with Executor.open(
        where.workspace, sandbox=where.sandbox, configuration=configuration
    ) as executor:
        records = await executor.emit(event, payload, session_id=HOOK_ID).wait()
    return records[0]


async def _configuration(
    command: tuple[str, ...], policy: str | None, event: str, where: Where
) -> Configuration:
    import anyio.to_thread

    from executor.configuration import load_configuration
    from executor.disk.workspace import open_workspace
    from executor.document import hint
    from executor.hooks import parse_action

    place = await anyio.to_thread.run_sync(open_workspace, where.workspace)
    try:
        configuration = await anyio.to_thread.run_sync(load_configuration, place)
    finally:
        place.close()
    if policy is not None and policy not in configuration.policies:
        known = configuration.policies
        raise UsageError(f'there is no policy "{policy}"{hint(policy, known)}', where="--policy")
    limit = configuration.settings.limits.max_timeout_ms
    action = parse_action(
        {
            "command": command[0],
            "args": list(command[1:]),
            "stdin_json": True,
            "timeout_ms": min(30_000, limit),
        },
        event=event,
        where="COMMAND",
        max_timeout_ms=limit,
    )
    return with_only(configuration, action, event, policy)


def _hook(action: Action, event: str) -> Hook:
    from executor.hooks import Hook

    return Hook(HOOK_ID, event, action, enabled=True, created_at=None, updated_at=None, pointer="")


def _has_own_code(outcome: Outcome) -> bool:
    from executor.outcome import Status

    return outcome.status in (Status.OK, Status.FAILED, Status.SIGNALLED)


def _limit(outcome: Outcome) -> str:
    return f"after {outcome.duration_seconds:.1f} s"
