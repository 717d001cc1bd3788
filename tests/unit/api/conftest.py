"""An API over a workspace with a fake sandbox, spoken to without a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from executor import Executor
from executor.api.server import shell_of
from executor.api.service import Service
from executor.api.tokens import Scope, Tokens
from executor.backends.base import Backend
from executor.ledger.recent import Recent
from executor.testing import FakeBackend
from tests.support import Workspace

HOSTS = ("127.0.0.1", "localhost")


@pytest.fixture
def anyio_backend() -> str:
    """The API's server lives on asyncio alone."""
    return "asyncio"


@dataclass
class Api:
    """A client with all scopes, and what stands behind it."""

    client: httpx2.AsyncClient
    service: Service
    backend: Any
    workspace: Workspace

    def bare(self, token: str | None = None) -> httpx2.AsyncClient:
        """Another client, with this token or none."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx2.AsyncClient(
            transport=self.client._transport, base_url="http://127.0.0.1:8787", headers=headers
        )


@asynccontextmanager
async def opened(workspace: Workspace, backend: Backend | None = None) -> AsyncIterator[Api]:
    recent = Recent()
    fake = backend or FakeBackend()
    async with Executor.open(workspace.path, backends={"fake": fake}, sinks=[recent]) as executor:
        tokens = Tokens(executor.live.state)
        secret, _ = tokens.create(Scope)
        service = Service(executor, recent, tokens)
        transport = httpx2.ASGITransport(app=shell_of(service, HOSTS), raise_app_exceptions=False)
        async with httpx2.AsyncClient(
            transport=transport,
            base_url="http://127.0.0.1:8787",
            headers={"Authorization": f"Bearer {secret}"},
        ) as client:
            yield Api(client, service, fake, workspace)


@pytest.fixture
async def api(workspace: Workspace) -> AsyncIterator[Api]:
    async with opened(workspace) as one:
        yield one
