"""What do we keep of a run?

A Record is an Outcome with its who, when and what. ``as_run`` is the one shape in which runs
leave the program (SPEC section 10): the CLI, the API and the logs all print it.
"""

from __future__ import annotations

from dataclasses import dataclass

from executor.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Record:
    """One run, refusal or drop.

    ``run_id`` is ours, ``hook`` the hook's id or ``plugin:<name>``, ``backend`` "shell" or
    "wasm", ``sandbox`` the kind of sandbox (None for WASM). ``started_at``/``ended_at`` are UTC
    with milliseconds. ``job_digest`` is None where no job was made.
    """

    run_id: str
    hook: str
    event: str
    session_id: str
    backend: str
    sandbox: str | None
    policy: str
    started_at: str
    ended_at: str
    outcome: Outcome
    job_digest: str | None = None
    command_sha256: str | None = None
    image: str | None = None

    def as_run(self) -> dict[str, object]:
        """The run as SPEC section 10 prints it; ``duration_ms`` is the hook's own time.

        ``notes`` is there where there is something to note, and only there.
        """
        outcome = self.outcome
        run: dict[str, object] = {
            "hook": self.hook,
            "backend": self.backend,
            "sandbox": self.sandbox,
            "status": outcome.status.value,
            "cause": outcome.cause.value,
            "exit_code": outcome.exit_code,
            "signal": outcome.signal,
            "duration_ms": round(outcome.duration_seconds * 1000, 3),
            "stdout": outcome.stdout.decode("utf-8", "replace"),
            "stderr": outcome.stderr.decode("utf-8", "replace"),
            "truncated": outcome.truncated,
            "reason": outcome.reason,
        }
        if outcome.notes:
            run["notes"] = list(outcome.notes)
        return run

    def as_history(self) -> dict[str, object]:
        """``as_run`` with what a reader of many runs needs besides."""
        usage = self.outcome.usage
        return {
            "id": self.run_id,
            "event": self.event,
            "session_id": self.session_id,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            **self.as_run(),
            "policy": self.policy,
            "queue_ms": round(usage.queue_seconds * 1000, 3),
            "start_ms": round(usage.start_seconds * 1000, 3),
            "cpu_ms": None if usage.cpu_seconds is None else round(usage.cpu_seconds * 1000, 3),
            "peak_memory_bytes": usage.peak_memory_bytes,
            "job_digest": self.job_digest,
            "command_sha256": self.command_sha256,
        }
