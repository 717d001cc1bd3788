"""Where are the folders that ship with the package?

``policies/`` and ``sandbox-images/`` lie beside the package in the repository (and so for an
editable install), and in ``executor/_data/`` in an installed wheel. This is the only place that
knows.
"""

from __future__ import annotations

from pathlib import Path

from executor.errors import Unavailable

_PACKAGE = Path(__file__).resolve().parent


def data_directory(name: str) -> Path:
    """The shipped folder of that name: "policies" or "sandbox-images"."""
    for candidate in (_PACKAGE / "_data" / name, _PACKAGE.parent / name):
        if candidate.is_dir():
            return candidate
    message = f"the folder {name}/ that ships with hook-executor is missing"
    raise Unavailable(message, remedy="install hook-executor again")
