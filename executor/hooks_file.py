"""How is hooks.json rewritten without losing anything?

It is the one store: the API and the command line change the document as it stands (order, unknown
layout and all), check the result as strictly as a file that was edited by hand, and replace the
file at once (``swap``). Writers of ours take turns by a lock; somebody who edits by hand meanwhile
makes the attempt start again on what he saved, or fail where the caller named a version
(``if_match``). The first write gives every entry its id and times.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from executor import swap
from executor.action import MAX_TIMEOUT_MS
from executor.configuration import HOOKS_FILE, ownership_fault
from executor.disk.workspace import Workspace
from executor.errors import ExecutorError, Fault, InvalidConfig
from executor.hook_ids import HookIds, now
from executor.hook_json import etag_of, hook_etag, hooks_json
from executor.hooks import MAX_FILE_BYTES, Hook, parse_hooks

_ATTEMPTS = 200
_PAUSE_SECONDS = 0.005
"""Between attempts while somebody saves by hand: a second for all of them."""
_INDENT = re.compile(rb"\{\s*?\n([ \t]+)")

Document = dict[str, object]


class Unknown(ExecutorError):
    """There is no hook with this id."""


class Stale(ExecutorError):
    """The caller named another version than the one on the disk."""


class Conflict(ExecutorError):
    """The file on the disk cannot be changed now: broken, a link, or being written."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The file as it is on the disk."""

    found: swap.Found | None
    document: Document
    hooks: tuple[Hook, ...]

    @property
    def etag(self) -> str:
        """As ``GET /api/hooks`` gives it."""
        return etag_of(hooks_json(self.hooks))


class HooksFile:
    """The hooks.json of one workspace. Blocking; safe from threads and processes."""

    def __init__(
        self, workspace: Workspace, ids: HookIds, state: Path, max_timeout_ms: int = MAX_TIMEOUT_MS
    ) -> None:
        self.max_timeout_ms = max_timeout_ms
        self._workspace = workspace
        self._ids = ids
        self._lock = state / "hooks_file.lock"
        self._known: tuple[bytes, int, tuple[Hook, ...]] | None = None

    def read(self) -> Reading:
        """Raises InvalidConfig where it is broken."""
        with self._directory() as directory:
            return self._reading(directory)

    def add(
        self,
        event: str,
        action: Mapping[str, object],
        *,
        enabled: bool,
        if_match: str | None = None,
    ) -> Hook:
        """Append a hook. ``action`` has been checked by ``parse_action``."""

        def edit(reading: Reading) -> tuple[Document, str | None]:
            _same(if_match, lambda: reading.etag)
            document, name, moment = _complete(reading), self._ids.fresh(reading.hooks), now()
            entry: Document = {"id": name, **action}
            if not enabled:
                entry["enabled"] = False
            _entries(document, event).append(entry | {"created_at": moment, "updated_at": moment})
            return document, name

        return _there(self._change(edit))

    def update(
        self,
        name: str,
        event: str,
        action: Mapping[str, object],
        *,
        enabled: bool | None,
        if_match: str | None = None,
    ) -> Hook:
        """Replace a hook's event and action, in its place where the event stays."""

        def edit(reading: Reading) -> tuple[Document, str | None]:
            hook = _hook(reading, name, if_match)
            document = _complete(reading)
            entries, index = _place(document, hook)
            entry: Document = {"id": name, **action}
            if not (hook.enabled if enabled is None else enabled):
                entry["enabled"] = False
            entry |= {"created_at": hook.created_at, "updated_at": now()}
            if event == hook.event:
                entries[index] = entry
            else:
                del entries[index]
                _entries(document, event).append(entry)
            return document, name

        return _there(self._change(edit))

    def toggle(self, name: str, *, if_match: str | None = None) -> Hook:
        """Enable what is disabled, disable what is enabled."""

        def edit(reading: Reading) -> tuple[Document, str | None]:
            hook = _hook(reading, name, if_match)
            document = _complete(reading)
            entries, index = _place(document, hook)
            entry = entries[index]
            entry["enabled"] = not hook.enabled
            entry["updated_at"] = now()
            return document, name

        return _there(self._change(edit))

    def remove(self, name: str, *, if_match: str | None = None) -> None:
        """Take a hook out."""

        def edit(reading: Reading) -> tuple[Document, str | None]:
            hook = _hook(reading, name, if_match)
            document = _complete(reading)
            entries, index = _place(document, hook)
            del entries[index]
            return document, None

        self._change(edit)

    def _change(self, edit: Callable[[Reading], tuple[Document, str | None]]) -> Hook | None:
        """Read, edit, check, replace; again while somebody else saves in between.

        Raises Unknown, Stale, Conflict, and InvalidConfig where the result would be no valid file.
        """
        with self._turn(), self._directory() as directory:
            swap.sweep(directory, HOOKS_FILE)
            for _ in range(_ATTEMPTS):
                try:
                    reading = self._reading(directory)
                except InvalidConfig:
                    time.sleep(_PAUSE_SECONDS)  # perhaps half-written at this moment
                    continue
                document, name = edit(reading)
                data = _encoded(document, reading.found)
                hooks = parse_hooks(data, max_timeout_ms=self.max_timeout_ms)
                try:
                    swap.replace_if(
                        directory,
                        HOOKS_FILE,
                        reading.found,
                        data,
                        mode=0o644,
                        owner=self._workspace.status.st_uid if os.geteuid() == 0 else os.geteuid(),
                    )
                except swap.Changed:
                    time.sleep(_PAUSE_SECONDS)
                    continue
                except OSError as failure:
                    raise Conflict(f"{HOOKS_FILE} cannot be written: {failure.strerror}") from None
                self._known = (data, self.max_timeout_ms, hooks)
                return next((hook for hook in hooks if hook.id == name), None)
        raise Conflict(f"{HOOKS_FILE} on the disk is broken or being written; mend it first")

    def _reading(self, directory: int) -> Reading:
        try:
            found = swap.read(directory, HOOKS_FILE, MAX_FILE_BYTES)
        except OSError as failure:
            if failure.errno == errno.ELOOP:
                raise Conflict(
                    f"{HOOKS_FILE} is a symbolic link: whoever made it manages the file"
                ) from None
            raise Conflict(f"{HOOKS_FILE} cannot be read: {failure.strerror}") from None
        if found is None:
            return Reading(None, {"hooks": {}}, ())
        self._refuse_foreign(directory)
        hooks = self._settled(found.data)
        return Reading(found, json.loads(found.data), hooks)

    def _settled(self, data: bytes) -> tuple[Hook, ...]:
        known = self._known
        if known is not None and known[:2] == (data, self.max_timeout_ms):
            return known[2]  # our own last write, as a rule: not read twice
        hooks = self._ids.settle(parse_hooks(data, max_timeout_ms=self.max_timeout_ms))
        self._known = (data, self.max_timeout_ms, hooks)
        return hooks

    def _refuse_foreign(self, directory: int) -> None:
        """What the executor would not load it does not write either."""
        status = os.stat(HOOKS_FILE, dir_fd=directory, follow_symlinks=False)
        fault = ownership_fault(
            status,
            runner=os.geteuid(),
            workspace_owner=self._workspace.status.st_uid,
            owned_by_workspace=True,
        )
        if not stat.S_ISREG(status.st_mode):
            fault = "it is no regular file"
        if fault is not None:
            raise Conflict(f"{HOOKS_FILE}: {fault}")

    @contextlib.contextmanager
    def _directory(self) -> Iterator[int]:
        descriptor = os.open(
            ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._workspace.descriptor
        )
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        self._lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _there(hook: Hook | None) -> Hook:
    assert hook is not None  # noqa: S101  (it was just written)
    return hook


