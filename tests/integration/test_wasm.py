"""Does each kind of guest end as it must, and does the next event find its plugin whole?"""

from __future__ import annotations

import os
import select
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest

from executor import Cause, Executor, Outcome, Record, Status
from executor.testing import FakeBackend
from tests.support import TOOL_CALL, Workspace
from tests.unit.wasm import hosts
from tests.unit.wasm.components import (
    ECHO,
    GROW,
    LOOP,
    RECURSION,
    TRAP,
    encode,
    guest,
    says,
)

pytestmark = pytest.mark.anyio

FAKE = FakeBackend


def plugin(
    workspace: Workspace, name: str, wasm: bytes, *, events: str = '["*"]', more: str = ""
) -> None:
    hook = f'[[capabilities]]\ntype = "hook"\nevents = {events}\n'
    manifest = f'[plugin]\nname = "{name}"\nversion = "1"\n{hook}{more}'
    workspace.file(f"plugins/{name}/plugin.wasm", wasm)
    workspace.file(f"plugins/{name}/plugin.toml", manifest)


def limits(**resources: int) -> str:
    return "[resources]\n" + "".join(f"{key} = {value}\n" for key, value in resources.items())


async def emit(executor: Executor, event: str = "tool_call", **payload: object) -> list[Record]:
    return list(await executor.emit(event, {**TOOL_CALL, **payload}, session_id="s").wait())


async def twice(workspace: Workspace) -> tuple[Outcome, Outcome]:
    """The only plugin's outcomes of two events, one after the other."""
    async with Executor.open(workspace.path, backends={"fake": FAKE()}) as executor:
        (first,) = await emit(executor)
        (second,) = await emit(executor)
    assert (first.backend, first.sandbox, first.hook) == ("wasm", None, "plugin:p")
    return first.outcome, second.outcome


# ------------------------------------------------------------------------------ how a guest ends


@pytest.mark.parametrize(
    ("wasm", "status", "cause", "reason"),
    [
        (guest(), Status.OK, Cause.EXIT, None),
        (guest(code=says(1, "no such table")), Status.FAILED, Cause.EXIT, "no such table"),
        (guest(code=says(1, "")), Status.FAILED, Cause.EXIT, "an error without a message"),
        (guest(code=TRAP), Status.FAILED, Cause.SIGNAL, "trap: wasm `unreachable` instruction"),
        (
            guest(RECURSION[0], code=RECURSION[1]),
            Status.FAILED,
            Cause.SIGNAL,
            "trap: call stack exhausted",
        ),
        (guest(code=GROW), Status.OOM, Cause.MEMORY, "with its memory full"),
        (guest(pages=2000), Status.OOM, Cause.MEMORY, "exceeds memory limits"),
        (guest(memories=10), Status.FAILED, Cause.SETUP, "memory count too high"),
        (guest("(start $s) (func $s (unreachable))"), Status.FAILED, Cause.SIGNAL, "unreachable"),
        (
            guest(
                code=says(1, "x") + "(drop) (i32.store (i32.const 8) (i32.const -1)) (i32.const 0)"
            ),
            Status.FAILED,
            Cause.SIGNAL,
            "out of bounds",
        ),
        (
            guest(
                code=says(1, "xy")
                + "(drop) (i32.store8 (i32.const 64) (i32.const 255)) (i32.const 0)"
            ),
            Status.FAILED,
            Cause.SIGNAL,
            "utf-8",
        ),
    ],
    ids=[
        *("ok", "err", "empty-err", "trap", "recursion", "grow", "big", "ten-memories"),
        *("start-trap", "bad-pointer", "bad-utf-8"),
    ],
)
async def test_each_end_has_its_status_and_the_next_event_finds_the_plugin_whole(
    workspace: Workspace, wasm: bytes, status: Status, cause: Cause, reason: str | None
) -> None:
    plugin(workspace, "p", wasm)
    for outcome in await twice(workspace):
        assert (outcome.status, outcome.cause) == (status, cause), outcome.reason
        assert outcome.reason is None if reason is None else reason in (outcome.reason or "")
        assert (outcome.exit_code, outcome.signal) == (None, None)


