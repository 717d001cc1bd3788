"""Can a living executor be taken for a dead one, or the other way round?"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from executor.disk.instance import Instance
from executor.disk.store import Store
from executor.errors import Unavailable

HOLD = """
import sys
from pathlib import Path
from executor.disk.instance import Instance
print(Instance.open(Path(sys.argv[1])).id, flush=True)
sys.stdin.read()
"""


def test_a_living_instance_is_never_dead_and_a_killed_one_is(tmp_path: Path) -> None:
    mine = Instance.open(tmp_path / "locks")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "locks")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        name = other.stdout.readline().strip()
        assert not mine.is_dead(name)
        other.kill()
        other.wait()
        assert mine.is_dead(name)
    assert mine.forget_dead() == 1
    assert not mine.is_dead(mine.id)
    mine.close()
    assert list((tmp_path / "locks").iterdir()) == []


def test_the_instances_of_another_realm_are_never_judged(tmp_path: Path) -> None:
    mine, other = Instance.open(tmp_path / "a"), Instance.open(tmp_path / "b")
    assert mine.realm != other.realm
    other.close()
    assert not mine.is_dead(other.id)
    assert not mine.is_dead("../../etc/passwd")
    mine.close()


def test_a_planted_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    for name, told in (("link", "no directory"), ("open", "others may write")):
        with pytest.raises(Unavailable, match=told):
            Instance.open(tmp_path / name)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a directory of somebody else's")
def test_a_directory_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    """Under ``su`` with a kept environment it is the other user's, and very likely in use."""
    place = tmp_path / "locks"
    place.mkdir(mode=0o700)
    os.chown(place, 65534, 65534)
    with pytest.raises(Unavailable, match="belongs to uid 65534") as refusal:
        Instance.open(place)
    assert "set XDG_STATE_HOME" in refusal.value.remedy
    assert "rm " not in refusal.value.remedy


def test_a_state_directory_that_cannot_be_had_names_both_ways_out() -> None:
    with pytest.raises(Unavailable, match="cannot be used") as refusal:
        Store(Path("/dev/null/state"))
    assert "XDG_STATE_HOME" in refusal.value.remedy
    assert "[state] dir" in refusal.value.remedy
