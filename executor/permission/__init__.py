"""May this tool be called with this input?

The room's front door. ``decide`` makes rules into decisions; ``rules`` and ``index`` are what one
rule says and which could match; ``command_patterns`` and ``tool_paths`` read commands and paths as
the tools will; ``shell`` splits a shell text into the commands that would really run.
"""

from __future__ import annotations

from executor.permission.decide import Decision, Permission

__all__ = ["Decision", "Permission"]
