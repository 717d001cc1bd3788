"""Are the bytes of a command kept once, whole, and under one inode?"""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from executor.disk.store import Store, Stored


def kept(store: Store, path: Path) -> Stored:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return store.put(descriptor)
    finally:
        os.close(descriptor)


def script(path: Path, text: str, mode: int = 0o755) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_two_runs_that_come_first_at_once_stand_on_one_inode(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    for number in range(40):
        same = [script(tmp_path / name, f"#!/bin/sh\n# {number}\n") for name in ("a", "b", "c")]
        start = threading.Barrier(len(same))
        found: list[Stored] = []

        def put(path: Path, start: threading.Barrier = start, to: list[Stored] = found) -> None:
            start.wait()
            to.append(kept(store, path))

        threads = [threading.Thread(target=put, args=(path,)) for path in same]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == len(same)
        now = os.stat(found[0].path)
        assert {(one.device, one.inode) for one in found} == {(now.st_dev, now.st_ino)}


def test_nothing_but_the_copies_is_left(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    stored = kept(store, script(tmp_path / "a", "#!/bin/sh\n"))
    assert [entry.name for entry in (tmp_path / "store").iterdir()] == [stored.sha256]
    assert os.stat(stored.path).st_nlink == 1


@pytest.mark.parametrize(("mode", "executable"), [(0o755, True), (0o700, True), (0o644, False)])
def test_a_copy_is_executable_as_the_original_is(
    tmp_path: Path, mode: int, executable: bool
) -> None:
    stored = kept(Store(tmp_path / "store"), script(tmp_path / "a", "x", mode))
    assert bool(os.stat(stored.path).st_mode & 0o111) is executable
    assert not os.stat(stored.path).st_mode & 0o222


def test_a_cut_copy_is_replaced(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    original = script(tmp_path / "a", "#!/bin/sh\nexit 0\n")
    stored = kept(store, original)
    os.chmod(stored.path, 0o755)
    Path(stored.path).write_text("#!")
    again = kept(store, original)
    assert Path(again.path).read_text() == original.read_text()
