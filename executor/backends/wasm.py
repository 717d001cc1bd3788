"""How does one event for one plugin become an outcome?

The pool lends a worker, the worker calls the guest in a fresh store, and what came of it is told in
the words of SPEC section 3: ``Err`` is ``failed``, a trap is too (with the cause ``signal``), a
deadline is ``timeout`` (by the epoch, or by SIGKILL when a guest sleeps in a host call), memory is
``oom`` where it can be told.
For the gate the answer is told as a shell hook would give it: an exit code of 0, 1 or 2 and a
message on stdout, so that one rule reads both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import anyio

from executor.outcome import Cause, Outcome, Stage, Status, Usage, error
from executor.plugin_job import PluginJob, PluginSandbox
from executor.wasm.keyvalue import KeyValue
from executor.wasm.pool import Pool, Unloadable
from executor.wasm.process import Lost, Overdue, Process
from executor.wasm.wire import MAX_MESSAGE_BYTES, End, Garbled, Meta, number_of

MARGIN_SECONDS = 0.25
"""How long after its deadline a guest may still be stopped by the epoch."""
MAX_OUTPUT_BYTES = 64 * 1024
"""Captured of stdout and of stderr each, where the policy allows more."""
BLOCK, INJECT = 1, 2


class WasmBackend:
    """Runs PluginJobs. Belongs to the event loop's thread."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._stores: dict[str, KeyValue] = {}
        self._turns: dict[str, anyio.Lock] = {}

    @property
    def name(self) -> str:
        return "wasm"

    @property
    def notes(self) -> tuple[str, ...]:
        """What the workers could not be denied on this machine."""
        return tuple(f"the WASM worker keeps its {one}" for one in self._pool.missing or ())

    def pids(self, *, idle: bool = False) -> tuple[int, ...]:
        """The processes that run plugins now, and with ``idle`` those that could."""
        return self._pool.pids(idle=idle)

    async def run(self, job: PluginJob) -> Outcome:
        """Run one event to its end. Never raises for what the guest or a worker does."""
        sandbox = job.sandbox
        if not sandbox.remembers:
            return await self._run(job, KeyValue(0))
        # A store is read, changed and written by calls of its own: events one after the other.
        async with self._turns.setdefault(sandbox.name, anyio.Lock(fast_acquire=True)):
            store = self._stores.setdefault(sandbox.name, KeyValue(sandbox.kv_bytes))
            store.limit = sandbox.kv_bytes
            return await self._run(job, store)

    async def warm(self) -> None:
        """Start a worker before the first event."""
        await self._pool.warm()

    async def close(self) -> None:
        """End every worker."""
        await self._pool.close()

    async def _run(self, job: PluginJob, store: KeyValue) -> Outcome:
        began = anyio.current_time()
        try:
            worker = await self._pool.lend(job.sandbox)
        except Unloadable as reason:
            # Made for another processor or damaged: the next start compiles it again.
            job.sandbox.native.unlink(missing_ok=True)
            return error(f"the compiled component cannot be loaded: {reason}")
        except (Lost, OSError) as reason:
            return error(f"no worker for the plugin: {reason}", Cause.ENGINE_LOST)
        try:
            outcome = await self._call(worker, job, store, anyio.current_time() - began)
        finally:
            await self._pool.take_back(job.sandbox, worker)
        return replace(outcome, notes=self.notes) if self._pool.missing else outcome

    async def _call(
        self, worker: Process, job: PluginJob, store: KeyValue, ready: float
    ) -> Outcome:
        sandbox = job.sandbox
        limit = min(sandbox.output_bytes, MAX_OUTPUT_BYTES)
        meta: dict[str, object] = {
            "do": "call",
            "id": sandbox.static_digest,
            "event": job.event,
            "gate": job.gate,
            "timeout": sandbox.timeout_seconds,
            "memory": sandbox.memory_bytes,
            "output": limit,
        }
        if environment := job.environment:
            meta["environment"] = environment
        began = anyio.current_time()
        try:
            answer, output = await worker.call(
                meta,
                job.envelope,
                limit_seconds=sandbox.timeout_seconds + MARGIN_SECONDS,
                max_blob_bytes=max(2 * limit, sandbox.kv_bytes),
                answering=store.answer,
            )
            return _outcome(answer, output, job, ready)
        except Overdue:
            return Outcome(
                Status.TIMEOUT,
                Cause.WALL_CLOCK,
                duration_seconds=anyio.current_time() - began,
                reason=f"{_limit(sandbox)}; it was asleep in a call of the host, and its worker "
                "was killed",
                stage=Stage.KILL,
            )
        except Lost as reason:
            return Outcome(
                Status.ERROR,
                Cause.ENGINE_LOST,
                duration_seconds=anyio.current_time() - began,
                reason=f"the worker ended while it ran the plugin: {reason}",
            )
        except Garbled as garbled:
            await worker.end()
            return error(f"the worker's answer makes no sense: {garbled}", Cause.ENGINE_LOST)


