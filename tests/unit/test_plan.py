"""Does the plan say exactly what will run, or why nothing does?"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from executor.configuration import shipped_policies
from executor.events import Event, make_event
from executor.hooks import Action, Hook
from executor.job import PAYLOAD_FILE, Job
from executor.outcome import Cause, Outcome, Status, error
from executor.plan import Files, Identity, Place, belongs_to_root, compile_job, environment
from executor.policy import Policy, resolve_policies
from executor.subscription import Subscription

NOW = datetime(2026, 3, 21, 8, 15, 30, 123000, tzinfo=UTC)
POLICIES = resolve_policies(shipped_policies(), {})


def event(output: str = "ok") -> Event:
    payload = {"tool": "bash", "success": True, "output": output}
    return make_event("tool_call", payload, session_id="sess_1", now=NOW)


def subscription(
    policy: Policy = POLICIES["default"], refusal: str | None = None, **action: object
) -> Subscription:
    parsed = Action.model_validate({"command": "true", **action})
    hook = Hook(
        id="hook_01",
        event="tool_call",
        action=parsed,
        enabled=True,
        created_at=None,
        updated_at=None,
        pointer="/hooks/tool_call/0",
    )
    return Subscription("hook_01", hook, policy, "namespace", refusal)


def compiled(
    wanted: Subscription,
    *,
    files: Files | None = None,
    place: Place | None = None,
    output: str = "",
) -> Job | Outcome:
    return compile_job(
        event(output),
        wanted,
        Files((), wanted.hook.action.command, "/w") if files is None else files,
        Place() if place is None else place,
        Identity(1000, 1000),
        run_id="run_1",
        max_payload_bytes=16 * 1024 * 1024,
        max_timeout_ms=300_000,
    )


def job(wanted: Subscription, *, output: str = "") -> Job:
    result = compiled(wanted, output=output)
    assert isinstance(result, Job)
    return result


def refusal(result: Job | Outcome) -> str:
    assert isinstance(result, Outcome)
    assert (result.status, result.cause) == (Status.REFUSED, Cause.POLICY)
    assert result.reason is not None
    return result.reason


def test_the_job_is_complete() -> None:
    made = job(subscription(args=["--flag", "a b"], env={"X": "1"}, timeout_ms=2500, cwd="."))
    assert made.argv == ("true", "--flag", "a b")
    assert made.timeout_seconds == 2.5
    assert made.cwd == "/w"
    assert made.payload.endswith(b"}\n")
    assert dict(made.env)["X"] == "1"
    assert made.sandbox.limits.memory_bytes == 128 * 1024 * 1024


def test_the_environment_has_the_documented_names_only() -> None:
    made = environment(event(), {"KEEP": "1", "PATH": "/evil", "ZERO_HOOK_X": "f"}, home=False)
    assert set(made) == {
        "PATH",
        "ZERO_HOOK_EVENT",
        "ZERO_HOOK_SESSION",
        "ZERO_HOOK_TIMESTAMP",
        "ZERO_HOOK_PAYLOAD_FILE",
        "ZERO_HOOK_PAYLOAD",
        "KEEP",
    }
    assert made["PATH"] == "/usr/local/bin:/usr/bin:/bin"
    assert made["ZERO_HOOK_PAYLOAD_FILE"] == PAYLOAD_FILE
    assert made["ZERO_HOOK_TIMESTAMP"] == "2026-03-21T08:15:30.123Z"


def test_the_payload_variable_ends_at_8192_bytes_of_utf8() -> None:
    room = 8192 - len(event("").envelope)
    assert "ZERO_HOOK_PAYLOAD" in environment(event("x" * room), {}, home=False)
    assert "ZERO_HOOK_PAYLOAD" not in environment(event("x" * (room + 1)), {}, home=False)
    # Two bytes a character: half as many fit.
    assert "ZERO_HOOK_PAYLOAD" not in environment(event("é" * room), {}, home=False)


@pytest.mark.parametrize(
    ("asked", "policy_cap", "global_cap", "seconds"),
    [(1000, 5000, 9000, 1.0), (8000, 5000, 9000, 5.0), (8000, 90000, 7000, 7.0)],
)
def test_the_timeout_is_the_smallest_of_three(
    asked: int, policy_cap: int, global_cap: int, seconds: float
) -> None:
    limits = POLICIES["default"].limits.model_copy(update={"timeout_ms": policy_cap})
    policy = POLICIES["default"].model_copy(update={"limits": limits})
    made = compile_job(
        event(),
        subscription(policy, timeout_ms=asked),
        Files((), "true", "/w"),
        Place(),
        Identity(1, 1),
        run_id="r",
        max_payload_bytes=1,
        max_timeout_ms=global_cap,
    )
    assert isinstance(made, Job)
    assert made.timeout_seconds == seconds


def test_configuration_refuses_before_the_disk_does() -> None:
    files = Files((), "true", "/w", faults=("a grant is missing",))
    assert refusal(compiled(subscription(refusal="not requestable"), files=files)) == (
        "not requestable"
    )
    assert refusal(compiled(subscription(), files=files)) == "a grant is missing"


def test_a_policy_that_names_hosts_is_refused_until_there_is_a_proxy() -> None:
    assert "egress" in refusal(compiled(subscription(POLICIES["notify"])))


def test_a_command_outside_the_allowed_globs_is_refused() -> None:
    commands = POLICIES["default"].commands.model_copy(update={"allow": ("/opt/hooks/*",)})
    policy = POLICIES["default"].model_copy(update={"commands": commands})
    assert "commands.allow" in refusal(compiled(subscription(policy)))
    files = Files((), "/opt/hooks/audit.sh", "/w")
    assert isinstance(compiled(subscription(policy), files=files), Job)


def test_a_missing_image_and_a_missing_command_keep_their_kind() -> None:
    assert "not built" in refusal(compiled(subscription(), place=Place(fault="not built")))
    failure = error("no such file", Cause.NOT_FOUND)
    assert compiled(subscription(), files=Files((), "/x", "/w", failure=failure)) is failure


def test_the_digest_covers_what_is_authorised_and_not_the_runs_own_id() -> None:
    base = job(subscription())
    assert base.digest == job(subscription()).digest
    assert base.digest != job(subscription(args=["x"])).digest
    assert base.digest != job(subscription(), output="other").digest
    assert base.sandbox.key == job(subscription(args=["x"])).sandbox.key


@pytest.mark.parametrize(
    ("command", "root"),
    [
        ("python3", True),
        ("/usr/bin/python3", True),
        ("/bin/sh", True),
        ("/usr/local/bin/notify", False),
        ("/opt/hooks/a.sh", False),
        ("./a.sh", False),
        ("hooks/a.sh", False),
        ("/usr/binary", False),
    ],
)
def test_which_commands_belong_to_the_sandboxs_root(command: str, root: bool) -> None:
    assert belongs_to_root(command) is root
