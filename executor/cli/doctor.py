"""``hook-executor doctor``: which sandboxes work on this machine, and what mends the others?"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from executor.cli.endings import NO_ENGINE, OK, REFUSED
from executor.cli.options import HERE, Json, Where

if TYPE_CHECKING:
    from executor.backends.base import Backend, Control
    from executor.configuration import Configuration
    from executor.disk.workspace import Workspace
    from executor.job import Job
    from executor.sandboxes import Sandboxes

BACKENDS = ("docker", "namespace")
SAFE_RUNC = ((1, 2, 8), (1, 3, 3))
"""The first releases of each line with the fixes of CVE-2025-31133, -52565 and -52881."""


@dataclass(slots=True)
class Finding:
    """What is known of one backend. ``engine`` as in ``Unavailable``."""

    name: str
    works: bool = False
    details: dict[str, str] = field(default_factory=dict)
    message: str = ""
    remedy: str = ""
    engine: bool = False
    warnings: list[str] = field(default_factory=list)
    controls: tuple[Control, ...] = ()

    @property
    def holds(self) -> bool:
        """Works, and every mandatory control that was read back is in force."""
        return self.works and all(one.in_force or not one.mandatory for one in self.controls)


def doctor(
    *,
    isolation: Annotated[
        bool, Parameter(negative="", help="Start a sandbox on each; show what is in force in it.")
    ] = False,
    json: Json = False,
    where: Where = HERE,
) -> int:
    """Which backends work here, what is missing, and the command that mends it."""
    from executor.cli.signals import run_until_signalled

    wanted = BACKENDS if where.sandbox in (None, "auto") else (str(where.sandbox),)
    findings = run_until_signalled(_examine, wanted, isolation)
    if json:
        _print_json(findings)
    else:
        _print(findings)
    if any(finding.holds for finding in findings):
        return OK
    return NO_ENGINE if all(finding.engine for finding in findings) else REFUSED


async def _examine(names: tuple[str, ...], isolation: bool) -> list[Finding]:  # noqa: FBT001
    return [await _backend(name, isolation=isolation) for name in names]


async def _backend(name: str, *, isolation: bool) -> Finding:
    """Open one backend under the default policy, as a run would."""
    from executor.errors import ExecutorError, Unavailable
    from executor.sandboxes import Sandboxes

    finding = Finding(name)
    try:
        with _empty_workspace() as (workspace, configuration):
            policy = configuration.policies["default"]
            async with Sandboxes.open(name, None, [policy]) as sandboxes:
                finding.works = True
                await _describe(finding, sandboxes)
                if isolation:
                    job = _trivial_job(workspace, configuration, sandboxes, name)
                    finding.controls = await sandboxes.backends[name].inspect(job)
    except Unavailable as missing:
        finding.works = False
        finding.message = str(missing).partition(". Remedy: ")[0]
        finding.remedy, finding.engine = missing.remedy, missing.engine
    except ExecutorError as failure:
        finding.works, finding.message = False, str(failure)
    return finding


async def _describe(finding: Finding, sandboxes: Sandboxes) -> None:
    """Versions, and what is old."""
    import anyio.to_thread

    from executor import images

    backend = sandboxes.backends[finding.name]
    if finding.name == "docker":
        await _describe_engine(finding, backend)
        image = await anyio.to_thread.run_sync(images.find, "python")
        if image is not None:
            finding.details["image"] = f"python sha256:{image.digest[:12]}"
            old = await anyio.to_thread.run_sync(images.outdated, image)
            if old:
                finding.warnings.append(
                    f"the image python is older than {len(old)} security updates; "
                    "run: hook-executor images build --force python"
                )
    else:
        finding.details["kernel"] = platform.release()
        finding.details["root"] = "the host's /usr"


async def _describe_engine(finding: Finding, backend: Backend) -> None:
    import anyio.to_thread

    from executor.backends.docker import DockerBackend
    from executor.backends.docker_engine import Engine

    if not isinstance(backend, DockerBackend):
        return
    facts = await backend.probe()
    finding.details["engine"] = facts.version
    finding.details["api"] = facts.api_version
    finding.details["rootless"] = "yes" if facts.rootless else "no"
    engine = Engine()
    version = await engine.call(lambda: engine.client().version())
    await anyio.to_thread.run_sync(engine.close)
    components = version.get("Components") or []
    runc = next((one["Version"] for one in components if one.get("Name") == "runc"), "")
    if runc:
        finding.details["runc"] = runc
        if is_old_runc(runc):
            finding.warnings.append(
                f"runc {runc} lacks fixes of CVE-2025-31133, CVE-2025-52565 and CVE-2025-52881; "
                "run: apt-get install --only-upgrade runc (1.2.8, 1.3.3 or newer)"
            )


def is_old_runc(version: str) -> bool:
    """Whether a runc of that version lacks known escapes' fixes."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)(-rc)?", version)
    if found is None:
        return False
    number = (int(found[1]), int(found[2]), int(found[3]))
    line = next((safe for safe in SAFE_RUNC if safe[:2] == number[:2]), None)
    return number < line if line is not None else number < SAFE_RUNC[-1]


