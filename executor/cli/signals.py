"""How does a command that waits end when it is told to?

SIGTERM and Ctrl-C cancel it: its hooks are interrupted (TERM, the grace, KILL), their sandboxes are
torn down, and the program ends with 128 and the signal, as shells count. The second signal ends it
at once; what still runs then ends with its lifeline, and the next start sweeps.

Who started us may have left us signals ignored (nohup, a shell's background job) or blocked. What
is ignored stays so; the two of ours are unblocked, or nobody could end us but by SIGKILL.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar, TypeVarTuple, Unpack

import anyio

from executor.cli.endings import Terminated

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

_ENDING = (signal.SIGTERM, signal.SIGINT)


def run_until_signalled(
    function: Callable[[Unpack[Arguments]], Awaitable[T]], *arguments: *Arguments
) -> T:
    """``anyio.run`` that the two signals cancel. Raises Terminated or KeyboardInterrupt then."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    return anyio.run(_until_signalled, function, arguments)


async def _until_signalled(
    function: Callable[[Unpack[Arguments]], Awaitable[T]], arguments: tuple[*Arguments]
) -> T:
    heard: list[signal.Signals] = []
    results: list[T] = []
    wanted = [one for one in _ENDING if signal.getsignal(one) is not signal.SIG_IGN]
    with anyio.open_signal_receiver(*wanted) as signals:
        async with anyio.create_task_group() as listening:
            with anyio.CancelScope() as scope:
                listening.start_soon(_listen, signals, heard, scope)
                results.append(await function(*arguments))
            listening.cancel_scope.cancel()
    if heard and not results:
        raise Terminated if heard[0] is signal.SIGTERM else KeyboardInterrupt
    return results[0]


async def _listen(
    signals: AsyncIterator[signal.Signals], heard: list[signal.Signals], scope: anyio.CancelScope
) -> None:
    async for one in signals:
        if heard:
            signal.signal(one, signal.SIG_DFL)
            signal.raise_signal(one)
        heard.append(one)
        scope.cancel()
