"""Does the wheel, installed into an empty environment, give a working command?"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support import TOOL_CALL, missing

REPOSITORY = Path(__file__).resolve().parents[2]
MACHINES = {"x86_64": 62, "aarch64": 183}  # e_machine in the ELF header (elf.h)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``make wheel`` has made, or, without it, one built here."""
    made = sorted((REPOSITORY / "dist").glob("hook_executor-*.whl"))
    if made:
        return made[-1]
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("no wheel in dist/ and no ziglang to build one: make wheel")
    directory = tmp_path_factory.mktemp("dist")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(directory)]
    command = [sys.executable, "-m", "pip", "wheel", *options, str(REPOSITORY)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return next(directory.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and nothing of the repository; its ``bin``.

    Installed below the narrowest umask: hooks of another id must still be able to start.
    """
    directory = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", str(directory)], check=True)
    pip = [str(directory / "bin/python"), "-m", "pip", "install", "--quiet"]
    constraints = str(REPOSITORY / "constraints.txt")
    command = [*pip, "--constraint", constraints, str(wheel)]
    subprocess.run(command, check=True, cwd=directory, umask=0o077)
    return directory / "bin"


def output(*command: str | Path) -> str:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": os.environ.get("HOME", "/"),
        "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"],
    }
    answer = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd="/", env=environment
    )
    return answer.stdout


def test_it_carries_a_static_cell_for_each_machine(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for machine, number in MACHINES.items():
            entry = archive.getinfo(f"executor/cell/bin/cell-{machine}")
            header = archive.read(entry)
            assert header[:4] == b"\x7fELF"
            assert int.from_bytes(header[18:20], "little") == number
            assert b"/ld-" not in header  # no dynamic loader is asked for
            assert (entry.external_attr >> 16) & 0o777 == 0o755


def test_its_name_keeps_it_from_other_systems(wheel: Path) -> None:
    assert "-none-any" not in wheel.name
    assert "manylinux" in wheel.name
    assert "musllinux" in wheel.name


def test_the_images_and_policies_are_found_in_it(installed: Path) -> None:
    script = (
        "from executor import images, paths\n"
        "print([each.name for each in images.list_definitions()])\n"
        "print((paths.data_directory('policies') / 'default.toml').is_file(), paths.__file__)\n"
    )
    first, second = output(installed / "python", "-c", script).splitlines()
    assert first == "['base', 'python']"
    assert second.startswith("True ")
    assert str(REPOSITORY) not in second


def test_its_command_works(installed: Path) -> None:
    assert "emit" in output(installed / "hook-executor", "--help")


def test_it_carries_the_page_that_describes_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        text = archive.read(name).decode()
    assert "Description-Content-Type: text/markdown" in text
    assert "\n# " in text


@pytest.mark.parametrize(
    "sandbox",
    [
        pytest.param("namespace", marks=pytest.mark.namespace),
        pytest.param("docker", marks=pytest.mark.docker),
    ],
)
def test_its_command_runs_the_example_without_a_compiler(
    installed: Path, tmp_path: Path, sandbox: str
) -> None:
    if platform.machine() not in MACHINES:
        pytest.skip("no cell for this machine")
    program = (installed / "hook-executor", "--sandbox", sandbox, "--workspace", tmp_path / "new")
    backends = json.loads(output(program[0], "doctor", "--json"))["backends"]
    state = next(one for one in backends if one["name"] == sandbox)
    if not state["works"]:
        missing(sandbox, state["message"])
    output(*program, "init")
    output(*program, "check")
    payload = json.dumps(TOOL_CALL)
    told = json.loads(output(*program, "emit", "tool_call", "--payload", payload, "--json"))
    assert [(run["sandbox"], run["status"]) for run in told["runs"]] == [(sandbox, "ok")]
