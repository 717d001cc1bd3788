"""What did the gate decide, and what did each of its handlers answer?

An ``Answer`` is one handler's, before anybody asked what it means for the event; a ``Decided`` is
what it came to; a ``Verdict`` is the end of one gate call and names who decided and why. Python
handlers are read here, processes in ``hook_protocols``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from executor.document import kind_of

GO, BLOCK, INJECT = 0, 1, 2
"""The three codes of SPEC section 7."""


@dataclass(frozen=True, slots=True)
class Answer:
    """``failure`` is set where there was no clean answer (a failed gate); it says what happened."""

    code: int = GO
    message: str = ""
    failure: str | None = None


NOTHING = Answer()


@dataclass(frozen=True, slots=True)
class Decided:
    """One handler's part in a verdict. ``code`` is what counted: a warning or a failure that does
    not block has 0. ``seconds`` is how long it took, waiting included."""

    decider: str
    code: int
    message: str
    failure: str | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """``decider`` is the id of whoever brought the code about, ``None`` where nobody had anything
    to say; ``reason`` is for people and records, ``message`` for the model."""

    event: str
    session_id: str
    exit_code: int = GO
    message: str = ""
    decider: str | None = None
    reason: str = "nobody had anything to say"
    decisions: tuple[Decided, ...] = ()
    seconds: float = 0.0

    @property
    def blocked(self) -> bool:
        return self.exit_code == BLOCK

    def as_answer(self) -> dict[str, object]:
        """``{"exit_code", "message"}``, as ``run_hooks``, the command line and the API give it."""
        return {"exit_code": self.exit_code, "message": self.message}

    def as_record(self) -> dict[str, object]:
        """Everything, as JSON values: who decided, why, and what each handler said."""
        return {
            "event": self.event,
            "session_id": self.session_id,
            **self.as_answer(),
            "decider": self.decider,
            "reason": self.reason,
            "duration_ms": round(self.seconds * 1000, 3),
            "decisions": [
                {
                    "decider": one.decider,
                    "exit_code": one.code,
                    "message": one.message,
                    "failure": one.failure,
                    "duration_ms": round(one.seconds * 1000, 3),
                }
                for one in self.decisions
            ],
        }


def failed(reason: str) -> Answer:
    """A failed gate."""
    return Answer(GO, "", reason)


def answer_of(result: object, decider: str) -> Answer:
    """What a Python handler returned, read strictly: what is not understood is a failed gate."""
    if not isinstance(result, Mapping):
        return failed(f'it returned {_kind(result)}, not {{"exit_code": …, "message": …}}')
    if strange := [key for key in result if key not in ("exit_code", "message")]:
        return failed(f"its result has the unknown key {str(strange[0])[:80]!r}")
    code, message = result.get("exit_code"), result.get("message", "")
    if isinstance(code, bool) or not isinstance(code, int):
        return failed(f"its exit_code is {_kind(code)}, not 0, 1 or 2")
    if code not in (GO, BLOCK, INJECT):
        return failed(f"its exit_code is {code}; only 0, 1 and 2 mean something")
    if not isinstance(message, str):
        return failed(f"its message is {_kind(message)}, not a string")
    if code == INJECT and not message:
        return failed("it returned 2 (inject) without a message")
    if code == BLOCK and not message:
        message = f"blocked by {decider}, which gave no reason"
    return Answer(int(code), message)


def _kind(value: object) -> str:
    kind = kind_of(value)
    return f"a {type(value).__name__}" if kind == "another type" else kind
