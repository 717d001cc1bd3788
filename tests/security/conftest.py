"""On which stages are the attempts made, and what is reported of them?"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path

import pytest

from tests.contract.conftest import anyio_backend, available, sandbox
from tests.security.canary import Canary, test_host
from tests.security.probe import Line
from tests.security.report import Report
from tests.security.stage import Python, Stage, User, make_stage, python_for
from tests.support import missing

__all__ = ["anyio_backend", "available", "sandbox"]

STAGES = [
    pytest.param("docker-root", marks=pytest.mark.docker),
    pytest.param("namespace-root", marks=pytest.mark.namespace),
    pytest.param("namespace-user", marks=pytest.mark.namespace),
]


def pytest_configure(config: pytest.Config) -> None:
    """The report of this session."""
    config.stash[Report.key] = Report()
    config.addinivalue_line("markers", "probe(number, attempt, wall): one line of the report")


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """One line a probe where ``make security`` asks for them."""
    if os.environ.get("HOOK_EXECUTOR_SECURITY_REPORT"):
        for line in config.stash[Report.key].text():
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def report(pytestconfig: pytest.Config) -> Report:
    return pytestconfig.stash[Report.key]


@pytest.fixture(scope="session")
def ordinary() -> User:
    """An id that belongs to nobody else, so that its processes are ours; without root, we."""
    if os.geteuid() != 0:
        return User("user", os.geteuid(), os.getegid())
    number = 310_000 + secrets.randbelow(80_000)
    return User("user", number, number)


@pytest.fixture(scope="session")
def interpreter(ordinary: User) -> Iterator[Python]:
    """What the ordinary user runs."""
    spare = Path(tempfile.mkdtemp(prefix="hook-security-python-"))
    spare.chmod(0o755)
    yield python_for(ordinary, spare)
    shutil.rmtree(spare)


@pytest.fixture(scope="session")
def canary() -> Iterator[Canary]:
    canary = Canary()
    yield canary
    canary.close()


@pytest.fixture(scope="session")
def network(canary: Canary) -> Iterator[Mapping[str, object]]:
    """Where the canary listens: what the probes of section A aim at."""
    with test_host(canary) as beyond:
        name = f"hook-security-{os.getpid()}"
        canary.unix("abstract", b"\0" + name.encode())
        yield {
            "port": canary.tcp("loopback", "127.0.0.1"),
            "port6": canary.tcp("loopback 6", "::1", 10) if _has_ipv6() else 1,
            "abstract": name,
            "host": beyond[0] if beyond else "192.0.2.2",
            "host_port": beyond[1] if beyond else 9,
            "has_host": beyond is not None,
        }


def _has_ipv6() -> bool:
    return Path("/proc/net/if_inet6").exists()


@pytest.fixture(params=STAGES)
def stage(
    request: pytest.FixtureRequest,
    available: Mapping[str, str | None],
    ordinary: User,
    interpreter: Python,
) -> Iterator[Stage]:
    """One test's own stage. Whatever it does, the host is afterwards as it was before."""
    yield from watched(request.param, available, ordinary, interpreter)


def watched(
    kind: str, available: Mapping[str, str | None], ordinary: User, interpreter: Python
) -> Iterator[Stage]:
    """A stage with its end; skips where there is no such stage here."""
    sandbox, _, who = kind.partition("-")
    if (reason := available[sandbox]) is not None:
        missing(sandbox, reason)
    if who == "root" and os.geteuid() != 0:
        pytest.skip("root: the tests are run by an ordinary user")
    user = ordinary if who == "user" else User("root", 0, 0)
    # Both of root's ways: hooks as the workspace's owner, and as the private id.
    owner = ordinary if sandbox == "docker" else user
    stage = make_stage(sandbox, user, interpreter, owner)
    try:
        yield stage
    finally:
        shutil.rmtree(stage.top, ignore_errors=True)


@pytest.fixture(autouse=True)
def reported(request: pytest.FixtureRequest, report: Report) -> Iterator[None]:
    """A test that is marked ``probe(number, attempt, wall)`` is a line of the report."""
    yield
    marker = request.node.get_closest_marker("probe")
    if marker is None:
        return
    number, attempt, wall = marker.args
    call = getattr(request.node, "callspec", None)
    parameters = {} if call is None else dict(call.params)
    backend = parameters.pop("sandbox", parameters.pop("stage", "-"))
    parameters.pop("anyio_backend", None)
    if parameters:
        attempt = f"{attempt}: {', '.join(map(str, parameters.values()))}"
    backend, _, user = backend.partition("-")
    outcome = request.node.stash.get(ENDED, "held")
    who = user or ("root" if os.geteuid() == 0 else "user")
    report.add(Line(number, attempt, backend or "-", who, outcome, wall))


ENDED = pytest.StashKey[str]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """So that ``reported`` knows how its test ended."""
    answer = yield
    if answer.skipped and isinstance(answer.longrepr, tuple):
        item.stash[ENDED] = f"not run: {answer.longrepr[2].removeprefix('Skipped: ')}"
    elif answer.failed:
        item.stash[ENDED] = "ESCAPED"
    return answer
