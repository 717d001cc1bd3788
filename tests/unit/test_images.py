"""Is an image's archive a pure function of its packages, and is the cache its owner's alone?"""

from __future__ import annotations

import io
import os
import stat
import tarfile
from pathlib import Path
from typing import NamedTuple

import pytest

from executor import images
from executor.errors import InvalidConfig, Unavailable
from executor.images import archive, cache, packages
from executor.images.definition import chain


class Node(NamedTuple):
    name: str
    content: bytes = b""
    kind: bytes = tarfile.REGTYPE
    mode: int = 0o644
    mtime: int = 1_000
    link: str = ""


def tar(path: Path, nodes: list[Node]) -> Path:
    with tarfile.open(path, "w") as output:
        for node in nodes:
            info = tarfile.TarInfo(node.name)
            info.type, info.mode, info.mtime = node.kind, node.mode, node.mtime
            info.size, info.linkname, info.uid = len(node.content), node.link, 12
            output.addfile(info, io.BytesIO(node.content))
    return path


STATUS = b"""Package: shell
Status: install ok installed
Architecture: amd64
Version: 1.0

Package: setup
Status: install ok installed
Architecture: all
Version: 2.0

Package: half
Status: deinstall ok config-files
Version: 3
"""
DATABASE = [
    Node("dpkg/status", STATUS),
    Node(
        "dpkg/info/shell:amd64.list",
        b"/.\n/bin/sh\n/usr\n/usr/bin\n/usr/bin/tool\n/etc/shell.conf\n",
    ),
    Node(
        "dpkg/info/setup.list",
        b"/.\n/usr\n/usr/bin\n/usr/bin/setup\n/usr/lib/setup\n/usr/bin/tool\n",
    ),
]
USR = [
    Node("usr", kind=tarfile.DIRTYPE, mode=0o775),
    Node("usr/bin", kind=tarfile.DIRTYPE, mode=0o2755, mtime=9_000),
    Node("usr/bin/tool", b"tool", mode=0o6755, mtime=2_000),
    Node("usr/bin/sh", b"shell", mode=0o711, mtime=3_000),
    Node("usr/bin/again", kind=tarfile.LNKTYPE, link="usr/bin/setup"),
    Node("usr/bin/setup", b"setup", mode=0o755, mtime=8_000),
    Node("usr/bin/alias", kind=tarfile.SYMTYPE, link="/etc/alternatives/alias"),
    Node("usr/bin/made-later", b"generated", mtime=99_000),
    Node("usr/lib", kind=tarfile.DIRTYPE),
    Node("usr/lib/setup", kind=tarfile.DIRTYPE),
    Node("usr/share", kind=tarfile.DIRTYPE),
    Node("usr/share/doc", kind=tarfile.DIRTYPE),
    Node("usr/share/doc/tool", b"prose"),
    Node("usr/lib/device", kind=tarfile.CHRTYPE),
]
ETC = [
    Node("etc", kind=tarfile.DIRTYPE),
    Node("etc/shell.conf", b"x", mode=0o666),
    Node("etc/hostname", b"builder"),
    Node("etc/resolv.conf", b"nameserver 192.0.2.1"),
    Node("etc/shadow", b"root:*:", mode=0o640),
    Node("etc/machine-id", b"0123456789"),
]


def root(tmp_path: Path, usr: list[Node] | None = None) -> tuple[bytes, tuple[str, ...]]:
    trees = (tar(tmp_path / "usr.tar", usr or USR), tar(tmp_path / "etc.tar", ETC))
    output = io.BytesIO()
    kept = archive.write_root(trees, tar(tmp_path / "dpkg.tar", DATABASE), output, remove=["setup"])
    return output.getvalue(), kept


def members(content: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(content)) as opened:
        return {member.name: member for member in opened}


def test_the_packages_that_stay_are_told_with_their_versions(tmp_path: Path) -> None:
    assert root(tmp_path)[1] == ("shell=1.0",)


def test_what_only_a_removed_package_brought_does_not_stay(tmp_path: Path) -> None:
    found = members(root(tmp_path)[0])
    assert "usr/bin/setup" not in found
    assert "usr/lib/setup" not in found  # a folder that nothing is left in
    assert "usr/bin/tool" in found  # the other package has it too
    assert found["usr/bin/again"].isreg()  # a hard link to what is gone keeps the bytes


def test_no_bit_beyond_read_and_execute_comes_through(tmp_path: Path) -> None:
    found = members(root(tmp_path)[0])
    assert {oct(found[name].mode) for name in ("tmp", "var/tmp")} == {"0o1777"}
    others = {
        m.mode for name, m in found.items() if name not in {"tmp", "var/tmp"} and not m.issym()
    }
    assert others == {0o755, 0o644}
    assert {(m.uid, m.gid, m.uname, m.gname) for m in found.values()} == {(0, 0, "", "")}
    assert all(m.isfile() or m.isdir() or m.issym() for m in found.values())


def test_nothing_tells_of_the_machine_that_built_it(tmp_path: Path) -> None:
    found = members(root(tmp_path)[0])
    assert not {"etc/hostname", "etc/resolv.conf", "etc/shadow", "usr/share/doc"} & set(found)
    assert found["etc/machine-id"].size == 0


