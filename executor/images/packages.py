"""Where does this machine get its Debian packages from, and which of an image's are outdated?

apt itself is asked, so that every form of its configuration (one-line or deb822 sources, mirrors,
proxies, pins on a snapshot) is understood, and this project names no mirror at all. Only sources
that call themselves Debian are used, so that a third party's repository on the host never gets
into a sandbox. The lists are verified by apt; nothing here trusts an unsigned one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from executor.errors import Unavailable
from executor.images.cache import Image

_KEYRINGS = tuple(
    Path("/usr/share/keyrings", f"debian-archive-keyring.{suffix}") for suffix in ("pgp", "gpg")
)
_APT_HELPER = "/usr/lib/apt/apt-helper"
_FIELDS = ("FILENAME", "REPO_URI", "RELEASE", "CODENAME", "COMPONENT", "ARCHITECTURE", "TRUSTED")
# What of the host's apt configuration decides whether packages can be fetched at all.
_SETTINGS = (
    "Acquire::http::Proxy",
    "Acquire::https::Proxy",
    "Acquire::https::CAInfo",
    "Acquire::Check-Valid-Until",
    "Acquire::Check-Date",
)
_TIMEOUT_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Source:
    """One Debian package list of the host, as apt knows it."""

    filename: Path
    uri: str
    release: str
    codename: str
    component: str
    architecture: str

    @property
    def is_security(self) -> bool:
        """Whether the list is of security updates."""
        return self.codename.endswith("-security")


def debian_sources() -> tuple[Source, ...]:
    """The host's own Debian lists of component ``main``; ``Unavailable`` if there are none."""
    if shutil.which("apt-get") is None:
        message = "images are built from Debian packages, and this machine has no apt"
        raise Unavailable(message, remedy='use root = "host" or an image id in the policy')
    wanted = ("Created-By: Packages", "Origin: Debian", "Component: main")
    layout = "|".join(f"$({field})" for field in _FIELDS)
    found = []
    for line in _output("apt-get", "indextargets", "--format", layout, *wanted).splitlines():
        filename, uri, release, codename, component, architecture, trusted = line.split("|")
        if trusted == "yes" and Path(filename).exists():
            source = Source(Path(filename), uri, release, codename, component, architecture)
            found.append(source)
    if not found:
        message = "apt has no lists of Debian packages on this machine"
        raise Unavailable(message, remedy="run apt-get update as root")
    return tuple(found)


def source_lines(sources: tuple[Source, ...]) -> str:
    """The sources in apt's one-line form, for a bootstrap of the host's release."""
    keyring = next((path for path in _KEYRINGS if path.exists()), None)
    options = f"[signed-by={keyring}] " if keyring else ""
    lines = {f"deb {options}{entry.uri} {entry.release} {entry.component}" for entry in sources}
    return "\n".join(sorted(lines)) + "\n"


def acquire_settings() -> tuple[str, ...]:
    """The host's settings without which its mirrors may not answer, in apt.conf's form."""
    lines = _output("apt-config", "dump", "Acquire").splitlines()
    return tuple(line for line in lines if line.split(" ", 1)[0] in _SETTINGS)


def main_codename(sources: tuple[Source, ...]) -> str:
    """The release's name without a suffix: "bookworm", not "bookworm-security"."""
    return min((source.codename for source in sources), key=len)


def outdated(image: Image) -> tuple[str, ...]:
    """The image's packages for which the host's lists have a newer security version.

    Best effort, and about a second of work: empty where it cannot be told. Each entry reads
    "name installed → available".
    """
    try:
        lists = [source for source in debian_sources() if source.is_security]
        return tuple(sorted(_newer(image, lists)))
    except (Unavailable, OSError, ValueError, subprocess.SubprocessError):
        return ()


def _newer(image: Image, lists: list[Source]) -> Iterator[str]:
    installed = dict(entry.split("=", 1) for entry in image.packages)
    for source in lists:
        if not source.codename.startswith(image.codename):
            continue
        for name, version in _versions(source.filename):
            if name in installed and installed[name] != version:
                answer = _run("dpkg", "--compare-versions", version, "gt", installed[name])
                if answer.returncode == 0:
                    yield f"{name} {installed[name]} → {version}"


def _versions(filename: Path) -> Iterator[tuple[str, str]]:
    # The lists may be compressed in any way that apt knows.
    name = ""
    for line in _output(_APT_HELPER, "cat-file", str(filename)).splitlines():
        if line.startswith("Package: "):
            name = line.removeprefix("Package: ")
        elif line.startswith("Version: "):
            yield name, line.removeprefix("Version: ")


def _output(*arguments: str) -> str:
    answer = _run(*arguments)
    if answer.returncode != 0:
        message = f"{arguments[0]} failed: {answer.stderr.strip()[-500:]}"
        raise Unavailable(message, remedy="see that apt works on this machine")
    return answer.stdout


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=_TIMEOUT_SECONDS,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
