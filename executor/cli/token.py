"""``hook-executor token``: who may use the API?"""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from executor.cli.endings import FAILED, OK, UsageError
from executor.cli.options import HERE, Json, Where

app = App(name="token", help="Create, list and revoke the API's bearer tokens.")


@app.command
def create(
    *,
    scopes: Annotated[str, Parameter(help="Of read, write, emit; with commas.")] = "read",
    expires_in: Annotated[int | None, Parameter(help="Days until it expires.")] = None,
    json: Json = False,
    where: Where = HERE,
) -> int:
    """Make a token. It is shown this once."""
    from executor.api.tokens import Scope, Tokens
    from executor.cli.daemon import state_of
    from executor.cli.output import print_json, say, talk
    from executor.errors import InvalidConfig

    names = [name.strip() for name in scopes.split(",") if name.strip()]
    unknown = [name for name in names if name not in list(Scope)]
    if unknown:
        raise UsageError(f"--scopes: {', '.join(unknown)} is none of {', '.join(Scope)}")
    try:
        secret, token = Tokens(state_of(where)).create([Scope(name) for name in names], expires_in)
    except InvalidConfig as mistake:
        raise UsageError(mistake.faults) from None
    if json:
        print_json({"token": secret, **token.told()})
    else:
        talk(f"token {token.id} with {', '.join(token.scopes)}; shown this once:")
        say(secret)
    return OK


@app.command(name="list")
def list_(*, json: Json = False, where: Where = HERE) -> int:
    """List the tokens, without the tokens themselves."""
    from executor.api.tokens import Tokens
    from executor.cli.daemon import state_of
    from executor.cli.output import print_json, print_table

    tokens = Tokens(state_of(where)).list()
    if json:
        print_json({"tokens": [token.told() for token in tokens]})
    else:
        print_table(
            ("id", "scopes", "created", "expires"),
            [
                (one.id, ",".join(one.scopes), one.created_at, one.expires_at or "never")
                for one in tokens
            ],
        )
    return OK


@app.command
def revoke(
    id: Annotated[str, Parameter(help="As `token list` shows it.")],  # noqa: A002  (shown in the help)
    /,
    *,
    where: Where = HERE,
) -> int:
    """Make a token useless, from the next request on."""
    from executor.api.tokens import Tokens
    from executor.cli.daemon import state_of
    from executor.cli.output import talk

    if Tokens(state_of(where)).revoke(id):
        return OK
    talk("there is no token with this id")
    return FAILED
