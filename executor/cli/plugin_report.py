"""How is one WASM plugin told, to a program and to a person?

For ``plugins`` and for ``check``, which must not say different things.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from executor.subscription import PluginSubscription
    from executor.wasm.loader import Plugin


def listed(plugin: Plugin) -> dict[str, object]:
    """What its manifest says, or why it cannot be read."""
    manifest = plugin.manifest
    if manifest is None:
        return {"name": plugin.name, "fault": plugin.fault}
    return {
        "name": plugin.name,
        "version": manifest.version,
        "description": manifest.description,
        "events": list(manifest.events),
        "priority": manifest.priority,
        "fault": plugin.fault,
    }


def plugin_report(plugin: Plugin, subscriptions: Sequence[PluginSubscription]) -> dict[str, object]:
    """Everything about one plugin, event by event, since each may have another policy."""
    own = [one for one in subscriptions if one.id == plugin.id]
    manifest, compiled = plugin.manifest, plugin.compiled
    return {
        **listed(plugin),
        "fails": not plugin.serves or any(one.refusal is not None for one in own),
        "sha256": None if compiled is None else compiled.sha256,
        "interface": None if compiled is None else compiled.interface,
        "notes": list(() if manifest is None else manifest.notes),
        "runs": [_run(one) for one in own],
    }


def _run(one: PluginSubscription) -> dict[str, object]:
    sandbox = one.sandbox
    run: dict[str, object] = {
        "event": one.event,
        "policy": one.policy.name,
        "refusal": one.refusal,
        "notes": list(one.notes),
    }
    if sandbox is not None:
        run |= {
            "memory_bytes": sandbox.memory_bytes,
            "timeout_ms": round(sandbox.timeout_seconds * 1000),
            "environment": sandbox.environment,
            "directories": [
                {"path": place.path, "writable": place.writable} for place in sandbox.directories
            ],
        }
    return run


def plugin_lines(
    reports: Sequence[Mapping[str, object]], uncontained: Sequence[str]
) -> Iterator[str]:
    """The same for people; ``uncontained`` is what the workers could not be denied here."""
    from executor.sizes import format_size

    for report in reports:
        yield f"plugin:{report['name']}  {'FAILS' if report['fails'] else 'serves'}"
        if report["fault"]:
            yield f"  FAILS    {report['fault']}"
        for note in _texts(report["notes"]):
            yield f"  note     {note}"
        runs = report["runs"]
        for run in runs if isinstance(runs, list) else ():
            if run["refusal"] and run["refusal"] != report["fault"]:
                yield f"  {run['event']:<15} policy {run['policy']}: FAILS: {run['refusal']}"
            elif "memory_bytes" in run:
                sees = [
                    f"{place['path']} ({'writable' if place['writable'] else 'read-only'})"
                    for place in run["directories"]
                ]
                yield (
                    f"  {run['event']:<15} policy {run['policy']}: "
                    f"{format_size(run['memory_bytes'])}, {run['timeout_ms']} ms, "
                    f"files: {', '.join(sees) or 'none'}"
                )
            for note in _texts(run["notes"]):
                yield f"  {run['event']:<15} note: {note}"
    for one in uncontained:
        yield f"note: {one}"


def _texts(value: object) -> Sequence[str]:
    return [str(one) for one in value] if isinstance(value, list) else []
