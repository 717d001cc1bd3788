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
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

ENTRY_LIMIT = 200_000
"""More than any image has; a runaway tree is no image."""

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
    *("usr/lib/init", "usr/lib/systemd", "usr/lib/tmpfiles.d", "usr/lib/udev", "usr/lib/sysusers.d"),
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
    content: tuple[tarfile.TarFile, tarfile.TarInfo] | None = None


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
        entries = _collect(opened, gone=gone, epoch=_epoch(opened, owned))
        status = "\n".join(package.stanza for package in kept).encode()
        _add_file(entries, "var/lib/dpkg/status", status)
        _add_file(entries, "etc/machine-id", b"")
        with tarfile.open(fileobj=output, mode="w", format=tarfile.GNU_FORMAT) as archive:
            for entry in _in_order(entries):
                _write(archive, entry)
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
            elif member.islnk():
                target.hardlink_to(directory / member.linkname)
            elif member.isreg():
                _copy(source, member, target)
            else:
                message = f"{archive}: {member.name} is neither file, directory nor link"
                raise tarfile.ExtractError(message)
    directory.chmod(0o755)


def _copy(source: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    content = source.extractfile(member)
    if content is not None:
        target.write_bytes(content.read())
    target.chmod(member.mode)
    _set_time(target, member.mtime)


def _set_time(target: Path, seconds: float) -> None:
    import os  # noqa: PLC0415 - replaced below

    os.utime(target, (seconds, seconds))


def _collect(
    trees: Sequence[tarfile.TarFile], *, gone: frozenset[str], epoch: int
) -> dict[str, _Entry]:
    entries = {}
    for name, mode in _SKELETON.items():
        entries[name] = _Entry(_info(name, tarfile.DIRTYPE, mode, epoch))
    for tree in trees:
        for member in tree:
            name = _normal(member.name)
            if name in _SKELETON or _is_dropped(name):
                continue
            if name in gone and not member.isdir():
                continue
            entry = _converted(tree, member, name, epoch)
            if entry is not None:
                entries[name] = entry
    for name in _MERGED:
        if f"usr/{name}" in entries:
            info = _info(name, tarfile.SYMTYPE, 0o777, epoch)
            info.linkname = f"usr/{name}"
            entries[name] = _Entry(info)
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
