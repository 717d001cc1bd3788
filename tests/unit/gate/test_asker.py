"""Does a whole executor keep the order: Permission, hooks, the tool, hooks?"""

from __future__ import annotations

import threading
from collections.abc import Mapping

import anyio
import anyio.to_thread
import pytest

from executor import (
    Cause,
    Executor,
    InvalidConfig,
    InvalidEvent,
    Outcome,
    Question,
    Status,
    Verdict,
    run_hooks,
)
from executor.backends.base import Backend
from executor.gate.sessions import Sessions
from executor.job import Job
from executor.record import Record
from executor.testing import FakeBackend
from tests.support import Workspace

pytestmark = pytest.mark.anyio

RM = {"tool_name": "bash", "input": {"command": "rm -rf /"}}
PYTEST = {"tool_name": "bash", "input": {"command": "pytest"}}
DENY_RM = '[permission]\nrules = [{effect = "deny", tool = "bash", command = "rm -rf *"}]\n'
NOTHING = {"exit_code": 0, "message": ""}


class Keep:
    """A sink of runs and verdicts."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.verdicts: list[Verdict] = []

    def append(self, record: Record) -> None:
        self.records.append(record)

    def append_verdict(self, verdict: Verdict) -> None:
        self.verdicts.append(verdict)


def exits(code: int, stdout: bytes = b"") -> Outcome:
    return Outcome(Status.OK if code == 0 else Status.FAILED, Cause.EXIT, code, stdout=stdout)


def fake(outcome: Outcome) -> dict[str, Backend]:
    return {"fake": FakeBackend(lambda job: outcome)}


async def test_a_hook_cannot_bypass_permission_and_after_a_denial_none_fires(
    workspace: Workspace,
) -> None:
    workspace.settings(DENY_RM)
    workspace.hooks({"PreToolUse": [{"command": "a"}]})
    backend, keep, called = FakeBackend(), Keep(), []
    async with Executor.open(workspace.path, backends={"fake": backend}, sinks=[keep]) as ex:

        @ex.on("PreToolUse")
        def allow(payload: dict[str, object]) -> object:
            called.append(payload)
            return NOTHING

        verdict = await ex.ask("PreToolUse", RM)
        result = await ex.call_tool("bash", {"command": "rm -rf /"}, called.append)
    assert verdict.blocked
    assert verdict.decider == "permission:0"
    assert "rm -rf" in verdict.message
    assert result.blocked
    assert result.content == verdict.message
    assert not called
    assert not backend.jobs
    assert [one.decider for one in keep.verdicts] == ["permission:0"] * 2


async def test_the_source_systems_own_examples(workspace: Workspace) -> None:
    log: list[str] = []
    loaded: list[object] = []
    async with Executor.open(workspace.path, backends=fake(exits(0))) as ex:

        @ex.on("SessionStart")
        def load(payload: dict[str, object]) -> object:
            loaded.append(payload["session_id"])
            return {"exit_code": 2, "message": "configuration loaded"}

        @ex.on("PreToolUse", matcher="bash")
        def guard(payload: dict[str, object]) -> object:
            tool_input = payload["input"]
            assert isinstance(tool_input, dict)
            if "rm -rf" in tool_input["command"]:
                return {"exit_code": 1, "message": "Dangerous command blocked"}
            return NOTHING

        @ex.on("PreToolUse")
        async def remind(payload: dict[str, object]) -> object:
            tool_input = payload["input"]
            assert isinstance(tool_input, dict)
            if tool_input["command"] == "pytest":
                return {"exit_code": 2, "message": "Remember to check test coverage"}
            return NOTHING

        @ex.on("PostToolUse")
        def audit(payload: dict[str, object]) -> object:
            log.append(f"[bash] {payload['input']} → {payload['output']}")
            return NOTHING

        start = {"session_id": "abc123", "user_input": "帮我分析这个项目"}
        first = await ex.ask({"name": "SessionStart", "payload": start})
        again = await ex.ask({"name": "SessionStart", "payload": start})
        blocked = await ex.call_tool("bash", {"command": "rm -rf /"}, lambda _: "gone")
        passed = await ex.call_tool("bash", {"command": "pytest"}, lambda _: "5 tests passed")
    assert first.message == "configuration loaded"
    assert again.as_answer() == NOTHING
    assert loaded == ["abc123"]
    assert blocked.content == "Dangerous command blocked"
    assert passed.content == "5 tests passed\n\nRemember to check test coverage"
    assert passed.messages == ("Remember to check test coverage",)
    assert log == ["[bash] {'command': 'pytest'} → 5 tests passed"]


async def test_functions_come_first_then_hooks_in_the_order_of_the_file(
    workspace: Workspace,
) -> None:
    workspace.settings('[gate]\nstrategy = "block-wins"\n')
    workspace.hooks(
        {"PreToolUse": [{"command": "a"}, {"command": "b", "matcher": "ba*"}, {"command": "c"}]}
    )
    keep = Keep()
    backends = fake(exits(2, b"shell\n"))
    async with Executor.open(workspace.path, backends=backends, sinks=[keep]) as ex:
        ex.on("PreToolUse")(lambda payload: {"exit_code": 2, "message": "function"})
        ex.on("PreToolUse", matcher="read|write")(lambda payload: 1 / 0)
        verdict = await ex.ask("PreToolUse", PYTEST, session_id="s")
        counted = ex.metrics.value("prx_gate_verdicts_total", event="PreToolUse", code="2")
    assert verdict.message == "function\nshell\nshell\nshell"
    assert [one.decider for one in verdict.decisions][1:] == ["hook_01", "hook_02", "hook_03"]
    assert sorted(record.hook for record in keep.records) == ["hook_01", "hook_02", "hook_03"]
    assert keep.verdicts == [verdict]
    assert counted == 1


async def test_a_policy_lets_failures_pass_where_it_says_so(workspace: Workspace) -> None:
    workspace.hooks({"PreToolUse": [{"command": "a"}]})
    async with Executor.open(workspace.path, backends=fake(exits(9))) as ex:
        assert (await ex.ask("PreToolUse", PYTEST)).blocked
    workspace.policy_for_all('[gate]\non_failure = "continue"\n')
    async with Executor.open(workspace.path, backends=fake(exits(9))) as ex:
        verdict = await ex.ask("PreToolUse", PYTEST)
    assert verdict.as_answer() == NOTHING
    assert "exited with 9" in verdict.reason


async def test_a_hook_of_another_convention_is_read_by_it(workspace: Workspace) -> None:
    workspace.hooks({"PreToolUse": [{"command": "a", "protocol": "claude"}]})
    outcome = Outcome(Status.FAILED, Cause.EXIT, 2, stderr=b"not today\n")
    async with Executor.open(workspace.path, backends=fake(outcome)) as ex:
        verdict = await ex.ask("PreToolUse", PYTEST)
    assert (verdict.exit_code, verdict.message) == (1, "not today")


async def test_ask_needs_a_plain_yes(workspace: Workspace) -> None:
    workspace.settings('[permission]\ndefault = "ask"\n')
    answers: list[object] = [True, False, 1, "yes", None]
    async with Executor.open(workspace.path, backends=fake(exits(0))) as ex:
        silent = await ex.ask("PreToolUse", PYTEST)
        asked: list[Question] = []

        @ex.on_ask
        def consent(question: Question) -> object:
            asked.append(question)
            return answers[len(asked) - 1]

        given = [(await ex.ask("PreToolUse", PYTEST)).exit_code for _ in answers]

        async def later(question: Question) -> bool:
            return question.tool == "bash"

        ex.on_ask(later)
        waited = await ex.ask("PreToolUse", PYTEST)

        def broken(question: Question) -> object:
            raise ValueError("no terminal")

        ex.on_ask(broken)
        raised = await ex.ask("PreToolUse", PYTEST)
    assert silent.blocked
    assert "nobody can be asked" in silent.message
    assert given == [0, 1, 1, 1, 1]
    assert asked[0].input == {"command": "pytest"}
    assert waited.exit_code == 0
    assert "no terminal" in raised.message


async def test_the_tool_starts_after_the_verdict_and_gets_what_was_judged(
    workspace: Workspace,
) -> None:
    steps: list[str] = []
    tool_input: dict[str, object] = {"command": "ls", "deep": {"a": [1]}}
    async with Executor.open(workspace.path, backends=fake(exits(0))) as ex:

        @ex.on("PreToolUse")
        async def slow(payload: dict[str, object]) -> object:
            steps.append("asked")
            await anyio.sleep(0.1)
            payload["input"] = {"command": "rm -rf /"}
            tool_input["command"] = "rm -rf /"
            steps.append("answered")
            return NOTHING

        def tool(given: dict[str, object]) -> object:
            steps.append(f"ran {given['command']}")
            return {"files": 1}

        result = await ex.call_tool("bash", tool_input, tool)
    assert steps == ["asked", "answered", "ran ls"]
    assert result.content == '{"files": 1}'
    assert result.value == {"files": 1}


async def test_the_tools_events_stand_around_it_and_not_around_a_block(
    workspace: Workspace,
) -> None:
    workspace.settings(DENY_RM)
    async with (
        Executor.open(workspace.path, backends=fake(exits(0))) as ex,
        ex.subscribe("prx.lifecycle.*") as events,
    ):
        await ex.call_tool("bash", {"command": "rm -rf /"}, lambda _: "")
        await ex.call_tool("bash", {"command": "ls"}, lambda _: "a b")
        with anyio.fail_after(5):
            topics = [(await anext(events)).topic for _ in range(2)]
    assert topics == ["prx.lifecycle.tool_call_start", "prx.lifecycle.tool_call"]


async def test_a_tool_that_raises_is_told_to_the_model_and_to_hooks(workspace: Workspace) -> None:
    outputs: list[object] = []
    async with Executor.open(workspace.path, backends=fake(exits(0))) as ex:

        @ex.on("PostToolUse")
        def hint(payload: dict[str, object]) -> object:
            outputs.append(payload["output"])
            return {"exit_code": 2, "message": "try again"}

        async def tool(given: dict[str, object]) -> object:
            raise OSError("disk full")

        result = await ex.call_tool("bash", {}, tool)
    assert result.is_error
    assert not result.blocked
    assert result.content == "OSError: disk full\n\ntry again"
    assert outputs == ["OSError: disk full"]


async def test_a_block_after_the_tool_ran_blocks_nothing(workspace: Workspace) -> None:
    async with Executor.open(workspace.path, backends=fake(exits(0))) as ex:
        ex.on("PostToolUse")(lambda payload: {"exit_code": 1, "message": "too late"})
        result = await ex.call_tool("bash", {}, lambda _: "done")
    assert result.content == "done"
    assert result.after is not None
    assert result.after.exit_code == 0
    assert "too late" in result.after.reason


async def test_a_session_starts_once_over_calls_at_once_and_restarts(workspace: Workspace) -> None:
    started: list[str] = []

    def start(payload: dict[str, object]) -> object:
        started.append(str(payload["session_id"]))
        return {"exit_code": 2, "message": "hello"}

    verdicts: list[Verdict] = []
    for _ in range(2):
        async with Executor.open(workspace.path, backends=fake(exits(0))) as ex:
            ex.on("SessionStart")(start)

            async def call(ex: Executor = ex) -> None:
                payload = {"session_id": "one", "user_input": ""}
                verdicts.append(await ex.ask("SessionStart", payload))

            async with anyio.create_task_group() as tasks:
                for _ in range(20):
                    tasks.start_soon(call)
            await ex.run_hooks("SessionStart", {"session_id": "two", "user_input": ""})
    assert started == ["one", "two"]
    assert sorted(one.exit_code for one in verdicts) == [0] * 39 + [2]


def test_processes_share_what_has_started(workspace: Workspace) -> None:
    path = workspace.path / "state" / "sessions.db"
    one, two = Sessions(path), Sessions(path)
    claims: list[tuple[str, bool]] = []

    def claim(which: Sessions) -> None:
        claims.extend((str(n), which.claim(str(n))) for n in range(50))

    threads = [threading.Thread(target=claim, args=(which,)) for which in (one, two)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    one.close()
    two.close()
    assert sorted(number for number, first in claims if first) == sorted(map(str, range(50)))
    assert len(claims) == 100


def test_without_a_usable_file_a_session_still_starts_once_here(workspace: Workspace) -> None:
    said: list[str] = []
    blocked = workspace.file("state", "no directory")
    sessions = Sessions(blocked / "sessions.db", said.append)
    assert [sessions.claim("a"), sessions.claim("a"), sessions.claim("b")] == [True, False, True]
    assert said


async def test_mistakes_of_the_caller_raise_and_ask_nobody(workspace: Workspace) -> None:
    async with Executor.open(workspace.path, backends=fake(exits(0))) as ex:
        mistakes: list[tuple[str, Mapping[str, object]]] = [
            ("PreToolUse", {"tool_name": "bash"}),
            ("tool_call", {"tool": "bash", "success": True, "output": ""}),
            ("SessionStart", {"user_input": ""}),
            ("pre_tool_use", PYTEST),
        ]
        for name, payload in mistakes:
            with pytest.raises(InvalidEvent):
                await ex.ask(name, payload)
        with pytest.raises(InvalidEvent):
            await ex.ask("SessionStart", {"session_id": "a", "user_input": ""}, session_id="b")
        with pytest.raises(InvalidEvent):
            await ex.ask({"name": "PreToolUse"})
        for event, matcher in (("tool_call", None), ("PreToolUse", "a||b"), ("SessionStart", "a")):
            with pytest.raises(InvalidConfig):
                ex.on(event, matcher=matcher)


async def test_a_closed_executor_lets_nothing_through(workspace: Workspace) -> None:
    async with Executor.open(workspace.path, backends=fake(exits(0))) as ex:
        pass
    assert (await ex.ask("PreToolUse", PYTEST)).blocked


async def test_an_event_above_the_limit_is_a_failed_gate(workspace: Workspace) -> None:
    workspace.settings("[limits]\nmax_payload_bytes = 1024\n")
    async with Executor.open(workspace.path, backends=fake(exits(0))) as ex:
        large = {"tool_name": "bash", "input": {"command": "x" * 2000}}
        verdict = await ex.ask("PreToolUse", large)
        after = await ex.ask("PostToolUse", {**large, "output": ""})
    assert verdict.blocked
    assert "max_payload_bytes" in verdict.message
    assert after.exit_code == 0


class Slow(FakeBackend):
    """Runs that take their time, and end as the test says."""

    def __init__(self, seconds: float, outcome: Outcome) -> None:
        super().__init__(lambda job: outcome)
        self._seconds = seconds

    async def run(self, job: Job) -> Outcome:
        await anyio.sleep(self._seconds)
        return await super().run(job)


async def test_a_full_lane_is_a_denial_and_never_an_accident(workspace: Workspace) -> None:
    workspace.settings("[limits]\nmax_concurrency = 1\n")
    workspace.hooks({"PreToolUse": [{"command": "a"}]})
    verdicts: list[Verdict] = []
    slow = Slow(0.02, exits(0))
    async with Executor.open(workspace.path, backends={"fake": slow}) as ex:

        async def call() -> None:
            verdicts.append(await ex.ask("PreToolUse", PYTEST))

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(call)
    assert sum(one.blocked for one in verdicts) == 11
    assert all("too many" in one.message for one in verdicts if one.blocked)


async def test_twenty_calls_at_once_are_twenty_denials(workspace: Workspace) -> None:
    workspace.hooks({"PreToolUse": [{"command": "a"}]})
    verdicts: list[Verdict] = []
    slow = Slow(0.3, exits(1, b"no"))
    async with Executor.open(workspace.path, backends={"fake": slow}) as ex:

        async def call() -> None:
            verdicts.append(await ex.ask("PreToolUse", PYTEST))

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(call)
    assert [(one.exit_code, one.message, one.decider) for one in verdicts] == [
        (1, "no", "hook_01")
    ] * 20


async def test_the_gate_never_waits_behind_observed_events(workspace: Workspace) -> None:
    workspace.settings("[limits]\nmax_concurrency = 1\n")
    workspace.hooks({"error": [{"command": "a"}], "PreToolUse": [{"command": "b"}]})
    slow = Slow(0.5, exits(0))
    async with Executor.open(workspace.path, backends={"fake": slow}) as ex:
        observed = [ex.emit("error", {"component": "c", "message": "m"}) for _ in range(6)]
        verdict = await ex.ask("PreToolUse", PYTEST)
        assert observed[-1].records == [None]
    assert verdict.exit_code == 0


async def test_a_run_that_the_budget_cut_short_is_kept_as_that(workspace: Workspace) -> None:
    workspace.settings("[gate]\nbudget_ms = 100\n")
    workspace.hooks({"PreToolUse": [{"command": "a"}]})
    keep = Keep()
    slow = Slow(30, exits(0))
    async with Executor.open(workspace.path, backends={"fake": slow}, sinks=[keep]) as ex:
        verdict = await ex.ask("PreToolUse", PYTEST)
    assert verdict.blocked
    assert [one.outcome.status for one in keep.records] == [Status.INTERRUPTED]


async def test_run_hooks_in_the_loops_thread_walks_what_answers_at_once(
    workspace: Workspace,
) -> None:
    workspace.hooks({"PostToolUse": [{"command": "a"}]})
    workspace.settings(DENY_RM)
    async with Executor.open(workspace.path, backends=fake(exits(2, b"m"))) as ex:
        ex.on("PreToolUse")(lambda payload: {"exit_code": 2, "message": "hi"})
        assert run_hooks("PreToolUse", RM) == {"exit_code": 2, "message": "hi"}
        post = {**PYTEST, "output": ""}
        with pytest.raises(RuntimeError, match="hook_01 must be waited for"):
            run_hooks("PostToolUse", post)
        from_thread = await anyio.to_thread.run_sync(run_hooks, "PostToolUse", post)
        assert from_thread == {"exit_code": 2, "message": "m"}
        with pytest.raises(InvalidEvent):
            run_hooks("PreToolUse", {})


def test_run_hooks_without_an_executor_says_so() -> None:
    with pytest.raises(RuntimeError, match="no executor is open"):
        run_hooks("PreToolUse", PYTEST)


def test_an_agent_without_a_loop_has_the_same_verbs(workspace: Workspace) -> None:
    workspace.settings(DENY_RM)
    workspace.hooks({"PreToolUse": [{"command": "a"}]})
    with Executor.open_blocking(workspace.path, backends=fake(exits(2, b"m"))) as ex:

        @ex.on("SessionStart", in_thread=True)
        def start(payload: dict[str, object]) -> object:
            return {"exit_code": 2, "message": "hello"}

        ex.on_ask(lambda question: True)
        session = {"session_id": "s", "user_input": ""}
        assert ex.ask("PreToolUse", RM).blocked
        assert ex.ask("PreToolUse", PYTEST).message == "m"
        assert run_hooks("PreToolUse", RM) == {"exit_code": 2, "message": "m"}
        assert ex.run_hooks("SessionStart", session)["message"] == "hello"
        assert run_hooks("SessionStart", session) == NOTHING
        result = ex.call_tool("bash", {"command": "pytest"}, lambda given: given["command"])
    assert result.content == "pytest\n\nm"


async def test_rules_that_cannot_be_compiled_stop_the_start(workspace: Workspace) -> None:
    workspace.settings('[permission]\nrules = [{effect = "deny", command = " "}]\n')
    with pytest.raises(InvalidConfig, match="/permission/rules/0/command"):
        async with Executor.open(workspace.path, backends=fake(exits(0))):
            pass
