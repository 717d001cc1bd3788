"""Has this session started before?

SessionStart fires once per session id, over concurrent calls and over restarts with the same state
directory. A small SQLite file remembers ids by their hash; claiming one is a single INSERT, so two
callers, threads or processes cannot both be first. The last ``MAX_SESSIONS`` are kept: an id that
comes back after that many others starts anew.

The claim is made before the hooks run: after a crash in between they do not run again (at most
once). Where the file cannot be used, this process remembers by itself and says so.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

MAX_SESSIONS = 100_000
_PRUNE_EVERY = 1_000
_SCHEMA = """
CREATE TABLE IF NOT EXISTS session (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id BLOB NOT NULL UNIQUE, started REAL NOT NULL
)
"""


class Sessions:
    """Blocking, and quick (one write); call it from a worker thread. Safe from many threads."""

    def __init__(self, path: Path, report: Callable[[str], None] = lambda _: None) -> None:
        self._path = path
        self._report = report
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._here: dict[bytes, None] = {}

    def claim(self, session_id: str) -> bool:
        """Whether this is the first claim of the id, ever. Never raises."""
        key = hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).digest()
        with self._lock:
            if key in self._here:
                return False
            if len(self._here) >= MAX_SESSIONS:
                del self._here[next(iter(self._here))]
            self._here[key] = None
            try:
                return self._insert(key)
            except (sqlite3.Error, OSError) as failure:
                self._report(f"{self._path} cannot be used, sessions may start again: {failure}")
                return True

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _insert(self, key: bytes) -> bool:
        with self._writing() as connection:
            cursor = connection.execute(
                "INSERT OR IGNORE INTO session (id, started) VALUES (?, ?)", (key, time.time())
            )
            first, number = cursor.rowcount == 1, cursor.lastrowid or 0
            if first and number % _PRUNE_EVERY == 0:
                oldest = number - MAX_SESSIONS
                connection.execute("DELETE FROM session WHERE number <= ?", (oldest,))
        return first

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction that is a writer from its beginning: it waits for others (a reader that
        becomes a writer, and a change to WAL, are told "locked" without waiting)."""
        if self._connection is None:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path.touch(mode=0o600)
            self._connection = sqlite3.connect(
                self._path, timeout=10, isolation_level=None, check_same_thread=False
            )
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(_SCHEMA)
            yield connection
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
