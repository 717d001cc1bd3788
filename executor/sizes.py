"""How many bytes are "128MiB"?

Sizes in policies are whole numbers of bytes, or a number with a binary unit. Decimal units are
refused rather than read as either (is a "MB" 1000000 or 1048576 bytes?).
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

UNITS = {"KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}

_SIZE = re.compile(r"(\d{1,12}) ?(KiB|MiB|GiB)")


def parse_size(value: object) -> object:
    """Bytes from text such as "64KiB"; anything but text is handed back for the type's own check.

    Raises ValueError for text that is no size.
    """
    if not isinstance(value, str):
        return value
    found = _SIZE.fullmatch(value)
    if found is None:
        raise ValueError('must be a size such as "64KiB", "128MiB" or "1GiB", or a number of bytes')
    return int(found[1]) * UNITS[found[2]]


def format_size(size_bytes: int) -> str:
    """The shortest exact text: "16MiB", "1536KiB", "1000 bytes"."""
    for unit, factor in reversed(UNITS.items()):
        if size_bytes and size_bytes % factor == 0:
            return f"{size_bytes // factor}{unit}"
    return f"{size_bytes} bytes"


Bytes = Annotated[
    int,
    BeforeValidator(parse_size),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "string", "pattern": "^[0-9]{1,12} ?(KiB|MiB|GiB)$"},
            ]
        }
    ),
]
"""A size in bytes, written either way in a document."""
