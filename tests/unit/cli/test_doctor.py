"""``doctor``: exit codes, and what counts as old."""

from __future__ import annotations

import pytest

from executor.backends.base import Control
from executor.cli.doctor import is_old_runc
from executor.errors import Unavailable
from executor.sandboxes import Sandboxes
from executor.testing import FakeBackend
from tests.unit.cli.conftest import Call


@pytest.mark.parametrize(
    ("version", "old"),
    [
        ("1.1.5+ds1", True),
        ("1.2.7", True),
        ("1.2.8", False),
        ("1.3.2", True),
        ("1.3.3", False),
        ("1.4.0", False),
        ("2.0.0", False),
        ("unknown", False),
    ],
)
def test_an_old_runc_is_known(version: str, old: bool) -> None:
    assert is_old_runc(version) is old


def test_what_works_is_exit_code_0(call: Call, fake: FakeBackend) -> None:
    answer = call("doctor", "--json")
    assert answer.code == 0
    assert [(one["name"], one["works"]) for one in answer.json["backends"]] == [
        ("docker", True),
        ("namespace", True),
    ]
    assert call("doctor", "--sandbox", "namespace").out.count("works") == 1


@pytest.mark.parametrize(("engines", "code"), [((True, True), 4), ((True, False), 3)])
def test_nothing_that_works_is_exit_code_3_or_4(
    call: Call, monkeypatch: pytest.MonkeyPatch, engines: tuple[bool, bool], code: int
) -> None:
    kinds = dict(zip(("docker", "namespace"), engines, strict=True))

    async def place(self: Sandboxes, name: str, *rest: object) -> None:
        raise Unavailable(f"no {name}", remedy=f"get {name}", engine=kinds[name])

    monkeypatch.setattr(Sandboxes, "_place", place)
    answer = call("doctor")
    assert answer.code == code
    assert "get namespace" in answer.out


def test_a_mandatory_control_that_is_not_in_force_does_not_work(
    call: Call, fake: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def inspect(self: FakeBackend, job: object) -> tuple[Control, ...]:
        return (Control("no network", in_force=False, mandatory=True, detail="eth0"),)

    monkeypatch.setattr(FakeBackend, "inspect", inspect)
    assert call("doctor").code == 0
    answer = call("doctor", "--isolation")
    assert answer.code == 3
    assert "eth0" in answer.out
