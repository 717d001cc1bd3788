"""Is what a hook must never leave behind found, and nothing followed?"""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from executor.disk import residue as module
from executor.disk.residue import residue
from executor.job import Mount


def granted(path: Path, *, writable: bool = True) -> Mount:
    status = path.stat()
    return Mount(
        str(path), str(path), status.st_dev, status.st_ino, directory=True, writable=writable
    )


def test_ordinary_files_are_no_finding(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "log.jsonl").write_text("{}")
    (tmp_path / "link").symlink_to("/etc/passwd")
    assert residue([granted(tmp_path)]) == ()


def test_setuid_bits_sockets_and_fifos_are_found_wherever_they_hide(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    suid = tmp_path / "deep" / "er" / "tool"
    suid.touch()
    suid.chmod(0o4755)
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "sock"))
        findings = residue([granted(tmp_path)])
    assert len(findings) == 3
    for path in (suid, tmp_path / "pipe", tmp_path / "sock"):
        assert any(str(path) in finding for finding in findings)


@pytest.mark.skipif(os.geteuid() != 0, reason="root: only root can make a device")
def test_devices_are_found(tmp_path: Path) -> None:
    os.mknod(tmp_path / "null", 0o600 | 0o020000, os.makedev(1, 3))
    assert "character device" in residue([granted(tmp_path)])[0]


def test_a_link_to_a_setuid_file_elsewhere_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "tool").touch()
    (outside / "tool").chmod(0o4755)
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link").symlink_to(outside)
    assert residue([granted(inside)]) == ()
    assert len(residue([granted(outside)])) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="an ordinary user: root looks everywhere")
def test_a_directory_that_cannot_be_looked_into_is_told(tmp_path: Path) -> None:
    (tmp_path / "shut").mkdir(mode=0)
    assert "cannot be looked into" in residue([granted(tmp_path)])[0]


def test_what_is_read_only_is_not_walked(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert residue([granted(tmp_path, writable=False)]) == ()


def test_the_walk_is_bounded_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ENTRIES", 5)
    for number in range(10):
        (tmp_path / str(number)).touch()
    assert "more than 5" in residue([granted(tmp_path)])[0]


def test_a_replaced_directory_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    mount = granted(folder)
    folder.rename(tmp_path / "old")
    (tmp_path / "out").mkdir()
    assert "replaced" in residue([mount])[0]
