"""How is one hook written for a program to read?"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from executor.hooks import Hook


def etag_of(data: bytes) -> str:
    """The entity tag of some bytes, in its quotes."""
    return f'"{hashlib.sha256(data).hexdigest()[:32]}"'


def hook_json(hook: Hook) -> dict[str, object]:
    """A hook with its id, as the API and the command line give it (SPEC section 6)."""
    action = hook.action
    told: dict[str, object] = {"command": action.command, "args": list(action.args)}
    if action.env:
        told["env"] = dict(action.env)
    if action.cwd is not None:
        told["cwd"] = action.cwd
    told |= {"timeout_ms": action.timeout_ms, "stdin_json": action.stdin_json}
    for name in ("matcher", "policy", "protocol"):
        if name in action.model_fields_set:
            told[name] = getattr(action, name)
    return {
        "id": hook.id,
        "event": hook.event,
        "action": told,
        "enabled": hook.enabled,
        "created_at": _whole_seconds(hook.created_at),
        "updated_at": _whole_seconds(hook.updated_at),
    }


def hooks_json(hooks: Iterable[Hook]) -> bytes:
    """The whole list, as ``GET /api/hooks`` answers it."""
    listed = {"hooks": [hook_json(hook) for hook in hooks]}
    return json.dumps(listed, ensure_ascii=False, separators=(",", ":")).encode()


def hook_etag(hook: Hook) -> str:
    """The entity tag of one hook."""
    return etag_of(json.dumps(hook_json(hook), sort_keys=True).encode())


def _whole_seconds(moment: str | None) -> str | None:
    return None if moment is None else moment.partition(".")[0].rstrip("Z") + "Z"
