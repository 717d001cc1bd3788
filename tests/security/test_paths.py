"""Does a path lead out, by its words, through a link, or because it changes meanwhile?"""

from __future__ import annotations

import ctypes
import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from executor import Executor, InvalidConfig, Outcome
from tests.security.stage import SECRET, Stage
from tests.support import TOOL_CALL, Workspace

_EXCHANGE = 2
_SYS_RENAMEAT2 = 316
OUTWARD = ("../outside", "sub/../../..", "/proc/self/cwd", "/proc/self/fd/7", "", "a\0b", "a\nb")


@pytest.mark.probe("C24", "a working directory that leads out by its words", "refused at load")
@pytest.mark.anyio
async def test_a_cwd_that_leads_out_by_its_words_is_refused_at_load(workspace: Workspace) -> None:
    workspace.hooks({"tool_call": [{"command": "pwd", "cwd": cwd} for cwd in (*OUTWARD, "sub")]})
    with pytest.raises(InvalidConfig) as refused:
        async with Executor.open(workspace.path, sandbox="namespace"):
            pass
    text = str(refused.value)
    assert all(f"/hooks/tool_call/{index}/cwd" in text for index in range(len(OUTWARD)))
    assert f"/hooks/tool_call/{len(OUTWARD)}/cwd" not in text


@pytest.mark.probe("C25", "cwd and command through links that lead out", "openat2: beneath")
def test_links_that_lead_out_are_refused_and_others_are_followed(stage: Stage) -> None:
    workspace = stage.workspace.path
    script = stage.outside / "run.sh"
    script.write_text(f"#!/bin/sh\necho {SECRET}\n")
    script.chmod(0o755)
    stage.workspace.script("sub/own.sh", "echo inside")
    for name, target in (
        ("etc", "/etc"),
        ("outside", str(stage.outside)),
        ("up", ".."),
        ("absolute", str(workspace / "sub")),
        ("near", "sub"),
        ("run.sh", str(script)),
        ("chain", "outside"),
        ("fine.sh", "sub/own.sh"),
    ):
        (workspace / name).symlink_to(target)
    bad = ("etc", "outside", "up", "chain", "up/outside", "near/../up", "/etc", "/")
    commands = ("./run.sh", "outside/run.sh", "chain/run.sh", "near/../up/outside/run.sh")
    (answers,) = stage.emit(
        *(stage.hook("pwd", cwd=cwd) for cwd in bad),
        *(stage.hook(command) for command in commands),
        stage.hook("pwd", cwd="near"),
        stage.hook("./fine.sh"),
    )
    *refused, near, fine = answers
    assert [ran.status for ran in refused] == ["refused"] * (len(bad) + len(commands))
    assert near.text.strip() == str(workspace / "sub")
    assert fine.text == "inside\n"


