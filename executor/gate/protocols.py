"""What does a hook process's end mean as an answer of the gate?

``native`` is SPEC section 7. ``claude``, ``gemini`` and ``cursor`` are the conventions of hooks
written for those tools, never guessed, only read where hooks.json says so. Every document is read
strictly: a decision that we could not honour (a rewritten input, a missing ``hookEventName``,
broken JSON) is a failed gate, because to ignore it would let pass what the hook meant to stop.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from executor.outcome import Cause, Outcome, Status
from executor.verdict import BLOCK, GO, INJECT, NOTHING, Answer, failed

_REWRITES = {
    "updatedInput": "a rewritten input",
    "updatedToolOutput": "a rewritten output",
    "updated_input": "a rewritten input",
    "updated_mcp_tool_output": "a rewritten output",
    "tool_input": "a rewritten input",
    "tailToolCallRequest": "another tool call",
    "llm_request": "a rewritten request",
    "llm_response": "a rewritten response",
}
"""What other tools let a hook change. Here nothing is changed, so the answer cannot be honoured."""


@dataclass(frozen=True, slots=True)
class _End:
    """A process that ended by itself, its streams as text without the newlines at their ends."""

    event: str
    decider: str
    code: int
    stdout: str
    stderr: str
    cut: bool


def answer_of_outcome(outcome: Outcome, *, protocol: str, event: str, decider: str) -> Answer:
    """The hook's answer, or a failed gate that says what happened instead."""
    if outcome.status not in (Status.OK, Status.FAILED) or outcome.cause is not Cause.EXIT:
        return failed(_what_happened(outcome))
    if outcome.exit_code is None:
        return failed("it ended without an exit code")
    end = _End(
        event,
        decider,
        outcome.exit_code,
        outcome.stdout.decode("utf-8", "replace").rstrip("\r\n"),
        outcome.stderr.decode("utf-8", "replace").rstrip("\r\n"),
        _stdout_cut(outcome),
    )
    return _READERS[protocol](end)


def _native(end: _End) -> Answer:
    if end.code == GO:
        return NOTHING
    if end.code == BLOCK:
        message = end.stdout.strip() or end.stderr.strip()
        return Answer(BLOCK, message or f"blocked by {end.decider}, which gave no reason")
    if end.code != INJECT:
        return failed(f"it exited with {end.code}{_last_words(end)}; 0, 1 and 2 are answers")
    if end.cut:
        return failed("it exited with 2 (inject), but its output was too long and was cut")
    if not end.stdout.strip():
        return failed(f"it exited with 2 (inject) and printed nothing{_last_words(end)}")
    return Answer(INJECT, end.stdout)


def _claude(end: _End) -> Answer:
    document, fault = _document(end)
    if end.code == BLOCK + 1:  # 2 blocks there; on PostToolUse its stderr is for the model
        return _blocked_by_two(end, document)
    if end.code != GO:
        return failed(f"it exited with {end.code}{_last_words(end)}; its protocol knows 0 and 2")
    if fault is not None:
        return failed(fault)
    if document is None:
        said = end.stdout.strip()
        return Answer(INJECT, said) if end.event == "SessionStart" and said else NOTHING
    if document.get("continue") is False:
        return _stop(end, _text(document, "stopReason"))
    specific = document.get("hookSpecificOutput", {})
    if not isinstance(specific, Mapping):
        return failed("its hookSpecificOutput is no object")
    if specific and specific.get("hookEventName") != end.event:
        return failed(f'its hookSpecificOutput has no "hookEventName": "{end.event}"')
    if "permissionDecision" in document:
        return failed("its permissionDecision stands outside of hookSpecificOutput")
    return _decision(
        end,
        specific.get("permissionDecision") or document.get("decision"),
        _text(specific, "permissionDecisionReason") or _text(document, "reason"),
        {**document, **specific},
        _text(specific, "additionalContext"),
    )


def _gemini(end: _End) -> Answer:
    document, fault = _document(end)
    if end.code == BLOCK + 1:
        return _blocked_by_two(end, document)
    if end.code != GO:
        return failed(f"it exited with {end.code}{_last_words(end)}; its protocol knows 0 and 2")
    if fault is not None:
        return failed(fault)
    if document is None:
        return NOTHING
    if document.get("continue") is False:
        return _stop(end, _text(document, "stopReason"))
    specific = document.get("hookSpecificOutput", {})
    if not isinstance(specific, Mapping):
        return failed("its hookSpecificOutput is no object")
    return _decision(
        end,
        document.get("decision"),
        _text(document, "reason"),
        {**document, **specific},
        _text(specific, "additionalContext"),
    )