@contextmanager
def _empty_workspace() -> Iterator[tuple[Workspace, Configuration]]:
    """A workspace of nobody's, with the shipped policies, that leaves no state behind."""
    from executor.configuration import Configuration, shipped_policies
    from executor.disk.workspace import open_workspace
    from executor.policy import resolve_policies
    from executor.settings import Settings, StateSettings

    with TemporaryDirectory(prefix="hook-executor-doctor-") as place:
        for name in ("workspace", "state"):
            Path(place, name).mkdir()
        Path(place, "workspace").chmod(0o755)
        Path(place).chmod(0o711)
        workspace = open_workspace(Path(place, "workspace"))
        settings = Settings(state=StateSettings(dir=str(Path(place, "state"))))
        try:
            yield workspace, Configuration(settings, resolve_policies(shipped_policies(), {}), ())
        finally:
            workspace.close()


def _trivial_job(
    workspace: Workspace, configuration: Configuration, sandboxes: Sandboxes, backend: str
) -> Job:
    """The job of a hook that runs ``true``."""
    from executor.check.explain import sample_event
    from executor.errors import Unavailable
    from executor.hooks import Hook, parse_action
    from executor.in_force import grounds_for
    from executor.job import Job
    from executor.plan import compile_job
    from executor.registry import subscribe

    event = sample_event("turn_complete")
    action = parse_action({"command": "true"}, event=event.name)
    hook = Hook("doctor", event.name, action, True, None, None, "")
    subscription = subscribe("doctor", hook, configuration, lambda _: backend)
    grounds = grounds_for(workspace, configuration, sandboxes.places)
    planned = compile_job(
        event,
        subscription,
        grounds.resolver.files(action, subscription.policy),
        grounds.place(subscription.policy, backend),
        grounds.identity,
        run_id="run_doctor",
        max_payload_bytes=configuration.settings.limits.max_payload_bytes,
        max_timeout_ms=configuration.settings.limits.max_timeout_ms,
    )
    if not isinstance(planned, Job):
        raise Unavailable(planned.reason or "no job could be made")
    return planned


def _print(findings: list[Finding]) -> None:
    from executor.cli.output import print_table, say, talk

    rows = [
        (
            finding.name,
            "works" if finding.holds else "does not work",
            "\n".join([f"{key} {value}" for key, value in finding.details.items()])
            or finding.message,
            finding.remedy,
        )
        for finding in findings
    ]
    print_table(("sandbox", "state", "what", "what mends it"), rows)
    for finding in findings:
        for warning in finding.warnings:
            talk(f"warning: {warning}")
        if finding.controls:
            say(f"in force in a started {finding.name} sandbox:")
            print_table(
                ("control", "in force", "must be", "read back"),
                (
                    (
                        one.name,
                        "yes" if one.in_force else "NO",
                        "yes" if one.mandatory else "",
                        one.detail,
                    )
                    for one in finding.controls
                ),
            )


def _print_json(findings: list[Finding]) -> None:
    from executor.cli.output import print_json

    print_json(
        {
            "backends": [
                {
                    "name": finding.name,
                    "works": finding.holds,
                    "details": finding.details,
                    "message": finding.message or None,
                    "remedy": finding.remedy or None,
                    "warnings": finding.warnings,
                    "controls": [
                        {
                            "name": one.name,
                            "in_force": one.in_force,
                            "mandatory": one.mandatory,
                            "detail": one.detail,
                        }
                        for one in finding.controls
                    ],
                }
                for finding in findings
            ]
        }
    )