@pytest.mark.probe(
    "C26", "the workspace replaced by a link after it was opened", "its inode is kept"
)
@pytest.mark.anyio
async def test_a_workspace_that_is_replaced_by_a_link_is_not_followed(
    workspace: Workspace, sandbox: str, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    other.chmod(0o755)
    (other / "where").write_text("outside")
    workspace.file("where", "inside")
    workspace.hooks({"tool_call": [{"command": "cat", "args": ["where"]}]})
    async with Executor.open(workspace.path, sandbox=sandbox) as executor:
        moved = tmp_path / "moved"
        workspace.path.rename(moved)
        workspace.path.symlink_to(other)
        (record,) = await executor.emit("tool_call", TOOL_CALL).wait()
        workspace.path.unlink()
        moved.rename(workspace.path)
        (after,) = await executor.emit("tool_call", TOOL_CALL).wait()
    assert b"outside" not in record.outcome.stdout
    assert after.outcome.stdout == b"inside"


@pytest.mark.probe("C27", "links that a hook leaves in its grant, for the executor to follow", "-")
def test_the_executor_follows_no_link_that_a_hook_made(stage: Stage) -> None:
    stage.policy('[filesystem]\nwrite = ["out"]\n')
    names = "payload.json log stdout run.lock stderr tmp"
    made = stage.run(
        stage.bash(
            f"cd out; for name in {names}; do ln -s {stage.outside}/open/file $name; done;"
            f"ln -s {stage.outside}/open place; ls | wc -l"
        )
    )
    assert made.text.split() == ["7"], made
    # emit compares the outside before and after
    assert stage.run(stage.bash("echo x > out/real; cat out/log")).exit_code == 1


@pytest.mark.probe(
    "C27b", "a link in a grant, where a later policy grants what it names", "beneath"
)
@pytest.mark.parametrize("shown", ["ro", "none"])
@pytest.mark.parametrize("key", ["read", "write"])
def test_a_grant_is_not_followed_through_a_link_that_a_hook_made(
    stage: Stage, key: str, shown: str
) -> None:
    stage.policy('[filesystem]\nwrite = ["out"]\n')
    assert stage.run(stage.bash(f"ln -s {stage.outside}/open out/door")).status == "ok"
    stage.policy(f'[filesystem]\nworkspace = "{shown}"\n{key} = ["out/door"]\n')
    door = stage.out / "door"
    ran = stage.run(stage.bash(f"cat {door}/file; echo x > {door}/file"))
    assert SECRET not in ran.text
    assert ran.status in {"refused", "error"}, ran


@contextmanager
def swapping(*pairs: tuple[Path, Path]) -> Iterator[Counter[str]]:
    """Exchange each pair of names, all the time."""
    libc, going, count = ctypes.CDLL(None), True, Counter[str]()

    def swap() -> None:
        while going:
            for one, other in pairs:
                names = os.fsencode(one), os.fsencode(other)
                libc.syscall(_SYS_RENAMEAT2, -100, names[0], -100, names[1], _EXCHANGE)
                count["swaps"] += 1

    thread = threading.Thread(target=swap, name="swapping")
    thread.start()
    try:
        yield count
    finally:
        going = False
        thread.join()


def _trap(workspace: Workspace, tmp_path: Path) -> tuple[Path, list[tuple[Path, Path]]]:
    """Directories in the workspace, each with a twin that is a link to the outside."""
    outside = tmp_path / "outside"
    outside.mkdir()
    for place in (workspace.path, outside):
        for name in ("room", "tools", "drop"):
            (place / name).mkdir()
            (place / name).chmod(0o777 if name == "drop" else 0o755)
        where = "outside" if place is outside else "inside"
        (place / "room/where").write_text(where)
        (place / "tools/run.sh").write_text(
            f"#!/bin/bash\ncat where; echo {where}; pwd -P; cd {workspace.path}/drop; cat where\n"
            "echo x > file$$ && rm file$$\n"
        )
        (place / "tools/run.sh").chmod(0o755)
        (place / "drop/where").write_text(where)
    pairs = []
    for name in ("room", "tools", "drop"):
        twin = workspace.path / f"{name}-twin"
        twin.symlink_to(outside / name)
        pairs.append((workspace.path / name, twin))
    workspace.policy_for_all('[filesystem]\nwrite = ["drop"]\n')
    workspace.hooks({"tool_call": [{"command": "tools/run.sh", "cwd": "room"}] * 5})
    return outside, pairs


async def _attack(workspace: Workspace, sandbox: str, tmp_path: Path, runs: int) -> None:
    outside, pairs = _trap(workspace, tmp_path)
    before = sorted(path.name for path in outside.rglob("*"))
    outcomes: list[Outcome] = []
    async with Executor.open(workspace.path, sandbox=sandbox) as executor:
        (whole, *_) = await executor.emit("tool_call", TOOL_CALL).wait()
        assert whole.outcome.ok, whole
        with swapping(*pairs) as count:
            while len(outcomes) < runs:
                records = await executor.emit("tool_call", TOOL_CALL).wait()
                outcomes += [record.outcome for record in records]
    assert [outcome.stdout for outcome in outcomes if b"outside" in outcome.stdout] == []
    assert {outcome.status.value for outcome in outcomes} <= {"ok", "failed", "refused", "error"}
    assert sorted(path.name for path in outside.rglob("*")) == before
    # The attack was one: often it came in between.
    assert any(not outcome.ok for outcome in outcomes)
    assert count["swaps"] > runs


@pytest.mark.probe(
    "C28", "swapping cwd, command and grant while they are looked at", "by descriptor"
)
@pytest.mark.anyio
async def test_swapping_directories_never_gets_out(
    workspace: Workspace, sandbox: str, tmp_path: Path
) -> None:
    await _attack(workspace, sandbox, tmp_path, 30 if sandbox == "docker" else 100)


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_thousand_runs_under_the_swap_attack_never_get_out(
    workspace: Workspace, sandbox: str, tmp_path: Path
) -> None:
    await _attack(workspace, sandbox, tmp_path, 200 if sandbox == "docker" else 1000)
