#!/usr/bin/env python3
"""Does every attempt to break out of the sandbox fail here?

    scripts/security_report.py [PYTEST OPTIONS]

Runs tests/security and prints one line a probe: its number, the backend, who ran the executor, the
outcome, the attempt, and what stopped it; then the total. Exit code 0 only where all held.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(options: list[str]) -> int:
    """Pytest does the work; its conftest prints the lines at the end."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "tests/security",
        "-q",
        "--no-header",
        "-m",
        "not slow",
    ]
    environment = {**os.environ, "HOOK_EXECUTOR_SECURITY_REPORT": "1"}
    return subprocess.run([*command, *options], cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
