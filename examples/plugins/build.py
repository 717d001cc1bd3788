"""Build one of the example plugins from its source: ``python build.py event-counter``.

The component lands beside its plugin.toml. What is needed is named by the error where it is
missing: componentize-py for Python, ziglang (or any clang that knows wasm32) for C. Both come from
pip and need nothing else.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CORE_MODULE_SECTION = 1


def main() -> None:
    """Build what the command line names, else everything."""
    for name in sys.argv[1:] or ("event-counter", "tool-guard"):
        directory = HERE / name
        target = directory / "plugin.wasm"
        (build_python if (directory / "app.py").exists() else build_c)(directory, target)
        print(f"{target}: {target.stat().st_size} bytes")


def build_python(directory: Path, target: Path) -> None:
    """CPython, the imported modules and the program, in one component of some 18 MB."""
    tool = shutil.which("componentize-py", path=str(Path(sys.executable).parent))
    tool = tool or shutil.which("componentize-py")
    if tool is None:
        sys.exit("componentize-py is missing: pip install componentize-py")
    wit = ("-d", str(directory / "wit"), "-w", "hook-plugin")
    subprocess.run(
        [tool, *wit, "componentize", "-p", str(directory), "app", "-o", str(target)], check=True
    )


def build_c(directory: Path, target: Path) -> None:
    """A core module from hook.c, put into the component that component.wat describes."""
    with tempfile.TemporaryDirectory() as scratch:
        core = Path(scratch) / "core.wasm"
        subprocess.run(
            [
                *(sys.executable, "-m", "ziglang", "cc", "--target=wasm32-freestanding", "-Os"),
                *("-nostdlib", "-ffreestanding", "-Wall", "-Wextra", "-Werror", "-Wl,--no-entry"),
                *("-o", str(core), str(directory / "hook.c")),
            ],
            check=True,
        )
        from wasmtime import wat2wasm  # noqa: PLC0415  (only what is built needs it)

        shell = bytes(wat2wasm((directory / "component.wat").read_text(encoding="utf-8")))
        target.write_bytes(with_core_module(shell, core.read_bytes()))


def with_core_module(component: bytes, core: bytes) -> bytes:
    """The component with ``core`` in place of the one core module that its text left empty."""
    parts, at = [component[:8]], 8
    while at < len(component):
        kind = component[at]
        size, start = _number(component, at + 1)
        content = core if kind == CORE_MODULE_SECTION else component[start : start + size]
        parts.append(bytes([kind]) + _encoded(len(content)) + content)
        at = start + size
    return b"".join(parts)


def _number(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned LEB128 number, and where what follows it begins."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _encoded(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


if __name__ == "__main__":
    main()
