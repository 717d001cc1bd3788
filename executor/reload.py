"""How does a changed file come into force?

Theory of operation
-------------------
``watch`` waits for changes in the *directories* of everything that is configured (so that saving
by rename, swapped symlinks, deletion and creation all show), and once a second looks by itself,
for file systems that tell nothing. Either way it ends in ``refresh``, as every write of the API
does: take the files' marks (device, inode, size, times); where they differ from those in force,
read each part strictly; a part that is broken, half-written or gone keeps its last good reading,
and the failure is told; build the whole candidate; swap once.

Rules for editors: a failure changes nothing that is in force; nothing is swapped before it is
built as a whole.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TypeVar

import anyio
import anyio.abc
import anyio.to_thread

from executor.bus.base import Report, silent
from executor.configuration import (
    HOOKS_FILE,
    POLICIES_DIRECTORY,
    SETTINGS_FILE,
    Configuration,
    load_hooks,
    load_policies,
    load_settings,
)
from executor.disk.workspace import Workspace
from executor.errors import ExecutorError, Fault, InvalidConfig, Unavailable
from executor.hook_ids import HookIds, now
from executor.hooks import Hook
from executor.policy import Policy
from executor.settings import Settings
from executor.watched import PLUGINS, Marks, directories, marks_of, settled

TOGETHER = "workspace"
"""The part that is told where each file is fine and the whole still cannot be had."""
_STEP_MS = 5
"""Quiet time that ends a burst of saves; latency and half-written reads are traded here."""
_BURST_MS = 400
_LOOK_MS = 1000
_RETRY_SECONDS = 5.0

T = TypeVar("T")
Swap = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Candidate:
    """What is to come into force. ``plugins`` says whether their files changed."""

    configuration: Configuration
    generation: int
    plugins: bool


Prepare = Callable[[Candidate], Awaitable[Swap]]
"""Builds everything that the candidate needs; what it returns puts it in force at once. Raises
ExecutorError where the whole cannot be had."""


@dataclass(slots=True)
class State:
    """What a reader may ask about reloading. ``failures`` are those that stand now, by part."""

    generation: int = 1
    loaded_at: str = field(default_factory=now)
    loaded_seconds: float = field(default_factory=time.time)
    failures: Mapping[str, tuple[Fault, ...]] = field(default_factory=dict)
    waiting: tuple[str, ...] = ()
    """Settings that were changed and need a restart."""
    results: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("applied", "unchanged", "rejected"), 0)
    )


class Reloader:
    """Keeps one executor's configuration fresh. Its methods belong to the event loop's thread."""

    def __init__(
        self,
        workspace: Workspace,
        ids: HookIds,
        configuration: Configuration,
        marks: Marks,
        prepare: Prepare,
        report: Report = silent,
    ) -> None:
        self.state = State()
        self.turn = anyio.Event()
        """Set when the next attempt has ended, and replaced then."""
        self._workspace = workspace
        self._ids = ids
        self._good = configuration
        self._marks: Marks | None = marks
        self._present = marks
        self._prepare = prepare
        self._report = report
        self._lock = anyio.Lock()
        self._stop = anyio.Event()
        self._retry_at = 0.0

    @property
    def hooks(self) -> tuple[Hook, ...]:
        """Those of hooks.json as it last was good."""
        return self._good.hooks

    async def watch(
        self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Refresh whenever something changes, until ``close``."""
        from watchfiles import awatch

        async with anyio.create_task_group() as tasks:
            # The watching thread cannot be cancelled, only asked.
            tasks.start_soon(_asked_when_cancelled, self._stop)
            task_status.started()
            while not self._stop.is_set():
                places = await anyio.to_thread.run_sync(directories, self._workspace)
                changes = awatch(
                    *places,
                    watch_filter=None,
                    debounce=_BURST_MS,
                    step=_STEP_MS,
                    stop_event=self._stop,
                    rust_timeout=_LOOK_MS,
                    yield_on_timeout=True,
                    recursive=False,
                    ignore_permission_denied=True,
                )
                try:
                    async with aclosing(changes):
                        async for _ in changes:
                            await self.refresh()
                            if (
                                await anyio.to_thread.run_sync(directories, self._workspace)
                                != places
                            ):
                                break
                except OSError as failure:  # a directory went away; or no watches are left
                    self._report("the configuration is looked at once a second", why=str(failure))
                    with anyio.move_on_after(_LOOK_MS / 1000):
                        await self._stop.wait()
                    await self.refresh()
            tasks.cancel_scope.cancel()

    def close(self) -> None:
        """Watch no more."""
        self._stop.set()

    async def refresh(self, *, always: bool = False) -> None:
        """Put in force what the files say now, if they changed. Never raises for the files.

        ``always`` reads them even where nothing seems to have changed.
        """
        async with self._lock:
            try:
                marks = await anyio.to_thread.run_sync(marks_of, self._workspace)
                again = 0.0 < self._retry_at <= time.monotonic()
                if marks == self._marks and not again and not always:
                    return
                await self._refresh(marks)
            except OSError as failure:  # no descriptor is left, the disk fails: no agent's fault
                self._tell({TOGETHER: (Fault("", str(failure)),)}, applied=False)
                marks = {}
            # A file written twice within one tick of the clock keeps its times: look once more.
            self._marks = marks if settled(marks) else None

    async def _refresh(self, marks: Marks) -> None:
        failures: dict[str, tuple[Fault, ...]] = {}
        configuration = await anyio.to_thread.run_sync(self._read, marks, failures)
        plugins = marks.get(PLUGINS) != self._present.get(PLUGINS)
        changed = plugins or configuration != self._good
        applied = False
        self._retry_at = 0.0
        if changed:
            candidate = Candidate(configuration, self.state.generation + 1, plugins)
            try:
                swap = await self._prepare(candidate)
            except ExecutorError as failure:
                failures[TOGETHER] = (Fault("", str(failure)),)
                if isinstance(failure, Unavailable):
                    self._retry_at = time.monotonic() + _RETRY_SECONDS
            else:
                swap()
                applied = True
                self._applied(configuration, marks)
        self._tell(failures, applied=applied)

    def _applied(self, configuration: Configuration, marks: Marks) -> None:
        self._good = configuration
        self._present = {name: mark or self._present.get(name) for name, mark in marks.items()}
        self.state.generation += 1
        self.state.loaded_at, self.state.loaded_seconds = now(), time.time()
        count = len(configuration.hooks)
        self._report("reloaded", good=True, generation=self.state.generation, hooks=count)

    def _tell(self, failures: dict[str, tuple[Fault, ...]], *, applied: bool) -> None:
        state = self.state
        result = "rejected" if failures else "applied" if applied else "unchanged"
        known = failures == state.failures
        state.failures = failures
        if result == "unchanged" or not (failures and known and not applied):
            state.results[result] += 1
        self.turn.set()
        self.turn = anyio.Event()
        if failures and not known:
            for part, faults in failures.items():
                text = "; ".join(str(fault) for fault in faults[:5])
                self._report("not reloaded, the last good stays", part=part, why=text)

    def _read(self, marks: Marks, failures: dict[str, tuple[Fault, ...]]) -> Configuration:
        """Blocking. Each part as it is on the disk, or as it last was good."""
        workspace, good = self._workspace, self._good

        def part(name: str, load: Callable[[], T], last: T) -> T:
            mark, before = marks.get(name), self._present.get(name)
            if mark is None and before is not None:
                failures[name] = (Fault("", "is gone; write an empty one to mean nothing"),)
                return last
            try:
                return load()
            except InvalidConfig as broken:
                failures[name] = broken.faults
                return last

        settings = part(SETTINGS_FILE, lambda: self._settings(marks), good.settings)
        policies = part(POLICIES_DIRECTORY, lambda: self._policies(settings), dict(good.policies))
        hooks = part(HOOKS_FILE, lambda: load_hooks(workspace, settings), good.hooks)
        if HOOKS_FILE not in failures:
            hooks = self._ids.settle(hooks)
        return Configuration(settings, policies, hooks)

    def _settings(self, marks: Marks) -> Settings:
        mark = marks.get(SETTINGS_FILE)
        before = self._present.get(SETTINGS_FILE)
        if mark and before and mark[0].size == 0 and before[0].size > 0:
            raise InvalidConfig("is empty: half-written, or write a comment to mean the defaults")
        settings = load_settings(self._workspace)
        fixed, self.state.waiting = _fixed(settings, self._good.settings)
        return fixed

    def _policies(self, settings: Settings) -> dict[str, Policy]:
        policies = load_policies(self._workspace)
        missing = [
            fault.message
            for fault in settings.named_policies()
            if fault.message not in policies and fault.message in self._good.policies
        ]
        if missing:
            raise InvalidConfig(
                [
                    Fault("", f'policy "{name}" is gone, and config.toml names it')
                    for name in missing
                ]
            )
        return policies


def _fixed(settings: Settings, running: Settings) -> tuple[Settings, tuple[str, ...]]:
    """The settings with those that a running executor cannot change, and the names of these."""
    limits = settings.limits.model_copy(
        update={
            "max_concurrency": running.limits.max_concurrency,
            "max_queue": running.limits.max_queue,
        }
    )
    fixed = settings.model_copy(
        update={
            "limits": limits,
            "api": running.api,
            "bus": running.bus,
            "state": running.state,
            "sandbox": running.sandbox,
        }
    )
    names = [
        f"{section}.{key}"
        for section in ("limits", "api", "bus", "state", "sandbox")
        for key in type(getattr(settings, section)).model_fields
        if getattr(getattr(settings, section), key) != getattr(getattr(fixed, section), key)
    ]
    return fixed, tuple(names)


async def _asked_when_cancelled(stop: anyio.Event) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        stop.set()
