"""What does each answer come to, for each event, kind of handler and strategy?"""

from __future__ import annotations

import itertools
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import anyio
import anyio.lowlevel
import pytest

from executor.events import Event, make_event
from executor.gate.handlers import PythonHandler
from executor.gate.protocols import answer_of_outcome
from executor.gate.walk import Handler, Rules, Strategy, walk
from executor.outcome import Cause, Outcome, Status, Usage, dropped, error, refused
from executor.verdict import Answer, Verdict

pytestmark = pytest.mark.anyio

PAYLOADS: dict[str, dict[str, object]] = {
    "SessionStart": {"session_id": "s", "user_input": "hi"},
    "PreToolUse": {"tool_name": "bash", "input": {"command": "pytest"}},
    "PostToolUse": {"tool_name": "bash", "input": {"command": "pytest"}, "output": "5 passed"},
}
STRATEGIES: tuple[Strategy, ...] = ("first", "block-wins")


def event(name: str) -> Event:
    return make_event(name, PAYLOADS[name], session_id="s", now=datetime.now(UTC))


@dataclass(frozen=True)
class Shell:
    """A shell hook without a sandbox: it ends as the test says, after a while."""

    id: str
    outcome: Outcome
    goes_on: bool = False
    seconds: float = 0.0
    protocol: str = "native"

    async def begin(self, event: Event) -> Answer:
        await anyio.sleep(self.seconds)
        return answer_of_outcome(
            self.outcome, protocol=self.protocol, event=event.name, decider=self.id
        )


def exited(code: int, stdout: str = "", stderr: str = "") -> Outcome:
    status = Status.OK if code == 0 else Status.FAILED
    out, err = stdout.encode(), stderr.encode()
    usage = Usage(stdout_bytes=len(out), stderr_bytes=len(err))
    return Outcome(status, Cause.EXIT, code, stdout=out, stderr=err, usage=usage)


def says(code: object, message: object = "") -> Callable[[dict[str, object]], object]:
    return lambda payload: {"exit_code": code, "message": message}


def sync(id: str, result: Callable[[dict[str, object]], object], goes_on: bool) -> Handler:  # noqa: A002
    return PythonHandler(id, result, goes_on=goes_on)


def asynchronous(id: str, result: Callable[[dict[str, object]], object], goes_on: bool) -> Handler:  # noqa: A002
    async def function(payload: dict[str, object]) -> object:
        await anyio.lowlevel.checkpoint()
        return result(payload)

    return PythonHandler(id, function, goes_on=goes_on)


def threaded(id: str, result: Callable[[dict[str, object]], object], goes_on: bool) -> Handler:  # noqa: A002
    return PythonHandler(id, result, goes_on=goes_on, in_thread=True)


def shell(id: str, result: Callable[[dict[str, object]], object], goes_on: bool) -> Handler:  # noqa: A002
    said = result({})
    assert isinstance(said, dict)
    return Shell(id, exited(said["exit_code"], said["message"]), goes_on)


KINDS = {"sync": sync, "async": asynchronous, "thread": threaded, "shell": shell}
MEANING = {
    ("PreToolUse", 0): (0, ""),
    ("PreToolUse", 1): (1, "said"),
    ("PreToolUse", 2): (2, "said"),
    ("PostToolUse", 0): (0, ""),
    ("PostToolUse", 1): (0, ""),
    ("PostToolUse", 2): (2, "said"),
    ("SessionStart", 0): (0, ""),
    ("SessionStart", 1): (0, ""),
    ("SessionStart", 2): (2, "said"),
}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "code"), MEANING)
async def test_each_code_means_what_the_table_says(
    name: str, code: int, kind: str, strategy: Strategy
) -> None:
    handler = KINDS[kind]("h", says(code, "said" if code else ""), False)
    verdict = await walk(event(name), [handler], Rules(strategy))
    assert (verdict.exit_code, verdict.message) == MEANING[name, code]
    assert verdict.decider == ("h" if verdict.exit_code else None)


def raises(payload: dict[str, object]) -> object:
    raise ValueError("no such list")


def leaves(payload: dict[str, object]) -> object:
    raise SystemExit(0)


