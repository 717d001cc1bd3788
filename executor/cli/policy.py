"""``hook-executor policy``: which policies are there, and what do they say?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from executor.cli.endings import UsageError
from executor.cli.options import HERE, Json, Where
from executor.cli.output import print_json, print_table, say

if TYPE_CHECKING:
    from executor.configuration import Configuration
    from executor.policy import Policy

app = App(name="policy", help="List, show and explain policies.", help_format="plaintext")

Name = Annotated[str, Parameter(help="The policy's name.")]


@app.command(name="list")
def list_policies(*, json: Json = False, where: Where = HERE) -> int:
    """Every policy, the shipped ones and the workspace's."""
    from executor.configuration import shipped_policies

    policies = _policies(where)
    shipped = shipped_policies()
    if json:
        print_json(
            {
                "policies": [
                    {
                        "name": name,
                        "description": policy.description,
                        "shipped": name in shipped,
                    }
                    for name, policy in sorted(policies.items())
                ]
            }
        )
        return 0
    print_table(
        ("policy", "from", "description"),
        (
            (name, "hook-executor" if name in shipped else "workspace", policy.description)
            for name, policy in sorted(policies.items())
        ),
    )
    return 0


@app.command
def show(name: Name, /, *, json: Json = False, where: Where = HERE) -> int:
    """Every value of one policy, what it inherits included."""
    policy = _policy(name, where)
    if json:
        print_json(policy.model_dump(mode="json"))
        return 0
    for line in _as_toml(policy.model_dump(mode="json")):
        say(line)
    return 0


@app.command
def explain(name: Name, /, *, json: Json = False, where: Where = HERE) -> int:
    """What one policy means, which hooks it is bound to, and by which rule two policies meet."""
    from executor.policy import describe, unbuilt, without_effect

    policy = _policy(name, where)
    lines, refusals, warnings = describe(policy), unbuilt(policy), without_effect(policy)
    bound = _bound(name, where)
    if json:
        print_json(
            {
                "name": name,
                "means": lines,
                "refused": list(refusals),
                "warnings": list(warnings),
                "hooks": bound,
            }
        )
        return 0
    for line in lines:
        say(line)
    for reason in refusals:
        say(f"refused: {reason}")
    for warning in warnings:
        say(f"warning: {warning}")
    say(f"hooks: {'; '.join(bound) if bound else 'none'}")
    say("where a hook asks for a second policy, the stricter value of each field applies:")
    print_table(("key", "rule"), _rules())
    return 0


def _bound(name: str, where: Where) -> list[str]:
    configuration = _configuration(where)
    return [
        f"{hook.event} {hook.action.command}"
        for hook in configuration.hooks
        if configuration.settings.policy_for(hook.event, hook.action.command) == name
    ]


def _rules() -> list[tuple[str, str]]:
    """Each field's own words on how two policies meet."""
    from executor.policy import Policy

    return [
        (f"{section}.{key}", one.description.partition("Stricter: ")[2])
        for section, field in Policy.model_fields.items()
        for key, one in getattr(field.annotation, "model_fields", {}).items()
        if one.description and "Stricter: " in one.description
    ]


def _policies(where: Where) -> Mapping[str, Policy]:
    from executor.configuration import load_policies
    from executor.disk.workspace import open_workspace

    workspace = open_workspace(where.workspace)
    try:
        return load_policies(workspace)
    finally:
        workspace.close()


def _configuration(where: Where) -> Configuration:
    from executor.configuration import load_configuration
    from executor.disk.workspace import open_workspace

    workspace = open_workspace(where.workspace)
    try:
        return load_configuration(workspace)
    finally:
        workspace.close()


def _policy(name: str, where: Where) -> Policy:
    from executor.document import hint

    policies = _policies(where)
    if name not in policies:
        raise UsageError(f'there is no policy "{name}"{hint(name, policies)}')
    return policies[name]


def _as_toml(values: Mapping[str, object]) -> list[str]:
    """The policy as a file would say it."""
    import json

    lines, sections = [], []
    for key, value in values.items():
        if not isinstance(value, dict):
            lines.append(f"{key} = {json.dumps(value, ensure_ascii=False)}")
            continue
        sections += ["", f"[{key}]"]
        sections += [
            f"{name} = {json.dumps(item, ensure_ascii=False)}" for name, item in value.items()
        ]
    return [*lines, *sections]
