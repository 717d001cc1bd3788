"""Is a file there whole or not at all, whoever is killed?"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from executor.disk import scratch

HOLD = """
import sys
from pathlib import Path
from executor.disk.scratch import unfinished
with unfinished(Path(sys.argv[1])) as path:
    print(path, flush=True)
    sys.stdin.read()
"""


def test_what_is_renamed_stays_and_what_is_not_goes(tmp_path: Path) -> None:
    with scratch.unfinished(tmp_path) as path:
        Path(path).write_text("whole")
        os.replace(path, tmp_path / "result")
    with pytest.raises(OSError, match="full"), scratch.unfinished(tmp_path):
        raise OSError("full")
    assert [each.name for each in tmp_path.iterdir()] == ["result"]


def test_a_living_writers_file_is_left_alone_and_a_killed_ones_is_swept(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        assert writer.stdout is not None
        path = Path(writer.stdout.readline().strip())
        assert scratch.sweep(tmp_path) == 0
        writer.kill()
    assert path.exists()
    assert scratch.sweep(tmp_path) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_not_there_has_nothing_to_sweep(tmp_path: Path) -> None:
    assert scratch.sweep(tmp_path / "none") == 0