TRUNCATED = replace(exited(2, "half"), truncated=True, usage=Usage(stdout_bytes=99))
FAILURES: dict[str, tuple[Handler, str]] = {
    "raises": (PythonHandler("h", raises), "ValueError: no such list"),
    "leaves": (PythonHandler("h", leaves), "SystemExit"),
    "none": (PythonHandler("h", lambda payload: None), "returned null"),
    "list": (PythonHandler("h", lambda payload: [0, ""]), "returned a list"),
    "bool": (PythonHandler("h", says(True)), "exit_code is true or false"),
    "text": (PythonHandler("h", says("0")), "exit_code is a string"),
    "three": (PythonHandler("h", says(3)), "exit_code is 3"),
    "no code": (PythonHandler("h", lambda payload: {"message": ""}), "exit_code is null"),
    "bytes": (PythonHandler("h", says(1, b"x")), "message is a bytes"),
    "mute": (PythonHandler("h", says(2)), "without a message"),
    "more": (
        PythonHandler("h", lambda payload: {"exit_code": 0, "message": "", "input": {}}),
        "unknown key 'input'",
    ),
    "generator": (PythonHandler("h", lambda payload: iter(())), "returned a"),
    "async raises": (asynchronous("h", raises, False), "ValueError"),
    "thread raises": (threaded("h", raises, False), "ValueError"),
    "crash": (Shell("h", exited(3, stderr="Traceback\nKeyError: 'x'")), "KeyError: 'x'"),
    "255": (Shell("h", exited(255)), "exited with 255"),
    "missing script": (Shell("h", exited(2, stderr="can't open file 'x.py'")), "can't open file"),
    "blank": (Shell("h", exited(2, " \n")), "printed nothing"),
    "truncated": (Shell("h", TRUNCATED), "was cut"),
    "timeout": (
        Shell("h", Outcome(Status.TIMEOUT, Cause.WALL_CLOCK, 0, duration_seconds=5)),
        "time limit, after 5.0 s",
    ),
    "killed": (Shell("h", Outcome(Status.SIGNALLED, Cause.SIGNAL, signal=9)), "signal 9"),
    "seccomp": (Shell("h", Outcome(Status.FAILED, Cause.SECCOMP, 1)), "seccomp"),
    "oom": (Shell("h", Outcome(Status.OOM, Cause.MEMORY)), "out of memory"),
    "no execute bit": (Shell("h", error("chmod +x it", Cause.NOT_EXECUTABLE)), "chmod +x it"),
    "queue": (Shell("h", dropped("the queue is full", Cause.QUEUE)), "the queue is full"),
    "refused": (Shell("h", refused("policy says no")), "policy says no"),
    "engine": (Shell("h", error("start docker", Cause.ENGINE_LOST)), "start docker"),
}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", PAYLOADS)
@pytest.mark.parametrize("failure", FAILURES)
async def test_a_failed_gate_blocks_before_the_tool_and_nowhere_else(
    failure: str, name: str, strategy: Strategy
) -> None:
    handler, said = FAILURES[failure]
    verdict = await walk(event(name), [handler], Rules(strategy))
    assert verdict.exit_code == (1 if name == "PreToolUse" else 0)
    assert said in (verdict.decisions[0].failure or "")
    assert said in verdict.reason
    if name == "PreToolUse":
        assert said in verdict.message
        assert "on_failure" in verdict.message
    passing = replace(handler, goes_on=True)  # type: ignore[type-var]
    verdict = await walk(event(name), [passing], Rules(strategy))
    assert verdict.exit_code == 0
    assert said in (verdict.decisions[0].failure or "")


async def test_truncated_stderr_alone_spoils_no_message() -> None:
    outcome = replace(exited(2, "whole", "e"), truncated=True)
    verdict = await walk(event("PreToolUse"), [Shell("h", outcome)], Rules())
    assert verdict.message == "whole"


@pytest.mark.parametrize("codes", list(itertools.product((0, 1, 2), repeat=3)))
async def test_first_is_the_source_systems_own_pipeline(codes: tuple[int, ...]) -> None:
    called: list[int] = []

    def handler(place: int, code: int) -> Handler:
        def function(payload: dict[str, object]) -> object:
            called.append(place)
            return {"exit_code": code, "message": f"m{place}"}

        return PythonHandler(f"h{place}", function)

    handlers = [handler(place, code) for place, code in enumerate(codes)]
    for name in PAYLOADS:
        called.clear()
        verdict = await walk(event(name), handlers, Rules("first"))
        stops = (1, 2) if name == "PreToolUse" else (2,)
        first = next((place for place, code in enumerate(codes) if code in stops), None)
        expected = (0, "") if first is None else (codes[first], f"m{first}")
        assert (verdict.exit_code, verdict.message) == expected
        assert called == list(range(3 if first is None else first + 1))