def _same(if_match: str | None, *etags: Callable[[], str]) -> None:
    if if_match is None or if_match.strip() == "*":
        return
    if not {tag.strip() for tag in if_match.split(",")} & {etag() for etag in etags}:
        raise Stale("it was changed since; read it again")


def _hook(reading: Reading, name: str, if_match: str | None) -> Hook:
    hook = next((hook for hook in reading.hooks if hook.id == name), None)
    if hook is None:
        raise Unknown("there is no hook with this id")
    _same(if_match, lambda: reading.etag, lambda: hook_etag(hook))
    return hook


def _complete(reading: Reading) -> Document:
    """The document with the id and the times of every entry in it."""
    for hook in reading.hooks:
        entries, index = _place(reading.document, hook)
        entry = entries[index]
        if "id" not in entry:
            entry = {"id": hook.id, **entry}
        entry.setdefault("created_at", hook.created_at)
        entry.setdefault("updated_at", hook.updated_at)
        entries[index] = entry
    return reading.document


def _place(document: Document, hook: Hook) -> tuple[list[Document], int]:
    return _entries(document, hook.event), int(hook.pointer.rpartition("/")[2])


def _entries(document: Document, event: str) -> list[Document]:
    events = document["hooks"]
    if not isinstance(events, dict):
        raise InvalidConfig([Fault("/hooks", "must be an object")], where=HOOKS_FILE)
    entries: list[Document] = events.setdefault(event, [])
    return entries


def _encoded(document: Document, found: swap.Found | None) -> bytes:
    """As people wrote it: their indentation, one newline at the end."""
    layout = None if found is None else _INDENT.search(found.data)
    indent = "  " if layout is None else layout[1].decode()
    return json.dumps(document, ensure_ascii=False, indent=indent).encode("utf-8") + b"\n"
