"""``hook-executor schema``: what may a file or an event hold, for editors and programs?"""

from __future__ import annotations

import sys
from typing import Annotated, Literal

from cyclopts import Parameter

from executor.cli.options import HERE, Json, Where


def schema(
    kind: Annotated[
        Literal["hooks", "policy", "plugin", "event"],
        Parameter(
            help="hooks.json, policies/*.toml, plugins/*/plugin.toml, or the envelope of events."
        ),
    ],
    /,
    *,
    json: Json = True,
    where: Where = HERE,
) -> int:
    """Print the JSON Schema of a file or of the envelope."""
    del json, where  # it is JSON anyway, and the same everywhere
    from executor.schema import render

    sys.stdout.write(render(kind))
    return 0
