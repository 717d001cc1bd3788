"""Is this directory ours alone?

What an executor keeps of its own (locks, compiled components) must not be another user's to write:
whoever can plant files there decides what runs.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from executor.errors import Unavailable


def require_own(place: Path, status: os.stat_result, *, setting: str) -> None:
    """Raise Unavailable where the directory cannot be trusted; ``status`` is its own, links not
    followed. ``setting`` says what moves it elsewhere."""
    user = os.geteuid()
    if not stat.S_ISDIR(status.st_mode):
        raise Unavailable(
            f"{place} is there, and no directory", remedy="look at it, then move it away"
        )
    if status.st_uid != user:
        # Very likely the other one's, and in use: `su` keeps the environment, HOME and all.
        raise Unavailable(
            f"{place} belongs to uid {status.st_uid}, and this runs as uid {user}",
            remedy=f"leave it as it is; {setting}",
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Unavailable(
            f"others may write in {place}",
            remedy=f"look at what is in it, then run: chmod go-w {place}",
        )
