"""Which hook is this, over reloads, restarts and edits?

An entry that hooks.json gives an id keeps it. One written by hand has its id here, in the state
directory, until the API first writes the file: the same words are the same hook wherever they
stand; else the same command for the same event is a hook that was edited; else it is a new one. A
number is given once and never again, also after the hook is gone. The same file remembers when a
hook was first seen and last changed, for entries that do not say it themselves.

Safe between processes by a lock file. Where the directory cannot be written, ids hold as long as
this process does.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from executor.disk import scratch
from executor.hooks import Hook

_NUMBERED = re.compile(r"hook_(\d{1,9})")
_LONGEST = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Known:
    """What is remembered of one entry; times as the API prints them."""

    id: str
    event: str
    command: str
    digest: str
    created_at: str
    updated_at: str


@dataclass(frozen=True, slots=True)
class _Memory:
    next: int = 1
    known: tuple[Known, ...] = ()


class HookIds:
    """The ids of one workspace's hooks. Blocking; safe from threads and processes."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "hook_ids.json"
        self._lock = directory / "hook_ids.lock"
        self._memory: _Memory | None = None

    def settle(self, hooks: Sequence[Hook], *, keep: bool = True) -> tuple[Hook, ...]:
        """The same hooks, each with an id and its times. ``keep`` false only looks (``check``)."""
        if not keep:
            return _settled(hooks, self._read(), now())[0]
        scratch.sweep(self._path.parent)
        with self._alone():
            before = self._read()
            settled, after = _settled(hooks, before, now())
            if after != before:
                self._write(after)
            return settled

    def fresh(self, hooks: Sequence[Hook]) -> str:
        """A new id, for a hook that is about to be written beside these."""
        with self._alone():
            memory = self._read()
            number = max(memory.next, 1 + _largest(hook.id for hook in hooks))
            self._write(replace(memory, next=number + 1))
            return f"hook_{number:02d}"

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        try:
            self._lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            yield
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _read(self) -> _Memory:
        """What is known; nothing where the file is missing or no file of ours."""
        try:
            with self._path.open("rb") as file:
                document = json.loads(file.read(_LONGEST))
            known = tuple(Known(*map(str, row)) for row in document["known"])
            return _Memory(int(document["next"]), known)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return self._memory or _Memory()

    def _write(self, memory: _Memory) -> None:
        self._memory = memory
        rows = [
            (one.id, one.event, one.command, one.digest, one.created_at, one.updated_at)
            for one in memory.known
        ]
        document = {"next": memory.next, "known": rows}
        with contextlib.suppress(OSError), scratch.unfinished(self._path.parent) as temporary:
            Path(temporary).write_text(json.dumps(document), encoding="utf-8")
            os.replace(temporary, self._path)


def now() -> str:
    """The time as the API prints it: UTC, whole seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def digest_of(hook: Hook) -> str:
    """The words of an entry, whatever else is known of it."""
    words = hook.action.model_dump_json(exclude_unset=True)
    return hashlib.sha256(f"{hook.event}\0{hook.enabled}\0{words}".encode()).hexdigest()[:32]


def _settled(
    hooks: Sequence[Hook], memory: _Memory, moment: str
) -> tuple[tuple[Hook, ...], _Memory]:
    """Each hook with its id and times, and what is to be remembered."""
    digests = [digest_of(hook) for hook in hooks]
    found = _matched(hooks, digests, memory)
    number = max(memory.next, 1 + _largest(hook.id for hook in hooks))
    taken = {hook.id for hook in hooks if hook.id} | {one.id for one in found.values()}
    settled, known = [], []
    for position, hook in enumerate(hooks):
        old = found.get(position)
        name = hook.id or (old and old.id)
        while not name:
            candidate = f"hook_{number:02d}"
            number += 1
            name = "" if candidate in taken else candidate
        digest = digests[position]
        created = hook.created_at or (old.created_at if old else moment)
        unchanged = old is not None and old.digest == digest
        updated = hook.updated_at or (old.updated_at if old and unchanged else moment)
        settled.append(replace(hook, id=name, created_at=created, updated_at=updated))
        known.append(Known(name, hook.event, hook.action.command, digest, created, updated))
    return tuple(settled), _Memory(number, tuple(known))


def _matched(hooks: Sequence[Hook], digests: Sequence[str], memory: _Memory) -> Mapping[int, Known]:
    """Which remembered hook each position is: by its id, its words, or its event and command."""
    named = {hook.id for hook in hooks if hook.id}
    by_id = {one.id: one for one in memory.known}
    found = {
        position: by_id[hook.id]
        for position, hook in enumerate(hooks)
        if hook.id is not None and hook.id in by_id
    }
    left = [one for one in memory.known if one.id not in named]
    for exact in (True, False):
        waiting: dict[tuple[str, ...], deque[Known]] = defaultdict(deque)
        for one in left:
            waiting[(one.digest,) if exact else (one.event, one.command)].append(one)
        for position, hook in enumerate(hooks):
            if position in found or hook.id is not None:
                continue
            key = (digests[position],) if exact else (hook.event, hook.action.command)
            if waiting.get(key):
                found[position] = waiting[key].popleft()
        gone = {one.id for one in found.values()}
        left = [one for one in left if one.id not in gone]
    return found


def _largest(names: Iterator[str | None]) -> int:
    numbers = (_NUMBERED.fullmatch(name) for name in names if name)
    return max((int(found[1]) for found in numbers if found), default=0)
