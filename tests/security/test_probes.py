"""Does every attempt to break out fail, and would it have succeeded without the walls?"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping

import pytest

from executor import Executor
from tests.security.batches import TOGETHER, Batch, Controls, places, run_batch
from tests.security.canary import Canary
from tests.security.conftest import STAGES, watched
from tests.security.probe import Line, Outside, Probe
from tests.security.probes import (
    files,
    kernel,
    leaks,
    limits,
    links,
    machine,
    network as network_probes,
    privileges,
    processes,
    system_calls,
)
from tests.security.report import ELSEWHERE, Report
from tests.security.stage import ROOT, Python, Stage, User, make_stage
from tests.support import TOOL_CALL, Workspace

PROBES: tuple[Probe, ...] = (
    *network_probes.PROBES,
    *files.PROBES,
    *links.PROBES,
    *kernel.PROBES,
    *leaks.PROBES,
    *processes.PROBES,
    *privileges.PROBES,
    *limits.PROBES,
    *machine.PROBES,
    *system_calls.PROBES,
)

Batches = Callable[[str, str], Batch]


@pytest.fixture(scope="session")
def batches(
    available: Mapping[str, str | None],
    ordinary: User,
    interpreter: Python,
    network: Mapping[str, object],
    canary: Canary,
) -> Batches:
    """A section's probes on one stage, run when the first of them is asked for."""
    known: dict[tuple[str, str], Batch | BaseException] = {}

    def batch(kind: str, one: str) -> Batch:
        sections = next(sections for sections in TOGETHER if one in sections)
        if (kind, sections) not in known:
            try:
                known[kind, sections] = run(kind, sections)
            except (Exception, pytest.skip.Exception) as failure:  # noqa: BLE001  (kept, raised)
                known[kind, sections] = failure
        found = known[kind, sections]
        if isinstance(found, BaseException):
            raise found
        return found

    def run(kind: str, sections: str) -> Batch:
        chosen = tuple(probe for probe in PROBES if probe.section in sections)
        stages: Iterator[Stage] = watched(kind, available, ordinary, interpreter)
        stage = next(stages)
        try:
            return run_batch(stage, chosen, places(stage, network, canary), canary)
        finally:
            next(stages, None)

    return batch


@pytest.fixture(scope="session")
def controls(
    interpreter: Python, network: Mapping[str, object], canary: Canary
) -> Iterator[Controls]:
    """The same attempts, outside."""
    made: list[Stage] = []

    def make() -> tuple[Stage, dict[str, object]]:
        us = User("us", os.geteuid(), os.getegid())
        stage = make_stage("none", us, interpreter)
        made.append(stage)
        return stage, places(stage, network, canary)

    yield Controls(make)
    for stage in made:
        shutil.rmtree(stage.top, ignore_errors=True)


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: f"{probe.number}")
@pytest.mark.parametrize("kind", STAGES)
def test_the_attempt_fails_in_the_sandbox(
    kind: str, probe: Probe, batches: Batches, report: Report
) -> None:
    backend, _, user = kind.partition("-")
    try:
        batch = batches(kind, probe.section)
    except pytest.skip.Exception as skipped:
        line = Line(probe.number, probe.name, backend, user, f"not run: {skipped}", "")
        report.add(line)
        raise
    wrong = [probe.escaped(result[probe.number]) for result in batch.results]
    wrong = [fault for fault in wrong if fault is not None]
    seen = batch.results[0][probe.number]["said"]
    words = " ".join(dict.fromkeys(seen.split()))
    stopped_by = str(wrong[0]) if wrong else f"{probe.wall} ({words[:40]})"
    outcome = "ESCAPED" if wrong else "held"
    report.add(Line(probe.number, probe.name, backend, user, outcome, stopped_by))
    assert not wrong


@pytest.mark.parametrize("section", [sections[0] for sections in TOGETHER])
@pytest.mark.parametrize("kind", STAGES)
def test_a_section_reaches_nobody_and_leaves_nothing(
    kind: str, section: str, batches: Batches
) -> None:
    batch = batches(kind, section)
    assert batch.reached == ()
    assert batch.granted == ()


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: f"{probe.number}")
def test_the_attempt_succeeds_where_there_is_no_wall(probe: Probe, controls: Controls) -> None:
    result = controls.result(probe, PROBES)
    if result is None:
        pytest.skip(probe.no_control or "only root can make this attempt outside")
    assert probe.proves(result), result


def test_every_probe_has_a_number_of_its_own() -> None:
    numbers = [probe.number for probe in PROBES]
    assert len(numbers) == len(set(numbers))


def test_a_control_is_left_out_only_for_a_reason() -> None:
    assert all(probe.no_control for probe in PROBES if probe.outside is Outside.NOWHERE)


def test_what_is_made_elsewhere_is_there() -> None:
    assert all((ROOT / file).is_file() for _, file in ELSEWHERE.values())


@pytest.mark.anyio
async def test_a_policy_with_hosts_is_refused_while_there_is_no_proxy(
    workspace: Workspace, sandbox: str
) -> None:
    workspace.policy_for_all('[network]\nallow = ["example.com:443"]\n')
    workspace.hooks({"tool_call": [{"command": "true"}]})
    async with Executor.open(workspace.path, sandbox=sandbox) as executor:
        (record,) = await executor.emit("tool_call", TOOL_CALL).wait()
    assert record.outcome.status.value == "refused"
