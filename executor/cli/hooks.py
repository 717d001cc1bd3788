"""``hook-executor hooks``: which hooks are there, and how are they changed?

Through the daemon where one runs, so that the change is in force when the command ends; else in
hooks.json itself, by the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from cyclopts import App, Parameter

from executor.cli.endings import OK, UsageError
from executor.cli.options import HERE, Json, Where

if TYPE_CHECKING:
    from executor.hooks_file import HooksFile

app = App(name="hooks", help="List, add, remove and toggle hooks.")

Id = Annotated[str, Parameter(help="As `hooks list` shows it.")]


@app.command(name="list")
def list_(*, json: Json = False, where: Where = HERE) -> int:
    """List the hooks in the file's order."""
    from executor.cli.output import print_json, print_table

    told = _ask(where, "GET", "/api/hooks", lambda file: {"hooks": _told(file)})
    if json:
        print_json(told)
        return OK
    print_table(
        ("id", "event", "on", "command", "timeout", "changed"),
        [
            (
                hook["id"],
                hook["event"],
                "yes" if hook["enabled"] else "no",
                " ".join((hook["action"]["command"], *hook["action"]["args"])),
                f"{hook['action']['timeout_ms']} ms",
                hook["updated_at"],
            )
            for hook in told["hooks"]
        ],
    )
    return OK


@app.command
def add(
    event: Annotated[str, Parameter(help="Like tool_call.")],
    command: Annotated[str, Parameter(help="What to run.")],
    /,
    *arguments: Annotated[str, Parameter(help="Its arguments.", allow_leading_hyphen=True)],
    timeout_ms: Annotated[
        int | None, Parameter(help="Milliseconds until it is stopped; 30000 if left out.")
    ] = None,
    stdin_json: Annotated[bool, Parameter(negative="", help="The envelope on stdin.")] = False,
    env: Annotated[
        list[str] | None, Parameter(negative="", help="NAME=value; may be repeated.")
    ] = None,
    cwd: Annotated[
        str | None, Parameter(help="Working directory; the workspace if left out.")
    ] = None,
    matcher: Annotated[
        str | None, Parameter(help="Only for these tools: names, * globs, | alternatives.")
    ] = None,
    policy: Annotated[str | None, Parameter(help="A named policy to ask for as well.")] = None,
    protocol: Annotated[
        str | None,
        Parameter(help="For gate events: native, claude, gemini or cursor, how its answer reads."),
    ] = None,
    disabled: Annotated[bool, Parameter(negative="", help="Keep it, do not run it.")] = False,
    json: Json = False,
    where: Where = HERE,
) -> int:
    """Append a hook to an event."""
    from executor.cli.output import print_json, say
    from executor.hook_json import hook_json
    from executor.hooks import parse_action

    action: dict[str, Any] = {"command": command, "args": list(arguments)}
    given = {
        "timeout_ms": timeout_ms,
        "stdin_json": stdin_json or None,
        "env": _environment(env or []) or None,
        "cwd": cwd,
        "matcher": matcher,
        "policy": policy,
        "protocol": protocol,
    }
    action |= {name: value for name, value in given.items() if value is not None}
    parse_action(action, event=event, where="the hook")
    hook = _ask(
        where,
        "POST",
        "/api/hooks",
        lambda file: hook_json(file.add(event, action, enabled=not disabled)),
        {"event": event, "action": action, "enabled": not disabled},
    )
    if json:
        print_json(hook)
    else:
        say(str(hook["id"]))
    return OK


@app.command
def remove(id: Id, /, *, where: Where = HERE) -> int:  # noqa: A002  (shown in the help)
    """Take a hook out of the file."""
    _ask(where, "DELETE", f"/api/hooks/{quote(id, safe='')}", lambda file: file.remove(id))
    return OK


@app.command
def toggle(id: Id, /, *, json: Json = False, where: Where = HERE) -> int:  # noqa: A002
    """Enable a disabled hook, disable an enabled one."""
    from executor.cli.output import print_json, say

    def here(file: HooksFile) -> dict[str, object]:
        hook = file.toggle(id)
        return {"id": hook.id, "enabled": hook.enabled}

    told = _ask(where, "PATCH", f"/api/hooks/{quote(id, safe='')}/toggle", here)
    if json:
        print_json(told)
    else:
        say(f"{told['id']} is {'enabled' if told['enabled'] else 'disabled'}")
    return OK


def _ask(
    where: Where, method: str, path: str, here: Callable[[HooksFile], Any], body: object = None
) -> Any:
    """Of the daemon where one runs, else done here."""
    from executor.cli.daemon import daemon_of

    daemon = daemon_of(where)
    if daemon is not None:
        return daemon.ask(method, path, body)
    with _file(where) as file:
        return here(file)


@contextmanager
def _file(where: Where) -> Iterator[HooksFile]:
    from executor.cli.daemon import workspace_of
    from executor.configuration import load_settings
    from executor.hook_ids import HookIds
    from executor.hooks_file import HooksFile

    with workspace_of(where) as (workspace, state):
        largest = load_settings(workspace).limits.max_timeout_ms
        yield HooksFile(workspace, HookIds(state), state, largest)


def _told(file: HooksFile) -> list[dict[str, object]]:
    from executor.hook_json import hook_json

    return [hook_json(hook) for hook in file.read().hooks]


def _environment(pairs: list[str]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError("--env: write NAME=value")
        found[name] = value
    return found
