"""``hook-executor check``: would everything run, and what would each hook see?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from executor.check.explanation import Explanation
from executor.check.remedy import Step
from executor.cli.endings import FAILED, OK
from executor.cli.options import HERE, Json, Where
from executor.configuration import Configuration
from executor.errors import ExecutorError, InvalidConfig, Unavailable
from executor.plan import Place
from executor.policy import Policy

if TYPE_CHECKING:
    from executor.check.opening import Opening
    from executor.disk.workspace import Workspace

T = TypeVar("T")


@dataclass(slots=True)
class Report:
    """Everything that ``check`` found. ``broken`` are files that cannot be used; ``opening`` says
    whether an executor would open, and with which plugins."""

    workspace: str
    broken: list[InvalidConfig] = field(default_factory=list)
    opening: Opening | None = None
    warnings: list[str] = field(default_factory=list)
    hooks: list[Explanation] = field(default_factory=list)
    disabled: list[str] = field(default_factory=list)
    steps: tuple[Step, ...] = ()

    @property
    def missing(self) -> Mapping[str, Unavailable]:
        """The reason for each policy without a sandbox."""
        return {} if self.opening is None else self.opening.missing

    @property
    def refusals(self) -> Sequence[ExecutorError]:
        """Why no executor would open, where neither a file nor a sandbox is the reason."""
        return () if self.opening is None else self.opening.refusals

    @property
    def plugins(self) -> list[dict[str, object]]:
        """As ``plugins check`` tells them."""
        from executor.cli.plugin_report import plugin_report

        if self.opening is None:
            return []
        subscriptions = self.opening.subscriptions
        return [plugin_report(plugin, subscriptions) for plugin in self.opening.plugins]

    @property
    def fails(self) -> bool:
        return (
            bool(self.broken or self.missing or self.refusals)
            or any(hook.fails for hook in self.hooks)
            or any(plugin["fails"] for plugin in self.plugins)
        )


def check(*, json: Json = False, where: Where = HERE) -> int:
    """Validate every file and explain each hook; exit 1 if anything would fail."""
    from executor.cli.signals import run_until_signalled

    report = run_until_signalled(examine, where)
    if json:
        from executor.cli.output import print_json
        from executor.cli.report import as_json

        print_json(as_json(report))
    else:
        from executor.cli.report import print_report

        print_report(report)
    return FAILED if report.fails else OK


async def examine(where: Where) -> Report:
    """The report on one workspace. Raises InvalidConfig where there is no workspace at all."""
    import anyio.to_thread

    from executor.check.opening import try_to_open
    from executor.disk.workspace import open_workspace

    workspace = await anyio.to_thread.run_sync(open_workspace, where.workspace)
    try:
        report = Report(workspace.path)
        configuration = _load(workspace, report)
        report.opening = opening = await try_to_open(
            workspace, configuration, where.sandbox, known=report.broken
        )
        report.broken += opening.broken
        _explain(workspace, opening, report)
        return report
    finally:
        workspace.close()


def _load(workspace: Workspace, report: Report) -> Configuration:
    """What can be read, every fault of every file told; what cannot counts as not written."""
    from executor.configuration import (
        load_hooks,
        load_policies,
        load_settings,
        shipped_policies,
    )
    from executor.gate.lint import gate_warnings
    from executor.policy import resolve_policies, without_effect
    from executor.settings import Settings

    settings = _attempt(report, lambda: load_settings(workspace))
    policies = _attempt(report, lambda: load_policies(workspace))
    hooks = _attempt(report, lambda: load_hooks(workspace, settings or Settings()))
    if settings is not None:
        report.warnings += settings.unbuilt()
    if settings is not None and policies is not None:
        for fault in settings.named_policies():
            if fault.message not in policies:
                text = f'config.toml: {fault.pointer}: there is no policy "{fault.message}"'
                report.warnings.append(text)
    known = policies or resolve_policies(shipped_policies(), {})
    for name, policy in sorted(known.items()):
        report.warnings += [f'policy "{name}": {text}' for text in without_effect(policy)]
    configuration = Configuration(settings or Settings(), known, hooks or ())
    report.warnings += gate_warnings(configuration)
    return configuration


def _attempt(report: Report, load: Callable[[], T]) -> T | None:
    try:
        return load()
    except InvalidConfig as broken:
        report.broken.append(broken)
        return None


def _explain(workspace: Workspace, opening: Opening, report: Report) -> None:
    from executor.check.explain import explain
    from executor.check.look import HostLook
    from executor.check.remedy import steps
    from executor.configuration import shipped_policies
    from executor.hook_ids import HookIds
    from executor.in_force import grounds_for, state_directory
    from executor.registry import identified, subscribe

    configuration, places = opening.configuration, opening.places
    try:
        grounds = grounds_for(workspace, configuration, places)
    except ExecutorError:
        return  # it is among the reasons for which no executor opens
    state = state_directory(workspace, configuration.settings.state.dir)
    for name, hook in identified(HookIds(state).settle(configuration.hooks, keep=False)):
        if not hook.enabled:
            report.disabled.append(f"{name} {hook.event} {hook.action.command}")
            continue
        subscription = subscribe(
            name, hook, configuration, lambda policy: opening.backends.get(policy.name, "")
        )
        place = places.get((subscription.policy.name, subscription.backend))
        look = HostLook(grounds.identity, _root(subscription.policy, subscription.backend, place))
        files = grounds.resolver.files(hook.action, subscription.policy)
        report.hooks.append(
            explain(subscription, files, place, grounds.identity, configuration.settings, look)
        )
    if report.hooks:
        look = HostLook(grounds.identity, None)
        report.steps = steps(report.hooks, configuration, shipped_policies(), look)


def _root(policy: Policy, backend: str, place: Place | None) -> Path | None:
    """Where the sandbox's own programs can be looked up on this host."""
    from executor import images

    if place is None:
        return None
    if backend == "namespace":
        return Path(place.root or "/")
    try:
        image = images.find(policy.sandbox.image)
    except ExecutorError:
        return None
    return None if image is None else image.root