def _cursor(end: _End) -> Answer:
    document, fault = _document(end)
    if end.code == BLOCK + 1:
        return _blocked_by_two(end, document)
    if end.code != GO:
        return failed(f"it exited with {end.code}{_last_words(end)}; its protocol knows 0 and 2")
    if fault is not None or document is None:
        expected = end.event == "PreToolUse" or fault is not None
        return (
            failed(fault or "it printed no JSON, which its protocol demands")
            if expected
            else NOTHING
        )
    if document.get("continue") is False:
        return _stop(end, _text(document, "user_message"))
    return _decision(
        end,
        document.get("permission"),
        _text(document, "agent_message") or _text(document, "user_message"),
        document,
        _text(document, "additional_context"),
    )


_READERS: Mapping[str, Callable[[_End], Answer]] = {
    "native": _native,
    "claude": _claude,
    "gemini": _gemini,
    "cursor": _cursor,
}
_ALLOWING = frozenset({None, "allow", "approve"})
_BLOCKING = frozenset({"deny", "block"})


def _decision(
    end: _End, decision: object, reason: str, fields: Mapping[str, object], context: str
) -> Answer:
    """The common end of the JSON protocols. An "allow" allows nothing: Permission came first."""
    if isinstance(decision, str) and decision in _BLOCKING:
        return _stop(end, reason)
    if rewritten := next((_REWRITES[key] for key in fields if key in _REWRITES), None):
        return failed(f"it answered with {rewritten}, which this gate does not carry out")
    if decision == "ask":
        return _stop(end, reason or "the hook wants a person to decide")
    if decision is not None and decision not in _ALLOWING:
        return failed(f"its decision {str(decision)[:40]!r} is none that this gate knows")
    return Answer(INJECT, context) if context else NOTHING


def _stop(end: _End, reason: str) -> Answer:
    """A block; after the tool ran, "block" means in these protocols: tell the model why."""
    if end.event == "PostToolUse":
        return Answer(INJECT, reason) if reason else NOTHING
    return Answer(BLOCK, reason or f"blocked by {end.decider}, which gave no reason")


def _blocked_by_two(end: _End, document: Mapping[str, object] | None) -> Answer:
    """Exit code 2: a block, whatever the JSON beside it says."""
    said = document or {}
    specific = said.get("hookSpecificOutput")
    inner: Mapping[str, object] = specific if isinstance(specific, Mapping) else {}
    reason = (
        _text(inner, "permissionDecisionReason")
        or _text(said, "reason")
        or _text(said, "agent_message")
        or end.stderr.strip()
    )
    return _stop(end, reason)


def _document(end: _End) -> tuple[Mapping[str, object] | None, str | None]:
    """The JSON object on stdout; nothing where it is plain text; a fault where it is neither."""
    text = end.stdout.strip()
    if not text.startswith("{"):
        return None, None
    if end.cut:
        return None, "its output was too long and was cut"
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None, "its output begins like JSON and is none"
    return (value, None) if isinstance(value, dict) else (None, "its output is no JSON object")


def _text(fields: Mapping[str, object], key: str) -> str:
    value = fields.get(key)
    return value if isinstance(value, str) else ""


def _stdout_cut(outcome: Outcome) -> bool:
    """``truncated`` is about both streams; the byte counts, where known, tell which."""
    if not outcome.truncated:
        return False
    return outcome.usage.stdout_bytes == 0 or outcome.usage.stdout_bytes > len(outcome.stdout)


def _last_words(end: _End) -> str:
    lines = [line for line in end.stderr.splitlines() if line.strip()]
    return f" ({lines[-1].strip()[:200]})" if lines else ""


def _what_happened(outcome: Outcome) -> str:
    if outcome.status is Status.TIMEOUT:
        return f"it was stopped at its time limit, after {outcome.duration_seconds:.1f} s"
    if outcome.status is Status.SIGNALLED:
        return f"it was killed by signal {outcome.signal}"
    if outcome.status is Status.OOM:
        return "it ran out of memory"
    told = f": {outcome.reason}" if outcome.reason else ""
    return f"it ended as {outcome.status.value} ({outcome.cause.value}){told}"
