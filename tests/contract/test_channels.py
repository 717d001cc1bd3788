"""What does a hook get to see of an event? (SPEC sections 1.1 and 2.2)"""

from __future__ import annotations

import json

import pytest

from tests.support import Run, Workspace, python

pytestmark = pytest.mark.anyio

PRINT_ENVIRONMENT = "import os, json; print(json.dumps(dict(os.environ)))"
DOCUMENTED = {
    "PATH",
    "ZERO_HOOK_EVENT",
    "ZERO_HOOK_SESSION",
    "ZERO_HOOK_TIMESTAMP",
    "ZERO_HOOK_PAYLOAD",
    "ZERO_HOOK_PAYLOAD_FILE",
}


async def test_the_environment_is_exactly_the_documented_one(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "LD_PRELOAD_X", "PYTHONPATH_X", "GIT_DIR", "LANG"):
        monkeypatch.setenv(name, "leak")
    record = await run(python(PRINT_ENVIRONMENT, env={"EXTRA": "1"}))
    seen = json.loads(record.outcome.stdout)
    # CPython sets LC_CTYPE for itself when the locale is C (PEP 538); nobody handed it over.
    seen.pop("LC_CTYPE", None)
    assert set(seen) == DOCUMENTED | {"EXTRA"}
    assert seen["PATH"] == "/usr/local/bin:/usr/bin:/bin"
    assert seen["ZERO_HOOK_EVENT"] == "tool_call"
    assert seen["ZERO_HOOK_SESSION"] == "sess_test"
    envelope = json.loads(seen["ZERO_HOOK_PAYLOAD"])
    assert list(envelope) == ["event", "timestamp", "session_id", "payload"]
    assert envelope["timestamp"] == seen["ZERO_HOOK_TIMESTAMP"]


async def test_the_raw_environment_block_holds_nothing_else(run: Run) -> None:
    record = await run({"command": "cat", "args": ["/proc/self/environ"]})
    names = {entry.split(b"=")[0] for entry in record.outcome.stdout.rstrip(b"\0").split(b"\0")}
    assert names == {name.encode() for name in DOCUMENTED}


async def test_reserved_names_are_stripped_and_the_rest_is_kept(run: Run) -> None:
    env = {
        "LD_PRELOAD": "x",
        "LD_AUDIT": "x",
        "DYLD_LIBRARY_PATH": "x",
        "PATH": "/evil",
        "HOME": "/evil",
        "BASH_ENV": "x",
        "GIT_CONFIG_GLOBAL": "x",
        "ZERO_HOOK_EVENT": "forged",
        "KEPT": "yes",
    }
    record = await run(python(PRINT_ENVIRONMENT, env=env))
    seen = json.loads(record.outcome.stdout)
    seen.pop("LC_CTYPE", None)
    assert set(seen) == DOCUMENTED | {"KEPT"}
    assert seen["ZERO_HOOK_EVENT"] == "tool_call"


@pytest.mark.parametrize(("total", "present"), [(8192, True), (8193, False)])
async def test_the_variable_ends_at_8192_bytes_and_the_file_does_not(
    run: Run, total: int, present: bool
) -> None:
    empty: dict[str, object] = {"event": "tool_call", "timestamp": "2026-03-21T08:15:30.123Z"}
    empty |= {"session_id": "sess_test", "payload": {"tool": "b", "success": True, "output": ""}}
    overhead = len(json.dumps(empty, separators=(",", ":")))
    payload = {"tool": "b", "success": True, "output": "x" * (total - overhead)}
    code = (
        "import os; f = open(os.environ['ZERO_HOOK_PAYLOAD_FILE'], 'rb').read(); "
        "print(len(f), 'ZERO_HOOK_PAYLOAD' in os.environ)"
    )
    record = await run(python(code), payload=payload)
    assert record.outcome.stdout.decode().split() == [str(total + 1), str(present)]


async def test_all_channels_carry_the_same_bytes(run: Run) -> None:
    payload = {"tool": "b", "success": True, "output": 'héllo 日本 \u0001 \ud800 "q"'}
    code = (
        "import os, sys; f = open(os.environ['ZERO_HOOK_PAYLOAD_FILE'], 'rb').read();"
        "e = os.environb[b'ZERO_HOOK_PAYLOAD']; i = sys.stdin.buffer.read();"
        "sys.stdout.buffer.write(f); assert f == i == e + b'\\n'"
    )
    record = await run(python(code, stdin_json=True), payload=payload)
    assert record.outcome.ok, record.outcome
    line = record.outcome.stdout
    assert line.count(b"\n") == 1
    assert "日本".encode() in line
    assert b"\\ud800" in line
    assert json.loads(line)["payload"] == payload


async def test_read_r_sees_a_whole_line(run: Run, workspace: Workspace) -> None:
    workspace.script("hook.sh", 'read -r payload && echo "$payload" | jq -r .payload.output')
    record = await run({"command": "hook.sh", "stdin_json": True})
    assert record.outcome.reason is not None  # a bare name is looked up inside the sandbox
    record = await run({"command": "./hook.sh", "stdin_json": True})
    if b"jq: command not found" in record.outcome.stderr:
        pytest.skip("jq: not installed on this host (root = host)")
    assert record.outcome.stdout == b"ok\n"


async def test_stdin_is_empty_unless_asked_for(run: Run) -> None:
    record = await run(python("import sys; print(repr(sys.stdin.read()))"))
    assert record.outcome.stdout == b"''\n"


async def test_stdin_is_a_regular_file_or_like_one(run: Run) -> None:
    code = "import os, stat; s = os.fstat(0).st_mode; print(stat.S_ISREG(s))"
    record = await run(python(code, stdin_json=True))
    assert record.outcome.stdout == b"True\n"


async def test_a_hook_that_never_reads_a_large_payload_is_no_error(run: Run) -> None:
    payload = {"tool": "b", "success": True, "output": "x" * 4_000_000}
    record = await run({"command": "true", "stdin_json": True}, payload=payload)
    assert record.outcome.ok


async def test_the_largest_payload_arrives_whole(run: Run) -> None:
    payload = {"tool": "b", "success": True, "output": "x" * (16 * 1024 * 1024 - 300)}
    code = "import sys; print(len(sys.stdin.buffer.read()) > 16 * 1024 * 1024 - 300)"
    record = await run(python(code, stdin_json=True), payload=payload)
    assert record.outcome.stdout == b"True\n", record.outcome


async def test_arguments_are_literal(run: Run) -> None:
    arguments = ["--flag", "a b", "$HOME", "`id`", ";", "*", "", "ü", "--"]
    code = "import sys, json; print(json.dumps(sys.argv[1:]))"
    record = await run({"command": "python3", "args": ["-c", code, *arguments]})
    assert json.loads(record.outcome.stdout) == arguments


async def test_the_payload_file_is_readable_by_the_hook_alone(run: Run) -> None:
    code = (
        "import os; s = os.stat(os.environ['ZERO_HOOK_PAYLOAD_FILE']);"
        "print(oct(s.st_mode & 0o077), s.st_uid == os.getuid())"
    )
    record = await run(python(code))
    assert record.outcome.stdout == b"0o0 True\n"


async def test_no_descriptor_but_the_three_is_open(run: Run) -> None:
    code = "import os; print(sorted(os.listdir('/proc/self/fd'))[:-1])"
    record = await run(python(code))
    assert record.outcome.stdout == b"['0', '1', '2']\n"
