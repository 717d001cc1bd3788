"""Where no sandbox can be had: is the reason told once, and is the remedy one?"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from executor import images
from executor.backends.docker import DockerBackend
from executor.errors import Unavailable
from executor.policy import Policy
from executor.sandboxes import Sandboxes

pytestmark = pytest.mark.anyio


async def refusal(monkeypatch: pytest.MonkeyPatch, reasons: Mapping[str, Unavailable]) -> str:
    async def place(self: Sandboxes, name: str, *rest: object) -> None:
        raise reasons[name]

    monkeypatch.setattr(Sandboxes, "_place", place)
    with pytest.raises(Unavailable) as told:
        async with Sandboxes.open(None, None, [Policy(name="p")]):
            pass
    return str(told.value)


async def test_one_reason_of_both_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = Unavailable("the image is not built", remedy="build it")
    told = await refusal(monkeypatch, {"docker": reason, "namespace": reason})
    assert told == "the image is not built. Remedy: build it"


async def test_two_reasons_are_told_by_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    reasons = {"docker": Unavailable("no engine"), "namespace": Unavailable("no namespaces")}
    told = await refusal(monkeypatch, reasons)
    assert "docker: no engine; namespace: no namespaces" in told


def test_an_image_that_nobody_defined_is_not_to_be_built() -> None:
    with pytest.raises(Unavailable, match='no image "node" is defined') as told:
        images.required("node")
    assert "images build" not in str(told.value)
    assert "base, python" in told.value.remedy
    with pytest.raises(Unavailable, match='did you mean "python"') as told:
        images.required("pyton")


def test_an_image_that_is_defined_is_to_be_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("executor.images.cache.find", lambda name: None)
    with pytest.raises(Unavailable, match="is not built") as told:
        images.required("python")
    assert told.value.remedy == "hook-executor images build python"


async def test_both_backends_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answers(self: DockerBackend) -> None:
        return

    monkeypatch.setattr(DockerBackend, "probe", answers)
    monkeypatch.setattr("executor.backends.namespace.NamespaceBackend.probe", lambda self: None)
    policy = Policy.model_validate({"name": "p", "sandbox": {"image": "node", "root": "node"}})
    with pytest.raises(Unavailable) as told:
        async with Sandboxes.open(None, None, [policy]):
            pass
    assert str(told.value).count('no image "node" is defined') == 1
