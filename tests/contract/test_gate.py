"""Is a shell hook as a guard clean, or does it fail closed? (SPEC section 7)"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from executor import Executor, Verdict
from tests.support import Workspace, bash, python

pytestmark = pytest.mark.anyio

PYTEST: Mapping[str, object] = {"tool_name": "bash", "input": {"command": "pytest"}}
RM: Mapping[str, object] = {"tool_name": "bash", "input": {"command": "rm -rf /"}}
DONE: Mapping[str, object] = {**PYTEST, "output": "5 tests passed"}


async def asked(
    workspace: Workspace,
    sandbox: str,
    hooks: Mapping[str, object],
    event: str,
    payload: Mapping[str, object],
) -> Verdict:
    workspace.hooks(hooks)
    async with Executor.open(workspace.path, sandbox=sandbox) as executor:
        return await executor.ask(event, payload, session_id="sess_test")


GUARD = """
import json, os, sys
data = json.load(open(os.environ["ZERO_HOOK_PAYLOAD_FILE"]))["payload"]
command = data["input"]["command"]
if command.startswith("rm -rf"):
    print("Dangerous command blocked"); sys.exit(1)
if command.startswith("pytest"):
    print("Remember to check test coverage"); sys.exit(2)
"""


@pytest.mark.parametrize(
    ("payload", "code", "message"),
    [
        (RM, 1, "Dangerous command blocked"),
        (PYTEST, 2, "Remember to check test coverage"),
        ({"tool_name": "bash", "input": {"command": "ls"}}, 0, ""),
    ],
)
async def test_block_inject_and_go_on(
    workspace: Workspace, sandbox: str, payload: Mapping[str, object], code: int, message: str
) -> None:
    verdict = await asked(
        workspace, sandbox, {"PreToolUse": [python(GUARD)]}, "PreToolUse", payload
    )
    assert (verdict.exit_code, verdict.message.strip()) == (code, message)


FAILURES = {
    "a crash": bash("exit 3"),
    "a traceback": {**python("raise SystemExit(4)")},
    "a signal": bash("kill -9 $$"),
    "a missing script": {"command": "hooks/none.sh"},
    "a missing script under an interpreter": {"command": "python3", "args": ["/none.py"]},
    "no execute bit": {"command": "./plain.sh"},
    "exit 2 with nothing to say": bash("exit 2"),
    "exit 2 with truncated output": bash("head -c 100000 /dev/zero | tr '\\0' x; exit 2"),
    "a timeout": bash("exec sleep 60", timeout_ms=200),
    "an exit 0 during the grace": bash("trap 'exit 0' TERM; sleep 60 & wait", timeout_ms=200),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_what_is_no_clean_verdict_blocks_with_a_reason(
    workspace: Workspace, sandbox: str, name: str
) -> None:
    workspace.file("plain.sh", "#!/bin/sh\n", mode=0o644)
    hooks = {"PreToolUse": [FAILURES[name]]}
    verdict = await asked(workspace, sandbox, hooks, "PreToolUse", PYTEST)
    assert verdict.exit_code == 1, verdict
    assert "hook_01" in verdict.message


@pytest.mark.parametrize("name", ["a crash", "a signal", "a timeout"])
async def test_on_failure_continue_lets_it_pass(
    workspace: Workspace, sandbox: str, name: str
) -> None:
    workspace.policy_for_all('[gate]\non_failure = "continue"\n')
    hooks = {"PreToolUse": [FAILURES[name]]}
    assert (await asked(workspace, sandbox, hooks, "PreToolUse", PYTEST)).exit_code == 0


async def test_a_post_hook_blocks_nothing_and_may_append(
    workspace: Workspace, sandbox: str
) -> None:
    hooks = {"PostToolUse": [bash("echo no; exit 1"), bash("echo coverage fell; exit 2")]}
    verdict = await asked(workspace, sandbox, hooks, "PostToolUse", DONE)
    assert (verdict.exit_code, verdict.message.strip()) == (2, "coverage fell")


async def test_a_denial_fires_no_hook(workspace: Workspace, sandbox: str) -> None:
    directory = workspace.granted("out")
    workspace.policy("test", '[filesystem]\nwrite = ["out"]\n')
    workspace.settings(
        '[permission]\nrules = [{effect = "deny", tool = "bash", command = "rm -rf *"}]\n'
        '[[bind]]\npolicy = "test"\n'
    )
    hooks = {"PreToolUse": [bash("touch out/fired")]}
    verdict = await asked(workspace, sandbox, hooks, "PreToolUse", RM)
    assert verdict.exit_code == 1
    assert list(directory.iterdir()) == []
    assert (await asked(workspace, sandbox, hooks, "PreToolUse", PYTEST)).exit_code == 0
    assert [path.name for path in directory.iterdir()] == ["fired"]