@pytest.mark.parametrize("codes", list(itertools.product((0, 1, 2), repeat=3)))
async def test_block_wins_wherever_it_stands_and_messages_keep_their_order(
    codes: tuple[int, ...],
) -> None:
    handlers: list[Handler] = [
        Shell(f"h{place}", exited(code, f"m{place}" if code else ""), seconds=0.002 * (3 - place))
        for place, code in enumerate(codes)
    ]
    verdict = await walk(event("PreToolUse"), handlers, Rules("block-wins"))
    wanted = 1 if 1 in codes else 2 if 2 in codes else 0
    said = [f"m{place}" for place, code in enumerate(codes) if code == wanted != 0]
    assert (verdict.exit_code, verdict.message) == (wanted, "\n".join(said))
    assert [one.decider for one in verdict.decisions] == ["h0", "h1", "h2"]


async def test_shell_hooks_of_block_wins_wait_at_the_same_time() -> None:
    handlers: list[Handler] = [Shell(f"h{n}", exited(0), seconds=1) for n in range(8)]
    started = time.perf_counter()
    await walk(event("PreToolUse"), handlers, Rules("block-wins"))
    assert time.perf_counter() - started < 7


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_the_budget_is_for_all_handlers_together(strategy: Strategy) -> None:
    handlers: list[Handler] = [
        Shell("quick", exited(0)),
        Shell("slow", exited(0), goes_on=True, seconds=30),
        Shell("late", exited(0), seconds=30),
    ]
    started = time.perf_counter()
    verdict = await walk(event("PreToolUse"), handlers, Rules(strategy, 0.2))
    assert time.perf_counter() - started < 25
    assert verdict.exit_code == 1
    assert verdict.decider == "late"
    assert [one.failure is None for one in verdict.decisions] == [True, False, False]
    assert "0.2 s" in verdict.message


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_function_that_overruns_the_budget_has_given_no_verdict(
    strategy: Strategy, in_thread: bool
) -> None:
    def slow(payload: dict[str, object]) -> object:
        time.sleep(0.3)
        return {"exit_code": 0, "message": ""}

    handler = PythonHandler("h", slow, in_thread=in_thread)
    verdict = await walk(event("PreToolUse"), [handler], Rules(strategy, 0.05))
    assert verdict.exit_code == 1
    assert "0.05 s" in verdict.message


async def test_a_cancelled_call_is_cancelled() -> None:
    with anyio.move_on_after(0.05) as scope:
        await walk(event("PreToolUse"), [Shell("h", exited(0), seconds=30)], Rules())
    assert scope.cancelled_caught


async def test_no_handler_changes_what_the_next_one_sees() -> None:
    seen: list[object] = []

    def spoil(payload: dict[str, object]) -> object:
        tool_input = payload["input"]
        assert isinstance(tool_input, dict)
        seen.append(dict(tool_input))
        tool_input["command"] = "true"
        return {"exit_code": 0, "message": ""}

    handlers: list[Handler] = [PythonHandler(f"h{n}", spoil) for n in range(2)]
    await walk(event("PreToolUse"), handlers, Rules())
    assert seen == [{"command": "pytest"}] * 2


def claude(document: str) -> str:
    return '{"hookSpecificOutput": {"hookEventName": "EVENT", ' + document + "}}"


