"""``hook-executor serve``: how is a workspace's daemon started?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import anyio
from cyclopts import Parameter

from executor.cli.endings import FAILED, OK
from executor.cli.options import HERE, Where


def serve(
    *,
    host: Annotated[
        str | None, Parameter(help="Listen here; else host under [api], else 127.0.0.1.")
    ] = None,
    port: Annotated[
        int | None, Parameter(help="And on this port; else port under [api], else 8787; 0: any.")
    ] = None,
    unix: Annotated[str | None, Parameter(help="Listen on this Unix socket instead.")] = None,
    where: Where = HERE,
) -> int:
    """Serve the API, run hooks, follow changes of the configuration, until SIGTERM.

    The first SIGTERM or Ctrl-C finishes what is in hand, the second interrupts it; SIGHUP reads
    the configuration again. Commands of this workspace find the daemon by themselves.
    """
    from executor.cli.output import talk
    from executor.daemon import Listen, serve as serve_until_signalled

    def ready(names: Sequence[str]) -> None:
        talk(f"ready: {', '.join(names)}")

    async def main() -> bool:
        return await serve_until_signalled(
            where.workspace,
            sandbox=where.sandbox,
            where=Listen(host, port, unix),
            ready=ready,
        )

    return OK if anyio.run(main) else FAILED
