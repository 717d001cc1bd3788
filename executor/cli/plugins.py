"""``hook-executor plugins``: which plugins are there, and can each of them serve?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cyclopts import App

from executor.cli.endings import FAILED, OK
from executor.cli.options import HERE, Json, Where
from executor.cli.output import print_json, print_table, say

if TYPE_CHECKING:
    from executor.subscription import PluginSubscription
    from executor.wasm.loader import Plugin

app = App(name="plugins", help="List and check the WASM plugins.", help_format="plaintext")


@app.command(name="list")
def list_plugins(*, json: Json = False, where: Where = HERE) -> int:
    """Every plugin of the workspace, with the events that it reacts to. Compiles nothing."""
    from executor.resolve import open_workspace
    from executor.wasm.loader import manifests

    workspace = open_workspace(where.workspace)
    try:
        found = manifests(workspace)
    finally:
        workspace.close()
    if json:
        print_json({"plugins": [_listed(plugin) for plugin in found]})
        return OK
    print_table(
        ("plugin", "version", "events", "description"),
        (
            (plugin.name, manifest.version, " ".join(manifest.events), manifest.description)
            if (manifest := plugin.manifest) is not None
            else (plugin.name, "", "", f"broken: {plugin.fault}")
            for plugin in found
        ),
    )
    return OK


@app.command
def check(*, json: Json = False, where: Where = HERE) -> int:
    """Compile every plugin; tell what each gets under its policy; 1 if any cannot serve."""
    from executor.cli.signals import run_until_signalled

    plugins, subscriptions, missing = run_until_signalled(_examine, where)
    reports = [_report(plugin, subscriptions) for plugin in plugins]
    fails = any(report["fails"] for report in reports)
    if json:
        print_json({"ok": not fails, "plugins": reports, "uncontained": list(missing)})
    else:
        _print(reports, missing)
    return FAILED if fails else OK


async def _examine(
    where: Where,
) -> tuple[Sequence[Plugin], Sequence[PluginSubscription], Sequence[str]]:
    from pathlib import Path

    from executor.configuration import load_configuration
    from executor.in_force import grounds_for, state_directory
    from executor.resolve import open_workspace
    from executor.wasm.opened import open_plugins

    workspace = open_workspace(where.workspace)
    try:
        configuration = load_configuration(workspace)
        grounds = grounds_for(workspace, configuration, {})
        state = Path(state_directory(workspace, configuration.settings.state.dir))
        async with open_plugins(
            configuration, workspace, grounds.resolver, grounds.identity, state
        ) as opened:
            await opened.warm()
            missing = () if opened.backend is None else opened.backend.notes
            return opened.plugins, opened.subscriptions, missing
    finally:
        workspace.close()


def _listed(plugin: Plugin) -> dict[str, object]:
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


def _report(plugin: Plugin, subscriptions: Sequence[PluginSubscription]) -> dict[str, object]:
    """Everything about one plugin, event by event, since each may have another policy."""
    own = [one for one in subscriptions if one.id == plugin.id]
    manifest, compiled = plugin.manifest, plugin.compiled
    return {
        **_listed(plugin),
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


def _print(reports: Sequence[dict[str, object]], missing: Sequence[str]) -> None:
    from executor.sizes import format_size

    for report in reports:
        say(f"plugin:{report['name']}  {'FAILS' if report['fails'] else 'serves'}")
        if report["fault"]:
            say(f"  FAILS    {report['fault']}")
        for note in _texts(report["notes"]):
            say(f"  note     {note}")
        runs = report["runs"]
        for run in runs if isinstance(runs, list) else ():
            if run["refusal"] and run["refusal"] != report["fault"]:
                say(f"  {run['event']:<15} policy {run['policy']}: FAILS: {run['refusal']}")
            elif "memory_bytes" in run:
                sees = [
                    f"{place['path']} ({'writable' if place['writable'] else 'read-only'})"
                    for place in run["directories"]
                ]
                say(
                    f"  {run['event']:<15} policy {run['policy']}: "
                    f"{format_size(run['memory_bytes'])}, {run['timeout_ms']} ms, "
                    f"files: {', '.join(sees) or 'none'}"
                )
            for note in _texts(run["notes"]):
                say(f"  {run['event']:<15} note: {note}")
    for one in missing:
        say(f"note: {one}")
    say(f"{len(reports)} plugins, {sum(bool(one['fails']) for one in reports)} would fail")


def _texts(value: object) -> Sequence[str]:
    return [str(one) for one in value] if isinstance(value, list) else []
