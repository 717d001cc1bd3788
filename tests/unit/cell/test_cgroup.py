"""A leaf holds what it promises, counts, and can be taken away."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from executor.cell import cgroup
from executor.cell.cgroup import Hierarchies, Leaf, Limit, leaf_name, left_behind, locate

LIMIT = Limit(memory_bytes=64 << 20, pids=10, cpus=0.5)
HYBRID = """\
30 24 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro
31 30 0:27 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw
32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
33 30 0:29 /docker/abc /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
"""


def test_each_controller_is_found_where_it_is_mounted() -> None:
    groups = "5:memory:/a/b\n4:cpu,cpuacct:/docker/abc/x\n3:pids:/c\n0::/d\n"
    assert dict(locate(groups, HYBRID)) == {
        "memory": "/sys/fs/cgroup/memory/a/b",
        "cpu": "/sys/fs/cgroup/cpu,cpuacct/x",
        "cpuacct": "/sys/fs/cgroup/cpu,cpuacct/x",
        "": "/sys/fs/cgroup/unified/d",
    }


def test_a_cgroup_outside_of_what_is_mounted_is_not_found() -> None:
    assert dict(locate("0::/../../other\n", HYBRID)) == {}


@pytest.fixture
def unified(tmp_path: Path) -> Path:
    """A version 2 directory as files."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "cgroup.controllers").write_text("cpu io memory pids\n")
    (own / "cgroup.subtree_control").write_text("")
    (own / "cgroup.type").write_text("domain\n")
    (own / "cgroup.procs").write_text(f"{os.getpid()}\n")
    (own / cgroup.MAIN).mkdir()
    (own / cgroup.MAIN / "cgroup.procs").write_text("")
    return own


def test_an_executor_alone_in_its_version_2_cgroup_moves_down_and_enables_the_controllers(
    unified: Path,
) -> None:
    wanted = frozenset(cgroup.CONTROLLERS)
    own, controllers, _ = cgroup._prepare(str(unified), wanted)
    assert (own, controllers) == (str(unified), wanted)
    assert (unified / cgroup.MAIN / "cgroup.procs").read_text() == str(os.getpid())
    enabled = (unified / "cgroup.subtree_control").read_text().split()
    assert set(enabled) == {"+memory", "+pids", "+cpu"}


def test_one_that_moved_before_makes_its_leaves_beside_itself(unified: Path) -> None:
    (unified / "cgroup.subtree_control").write_text("cpu memory pids")
    own, controllers, _ = cgroup._prepare(str(unified / cgroup.MAIN), frozenset(cgroup.CONTROLLERS))
    assert (own, len(controllers)) == (str(unified), 3)


def test_beside_other_processes_there_is_no_leaf_and_the_reason_is_kept(unified: Path) -> None:
    (unified / "cgroup.procs").write_text(f"{os.getpid()}\n4711\n")
    own, controllers, why = cgroup._prepare(str(unified), frozenset(cgroup.CONTROLLERS))
    assert (own, controllers) == ("", frozenset())
    assert "1 other processes" in why


def test_what_is_not_offered_is_lacking(unified: Path) -> None:
    (unified / "cgroup.controllers").write_text("cpu\n")
    own, controllers, why = cgroup._prepare(str(unified), frozenset({"memory", "cpu"}))
    assert (own, controllers) == (str(unified), frozenset({"cpu"}))
    assert "does not offer" in why


def test_a_version_2_leaf_gets_its_limits(tmp_path: Path) -> None:
    leaf = Leaf({}, str(tmp_path))
    for name in ("memory.max", "memory.swap.max", "pids.max", "cpu.max"):
        (tmp_path / name).write_text("max")
    for controller in cgroup.CONTROLLERS:
        cgroup._limit_unified(controller, leaf.unified, LIMIT)
    assert (tmp_path / "memory.max").read_text() == str(64 << 20)
    assert (tmp_path / "memory.swap.max").read_text().startswith("0")
    assert (tmp_path / "pids.max").read_text().startswith("10")
    assert (tmp_path / "cpu.max").read_text() == "50000 100000"


def test_a_version_2_leaf_counts(tmp_path: Path) -> None:
    (tmp_path / "memory.events").write_text("oom 3\noom_kill 2\noom_group_kill 0\n")
    (tmp_path / "memory.peak").write_text("4096\n")
    (tmp_path / "pids.events").write_text("max 7\n")
    counters = Leaf({}, str(tmp_path)).counters()
    assert (counters.oom_kills, counters.pids_refused, counters.peak_memory_bytes) == (2, 7, 4096)


def test_what_cannot_be_read_is_not_told() -> None:
    counters = Leaf({}, "/nowhere").counters()
    assert (counters.oom_kills, counters.pids_refused, counters.peak_memory_bytes) == (None,) * 3


def test_only_leaves_of_dead_instances_are_left_behind(tmp_path: Path) -> None:
    dead, alive = leaf_name("0123abcd-00", "1xr"), leaf_name("0123abcd-ff", "1xr")
    for name in (dead, alive, "other", cgroup.MAIN):
        (tmp_path / name).mkdir()
    where = Hierarchies({"memory": str(tmp_path)}, "", frozenset(), {})
    found = list(left_behind(where, lambda instance: instance.endswith("-00")))
    assert [leaf.legacy["memory"] for leaf in found] == [f"{tmp_path}/{dead}"]
    assert found[0].remove()
    assert not (tmp_path / dead).exists()


def test_a_name_survives_any_run_id() -> None:
    assert leaf_name("ab-cd", "../../Ünsinn\n" + "x" * 99).startswith("hook-executor-ab-cd-nsinnx")
    assert len(leaf_name("ab-cd", "x" * 999)) < 64


@pytest.fixture
def here() -> Hierarchies:
    where = cgroup.discover()
    if not where.complete:
        pytest.skip(f"no cgroup to write: {where.reason}")
    return where


@pytest.mark.namespace
def test_a_real_leaf_is_made_with_its_limits_and_removed(here: Hierarchies) -> None:
    leaf = Leaf.create(here, leaf_name("00000000-00", f"t{os.getpid()}"), LIMIT)
    try:
        places = leaf.directories
        pids = Path(places["pids"], "pids.max").read_text().strip()
        assert pids == "10"
        assert leaf.counters().oom_kills == 0
        assert leaf.processes() == frozenset()
    finally:
        assert leaf.remove()
    assert leaf.remove()
    assert not any(Path(place).exists() for place in places.values())


@pytest.mark.namespace
def test_a_leaf_that_cannot_have_its_limits_leaves_nothing(here: Hierarchies) -> None:
    name = leaf_name("00000000-00", f"u{os.getpid()}")
    with pytest.raises(OSError, match="Invalid argument"):
        Leaf.create(here, name, Limit(memory_bytes=-5, pids=-7, cpus=-3.0))
    assert not any(Path(place, name).exists() for place in here.legacy.values())
    assert not Path(here.unified or "/nowhere", name).exists()