@pytest.mark.parametrize(
    ("wasm", "stage"),
    [
        (guest(code=LOOP), "term"),
        (guest("(start $s) (func $s (loop $again (br $again)))"), "term"),
        (hosts.sleeper(600), "kill"),
    ],
    ids=["loop", "start-loop", "asleep-in-a-host-call"],
)
async def test_who_does_not_end_is_ended(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, wasm: bytes, stage: str
) -> None:
    if stage == "term":  # a busy machine may be late to count the time: that is no sleeping guest
        monkeypatch.setattr("executor.backends.wasm.MARGIN_SECONDS", 60.0)
    plugin(workspace, "p", wasm, more=limits(max_execution_time_ms=150))
    plugin(workspace, "q", guest())
    async with Executor.open(workspace.path, backends={"fake": FAKE()}) as executor:
        for _ in range(2):
            late, fine = await emit(executor)
            assert (late.outcome.status, late.outcome.cause) == (Status.TIMEOUT, Cause.WALL_CLOCK)
            assert late.outcome.stage is not None
            assert late.outcome.stage.value == stage
            assert "150 ms" in (late.outcome.reason or "")
            assert late.outcome.duration_seconds >= 0.15
            assert fine.outcome.ok
        assert executor.metrics.value("prx_hook_timeouts_total", stage=stage) == 2


async def test_an_error_of_60_megabytes_is_cut_and_counted(workspace: Workspace) -> None:
    code = """
      (drop (memory.grow (i32.const 940)))
      (i32.store8 (i32.const 0) (i32.const 1))
      (i32.store (i32.const 4) (i32.const 65536))
      (i32.store (i32.const 8) (i32.const 60000000))
      (memory.fill (i32.const 65536) (i32.const 97) (i32.const 60000000))
      (i32.const 0)"""
    plugin(workspace, "p", guest(code=code))
    for outcome in await twice(workspace):
        assert outcome.status is Status.FAILED
        assert outcome.reason == "a" * 4096 + f" … ({60_000_000 - 4096} characters more)"


async def test_a_flood_of_output_is_capped_and_counted(workspace: Workspace) -> None:
    plugin(workspace, "p", hosts.printer(1000))
    for outcome in await twice(workspace):
        assert outcome.ok
        assert outcome.stdout == b"a" * 65536
        assert outcome.truncated
        assert outcome.usage.stdout_bytes == 4096 * 1000


async def test_a_killed_worker_costs_its_run_and_no_other(workspace: Workspace) -> None:
    plugin(workspace, "p", hosts.sleeper(600), events='["error"]')
    plugin(workspace, "q", guest(), events='["tool_call"]')
    async with Executor.open(workspace.path, backends={"fake": FAKE()}) as executor:
        receipt = executor.emit("error", {"component": "a", "message": "b"})
        backend = executor.plugins.backend
        assert backend is not None
        while not (busy := backend.pids()):
            await anyio.lowlevel.checkpoint()
        for pid in busy:
            os.kill(pid, 9)
        (lost,) = await receipt.wait()
        assert (lost.outcome.status, lost.outcome.cause) == (Status.ERROR, Cause.ENGINE_LOST)
        (fine,) = await emit(executor)
        assert fine.outcome.ok


# ---------------------------------------------------------------------- what it gets, and does not


async def test_the_envelope_is_byte_for_byte_what_a_shell_hook_gets(workspace: Workspace) -> None:
    workspace.hooks({"tool_call": [{"command": "a"}]})
    plugin(workspace, "p", guest(code=ECHO))
    fake = FAKE()
    async with Executor.open(workspace.path, backends={"fake": fake}) as executor:
        shell, wasm = await emit(executor, output="é\n\u2028 \x7f \ud800 𝄞")
    assert (shell.hook, wasm.hook) == ("hook_01", "plugin:p")
    assert (wasm.outcome.reason or "").encode() + b"\n" == fake.jobs[0].payload


async def test_a_large_envelope_reaches_the_plugin(workspace: Workspace) -> None:
    code = """
      (i32.store8 (i32.const 0) (i32.const 1))
      (i32.store (i32.const 4)
        (i32.add (local.get $payload) (i32.sub (local.get $payload-len) (i32.const 2))))
      (i32.store (i32.const 8) (i32.const 2))
      (i32.const 0)"""
    plugin(workspace, "p", guest(code=code))
    async with Executor.open(workspace.path, backends={"fake": FAKE()}) as executor:
        (record,) = await emit(executor, output="x" * (15 * 1024 * 1024))
    assert record.outcome.reason == "}}"


