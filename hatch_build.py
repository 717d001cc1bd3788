"""What goes into the wheel besides Python, and what does building it need?

Two things in one file, because the second follows from the first:

- the **build hook** adds the cell, cross-compiled as a static binary for each supported machine,
  and the folders ``policies/`` and ``sandbox-images/`` (as ``executor/_data/…``);
- the **build backend** is hatchling's, but asks for ziglang only where a wheel is built. An
  editable install compiles nothing (``scripts/build_cell.py`` does, for the local machine), so
  that a contributor with a C compiler need not fetch another one.

One wheel serves both machines: the cell is chosen by ``platform.machine()`` at run time and the
rest is Python. Its tag names the Linux platforms that it is for. The oldest tags are right, because
a static binary needs no C library at all, and any kernel that has the sandbox's features is newer.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.build import build_editable, build_sdist, build_wheel
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

__all__ = [
    "CellHook",
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
]

ZIGLANG = "ziglang>=0.13,<0.18"
TAG = "py3-none-" + ".".join(
    f"{platform}_{machine}"
    for platform in ("manylinux_2_17", "musllinux_1_1")
    for machine in ("x86_64", "aarch64")
)
DATA_FOLDERS = ("policies", "sandbox-images")


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """A wheel carries compiled cells."""
    del config_settings
    return [ZIGLANG]


def get_requires_for_build_editable(config_settings: dict[str, Any] | None = None) -> list[str]:
    """An editable install carries none."""
    del config_settings
    return ["editables>=0.5"]


def get_requires_for_build_sdist(config_settings: dict[str, Any] | None = None) -> list[str]:
    """Nor does a source archive: it has the C source."""
    del config_settings
    return []


class CellHook(BuildHookInterface):  # type: ignore[type-arg, misc, unused-ignore]
    """Compiles the cells, and adds them and the data folders to a wheel."""

    PLUGIN_NAME = "custom"
    _scratch: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before the files are collected; ``version`` is the build's kind."""
        if self.target_name != "wheel" or version == "editable":
            return
        root = Path(self.root)
        include: dict[str, str] = build_data["force_include"]
        for folder in DATA_FOLDERS:
            if (root / folder).is_dir():
                include[str(root / folder)] = f"executor/_data/{folder}"
        include.update(self._compile(root))
        build_data["pure_python"] = False
        build_data["tag"] = TAG

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Called by hatchling when the wheel is written."""
        del version, build_data, artifact_path
        if self._scratch is not None:
            self._scratch.cleanup()

    def _compile(self, root: Path) -> dict[str, str]:
        sys.path.insert(0, str(root / "scripts"))
        try:
            build_cell = importlib.import_module("build_cell")
        finally:
            sys.path.pop(0)
        self._scratch = tempfile.TemporaryDirectory(prefix="hook-executor-wheel-")
        built = {}
        for machine in build_cell.MACHINES:
            binary = Path(self._scratch.name, f"cell-{machine}")
            build_cell.build(binary, machine=machine, zig=True)
            built[str(binary)] = f"executor/cell/bin/{binary.name}"
        return built
