"""Is hooks.json whole at every instant, and is nothing lost, whoever writes and whoever dies?"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from executor import swap
from executor.disk.workspace import open_workspace
from executor.hook_ids import HookIds
from executor.hooks import parse_hooks
from executor.hooks_file import HooksFile, Stale
from tests.support import Workspace


@pytest.fixture
def file(workspace: Workspace, tmp_path: Path) -> Iterator[HooksFile]:
    opened = open_workspace(workspace.path)
    yield HooksFile(opened, HookIds(tmp_path / "state"), tmp_path / "state")
    opened.close()


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[int]:
    place = tmp_path / "place"
    place.mkdir()
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def document(*commands: str) -> bytes:
    return json.dumps({"hooks": {"error": [{"command": name} for name in commands]}}).encode()


def commands(workspace: Workspace) -> list[str]:
    hooks = parse_hooks((workspace.path / "hooks.json").read_bytes())
    return [hook.action.command for hook in hooks]


def test_five_hundred_writes_by_api_and_by_hand_lose_nothing(
    workspace: Workspace, file: HooksFile
) -> None:
    """Four writers of ours, and one who saves by hand: each of his saves keeps what he read, and
    is made only if nobody came in between; his editor asks, as editors do."""
    workspace.file("hooks.json", document("first"))
    path = workspace.path / "hooks.json"
    done = threading.Event()
    faults: list[str] = []
    wanted = {"first"}
    applied = threading.Lock()

    def ours(number: int) -> None:
        for turn in range(100):
            name = f"api{number}_{turn}"
            file.add("error", {"command": name}, enabled=True)
            with applied:
                wanted.add(name)

    watching = threading.Thread(target=_read_until, args=(done, path, faults))
    watching.start()
    writers = [threading.Thread(target=ours, args=(number,)) for number in range(4)]
    writers.append(threading.Thread(target=_save_by_hand, args=(workspace.path,)))
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    done.set()
    watching.join()
    assert faults == []
    found = commands(workspace)
    # A save by hand that is taken back may have been read by a writer of ours, and is made again.
    assert sum(not name.startswith("hand") for name in found) == 401
    assert set(found) == wanted | {f"hand{turn}" for turn in range(100)}
    ids = [hook.id for hook in file.read().hooks]
    assert len(set(ids)) == len(ids)
    assert os.listdir(workspace.path) == ["hooks.json"]


def _save_by_hand(workspace: Path) -> None:
    place = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY)
    turn = 0
    while turn < 100:
        before = swap.read(place, "hooks.json", 1 << 24)
        assert before is not None
        edited = json.loads(before.data)
        edited["hooks"]["error"].append({"command": f"hand{turn}"})
        data = json.dumps(edited).encode()
        try:
            swap.replace_if(place, "hooks.json", before, data, mode=0o644, owner=0)
        except swap.Changed:
            continue
        turn += 1
    os.close(place)


def _read_until(done: threading.Event, path: Path, faults: list[str]) -> None:
    while not done.is_set():
        try:
            json.loads(path.read_bytes())
        except (OSError, ValueError) as broken:
            faults.append(str(broken))


def test_of_many_writers_with_one_tag_one_is_applied(file: HooksFile) -> None:
    hook = file.add("error", {"command": "a"}, enabled=True)
    tag = file.read().etag
    results: list[str] = []

    def write(number: int) -> None:
        try:
            file.update(
                str(hook.id), "error", {"command": f"b{number}"}, enabled=None, if_match=tag
            )
            results.append("applied")
        except Stale:
            results.append("stale")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(16)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(results) == ["applied", *["stale"] * 15]


def test_a_save_that_came_in_between_stays(directory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _put(directory, "f", b"old")
    before = swap.read(directory, "f", 100)
    real = swap._swap_names
    raced = False

    def racing(place: int, one: str, other: str) -> bool:
        nonlocal raced
        if not raced:
            raced = True
            _put(place, "f.new", b"by hand")
            os.rename("f.new", "f", src_dir_fd=place, dst_dir_fd=place)
        return real(place, one, other)

    monkeypatch.setattr(swap, "_swap_names", racing)
    with pytest.raises(swap.Changed):
        swap.replace_if(directory, "f", before, b"ours", mode=0o644, owner=os.geteuid())
    found = swap.read(directory, "f", 100)
    assert found is not None
    assert found.data == b"by hand"
    assert os.listdir(directory) == ["f"]


def test_a_writer_that_has_the_file_open_is_waited_for(directory: int) -> None:
    _put(directory, "f", b"old")
    before = swap.read(directory, "f", 100)
    descriptor = os.open("f", os.O_WRONLY, dir_fd=directory)
    with pytest.raises(swap.Changed):
        swap.replace_if(directory, "f", before, b"ours", mode=0o644, owner=os.geteuid())
    os.close(descriptor)
    swap.replace_if(directory, "f", before, b"ours", mode=0o644, owner=os.geteuid())
    found = swap.read(directory, "f", 100)
    assert found is not None
    assert found.data == b"ours"


def test_a_new_file_is_not_put_over_one_that_came(directory: int) -> None:
    _put(directory, "f", b"came")
    with pytest.raises(swap.Changed):
        swap.replace_if(directory, "f", None, b"ours", mode=0o644, owner=os.geteuid())
    assert os.listdir(directory) == ["f"]


_STEPS = ("_write", "_exchange", "_swap_names", "_is", "_held", "unlink", "fsync")
_KILLED = """
import os, signal, sys
from executor import swap
from executor.hook_ids import HookIds
from executor.hooks_file import HooksFile
from executor.disk.workspace import open_workspace
step, when, place, state = sys.argv[1:]
home = os if hasattr(os, step) else swap
real = getattr(home, step)
def dying(*words, **more):
    if when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    result = real(*words, **more)
    os.kill(os.getpid(), signal.SIGKILL)
    return result
from pathlib import Path
file = HooksFile(open_workspace(place), HookIds(Path(state)), Path(state))
file.read()
setattr(home, step, dying)
file.add("error", {"command": "new"}, enabled=True)
"""


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", _STEPS)
def test_a_kill_between_any_two_steps_leaves_a_valid_file(
    workspace: Workspace, file: HooksFile, tmp_path: Path, step: str, when: str
) -> None:
    workspace.file("hooks.json", document("old"))
    words = [
        sys.executable,
        "-c",
        _KILLED,
        step,
        when,
        str(workspace.path),
        str(tmp_path / "state"),
    ]
    done = subprocess.run(words, check=False, capture_output=True, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert commands(workspace) in (["old"], ["old", "new"])
    file.add("error", {"command": "after"}, enabled=True)
    assert commands(workspace)[-1] == "after"
    assert os.listdir(workspace.path) == ["hooks.json"], "what the killed one left is gone"


def _put(directory: int, name: str, data: bytes) -> None:
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644, dir_fd=directory)
    os.write(descriptor, data)
    os.close(descriptor)
