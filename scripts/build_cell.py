#!/usr/bin/env python3
"""How does the cell's C become a static binary?

Two compilers, one command line: the machine's own ``cc`` where it can link statically, for
development, and ziglang (a compiler that comes as a Python package and carries musl for every
machine) for the wheel and wherever ``cc`` cannot. Either binary is static and needs nothing of the
root file system that it is started in.

Standard library only: the build hook and the set-up scripts run it before anything is installed.

    scripts/build_cell.py                    this machine's, unless it is newer than its sources
    scripts/build_cell.py --check            exit 0 if a local ``cc`` can build it, else 1
    scripts/build_cell.py --zig --machine aarch64 --output FILE
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

MACHINES = ("x86_64", "aarch64")
REPOSITORY = Path(__file__).resolve().parent.parent
SOURCE_DIRECTORY = REPOSITORY / "executor" / "cell"
FLAGS = ("-static", "-O2", "-s", "-std=gnu11", "-Wall", "-Wextra", "-Werror")
# Not every compiler defaults alike: state what the threat model wants.
HARDENING = ("-fstack-protector-strong", "-fno-strict-aliasing")
PROBE = '#include <stdio.h>\nint main(void) { return puts("") < 0; }\n'


class BuildError(Exception):
    """No compiler, no source, or a compiler that said no."""


def local_machine() -> str:
    """This machine's name in the names of the binaries, as ``uname -m`` gives it."""
    machine = platform.machine()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)


def default_output(machine: str) -> Path:
    """Where the executor looks for the binary of a machine."""
    return SOURCE_DIRECTORY / "bin" / f"cell-{machine}"


def sources(directory: Path = SOURCE_DIRECTORY) -> list[Path]:
    """The C files that make up the cell; every ``.c`` in its folder belongs to it."""
    return sorted(directory.glob("*.c"))


def is_fresh(output: Path, directory: Path = SOURCE_DIRECTORY) -> bool:
    """Whether the binary is newer than everything that it is made of, this script included."""
    inputs = [*sources(directory), *directory.glob("*.h"), Path(__file__)]
    try:
        built = output.stat().st_mtime_ns
    except FileNotFoundError:
        return False
    return all(entry.stat().st_mtime_ns <= built for entry in inputs)


def local_compiler() -> list[str] | None:
    """``cc`` if it is there and links statically (a C library without its archive cannot)."""
    compiler = os.environ.get("CC") or "cc"
    if shutil.which(compiler.split()[0]) is None:
        return None
    with tempfile.TemporaryDirectory() as directory:
        probe = Path(directory, "probe.c")
        probe.write_text(PROBE, encoding="utf-8")
        arguments = [*compiler.split(), *FLAGS, "-o", str(probe.with_suffix("")), str(probe)]
        answer = subprocess.run(arguments, capture_output=True, check=False)
    return compiler.split() if answer.returncode == 0 else None


def zig_compiler(machine: str) -> list[str] | None:
    """Ziglang as a cross-compiler for musl, if this Python has it."""
    if importlib.util.find_spec("ziglang") is None:
        return None
    target = f"{machine}-linux-musl"
    # Sanitizer traps are for the test build; a release should not differ between compilers.
    return [sys.executable, "-m", "ziglang", "cc", "-target", target, "-fno-sanitize=undefined"]


def build(output: Path, *, machine: str, zig: bool, directory: Path = SOURCE_DIRECTORY) -> str:
    """Compile, and put the binary in place in one step; the compiler's name comes back."""
    files = sources(directory)
    if not files:
        raise BuildError(f"no C source in {directory}")
    compiler = None if zig or machine != local_machine() else local_compiler()
    name = "cc"
    if compiler is None:
        compiler, name = zig_compiler(machine), "ziglang"
    if compiler is None:
        raise BuildError(
            "no C compiler can link statically here: install one (Debian: apt-get install gcc"
            " libc6-dev), or the Python package ziglang into the environment of this Python"
        )
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".cell-", dir=output.parent) as scratch:
        # Zig keeps caches below HOME, which a build user may not have.
        cache = tempfile.gettempdir() if "HOME" not in os.environ else None
        environment = dict(os.environ)
        if cache is not None:
            environment["ZIG_GLOBAL_CACHE_DIR"] = str(Path(scratch, "zig"))
        environment["ZIG_LOCAL_CACHE_DIR"] = str(Path(scratch, "zig-local"))
        fresh = Path(scratch, output.name)
        # Names relative to the folder: the binary does not tell where it was built.
        names = [entry.name for entry in files]
        arguments = [*compiler, *FLAGS, *HARDENING, "-o", str(fresh), *names]
        answer = subprocess.run(
            arguments, cwd=directory, env=environment, capture_output=True, text=True, check=False
        )
        if answer.returncode != 0:
            raise BuildError(f"{' '.join(arguments)}\n{answer.stdout}{answer.stderr}")
        # Bound into sandboxes and started there by an unprivileged id, whatever umask is in force.
        fresh.chmod(0o755)
        output.parent.chmod(0o755)
        fresh.replace(output)
    return name


def main(arguments: list[str]) -> int:
    """Build what the command line asks for."""
    parser = argparse.ArgumentParser(description="Build the cell as a static binary.")
    parser.add_argument("--machine", default=local_machine(), choices=MACHINES)
    parser.add_argument("--output", type=Path, help="default: executor/cell/bin/cell-MACHINE")
    parser.add_argument("--zig", action="store_true", help="ziglang, even where cc would do")
    parser.add_argument("--force", action="store_true", help="also when it is fresh")
    parser.add_argument("--check", action="store_true", help="only say whether cc can build it")
    options = parser.parse_args(arguments)
    if options.check:
        return 0 if local_compiler() is not None else 1
    output: Path = (options.output or default_output(options.machine)).absolute()
    if not options.force and is_fresh(output):
        return 0
    try:
        name = build(output, machine=options.machine, zig=options.zig)
    except BuildError as error:
        print(f"build_cell: {error}", file=sys.stderr)
        return 1
    print(f"cell: {output} ({name}, {output.stat().st_size} bytes)")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
