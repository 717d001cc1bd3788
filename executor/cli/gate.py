"""``hook-executor gate``: may this go on?

Exits with the verdict: 0 go on, 1 blocked, 2 go on and tell the model the message. Any other code
is a failure of our own (64 and above); callers must block on everything but 0 and 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from executor.cli.emit import read_payload
from executor.cli.options import HERE, Json, Where

if TYPE_CHECKING:
    from collections.abc import Mapping

    from executor.verdict import Verdict


def gate(
    event: Annotated[str, Parameter(help="PreToolUse, PostToolUse or SessionStart.")],
    /,
    *,
    payload: Annotated[
        str | None, Parameter(help="The payload, a JSON object.", allow_leading_hyphen=True)
    ] = None,
    payload_file: Annotated[
        str | None,
        Parameter(help="A file that holds it; - for stdin.", allow_leading_hyphen=True),
    ] = None,
    session: Annotated[str | None, Parameter(help="The session id; one is made up.")] = None,
    json: Json = False,
    where: Where = HERE,
) -> int:
    """Ask Permission and the gate hooks of one event; exit with the verdict."""
    from executor.cli.output import print_json, talk
    from executor.cli.signals import run_until_signalled

    verdict = run_until_signalled(_ask, event, read_payload(payload, payload_file), session, where)
    print_json({**verdict.as_answer(), **(verdict.as_record() if json else {})})
    if not json and verdict.decider is not None:
        talk(verdict.reason)
    return verdict.exit_code


async def _ask(
    event: str, payload: Mapping[str, object], session: str | None, where: Where
) -> Verdict:
    from executor.events import GATE, require_family
    from executor.gate.asker import gate_event
    from executor.service import Executor

    # A mistake is told before anything is opened.
    require_family(event, GATE, way="use hook-executor emit")
    gate_event(event, payload, session)
    opened = Executor.open(where.workspace, sandbox=where.sandbox, watch=False)
    async with opened as executor:  # one event: nothing to reload for
        return await executor.ask(event, payload, session_id=session)
