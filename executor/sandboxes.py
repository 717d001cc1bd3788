"""Which sandboxes does this machine offer to these policies?

``auto`` is resolved once, at start: Docker where an engine answers and the image is there, else the
namespace backend, else a refusal with both reasons. There is no unsandboxed mode. Backends are
imported only where a policy names them, so that nobody pays for an engine client unasked.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager

import anyio.to_thread

from executor.backends.base import Backend
from executor.disk.instance import Instance
from executor.errors import Unavailable
from executor.plan import Place
from executor.policy import Policy

AUTO, DOCKER, NAMESPACE = "auto", "docker", "namespace"


class Sandboxes:
    """The opened backends, and the resolved root of each policy on its backend."""

    def __init__(self, override: str | None) -> None:
        self._override = override
        self._instance: Instance | None = None
        self._settled: dict[str, Policy] = {}
        self._chosen: dict[str, str] = {}
        self.backends: dict[str, Backend] = {}
        self.places: dict[tuple[str, str], Place] = {}

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        override: str | None,
        given: Mapping[str, Backend] | None,
        policies: Iterable[Policy],
    ) -> AsyncIterator[Sandboxes]:
        """Open what the policies need; closing leaves nothing behind.

        Raises Unavailable where a policy's backend does not work here.
        """
        self = cls(override)
        if given is not None:
            self.backends.update(given)
            for policy in policies:
                self._settle(policy, next(iter(given)), Place())
            yield self
            return
        self._instance = instance = Instance.open()
        try:
            for policy in policies:
                await self._prepare(policy, instance)
            for backend in self.backends.values():
                await backend.sweep()
            await anyio.to_thread.run_sync(instance.forget_dead)
            yield self
        finally:
            with anyio.CancelScope(shield=True):
                for backend in self.backends.values():
                    await backend.close()
                instance.close()

    async def again(self, policies: Iterable[Policy]) -> Sandboxes:
        """The same backends for other policies; a policy that did not change keeps its root.

        Raises Unavailable as ``open`` does; what is in force is not touched.
        """
        other = Sandboxes(self._override)
        other._instance, other.backends = self._instance, self.backends
        for policy in policies:
            if self._settled.get(policy.name) == policy:
                backend = self._chosen[policy.name]
                other._settle(policy, backend, self.places[policy.name, backend])
            elif self._instance is None:
                other._settle(policy, next(iter(self.backends)), Place())
            else:
                await other._prepare(policy, self._instance)
        return other

    def backend_of(self, policy: Policy) -> str:
        """The backend that was chosen for this policy."""
        return self._chosen.get(policy.name, self._override or policy.sandbox.backend)

    def _settle(self, policy: Policy, backend: str, place: Place) -> None:
        self._settled[policy.name] = policy
        self._chosen[policy.name] = backend
        self.places[policy.name, backend] = place

    async def _prepare(self, policy: Policy, instance: Instance) -> None:
        wanted = self._override or policy.sandbox.backend
        if wanted != AUTO:
            self._settle(policy, wanted, await self._place(wanted, policy, instance))
            return
        reasons: dict[str, Unavailable] = {}
        for candidate in (DOCKER, NAMESPACE):
            try:
                place = await self._place(candidate, policy, instance)
            except Unavailable as missing:
                reasons[candidate] = missing
                continue
            self._settle(policy, candidate, place)
            return
        raise _nowhere(reasons)

    async def _place(self, backend: str, policy: Policy, instance: Instance) -> Place:
        """The root of one policy on one backend; opens the backend at its first use."""
        if backend == DOCKER:
            return await self._docker_place(policy, instance)
        return await self._namespace_place(policy, instance)

    async def _docker_place(self, policy: Policy, instance: Instance) -> Place:
        from executor.backends.docker import DockerBackend

        backend = self.backends.get(DOCKER)
        if not isinstance(backend, DockerBackend):
            backend = DockerBackend(instance=instance)
            await backend.probe()
            self.backends[DOCKER] = backend
        image = await backend.image(policy.sandbox.image)
        return Place(image=image.id, digest=image.digest)

    async def _namespace_place(self, policy: Policy, instance: Instance) -> Place:
        from executor.backends.namespace import NamespaceBackend

        if NAMESPACE not in self.backends:
            backend = NamespaceBackend(instance=instance)
            await anyio.to_thread.run_sync(backend.probe)
            self.backends[NAMESPACE] = backend
        name = policy.sandbox.root
        if name == "host":
            return Place()
        from executor import images

        image = await anyio.to_thread.run_sync(images.required, name)
        return Place(root=str(image.root), digest=image.digest)


def _nowhere(reasons: Mapping[str, Unavailable]) -> Unavailable:
    """Why no backend will do; where all say the same (one lock directory, one image), just that."""
    texts = {str(reason) for reason in reasons.values()}
    if len(texts) == 1:
        return next(iter(reasons.values()))
    told = "; ".join(f"{backend}: {reason}" for backend, reason in reasons.items())
    return Unavailable(
        f"no sandbox works here: {told}",
        remedy="hook-executor doctor",
        engine=all(reason.engine for reason in reasons.values()),
    )
