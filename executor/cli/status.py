"""``hook-executor status``: how is the daemon of this workspace?"""

from __future__ import annotations

from executor.cli.endings import FAILED, OK
from executor.cli.options import HERE, Json, Where


def status(*, json: Json = False, where: Where = HERE) -> int:
    """What is in force, what failed to come into force, what waits and runs; 1 where it failed."""
    from executor.cli.daemon import needed
    from executor.cli.output import print_json, say

    told = needed(where).ask("GET", "/api/status")
    if json:
        print_json(told)
        return OK
    hooks, queue, reload = told["hooks"], told["queue"], told["reload"]
    say(f"hook-executor {told['version']}, {told['workspace']}, up {told['uptime_seconds']:.0f} s")
    say(f"generation {told['generation']}, in force since {told['loaded_at']}")
    say(f"{hooks['total']} hooks, {hooks['enabled']} enabled; on {', '.join(told['sandboxes'])}")
    say(f"{queue['running']} of {queue['max_concurrency']} run, {queue['waiting']} wait")
    for name in reload["needs_restart"]:
        say(f"{name} was changed and needs a restart")
    for paused in told.get("paused", ()):
        say(f"{paused['hook']} is paused: {paused['reason']}")
    for failure in reload["failures"]:
        for error in failure["errors"]:
            say(f"NOT IN FORCE  {failure['part']} {error['pointer']}: {error['message']}")
    return OK if reload["ok"] else FAILED
