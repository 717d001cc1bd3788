"""Where do built images lie, and which one is current?

::

    $XDG_CACHE_HOME/hook-executor/images/
        .lock                       held while one is being built
        python/current              a link to the folder of the current digest
        python/<digest>/root.tar    the archive that the digest is of; engines import it
        python/<digest>/root/       the same, unpacked; the namespace backend binds it
        python/<digest>/image.json  what is known about it; written last

One cache a user, whatever state directory or workspace an executor has. A cache that belongs to
somebody else is never used: whoever can write here decides what sandboxes are made of. (``sudo``
keeps HOME, and so root may be shown another user's; its own is taken then.)
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pwd
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from executor.document import hint
from executor.errors import Unavailable
from executor.images import archive as root_archive
from executor.images.definition import list_definitions

_KEPT = 2
"""Digests kept of each image: runs in flight may still have the previous one bound."""


@dataclass(frozen=True, slots=True)
class Image:
    """A built image. ``digest`` is the sha256, in hex, of ``archive``.

    ``packages`` are "name=version".
    ``root`` belongs to the user who built it; its files have no setuid bit and are readable by any
    uid. ``built_at`` is UTC, with "Z"; ``inputs_digest`` tells whether the definition has changed.
    """

    name: str
    digest: str
    directory: Path
    root: Path
    archive: Path
    packages: tuple[str, ...]
    built_at: str
    inputs_digest: str
    codename: str


def find(name: str) -> Image | None:
    """The current image of that name, if it was built (by this user)."""
    try:
        directory = (cache_directory() / name / "current").resolve(strict=True)
        return _read(directory)
    except (OSError, ValueError, KeyError, Unavailable):
        return None


def required(name: str) -> Image:
    """As ``find``. Raises Unavailable with what is to be done: build it, or name another."""
    image = find(name)
    if image is not None:
        return image
    known = [definition.name for definition in list_definitions()]
    if name in known:
        raise Unavailable(
            f'the image "{name}" is not built', remedy=f"hook-executor images build {name}"
        )
    raise Unavailable(
        f'no image "{name}" is defined{hint(name, known)}',
        remedy=f"name one of {', '.join(known)} under [sandbox] in the policy",
    )


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """This user's image cache; it need not exist yet."""
    user = os.geteuid()
    home = _own(environment.get("HOME", ""), user)
    cache = _own(environment.get("XDG_CACHE_HOME", ""), user)
    if cache is None:
        if home is None:
            try:
                home = Path(pwd.getpwuid(user).pw_dir)
            except KeyError as error:
                message = f"user id {user} has no home directory to keep images in"
                raise Unavailable(
                    message, remedy="set XDG_CACHE_HOME to a directory of it"
                ) from error
        cache = home / ".cache"
    return cache / "hook-executor" / "images"


@contextmanager
def locked() -> Iterator[Path]:
    """Hold this user's build lock; the cache's directory, made if need be, is the value."""
    directory = cache_directory()
    try:
        for level in (directory.parent.parent, directory.parent, directory):
            level.mkdir(exist_ok=True, parents=level == directory.parent.parent)
        for level in (directory.parent, directory):
            level.chmod(0o755)
        descriptor = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        message = f"the image cache {directory} cannot be written: {error.strerror}"
        raise Unavailable(message, remedy="set XDG_CACHE_HOME to a directory of yours") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield directory
    finally:
        os.close(descriptor)


def store(
    directory: Path, name: str, fresh: Path, *, packages: tuple[str, ...], facts: Mapping[str, str]
) -> Image:
    """Take a finished root archive into the cache (under the lock) and make it current.

    ``fresh`` lies on the cache's file system and is moved. ``facts`` are ``built_at``,
    ``inputs_digest`` and ``codename``.
    """
    digest = digest_of(fresh)
    folder = directory / name / digest
    for level in (directory / name, folder):
        level.mkdir(exist_ok=True)
        level.chmod(0o755)
    root = folder / "root"
    if not root.exists():
        unfinished = folder / "root.partial"
        shutil.rmtree(unfinished, ignore_errors=True)
        root_archive.unpack(fresh, unfinished)
        unfinished.rename(root)
    fresh.chmod(0o644)
    fresh.replace(folder / "root.tar")
    image = Image(
        name=name,
        digest=digest,
        directory=folder,
        root=root,
        archive=folder / "root.tar",
        packages=packages,
        built_at=facts["built_at"],
        inputs_digest=facts["inputs_digest"],
        codename=facts["codename"],
    )
    document = {
        key: value
        for key, value in asdict(image).items()
        if key not in {"directory", "root", "archive"}
    }
    _replace_text(folder / "image.json", json.dumps(document, indent=2) + "\n")
    _point(directory / name / "current", digest)
    _drop_old(directory / name, digest)
    return image


def digest_of(path: Path) -> str:
    """The sha256 of a file, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _own(value: str, user: int) -> Path | None:
    """The directory, if it, or the nearest one that exists above it, is this user's or root's."""
    path = Path(value)
    if not value or not path.is_absolute():
        return None
    for level in (path, *path.parents):
        try:
            return path if level.stat().st_uid in {0, user} else None
        except FileNotFoundError:
            continue
        except OSError:  # not even to be looked at: a HOME that came along with `su`
            return None
    return None


def _read(directory: Path) -> Image:
    status = directory.stat()
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o022:
        message = f"{directory} belongs to somebody else, or others can write to it"
        raise Unavailable(message)
    document = json.loads((directory / "image.json").read_text(encoding="utf-8"))
    image = Image(
        directory=directory,
        root=directory / "root",
        archive=directory / "root.tar",
        packages=tuple(document.pop("packages")),
        **document,
    )
    if not (image.root.is_dir() and image.archive.is_file()):
        message = f"{directory} is incomplete"
        raise Unavailable(message)
    return image


def _point(link: Path, target: str) -> None:
    fresh = link.with_name("current.partial")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.rename(link)


def _replace_text(path: Path, text: str) -> None:
    fresh = path.with_name(path.name + ".partial")
    fresh.write_text(text, encoding="utf-8")
    fresh.chmod(0o644)
    fresh.rename(path)


def _drop_old(directory: Path, current: str) -> None:
    folders = [entry for entry in directory.iterdir() if entry.is_dir() and not entry.is_symlink()]
    folders.sort(key=lambda entry: (entry.name == current, entry.stat().st_mtime_ns), reverse=True)
    for folder in folders[_KEPT:]:
        shutil.rmtree(folder, ignore_errors=True)
