"""How is an image made on this machine, without a registry and without Docker?

``mmdebstrap`` installs Debian packages from the host's own apt sources into a temporary tree: as
root, or, for an ordinary user, in a user namespace with that user's subordinate ids. An image
that extends another is installed on top of it in the same pass, and both are taken: the base costs
nothing extra. What the tree is then reduced to is ``archive``'s business.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from executor.errors import Unavailable
from executor.images import archive, cache, packages
from executor.images.definition import Definition, chain

_TREES = {"usr": "/usr", "etc": "/etc", "dpkg": "/var/lib/dpkg"}
# Without it, Debian 12 installs all of perl, only to merge /usr.
_MERGED_USR_HOOK = Path("/usr/share/mmdebstrap/hooks/maybe-merged-usr")
# Not even unpacked: `archive` would drop them, but they cost half of the time.
_EXCLUDED = ("doc", "info", "lintian", "locale", "man")
_INSTALL = (
    'APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get --yes --no-install-recommends'
    ' --option DPkg::Chroot-Directory="$1" install '
)
# All that the builder's own environment can do to a build is say how to reach a mirror.
_PASSED = ("HOME", "TMPDIR", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def build(name: str, *, report: Callable[[str], None], force: bool = False) -> cache.Image:
    """The image of that name, built if it is missing or its definition has changed.

    ``report`` is told, in a line each, what takes time. Raises ``Unavailable``, with a remedy,
    where it cannot be built here, ``InvalidConfig`` where it is not defined. Half a minute of work.
    """
    links = chain(name)
    inputs = _inputs_digest(links)
    found = cache.find(name)
    if found is not None and found.inputs_digest == inputs and not force:
        return found
    mode = _mode()
    sources = packages.debian_sources()
    with cache.locked() as directory:
        found = cache.find(name)  # another process may have built it while we waited
        if found is not None and found.inputs_digest == inputs and not force:
            return found
        report(f"image {name}: installing Debian packages, about half a minute")
        for abandoned in directory.glob(".build-*"):  # by a build that was killed: we have its lock
            shutil.rmtree(abandoned, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=".build-", dir=directory) as scratch:
            _bootstrap(links, sources, mode, Path(scratch))
            codename = packages.main_codename(sources)
            return _take(links, Path(scratch), directory, codename, report, force=force)


def _take(
    links: Sequence[Definition],
    scratch: Path,
    directory: Path,
    codename: str,
    report: Callable[[str], None],
    *,
    force: bool,
) -> cache.Image:
    """Turn the trees of each link into an image; the last link's is the one that was asked for."""
    image = None
    for index, definition in enumerate(links):
        part = links[: index + 1]
        inputs = _inputs_digest(part)
        wanted = index == len(links) - 1
        found = cache.find(definition.name)
        if not (wanted or force or found is None or found.inputs_digest != inputs):
            continue
        fresh = scratch / f"{definition.name}.root.tar"
        trees = {tree: scratch / f"{definition.name}.{tree}.tar" for tree in _TREES}
        with fresh.open("wb") as output:
            installed = archive.write_root(
                (trees["usr"], trees["etc"]),
                trees["dpkg"],
                output,
                remove=[entry for link in part for entry in link.remove],
            )
        facts = {
            "built_at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "inputs_digest": inputs,
            "codename": codename,
        }
        image = cache.store(directory, definition.name, fresh, packages=installed, facts=facts)
        report(f"image {image.name}: {image.digest[:12]}, {len(installed)} packages")
    if image is None:
        message = "an image is a chain of at least one definition"
        raise AssertionError(message)
    return image


def _inputs_digest(links: Sequence[Definition]) -> str:
    """Changes with the definitions and with the code that decides what stays of a tree."""
    digest = hashlib.sha256()
    for definition in links:
        digest.update(definition.model_dump_json(exclude={"description"}).encode())
    digest.update(Path(archive.__file__).read_bytes())
    digest.update(os.uname().machine.encode())
    return digest.hexdigest()


def _mode() -> str:
    if shutil.which("mmdebstrap", path=_PATH) is None:
        message = "images are built with mmdebstrap, which is not installed"
        raise Unavailable(message, remedy="as root: apt-get install mmdebstrap")
    if os.geteuid() == 0:
        return "root"
    user = pwd.getpwuid(os.geteuid()).pw_name
    if shutil.which("newuidmap", path=_PATH) is None:
        message = "an ordinary user needs newuidmap to build images"
        raise Unavailable(message, remedy="as root: apt-get install uidmap")
    for table in (Path("/etc/subuid"), Path("/etc/subgid")):
        owners = table.read_text(encoding="utf-8").splitlines() if table.exists() else []
        if not any(line.split(":")[0] in {user, str(os.geteuid())} for line in owners):
            message = f"{user} has no subordinate ids in {table}, and so cannot build images"
            remedy = (
                "as root: usermod --add-subuids 200000-265535 --add-subgids 200000-265535"
                f" {shlex.quote(user)}"
            )
            raise Unavailable(message, remedy=remedy)
    return "unshare"


def _bootstrap(
    links: Sequence[Definition], sources: tuple[packages.Source, ...], mode: str, scratch: Path
) -> None:
    listing = scratch / "sources.list"
    listing.write_text(packages.source_lines(sources), encoding="utf-8")
    first, *others = links
    command = [
        "mmdebstrap",
        f"--mode={mode}",
        "--variant=essential",
        "--format=null",
        f"--include={','.join(first.packages)}",
        # The tree is thrown away: nothing is gained by waiting for the disk.
        "--dpkgopt=force-unsafe-io",
        *(f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in _EXCLUDED),
        *([f"--hook-directory={_MERGED_USR_HOOK}"] if _MERGED_USR_HOOK.is_dir() else []),
        *(f"--aptopt={line}" for line in packages.acquire_settings()),
        *_hooks(first, scratch),
    ]
    for definition in others:
        command.append(f"--customize-hook={_INSTALL}{shlex.join(definition.packages)}")
        command += _hooks(definition, scratch)
    command += ["", "/dev/null", str(listing)]
    environment = {key: value for key, value in os.environ.items() if key in _PASSED}
    # PYTHONHASHSEED: what packages compile while they are installed must not depend on chance.
    environment |= {"PATH": _PATH, "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0"}
    # The inner shells and dpkg inherit the umask; the tree must not depend on the caller's.
    answer = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env=environment,
        umask=0o022,
        cwd="/",
    )
    if answer.returncode != 0:
        lines = [
            line for line in answer.stderr.splitlines() if line.startswith(("E:", "W:", "Err"))
        ]
        message = "mmdebstrap failed: " + " / ".join(lines[-6:] or answer.stderr.splitlines()[-6:])
        raise Unavailable(message, remedy="run apt-get update as root, then build again")


def _hooks(definition: Definition, scratch: Path) -> list[str]:
    # "tar-out" is done by mmdebstrap itself, outside of any user namespace: the file is ours.
    return [
        f"--customize-hook=tar-out {path} {shlex.quote(str(scratch))}/{definition.name}.{tree}.tar"
        for tree, path in _TREES.items()
    ]