async def test_no_state_but_kv_outlives_an_event(workspace: Workspace) -> None:
    plugin(workspace, "p", hosts.counter())
    plugin(workspace, "q", hosts.counter())
    async with Executor.open(workspace.path, backends={"fake": FAKE()}) as executor:
        for number in range(1, 4):
            for record in await emit(executor):
                assert record.outcome.reason == f"{number}1"


async def test_events_of_a_plugin_with_kv_come_one_after_the_other(workspace: Workspace) -> None:
    plugin(workspace, "p", hosts.counter())
    async with Executor.open(workspace.path, backends={"fake": FAKE()}) as executor:
        receipts = [executor.emit("tool_call", TOOL_CALL) for _ in range(9)]
        said = [(await receipt.wait())[0].outcome.reason for receipt in receipts]
    assert sorted(map(str, said)) == [f"{number}1" for number in range(1, 10)]


async def test_a_full_kv_is_an_error_that_the_guest_sees(workspace: Workspace) -> None:
    plugin(workspace, "p", hosts.counter(), more=limits(max_kv_storage_kb=0))
    outcome, _ = await twice(workspace)
    assert outcome.status is Status.FAILED


@pytest.mark.parametrize("level", ['(enum "trace" "debug" "info" "warn" "error")', "string"])
async def test_log_lines_are_in_the_record(workspace: Workspace, level: str) -> None:
    plugin(workspace, "p", hosts.logger("all is well", level=level))
    for outcome in await twice(workspace):
        assert outcome.stderr == b"info: all is well\n"


async def test_without_a_grant_there_is_no_file_no_variable_no_socket(
    workspace: Workspace,
) -> None:
    plugin(workspace, "files", hosts.maker())
    plugin(workspace, "sockets", hosts.connector())
    plugin(workspace, "variables", hosts.variables())
    async with Executor.open(workspace.path, backends={"fake": FAKE()}) as executor:
        said = {record.hook: record.outcome.reason for record in await emit(executor)}
    assert said == {
        "plugin:files": "-",
        "plugin:sockets": hosts.net_error("access-denied"),
        "plugin:variables": "0",
    }


async def test_the_environment_that_is_asked_for_is_the_events(workspace: Workspace) -> None:
    plugin(workspace, "p", hosts.variables(), more='[permissions]\nrequired = ["env"]\n')
    outcome, _ = await twice(workspace)
    assert outcome.reason == "3"


FILES = '[permissions]\nrequired = ["{0}"]\nfilesystem_allowlist = ["data"]\n'


async def test_a_directory_that_both_name_can_be_written(workspace: Workspace) -> None:
    data = workspace.granted("data")
    workspace.policy_for_all('[filesystem]\nwrite = ["data"]\n')
    plugin(workspace, "p", hosts.maker(), more=FILES.format("filesystem-write"))
    first, second = await twice(workspace)
    assert (first.reason, second.reason) == ("+", hosts.fs_error("exist"))
    assert stat.S_ISDIR((data / "made").stat().st_mode)
    assert (data / "made").stat().st_uid != 0 or os.geteuid() != 0


async def test_a_read_only_grant_cannot_be_written(workspace: Workspace) -> None:
    data = workspace.granted("data")
    plugin(workspace, "p", hosts.maker(), more=FILES.format("filesystem"))
    outcome, _ = await twice(workspace)
    assert outcome.reason in {hosts.fs_error("not-permitted"), hosts.fs_error("read-only")}
    assert not (data / "made").exists()


async def test_what_the_policy_does_not_grant_refuses_the_plugin(workspace: Workspace) -> None:
    data = workspace.granted("data")
    plugin(workspace, "p", hosts.maker(), more=FILES.format("filesystem-write"))
    outcome, _ = await twice(workspace)
    assert outcome.status is Status.REFUSED
    assert "filesystem.write" in (outcome.reason or "")
    assert not (data / "made").exists()


async def test_a_granted_directory_that_became_a_link_is_not_followed(
    workspace: Workspace,
) -> None:
    outside = workspace.path.parent / "outside"
    outside.mkdir()
    outside.chmod(0o777)
    workspace.granted("data")
    workspace.policy_for_all('[filesystem]\nwrite = ["data"]\n')
    plugin(workspace, "p", hosts.maker(), more=FILES.format("filesystem-write"))
    async with Executor.open(workspace.path, backends={"fake": FAKE()}) as executor:
        (workspace.path / "data").rmdir()
        (workspace.path / "data").symlink_to(outside)
        (record,) = await emit(executor)
    assert record.outcome.status is Status.ERROR
    assert list(outside.iterdir()) == []


