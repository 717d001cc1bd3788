"""What can a person or a script ask hook-executor to do?

One file a command group; nothing is imported before its command is called, so that ``--help`` and
a mistyped word cost nothing. Data goes to stdout, talk to stderr, and every end of the program is
one row of the table in ``endings``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cyclopts import App

_COMMANDS = (
    ("init", "init:init", "Write a commented config.toml, hooks.json and one example hook."),
    ("check", "check:check", "Validate every file; explain each hook; name what would fail."),
    ("doctor", "doctor:doctor", "Which sandboxes work here, what is missing, what mends it."),
    ("emit", "emit:emit", "Emit one event and wait for its hooks."),
    ("gate", "gate:gate", "Ask Permission and the gate hooks; exit with the verdict."),
    ("run", "run:run", "Run one command by hand, as a hook in its sandbox."),
    ("serve", "serve:serve", "The daemon: HTTP API, hot reload, hooks."),
    ("status", "status:status", "How the daemon is, and what is in force."),
    ("hooks", "hooks:app", "List, add, remove and toggle hooks."),
    ("runs", "runs:app", "List, show and cancel runs of the daemon."),
    ("token", "token:app", "Create, list and revoke the API's tokens."),
    ("worker", "worker:worker", "Execute the hooks of events that agents publish on a bus."),
    ("events", "events:app", "Follow what happens on a bus."),
    ("images", "images:app", "Build and list the sandbox images."),
    ("plugins", "plugins:app", "List and check the WASM plugins."),
    ("policy", "policy:app", "List, show and explain policies."),
    ("permission", "permission:app", "Which rule decides a tool call, and why."),
    ("schema", "schema:schema", "Print the JSON Schema of a file or event."),
)
_DESCRIPTION = "Runs the hooks of AI agents in throwaway, network-less sandboxes."
_EPILOGUE = (
    "--workspace DIR and --sandbox auto|docker|namespace may stand before or after the command.\n"
    "Exit codes: 0 ok, 1 the operation failed, 2 usage, 3 refused, 4 no engine; `run`: the hook's "
    "own code, 125 on its own failure; `gate`: the verdict's 0, 1 or 2, 64 on its own failure."
)
_GLOBAL_OPTIONS = ("--workspace", "--sandbox")


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script. Always ends by SystemExit."""
    words = hoisted(sys.argv[1:] if arguments is None else arguments)
    from executor.cli.endings import ending

    with ending(words[0] if words else ""):
        from executor.cli.output import prepare_streams

        prepare_streams()
        code = build_app()(
            words,
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
        sys.stdout.flush()
        raise SystemExit(code if isinstance(code, int) else 0)


def build_app() -> App:
    """All commands, none of them imported yet."""
    from cyclopts import App

    app = App(
        name="hook-executor",
        help=_DESCRIPTION,
        help_epilogue=_EPILOGUE,
        help_format="plaintext",
        version=_version,
        suppress_keyboard_interrupt=False,
    )
    for name, target, summary in _COMMANDS:
        app.command(f"executor.cli.{target}", name=name, help=summary)
    return app


def hoisted(words: Sequence[str]) -> list[str]:
    """The words with global options moved from before the command to after it.

    Each command declares them itself (``options.Where``), so they show in its help; what follows
    ``--`` is the hook's and is not touched.
    """
    rest = list(words)
    moved: list[str] = []
    while rest and rest[0].partition("=")[0] in _GLOBAL_OPTIONS:
        size = 1 if "=" in rest[0] else 2
        moved += rest[:size]
        del rest[:size]
    end = rest.index("--") if "--" in rest else len(rest)
    return rest[:end] + moved + rest[end:] if rest else moved


def _version() -> str:
    from importlib.metadata import version

    return f"hook-executor {version('hook-executor')}"
