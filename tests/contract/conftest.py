"""Which backends must keep the contract here, and how does a test run one hook on one of them?"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from executor import Executor, Record, Unavailable
from tests.support import TOOL_CALL, Run, Workspace, missing


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(
    params=[
        pytest.param("docker", marks=pytest.mark.docker),
        pytest.param("namespace", marks=pytest.mark.namespace),
    ]
)
def sandbox(request: pytest.FixtureRequest, available: Mapping[str, str | None]) -> str:
    """The kind of sandbox; every contract test runs once on each."""
    kind: str = request.param
    reason = available[kind]
    if reason is not None:
        missing(kind, reason)
    return kind


@pytest.fixture(scope="session")
def available(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str | None]:
    """For each backend, why it does not work here; None where it does."""
    directory = tmp_path_factory.mktemp("probe")
    (directory / "hooks.json").write_text('{"hooks": {"turn_complete": [{"command": "true"}]}}')
    reasons: dict[str, str | None] = {}
    for kind in ("docker", "namespace"):
        try:
            with Executor.open_blocking(directory, sandbox=kind):
                reasons[kind] = None
        except Unavailable as unavailable:
            reasons[kind] = str(unavailable)
    return reasons


@pytest.fixture
def run(workspace: Workspace, sandbox: str) -> Run:
    """Run one hook on ``tool_call`` (or another event) and give its record."""

    async def once(
        action: Mapping[str, object],
        *,
        event: str = "tool_call",
        payload: Mapping[str, object] = TOOL_CALL,
        session_id: str = "sess_test",
    ) -> Record:
        workspace.hooks({event: [action]})
        async with Executor.open(workspace.path, sandbox=sandbox) as executor:
            receipt = executor.emit(event, payload, session_id=session_id)
            assert receipt.accepted
            (record,) = await receipt.wait()
        return record

    return once
