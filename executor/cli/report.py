"""How does a person, or a program, read what ``check`` found?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from executor.check.explanation import Explanation, Finding, Weight
from executor.check.remedy import Act, Step
from executor.cli.output import say
from executor.cli.plugin_report import plugin_lines

if TYPE_CHECKING:
    from executor.cli.check import Report

_MARKS = {Weight.ERROR: "FAILS", Weight.WARNING: "warning"}
_HEADS = {
    Act.CREATE: "write the new file {file}:",
    Act.EDIT: "in {file}, make it say:",
    Act.APPEND: "append to {file}:",
    Act.INSERT: "in {file}, insert above [[bind]] number {number}:",
    Act.RUN: "run:",
}


def print_report(report: Report) -> None:
    """Everything, in the order of the files; the summary last."""
    for line in _lines(report):
        say(line)


def as_json(report: Report) -> dict[str, object]:
    """The same for programs."""
    return {
        "ok": not report.fails,
        "workspace": report.workspace,
        "files": [
            {
                "file": broken.where,
                "faults": [
                    {"pointer": fault.pointer, "message": fault.message} for fault in broken.faults
                ],
            }
            for broken in report.broken
        ],
        "sandboxes": [
            {"policy": policy, "message": str(missing), "remedy": missing.remedy}
            for policy, missing in report.missing.items()
        ],
        "refusals": [
            {"message": str(refusal), "remedy": getattr(refusal, "remedy", "")}
            for refusal in report.refusals
        ],
        "hooks": [_hook_json(hook) for hook in report.hooks],
        "plugins": report.plugins,
        "disabled": report.disabled,
        "warnings": report.warnings,
        "remedies": [
            {"act": step.act.value, "file": step.file, "text": step.text, "bind": step.bind}
            for step in report.steps
        ],
    }


def _hook_json(hook: Explanation) -> dict[str, object]:
    subscription = hook.subscription
    return {
        "id": hook.id,
        "event": subscription.event,
        "pointer": hook.pointer,
        "command": subscription.hook.action.command,
        "command_sha256": hook.command_sha256,
        "fails": hook.fails,
        "policy": subscription.policy.name,
        "because": hook.because,
        "sandbox": subscription.backend or None,
        "root": _root_name(hook),
        "uid": hook.runs_as.uid,
        "gid": hook.runs_as.gid,
        "cwd": hook.cwd,
        "timeout_ms": hook.timeout_ms,
        "stdin": subscription.hook.action.stdin_json,
        "mounts": [{"path": mount.target, "writable": mount.writable} for mount in hook.mounts],
        "environment": list(hook.environment),
        "stripped": list(hook.stripped),
        "findings": [
            {"weight": found.weight.value, "pointer": found.pointer, "message": found.message}
            for found in hook.findings
        ],
    }


def _lines(report: Report) -> Iterator[str]:
    yield f"workspace {report.workspace}"
    yield from _whole_lines(report)
    for hook in report.hooks:
        yield ""
        yield from _hook_lines(hook)
    for text in report.disabled:
        yield ""
        yield f"{text}  (disabled: kept, not run)"
    plugins = report.plugins
    if plugins and report.opening is not None:
        yield ""
        yield from plugin_lines(plugins, report.opening.uncontained)
    if report.steps:
        yield ""
        yield "What mends it:"
        for step in report.steps:
            yield from _step_lines(step)
    yield ""
    yield _summary(report, [bool(plugin["fails"]) for plugin in plugins])


def _whole_lines(report: Report) -> Iterator[str]:
    """What is not about one hook or plugin."""
    for broken in report.broken:
        for fault in broken.faults:
            yield f"  FAILS   {broken.where}: {fault}"
    for reason, policies in _by_reason(report).items():
        yield f"  FAILS   no sandbox here for {', '.join(policies)}: {reason}"
    for refusal in report.refusals:
        yield f"  FAILS   no executor opens here: {refusal}"
    for warning in report.warnings:
        yield f"  warning {warning}"


def _summary(report: Report, plugins: list[bool]) -> str:
    hooks = [hook.fails for hook in report.hooks]
    kinds = [(name, which) for name, which in (("hooks", hooks), ("plugins", plugins)) if which]
    failing = [f"{sum(which)} of {len(which)} {name}" for name, which in kinds if any(which)]
    if failing:
        return f"{' and '.join(failing)} would fail"
    if report.fails:
        return "something would fail"
    total = " and ".join(f"{len(which)} {name}" for name, which in kinds)
    return f"{total}, none would fail" if total else "no hooks, nothing would fail"


def _by_reason(report: Report) -> dict[str, list[str]]:
    """Policies that lack a sandbox for one reason are told together."""
    found: dict[str, list[str]] = {}
    for policy, missing in report.missing.items():
        found.setdefault(str(missing), []).append(f'policy "{policy}"')
    return found


def _hook_lines(hook: Explanation) -> Iterator[str]:
    subscription = hook.subscription
    action = subscription.hook.action
    yield f"{hook.id}  {subscription.event}  {' '.join((action.command, *action.args))}"
    yield f"  policy   {subscription.policy.name} ({hook.because})"
    if subscription.backend:
        root = _root_name(hook)
        yield f"  sandbox  {subscription.backend}" + (f", {root}" if root else "")
    yield f"  runs as  uid {hook.runs_as.uid}, gid {hook.runs_as.gid}, in {hook.cwd}"
    yield f"  timeout  {hook.timeout_ms} ms"
    for mount in hook.mounts:
        yield f"  sees     {mount.target} ({'writable' if mount.writable else 'read-only'})"
    yield f"  env      {' '.join(hook.environment)}"
    if action.stdin_json:
        yield "  stdin    the envelope"
    for finding in hook.findings:
        yield _finding_line(finding)


def _finding_line(finding: Finding) -> str:
    return f"  {_MARKS[finding.weight]:<8} {finding.pointer}: {finding.message}"


def _root_name(hook: Explanation) -> str | None:
    if hook.place is None:
        return None
    policy = hook.subscription.policy
    if hook.subscription.backend == "docker":
        return f"image {policy.sandbox.image}"
    return "the host's /usr" if policy.sandbox.root == "host" else f"image {policy.sandbox.root}"


def _step_lines(step: Step) -> Iterator[str]:
    number = None if step.bind is None else step.bind + 1
    yield ""
    yield "  " + _HEADS[step.act].format(file=step.file, number=number)
    yield ""
    for line in step.text.rstrip("\n").split("\n"):
        yield f"      {line}" if line else ""
