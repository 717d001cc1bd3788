"""A worker in a process of its own, whose hooks tell the test that they ran.

``worker_process.py URL WORKSPACE TALLIES``. Each run waits for one byte on stdin (or its end), then
says ``ran N`` on stdout, N being the event's ``messages_count``. Everything else that it says:
``ready TALLY``, ``note …`` and, at the end, ``totals JSON``.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

import anyio
import anyio.to_thread

from executor import Executor, Outcome
from executor.bus.nats import NatsBus
from executor.cli.worker import until_signalled
from executor.job import Job
from executor.settings import BusSettings
from executor.tally import Tally
from executor.testing import FakeBackend
from executor.worker import Worker


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def note(message: str, **details: object) -> None:
    say(f"note {message} {details}")


class Telling(FakeBackend):
    async def run(self, job: Job) -> Outcome:
        await anyio.to_thread.run_sync(os.read, 0, 1, abandon_on_cancel=True)
        say(f"ran {json.loads(job.payload)['payload']['messages_count']}")
        return await super().run(job)


async def main(url: str, workspace: str, tallies: str) -> None:
    with Tally.open(Path(tallies)) as tally:
        backends = {"fake": Telling()}
        settings = BusSettings(url=url)
        async with Executor.open(workspace, backends=backends, bus=settings) as executor:
            bus = executor.bus
            assert isinstance(bus, NatsBus)
            bus._report = note
            await bus.connected(30)
            worker = Worker(executor, bus, tally, report=note)
            totals = await until_signalled(worker, lambda: say(f"ready {tally.path}"))
    say(f"totals {json.dumps(asdict(totals))}")


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], sys.argv[3])
