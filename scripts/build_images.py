#!/usr/bin/env python3
"""Which of the shipped images are missing here?, and builds them.

Called by ``make install``; exits 0 also where images cannot be built (the namespace backend runs
on the host's ``/usr`` without one), after saying what mends it.
"""

from __future__ import annotations

import sys

from executor import images
from executor.errors import ExecutorError


def main() -> int:
    """Build the images that others extend last: they come along with those."""
    definitions = images.list_definitions()
    # An image that extends another brings that one along in the same pass.
    for definition in sorted(definitions, key=lambda each: each.extends is None):
        try:
            images.build(definition.name, report=print)
        except ExecutorError as error:
            print(f"left out: image {definition.name}: {error}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