async def test_the_smaller_of_manifest_and_policy_limits(workspace: Workspace) -> None:
    workspace.policy("tight", '[limits]\nmemory = "6MiB"\ntimeout_ms = 100\n')
    workspace.settings('[[bind]]\nplugins = ["p"]\npolicy = "tight"\n')
    plugin(workspace, "p", guest(pages=100), more=limits(max_memory_mb=64))
    plugin(workspace, "q", guest(pages=100), more=limits(max_memory_mb=6))
    plugin(workspace, "r", guest(code=LOOP), more=limits(max_execution_time_ms=80))
    async with Executor.open(workspace.path, backends={"fake": FAKE()}) as executor:
        p, q, r = await emit(executor)
    assert (p.policy, q.policy) == ("tight", "default")
    for record in (p, q):
        assert record.outcome.status is Status.OOM
        assert str(6 * 1024 * 1024) in (record.outcome.reason or "")
    assert "80 ms" in (r.outcome.reason or "")


# ------------------------------------------------------------------------------------ who is loaded

BROKEN: Mapping[str, tuple[bytes, str]] = {
    "core-module": (encode("(module)"), "is a core module, not a component"),
    "no-wasm": (b"#!/bin/sh\n", "is no WebAssembly"),
    "nothing": (encode("(component)"), "exports no interface prx:plugin/hooks@0.1.0"),
    "damaged": (guest()[:-20], "is no valid component"),
    "import": (hosts.unknown(), "imports acme:host/rockets, which nothing here offers"),
    "signature": (
        guest(
            event_type='(func (param "event" string) (param "payload-json" string) '
            "(result (result string (error string))))"
        ),
        (
            "on-event must be func(event: string, payload-json: string) -> result<_, string>; "
            "it is (string, string) -> result<string, string>"
        ),
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
async def test_a_broken_plugin_is_refused_with_its_reason_and_stops_nobody(
    workspace: Workspace, kind: str
) -> None:
    wasm, reason = BROKEN[kind]
    plugin(workspace, "broken", wasm)
    plugin(workspace, "good", guest())
    async with Executor.open(workspace.path, backends={"fake": FAKE()}) as executor:
        good, broken = await emit(executor)
    assert good.outcome.ok
    assert broken.outcome.status is Status.REFUSED
    assert reason in (broken.outcome.reason or "")


@pytest.mark.parametrize("name", hosts.EVERY_NAME)
async def test_every_accepted_name_of_the_interface_serves(workspace: Workspace, name: str) -> None:
    plugin(workspace, "p", guest(interface=name))
    outcome, _ = await twice(workspace)
    assert outcome.ok


async def test_a_plugin_that_others_may_write_is_refused(workspace: Workspace) -> None:
    plugin(workspace, "p", guest())
    (workspace.path / "plugins/p/plugin.wasm").chmod(0o666)
    async with Executor.open(workspace.path, backends={"fake": FAKE()}) as executor:
        assert await emit(executor) == []
        (broken,) = executor.plugins.plugins
        assert "others may write it" in (broken.fault or "")


async def test_native_code_beside_a_plugin_is_never_loaded(
    workspace: Workspace, private_state: Path
) -> None:
    plugin(workspace, "p", guest())
    async with Executor.open(workspace.path, backends={"fake": FAKE()}):
        pass
    (native,) = private_state.glob("hook-executor/*/wasm/*.cwasm")
    shutil.copy(native, workspace.path / "plugins/p/plugin.wasm")
    outcome, _ = await twice(workspace)
    assert outcome.status is Status.REFUSED
    assert "native code is never loaded" in (outcome.reason or "")


async def test_a_cached_component_is_not_compiled_again(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin(workspace, "p", guest())
    assert (await twice(workspace))[0].ok

    async def refuse(*_: object) -> bytes:
        raise AssertionError("it was compiled again")

    monkeypatch.setattr("executor.wasm.cache._run_compiler", refuse)
    assert (await twice(workspace))[0].ok


async def test_native_code_that_cannot_be_loaded_is_an_error_once(
    workspace: Workspace, private_state: Path
) -> None:
    plugin(workspace, "p", guest())
    assert (await twice(workspace))[0].ok
    (native,) = private_state.glob("hook-executor/*/wasm/*.cwasm")
    native.chmod(0o644)
    native.write_bytes(native.read_bytes()[:100])
    outcome, _ = await twice(workspace)
    assert outcome.status is Status.ERROR
    assert (await twice(workspace))[0].ok


async def test_a_reload_keeps_the_old_version_of_what_is_broken_now(workspace: Workspace) -> None:
    plugin(workspace, "p", guest(code=says(1, "old")))
    async with Executor.open(workspace.path, backends={"fake": FAKE()}) as executor:
        current = executor.plugins.current
        assert current is not None
        plugin(workspace, "p", b"broken")
        plugin(workspace, "q", guest())
        following = await current.load()
        assert [one.name for one in current.plugins] == ["p"]
        p, q = following.plugins
        assert p.serves
        assert "is no WebAssembly" in (p.stale or "")
        assert q.serves
        shutil.rmtree(workspace.path / "plugins/p")
        assert [one.name for one in (await following.load()).plugins] == ["q"]


# ------------------------------------------------------------------------------------- who is asked


@pytest.mark.parametrize(
    ("gate", "exit_code", "message"),
    [
        ("(i32.const 0)", 0, ""),
        (
            (
                "(i32.store8 (i32.const 4) (i32.const 1)) (i32.store (i32.const 8) (i32.const 64)) "
                "(i32.store (i32.const 12) (i32.const 2)) (i32.store16 (i32.const 64) "
                "(i32.const 0x6968)) (i32.const 0)"
            ),
            2,
            "hi",
        ),
        (
            (
                "(i32.store8 (i32.const 0) (i32.const 1)) (i32.store (i32.const 4) (i32.const 64)) "
                "(i32.store (i32.const 8) (i32.const 2)) (i32.store16 (i32.const 64) "
                "(i32.const 0x6f6e)) (i32.const 0)"
            ),
            1,
            "no",
        ),
        ("(unreachable)", 1, "plugin:p gave no verdict: it ended as failed (signal): trap: wasm"),
    ],
    ids=["go-on", "inject", "block", "trap"],
)
async def test_the_gate_reads_a_plugin_like_a_shell_hook(
    workspace: Workspace, gate: str, exit_code: int, message: str
) -> None:
    plugin(workspace, "p", guest(gate=gate), events='["PreToolUse"]')
    payload = {"tool_name": "bash", "input": {}}
    async with Executor.open(workspace.path, backends={"fake": FAKE()}) as executor:
        verdict = await executor.ask("PreToolUse", payload, session_id="s")
        assert await emit(executor) == []
    assert verdict.exit_code == exit_code
    assert verdict.message.startswith(message)


async def test_a_gate_event_without_on_gate_refuses_the_plugin(workspace: Workspace) -> None:
    plugin(workspace, "p", guest(), events='["PreToolUse"]')
    async with Executor.open(workspace.path, backends={"fake": FAKE()}) as executor:
        (broken,) = executor.plugins.plugins
    assert "exports no on-gate, which PreToolUse needs" in (broken.fault or "")


# -------------------------------------------------------------------------------- the processes

AGENT = """
import anyio, os, sys
from executor import Executor

async def main():
    async with Executor.open(sys.argv[1], backends={}) as executor:
        executor.emit("tool_call", {"tool": "a", "success": True, "output": ""})
        while not (pids := executor.plugins.backend.pids()):
            await anyio.lowlevel.checkpoint()
        print(*pids, "wasmtime" in sys.modules, flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


def test_a_killed_agent_leaves_no_worker_and_never_loaded_wasmtime(workspace: Workspace) -> None:
    plugin(workspace, "p", hosts.sleeper(600))
    agent = subprocess.Popen(
        [sys.executable, "-c", AGENT, str(workspace.path)], stdout=subprocess.PIPE, text=True
    )
    assert agent.stdout is not None
    with agent, agent.stdout:
        pid, loaded = agent.stdout.readline().split()
        worker = os.pidfd_open(int(pid))
        try:
            agent.kill()
            agent.wait()
            ready, _, _ = select.select([worker], [], [], 30)
        finally:
            os.close(worker)
    assert loaded == "False"
    assert ready
