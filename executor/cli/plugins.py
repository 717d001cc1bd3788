"""``hook-executor plugins``: which plugins are there, and can each of them serve?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cyclopts import App

from executor.cli.endings import FAILED, OK
from executor.cli.options import HERE, Json, Where
from executor.cli.output import print_json, print_table, say
from executor.cli.plugin_report import listed, plugin_lines, plugin_report

if TYPE_CHECKING:
    from executor.subscription import PluginSubscription
    from executor.wasm.loader import Plugin

app = App(name="plugins", help="List and check the WASM plugins.", help_format="plaintext")


@app.command(name="list")
def list_plugins(*, json: Json = False, where: Where = HERE) -> int:
    """Every plugin of the workspace, with the events that it reacts to. Compiles nothing."""
    from executor.disk.workspace import open_workspace
    from executor.wasm.loader import manifests

    workspace = open_workspace(where.workspace)
    try:
        found = manifests(workspace)
    finally:
        workspace.close()
    if json:
        print_json({"plugins": [listed(plugin) for plugin in found]})
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
    reports = [plugin_report(plugin, subscriptions) for plugin in plugins]
    fails = any(report["fails"] for report in reports)
    if json:
        print_json({"ok": not fails, "plugins": reports, "uncontained": list(missing)})
    else:
        for line in plugin_lines(reports, missing):
            say(line)
        say(f"{len(reports)} plugins, {sum(bool(one['fails']) for one in reports)} would fail")
    return FAILED if fails else OK


async def _examine(
    where: Where,
) -> tuple[Sequence[Plugin], Sequence[PluginSubscription], Sequence[str]]:
    from pathlib import Path

    from executor.configuration import load_configuration
    from executor.disk.workspace import open_workspace
    from executor.in_force import grounds_for, state_directory
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