PROTOCOLS = [
    ("claude", "PreToolUse", exited(0), 0, ""),
    ("claude", "PreToolUse", exited(0, "just text"), 0, ""),
    ("claude", "SessionStart", exited(0, "context"), 2, "context"),
    ("claude", "PreToolUse", exited(2, "", "why"), 1, "why"),
    ("claude", "PreToolUse", exited(2, '{"decision": "approve"}', "why"), 1, "why"),
    ("claude", "PreToolUse", exited(1, "x"), "failed", "exited with 1"),
    ("claude", "PreToolUse", exited(127), "failed", "exited with 127"),
    ("claude", "PostToolUse", exited(2, "", "see this"), 2, "see this"),
    ("claude", "PreToolUse", exited(0, "{broken"), "failed", "is none"),
    ("claude", "PreToolUse", exited(0, '{"permissionDecision": "deny"}'), "failed", "outside"),
    ("claude", "PreToolUse", exited(0, '{"continue": false, "stopReason": "r"}'), 1, "r"),
    ("claude", "PreToolUse", exited(0, '{"decision": "block", "reason": "r"}'), 1, "r"),
    ("claude", "PostToolUse", exited(0, '{"decision": "block", "reason": "r"}'), 2, "r"),
    (
        *("claude", "PreToolUse"),
        exited(0, claude('"permissionDecision": "deny", "permissionDecisionReason": "r"')),
        *(1, "r"),
    ),
    ("claude", "PreToolUse", exited(0, claude('"permissionDecision": "allow"')), 0, ""),
    ("claude", "PreToolUse", exited(0, claude('"permissionDecision": "ask"')), 1, "a person"),
    ("claude", "PreToolUse", exited(0, claude('"permissionDecision": "maybe"')), "failed", "maybe"),
    ("claude", "PreToolUse", exited(0, claude('"updatedInput": {}')), "failed", "rewritten input"),
    ("claude", "PreToolUse", exited(0, claude('"additionalContext": "c"')), 2, "c"),
    (
        *("claude", "PreToolUse"),
        exited(0, '{"hookSpecificOutput": {"permissionDecision": "deny"}}'),
        *("failed", "hookEventName"),
    ),
    ("gemini", "PreToolUse", exited(0), 0, ""),
    ("gemini", "PreToolUse", exited(0, '{"decision": "deny", "reason": "r"}'), 1, "r"),
    ("gemini", "PreToolUse", exited(0, '{"decision": "allow"}'), 0, ""),
    ("gemini", "PreToolUse", exited(2, '{"decision": "allow"}', "why"), 1, "why"),
    ("gemini", "PreToolUse", exited(1), "failed", "exited with 1"),
    ("gemini", "PostToolUse", exited(0, claude('"additionalContext": "c"')), 2, "c"),
    ("gemini", "PreToolUse", exited(0, claude('"tool_input": {}')), "failed", "rewritten input"),
    ("cursor", "PreToolUse", exited(0, '{"permission": "allow"}'), 0, ""),
    ("cursor", "PreToolUse", exited(0, '{"permission": "deny", "agent_message": "r"}'), 1, "r"),
    ("cursor", "PreToolUse", exited(0), "failed", "no JSON"),
    ("cursor", "PostToolUse", exited(0), 0, ""),
    ("cursor", "PostToolUse", exited(0, '{"additional_context": "c"}'), 2, "c"),
    ("cursor", "PreToolUse", exited(2, "", "why"), 1, "why"),
    ("cursor", "PreToolUse", exited(3), "failed", "exited with 3"),
]


@pytest.mark.parametrize(("protocol", "name", "outcome", "code", "said"), PROTOCOLS)
async def test_other_tools_conventions_are_read_as_their_tools_read_them(
    protocol: str, name: str, outcome: Outcome, code: int | str, said: str
) -> None:
    outcome = replace(outcome, stdout=outcome.stdout.replace(b"EVENT", name.encode()))
    answer = answer_of_outcome(outcome, protocol=protocol, event=name, decider="h")
    assert (answer.code if answer.failure is None else "failed") == code
    assert said in (answer.failure or answer.message)


async def test_twenty_calls_at_once_with_a_slow_guard_are_twenty_denials() -> None:
    verdicts: list[Verdict] = []

    def slow(payload: dict[str, object]) -> object:
        time.sleep(0.3)
        return {"exit_code": 1, "message": "no"}

    async def call(handler: Handler) -> None:
        verdicts.append(await walk(event("PreToolUse"), [handler], Rules("block-wins", 60)))

    kinds: list[Callable[[], Handler]] = [
        lambda: PythonHandler("h", slow, in_thread=True),
        lambda: Shell("h", exited(1, "no"), seconds=0.3),
    ]
    for kind in kinds:
        verdicts.clear()
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(call, kind())
        assert [(one.exit_code, one.message, one.decider) for one in verdicts] == [
            (1, "no", "h")
        ] * 20


def test_nothing_to_say_is_zero_and_empty() -> None:
    answer: Callable[[], Awaitable[Verdict]] = lambda: walk(event("PreToolUse"), [], Rules())  # noqa: E731
    verdict = anyio.run(answer)
    assert verdict.as_answer() == {"exit_code": 0, "message": ""}
