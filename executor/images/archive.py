"""What stays of a freshly installed Debian tree, and in which form?

A pure function of the packages: from mmdebstrap's tar archives to one root archive in which
everything that depends on when, where or by whom it was made is gone. That is what makes the
digest a name: the same packages give the same bytes.

Rules for editors, each of which a test watches:

- only directories, regular files and links come through; no device, no socket, no extended
  attribute (a file capability is one);
- modes are 0755 or 0644, but for ``/tmp`` and ``/var/tmp``; so no bit of setuid, setgid or
  write-by-others can come through, and any uid can read everything;
- everything belongs to 0:0, entries are in sorted order, and no time is later than the newest file
  that a package brought (the packages' own times stay, or Python's compiled files would not count).
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

_MERGED = ("bin", "lib", "lib32", "lib64", "libo32", "libx32", "sbin")
_SKELETON = {
    **dict.fromkeys(
        ("dev", "etc", "home", "mnt", "opt", "proc", "root", "run", "srv", "sys", "usr", "var"),
        0o755,
    ),
    **dict.fromkeys(("var/cache", "var/lib", "var/lib/dpkg", "var/log"), 0o755),
    "tmp": 0o1777,
    "var/tmp": 0o1777,
}
_DROPPED = (
    # told by or about the machine that built it
    *("etc/fstab", "etc/hostname", "etc/hosts", "etc/machine-id", "etc/mtab", "etc/resolv.conf"),
    # accounts: passwd and group stay for names, nothing to log in with
    *("etc/gshadow", "etc/gshadow-", "etc/group-", "etc/passwd-", "etc/shadow", "etc/shadow-"),
    *("etc/.pwd.lock", "etc/login.defs", "etc/pam.conf", "etc/pam.d", "etc/security"),
    *("etc/shells", "etc/skel", "etc/subgid", "etc/subgid-", "etc/subuid", "etc/subuid-"),
    # set-up, boot and maintenance
    *("etc/apt", "etc/cron.d", "etc/cron.daily", "etc/debconf.conf", "etc/default", "etc/dpkg"),
    *("etc/init.d", "etc/logrotate.d", "etc/systemd", "etc/tmpfiles.d", "etc/update-motd.d"),
    *(f"etc/rc{level}.d" for level in "0123456S"),
    *(
        "usr/lib/init",
        "usr/lib/systemd",
        "usr/lib/tmpfiles.d",
        "usr/lib/udev",
        "usr/lib/sysusers.d",
    ),
    *("usr/share/bug", "usr/share/debconf", "usr/share/doc-base", "usr/share/lintian"),
    # for people
    *("usr/share/bash-completion", "usr/share/doc", "usr/share/info", "usr/share/locale"),
    *("usr/share/man", "usr/share/menu", "usr/share/pixmaps", "usr/share/zsh"),
    *("usr/games", "usr/include", "usr/src"),
)


@dataclass(frozen=True, slots=True)
class Package:
    """One installed package, and the paths that it brought (below the merged ``usr``)."""

    name: str
    version: str
    stanza: str
    paths: frozenset[str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Entry:
    info: tarfile.TarInfo
    origin: tuple[tarfile.TarFile, tarfile.TarInfo] | None = None
    made: bytes = b""

    def open(self) -> IO[bytes] | None:
        if self.origin is None:
            return io.BytesIO(self.made)
        tree, member = self.origin
        return tree.extractfile(member)


def write_root(
    trees: Sequence[Path], database: Path, output: IO[bytes], *, remove: Iterable[str]
) -> tuple[str, ...]:
    """Write the root archive; the packages that stay come back as "name=version".

    ``trees`` are archives of ``/usr`` and ``/etc``, ``database`` one of ``/var/lib/dpkg``.
    """
    removed = frozenset(remove)
    packages = read_packages(database)
    kept = [package for package in packages if package.name not in removed]
    owned = frozenset().union(*(package.paths for package in kept))
    gone = frozenset().union(*(package.paths for package in packages)) - owned
    with ExitStack() as stack:
        opened = [stack.enter_context(tarfile.open(tree)) for tree in trees]
        epoch = _epoch(opened, owned)
        entries = _collect(opened, gone=gone, epoch=epoch)
        # What is kept of dpkg's database is what scanners look for; machine-id must exist, empty.
        status = "\n".join(package.stanza for package in kept).encode()
        entries["var/lib/dpkg/status"] = _made("var/lib/dpkg/status", status, epoch)
        entries["etc/machine-id"] = _made("etc/machine-id", b"", epoch)
        with tarfile.open(fileobj=output, mode="w", format=tarfile.GNU_FORMAT) as archive:
            # By path, component by component: a directory comes before what is in it.
            for name in sorted(entries, key=lambda path: path.split("/")):
                entry = entries[name]
                archive.addfile(entry.info, entry.open())
    return tuple(f"{package.name}={package.version}" for package in kept)


def read_packages(database: Path) -> tuple[Package, ...]:
    """The packages of a dpkg database, by name."""
    with tarfile.open(database) as archive:
        texts = {
            _normal(member.name): _text(archive, member)
            for member in archive
            if member.isfile() and member.name.endswith(("/status", ".list"))
        }
    found = []
    for stanza in texts["dpkg/status"].split("\n\n"):
        fields = dict(
            line.split(": ", 1) for line in stanza.splitlines() if ": " in line and line[0] != " "
        )
        if fields.get("Status") != "install ok installed":
            continue
        name = fields["Package"]
        listing = texts.get(f"dpkg/info/{name}.list") or texts.get(
            f"dpkg/info/{name}:{fields['Architecture']}.list", ""
        )
        paths = frozenset(_merged(line.strip("/")) for line in listing.splitlines())
        found.append(Package(name, fields["Version"], stanza.strip() + "\n", paths))
    return tuple(sorted(found, key=lambda package: package.name))


def unpack(archive: Path, directory: Path) -> None:
    """Lay a root archive of ours out below a new directory, with exactly its modes and times."""
    directory.mkdir()
    with tarfile.open(archive) as source:
        for member in source:
            target = directory / member.name
            if member.isdir():
                target.mkdir()
                target.chmod(member.mode)
            elif member.issym():
                target.symlink_to(member.linkname)
            elif member.isreg():
                _copy(source, member, target)
            else:
                message = f"{archive}: {member.name} is neither file, directory nor symbolic link"
                raise tarfile.ExtractError(message)
    directory.chmod(0o755)


def _copy(source: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    content = source.extractfile(member)
    if content is not None:
        target.write_bytes(content.read())
    target.chmod(member.mode)
    os.utime(target, (member.mtime, member.mtime))


def _collect(
    trees: Sequence[tarfile.TarFile], *, gone: frozenset[str], epoch: int
) -> dict[str, _Entry]:
    entries = {}
    for name, mode in _SKELETON.items():
        entries[name] = _Entry(_info(name, tarfile.DIRTYPE, mode, epoch))
    for tree in trees:
        for member in tree:
            name = _normal(member.name)
            if name in _SKELETON or _is_dropped(name) or (name in gone and not member.isdir()):
                continue
            entry = _converted(tree, member, name, epoch)
            if entry is not None:
                entries[name] = entry
    for name in _MERGED:
        if f"usr/{name}" in entries:
            info = _info(name, tarfile.SYMTYPE, 0o777, epoch)
            info.linkname = f"usr/{name}"
            entries[name] = _Entry(info)
    _drop_empty(entries, gone)
    return entries


def _converted(
    tree: tarfile.TarFile, member: tarfile.TarInfo, name: str, epoch: int
) -> _Entry | None:
    if member.isdir():
        return _Entry(_info(name, tarfile.DIRTYPE, 0o755, epoch))
    if member.issym():
        info = _info(name, tarfile.SYMTYPE, 0o777, epoch)
        info.linkname = member.linkname
        return _Entry(info)
    # A hard link becomes a file of its own: its target may not stay, or come later.
    origin = tree.getmember(member.linkname) if member.islnk() else member
    if not origin.isfile():
        return None
    mode = 0o755 if origin.mode & 0o111 else 0o644
    info = _info(name, tarfile.REGTYPE, mode, min(int(origin.mtime), epoch))
    info.size = origin.size
    return _Entry(info, (tree, origin))


def _drop_empty(entries: dict[str, _Entry], gone: frozenset[str]) -> None:
    parents = {name.rpartition("/")[0] for name in entries}
    for name in sorted(entries, reverse=True):
        if name in gone and name not in parents and entries[name].info.isdir():
            del entries[name]
            parents = {other.rpartition("/")[0] for other in entries}


def _epoch(trees: Sequence[tarfile.TarFile], owned: frozenset[str]) -> int:
    """The time of the newest file that a package brought: all that "now" there is in an image."""
    return max(
        (
            int(member.mtime)
            for tree in trees
            for member in tree
            if member.isfile() and (name := _normal(member.name)) in owned and name[:4] == "usr/"
        ),
        default=0,
    )


def _made(name: str, content: bytes, epoch: int) -> _Entry:
    info = _info(name, tarfile.REGTYPE, 0o644, epoch)
    info.size = len(content)
    return _Entry(info, made=content)


def _info(name: str, kind: bytes, mode: int, epoch: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)  # uid, gid 0, no names
    info.type, info.mode, info.mtime = kind, mode, epoch
    return info


def _is_dropped(name: str) -> bool:
    return any(name == path or name.startswith(path + "/") for path in _DROPPED)


def _normal(name: str) -> str:
    return name.removeprefix("./").strip("/")


def _merged(path: str) -> str:
    # dpkg's lists may say /bin/sh for what lies in /usr/bin/sh.
    return f"usr/{path}" if path.split("/", 1)[0] in _MERGED else path


def _text(archive: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    content = archive.extractfile(member)
    return "" if content is None else content.read().decode("utf-8", "replace")