def _outcome(answer: Meta, output: bytes, job: PluginJob, ready: float) -> Outcome:
    """The outcome in a worker's words. Raises Garbled where they are not such."""
    end, message = _end_of(answer), answer.get("message")
    if not (message is None or isinstance(message, str)):
        raise Garbled("its message is no text")
    status, cause, stage = _ENDS[end]
    split, cut = int(number_of(answer, "stdout")), int(number_of(answer, "cut"))
    seen = answer.get("seen")
    if not isinstance(seen, list) or len(seen) != 2 or not all(isinstance(n, int) for n in seen):
        raise Garbled("no count of the output")
    outcome = Outcome(
        status,
        cause,
        stdout=output[:split],
        stderr=output[split:],
        truncated=sum(seen) > len(output),
        duration_seconds=number_of(answer, "seconds"),
        reason=_reason(end, message, cut, job.sandbox),
        stage=stage,
        usage=Usage(start_seconds=ready, stdout_bytes=seen[0], stderr_bytes=seen[1]),
    )
    return _verdict(outcome, end, message, cut) if job.gate else outcome


def _end_of(answer: Meta) -> End:
    try:
        return End(str(answer.get("end")))
    except ValueError:
        raise Garbled("it tells no end") from None


_ENDS: Mapping[End, tuple[Status, Cause, Stage | None]] = {
    End.OK: (Status.OK, Cause.EXIT, None),
    End.ERR: (Status.FAILED, Cause.EXIT, None),
    End.TRAP: (Status.FAILED, Cause.SIGNAL, None),
    End.LATE: (Status.TIMEOUT, Cause.WALL_CLOCK, Stage.TERM),
    End.MEMORY: (Status.OOM, Cause.MEMORY, None),
    End.REJECTED: (Status.FAILED, Cause.SETUP, None),
}


def _reason(end: End, message: str | None, cut: int, sandbox: PluginSandbox) -> str | None:
    said = (message or "")[:MAX_MESSAGE_BYTES] + (f" … ({cut} characters more)" if cut else "")
    match end:
        case End.OK:
            return None
        case End.ERR:
            return said or "it returned an error without a message"
        case End.TRAP:
            return f"trap: {said}"
        case End.LATE:
            return _limit(sandbox)
        case End.MEMORY:
            return f"it had {sandbox.memory_bytes} bytes of memory: {said}"
        case End.REJECTED:
            return f"it could not be instantiated: {said}"


def _limit(sandbox: PluginSandbox) -> str:
    return f"it took longer than {sandbox.timeout_seconds * 1000:g} ms"


def _verdict(outcome: Outcome, end: End, message: str | None, cut: int) -> Outcome:
    """``ok(none)``, ``ok(some)`` and ``err`` as a hook's exit codes 0, 2 and 1."""
    logged = outcome.stdout + outcome.stderr
    said = (message or "").encode()
    if end is End.OK:
        code = 0 if message is None else INJECT
    elif end is End.ERR:
        code = BLOCK
    else:
        return outcome
    seen = outcome.usage.stdout_bytes + outcome.usage.stderr_bytes
    return replace(
        outcome,
        exit_code=code,
        stdout=said,
        stderr=logged,
        truncated=outcome.truncated or cut > 0,
        usage=replace(outcome.usage, stdout_bytes=len(said) + cut, stderr_bytes=seen),
    )
