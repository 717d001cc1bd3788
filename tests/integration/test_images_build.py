"""Are the images that were built here what they say, and do they build to the same bytes again?"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import docker
import docker.errors
import pytest

from executor import images
from executor.errors import Unavailable
from executor.images import cache
from tests.support import missing


@pytest.fixture(params=["base", "python"])
def image(request: pytest.FixtureRequest) -> images.Image:
    """An image of this user; ``make install`` has built it where it can be built."""
    found = images.find(request.param)
    if found is None:
        pytest.skip(f"the image {request.param} was not built here: make images says why")
    return found


@pytest.fixture
def engine() -> Iterator[docker.APIClient]:
    client = None
    try:
        client = docker.APIClient(version="auto")
    except docker.errors.DockerException as error:
        missing("docker", f"no engine answers: {error}")
    assert client is not None
    yield client
    client.close()


def test_the_digest_is_of_the_archive(image: images.Image) -> None:
    assert cache.digest_of(image.archive) == image.digest


def test_the_unpacked_root_is_the_archive(image: images.Image) -> None:
    with tarfile.open(image.archive) as archive:
        expected = {member.name: member.mode for member in archive if not member.issym()}
    found = {
        str(path.relative_to(image.root)): stat.S_IMODE(path.lstat().st_mode)
        for path in image.root.rglob("*")
        if not path.is_symlink()
    }
    assert found == expected


def test_nothing_in_it_is_privileged_or_unreadable(image: images.Image) -> None:
    for path in image.root.rglob("*"):
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            continue
        assert not status.st_mode & (stat.S_ISUID | stat.S_ISGID), path
        assert status.st_mode & stat.S_IROTH, path
        assert status.st_uid == os.geteuid(), path
        assert not os.listxattr(path), path


@pytest.mark.parametrize("tool", ["sh", "bash", "ls", "grep", "sed", "awk", "jq", "curl"])
def test_the_tools_of_the_contract_are_there(image: images.Image, tool: str) -> None:
    path = image.root / "usr/bin" / tool
    assert path.is_symlink() or path.is_file()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can chroot")
def test_its_programs_start_and_python_finds_its_compiled_library(image: images.Image) -> None:
    checks = [
        """echo '{"a": [1]}' | jq -c .""",
        "curl --version | grep -q '^curl '",
        "echo x | awk '{print $1}'",
    ]
    if image.name == "python":
        # Compiled files count only if the times in the archive are the packages' own.
        checks.append("python3 -v -c 'import json' 2>&1 | grep -q '/json/__pycache__/.* matches '")
    script = " && ".join(checks)
    command = ["chroot", "--userspec=65534:65534", str(image.root), "/bin/sh", "-c", script]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stdout == '{"a":[1]}\nx\n'


def test_what_is_known_about_it_stands_beside_it(image: images.Image) -> None:
    document = json.loads((image.directory / "image.json").read_text())
    assert document["digest"] == image.directory.name == image.digest
    assert any(entry.startswith("jq=") for entry in image.packages)
    assert not any(entry.startswith(("dpkg=", "apt=")) for entry in image.packages)
    assert images.find(image.name) == image


def test_building_what_is_built_changes_nothing(image: images.Image) -> None:
    said: list[str] = []
    assert images.build(image.name, report=said.append) == image
    assert said == []


@pytest.mark.docker
def test_an_engine_takes_it_once_and_knows_it_by_content(
    image: images.Image, engine: docker.APIClient
) -> None:
    identity = images.engine_id(engine, image)
    assert identity.startswith("sha256:")
    assert images.engine_id(engine, image) == identity
    document = engine.inspect_image(identity)  # type: ignore[no-untyped-call]
    assert document["RootFS"]["Layers"] == [f"sha256:{image.digest}"]
    config = document["Config"]
    assert not any(config.get(key) for key in ("Env", "Cmd", "Entrypoint", "Volumes"))


@pytest.mark.docker
def test_an_image_that_only_inherits_the_label_is_not_taken_for_ours(
    engine: docker.APIClient, tmp_path: Path
) -> None:
    found = images.find("base")
    if found is None:
        pytest.skip("the image base was not built here: make images says why")
    # The same image under another digest: the engine holds its label, but other bytes.
    other = tmp_path / "other.tar"
    with tarfile.open(other, "w") as archive:
        archive.addfile(tarfile.TarInfo("planted"))
    digest = cache.digest_of(found.archive)[::-1]
    planted = engine.import_image(
        iter([other.read_bytes()]),
        stream_src=True,
        changes=[f"LABEL hook-executor.digest={digest}"],
    )
    identity = str(json.loads(planted)["status"])
    try:
        fake = cache.Image(
            name="base",
            digest=digest,
            directory=found.directory,
            root=found.root,
            archive=other,
            packages=(),
            built_at="",
            inputs_digest="",
            codename="",
        )
        with pytest.raises(Unavailable, match="changed the image"):
            images.engine_id(engine, fake)
    finally:
        for candidate in engine.images(
            all=True, filters={"label": f"hook-executor.digest={digest}"}
        ):
            engine.remove_image(candidate["Id"], force=True)
    assert identity.startswith("sha256:")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_same_packages_give_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("mmdebstrap") is None:
        pytest.skip("mmdebstrap is not installed")
    digests = []
    for turn in ("first", "second"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / turn))
        built = images.build("python", report=print)
        base = images.find("base")
        assert base is not None
        digests.append((built.digest, base.digest))
    assert digests[0] == digests[1]
