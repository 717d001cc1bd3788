"""``hook-executor permission``: which rule decides a tool call, and why?"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from executor.cli.endings import UsageError
from executor.cli.options import HERE, Json, Where
from executor.cli.output import print_json, print_table, say

if TYPE_CHECKING:
    from executor.permission.decide import Permission

app = App(name="permission", help="Explain permission rules.", help_format="plaintext")

_MAX_INPUT_BYTES = 16 * 1024 * 1024


@app.command
def explain(
    tool: Annotated[str, Parameter(help="The tool's name.")],
    /,
    *,
    input: Annotated[  # noqa: A002  (the option's name)
        str, Parameter(help="The tool's input, a JSON object.", allow_leading_hyphen=True)
    ] = "{}",
    json: Json = False,
    where: Where = HERE,
) -> int:
    """What would happen with this call, by which rule, and what was read out of it."""
    told = _permission(where).explain(tool, _object(input))
    if json:
        print_json(told)
        return 0
    say(f"{told['effect']}: {told['reason']}")
    for title in ("commands", "paths", "unclear", "caveats"):
        values = told[title]
        for value in values if isinstance(values, list) else ():
            say(f"  {title}: {'(cannot be read as a path)' if value is None else value}")
    rules = told["rules"]
    if isinstance(rules, list) and rules:
        print_table(
            ("rule", "matches", "text"),
            ((str(one["rule"]), str(one["matches"]), str(one["text"])) for one in rules),
        )
    return 0


def _object(text: str) -> Mapping[str, object]:
    from executor.document import decode_json, kind_of
    from executor.errors import InvalidConfig

    try:
        data = text.encode("utf-8", "surrogateescape")
        value = decode_json(data, where="--input", max_bytes=_MAX_INPUT_BYTES)
    except InvalidConfig as mistake:
        raise UsageError(mistake.faults, where=mistake.where) from None
    if not isinstance(value, dict):
        raise UsageError(f"must be an object, not {kind_of(value)}", where="--input")
    return value


def _permission(where: Where) -> Permission:
    from executor.configuration import load_settings
    from executor.disk.workspace import open_workspace
    from executor.permission.decide import Permission

    workspace = open_workspace(where.workspace)
    try:
        settings = load_settings(workspace).permission
        home = os.environ.get("HOME", "")
        return Permission.compile(settings, workspace=workspace.path, home=home)
    finally:
        workspace.close()
