"""The bus with its server in a container: an image built here, from Debian's own binary."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from executor.bus.base import Message, running
from executor.bus.nats import NatsBus
from executor.settings import BusSettings
from tests.integration.nats_server import binary
from tests.support import missing

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

IMAGE, PORT = "hook-executor-test/nats", 4222


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server in a container that testcontainers started, on a loopback port."""
    import docker
    from testcontainers.core.config import testcontainers_config
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.wait_strategies import LogMessageWaitStrategy

    program = binary()
    try:
        client = docker.from_env()
        client.ping()
    except docker.errors.DockerException as failure:
        missing("docker", str(failure))
        raise
    if not client.networks.list(names=["bridge"]):
        pytest.skip("docker: this engine gives containers no network (--bridge=none)")
    # Its reaper is an image that nobody can pull here; the block below removes what it made.
    testcontainers_config.ryuk_disabled = True
    client.api.import_image_from_data(
        _root(program), repository=IMAGE, changes=[f'ENTRYPOINT ["{program}"]']
    )
    container = (
        DockerContainer(IMAGE)
        .with_kwargs(user="65534:65534")
        .waiting_for(LogMessageWaitStrategy("Server is ready"))
    )
    on_loopback: Any = ("127.0.0.1", None)
    container.ports[f"{PORT}/tcp"] = on_loopback
    try:
        with container:
            wrapped = container.get_wrapped_container()
            wrapped.reload()
            ports: Any = wrapped.ports
            yield f"nats://127.0.0.1:{ports[f'{PORT}/tcp'][0]['HostPort']}"
    finally:
        client.images.remove(IMAGE, force=True)
        client.close()


async def test_the_bus_works_with_a_server_in_a_container(url: str) -> None:
    settings = BusSettings(url=url)
    here, there = NatsBus(settings), NatsBus(settings)
    async with running(here), running(there):
        await here.connected(30)
        await there.connected(30)
        async with there.subscribe("prx.*") as messages:
            for number in range(100):
                here.publish(Message("prx.metrics.x", b'{"n":%d}' % number))
            with anyio.fail_after(60):
                got = [(await anext(messages)).json() for _ in range(100)]
    assert got == [{"n": number} for number in range(100)]


def _root(program: str) -> bytes:
    """A root file system, as a tar archive: the server, and the libraries that it names."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    files = [program, *re.findall(r"(/\S+) \(0x", listed)]
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name in files:
            archive.add(Path(name).resolve(), arcname=name)
    return data.getvalue()
