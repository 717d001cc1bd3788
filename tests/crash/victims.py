"""A process that makes executors for the crash tests to kill.

Reads one line a victim, ``WORKSPACE SANDBOX CYCLES SECONDS``: forks an executor that emits
events until CYCLES of them have ended (0: for ever), kills it with SIGKILL after SECONDS (0: never)
and answers with its wait status. A fork shares what was imported, so that a victim begins at once,
and its whole life can be hit.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import traceback

import anyio

from executor import Executor
from executor.backends import docker, namespace
from executor.cell import seccomp

LOADED = (docker, namespace)
TOOL_CALL = {"tool": "bash", "success": True, "output": "x" * 20_000}


async def work(workspace: str, sandbox: str, cycles: int) -> None:
    """``turn_complete`` has hooks of all kinds, which last; ``tool_call`` short ones."""
    async with Executor.open(workspace, sandbox=sandbox) as executor:
        if cycles == 0:
            executor.emit("turn_complete", {})
        cycle = 0
        while cycles == 0 or cycle < cycles:
            await executor.emit("tool_call", TOOL_CALL).wait()
            cycle += 1


def live(words: list[str]) -> None:
    """One victim's life; the caller is its process."""
    workspace, sandbox, cycles = words[0], words[1], int(words[2])
    anyio.run(work, workspace, sandbox, cycles)


def end(pid: int, seconds: float) -> int:
    """The victim's wait status, after it was killed, or had its time."""
    descriptor = os.pidfd_open(pid)
    try:
        if seconds:
            select.select([descriptor], [], [], seconds)
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        return os.waitpid(pid, 0)[1]
    finally:
        os.close(descriptor)


def main() -> None:
    """Until the end of stdin."""
    seccomp.hook_program()
    for line in sys.stdin:
        words = line.split()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                live(words)
                code = 0
            except BaseException:  # noqa: BLE001  (told, and then it is over)
                traceback.print_exc()
            finally:
                os._exit(code)
        sys.stdout.write(f"{end(pid, float(words[3]))}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
