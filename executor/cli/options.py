"""Which options does every command have?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Where:
    """The global options; they may stand before the command too (``cli.hoisted``)."""

    workspace: Annotated[
        str, Parameter(help="The directory that holds hooks.json and config.toml.")
    ] = "."
    sandbox: Annotated[
        Literal["auto", "docker", "namespace"] | None,
        Parameter(help="Use this backend whatever the policies say."),
    ] = None


HERE = Where()

Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON.")]