def test_no_time_is_later_than_the_newest_file_of_a_package(tmp_path: Path) -> None:
    found = members(root(tmp_path)[0])
    assert found["usr/bin/tool"].mtime == 2_000
    assert max(member.mtime for member in found.values()) == 3_000


def test_order_and_times_of_the_tree_do_not_change_the_archive(tmp_path: Path) -> None:
    first, _ = root(tmp_path)
    directories = [node for node in USR if node.kind == tarfile.DIRTYPE]
    files = [
        node._replace(mtime=77_000) if node.name == "usr/bin/made-later" else node
        for node in reversed(USR)
        if node.kind not in {tarfile.DIRTYPE, tarfile.LNKTYPE}
    ]
    links = [node for node in USR if node.kind == tarfile.LNKTYPE]
    assert root(tmp_path, [*directories, *files, *links])[0] == first


def test_an_archive_unpacks_with_its_own_modes_whatever_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "root.tar"
    path.write_bytes(root(tmp_path)[0])
    before = os.umask(0o077)
    try:
        archive.unpack(path, tmp_path / "root")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "root").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "root/usr/bin/sh").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "root/tmp").stat().st_mode) == 0o1777
    assert (tmp_path / "root/usr/bin/sh").stat().st_mtime == 3_000
    assert (tmp_path / "root/bin").readlink() == Path("usr/bin")


def test_the_shipped_definitions_are_base_and_python() -> None:
    assert [definition.name for definition in images.list_definitions()] == ["base", "python"]
    assert [definition.name for definition in chain("python")] == ["base", "python"]


@pytest.mark.parametrize(
    ("text", "pointer"),
    [
        ('name = "odd"\ndescription = ""\npackages = ["--force"]', "/packages/0"),
        ('name = "odd"\ndescription = ""\npackages = []\nextra = 1', "/extra"),
        ('name = "other"\ndescription = ""\npackages = []', "/name"),
    ],
)
def test_a_definition_that_is_wrong_names_the_place(
    tmp_path: Path, text: str, pointer: str
) -> None:
    (tmp_path / "odd.toml").write_text(text)
    with pytest.raises(InvalidConfig) as caught:
        images.list_definitions(tmp_path)
    assert [fault.pointer for fault in caught.value.faults] == [pointer]


def test_an_image_that_extends_itself_is_refused(tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        text = f'name = "{name}"\ndescription = ""\nextends = "{other}"\npackages = []'
        (tmp_path / f"{name}.toml").write_text(text)
    with pytest.raises(InvalidConfig, match="extends itself"):
        chain("a", tmp_path)


def test_an_image_that_is_not_defined_names_those_that_are() -> None:
    with pytest.raises(InvalidConfig, match="base, python"):
        images.build("nonesuch", report=print)


def stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, usr: list[Node] | None = None
) -> cache.Image:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with cache.locked() as directory:
        content, kept = root(tmp_path, usr)
        (directory / "fresh").write_bytes(content)
        facts = {"built_at": "2026-01-01T00:00:00Z", "inputs_digest": "i", "codename": "bookworm"}
        return cache.store(directory, "odd", directory / "fresh", packages=kept, facts=facts)


def test_a_stored_image_is_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = stored(tmp_path, monkeypatch)
    assert images.find("odd") == image
    assert image.digest == cache.digest_of(image.archive)
    assert (image.root / "usr/bin/sh").read_bytes() == b"shell"
    assert images.find("other") is None


def test_the_previous_image_stays_and_the_one_before_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = [
        stored(tmp_path, monkeypatch, [*USR, Node("usr/bin/extra", content)])
        for content in (b"1", b"2", b"3")
    ]
    assert images.find("odd") == built[2]
    assert [image.root.is_dir() for image in built] == [False, True, True]


def test_a_cache_that_others_can_write_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = stored(tmp_path, monkeypatch)
    image.directory.chmod(0o777)
    assert images.find("odd") is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a directory another user's")
def test_root_does_not_build_into_another_users_home(tmp_path: Path) -> None:
    os.chown(tmp_path, 4711, 4711)
    chosen = cache.cache_directory({"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "c")})
    assert not chosen.is_relative_to(tmp_path)


def test_only_debians_own_sources_become_lines_of_a_bootstrap() -> None:
    source = packages.Source(Path("/x"), "file:/mirror", "codename", "codename", "main", "amd64")
    line = packages.source_lines((source, source)).strip()
    assert line.startswith("deb ")
    assert line.endswith(" file:/mirror codename main")
    assert "\n" not in line


def test_without_apt_the_remedy_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable) as caught:
        packages.debian_sources()
    assert "policy" in caught.value.remedy


def test_what_cannot_be_told_is_not_outdated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = stored(tmp_path, monkeypatch)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert images.outdated(image) == ()


def test_a_newer_security_version_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/usr/bin/dpkg").exists():
        pytest.skip("versions are compared by dpkg")
    image = stored(tmp_path, monkeypatch)
    listing = tmp_path / "Packages"
    listing.write_text("Package: shell\nVersion: 1.0+deb12u1\n\nPackage: other\nVersion: 9\n")
    source = packages.Source(listing, "", "", "bookworm-security", "main", "amd64")
    monkeypatch.setattr(packages, "debian_sources", lambda: (source,))
    assert images.outdated(image) == ("shell 1.0 → 1.0+deb12u1",)
