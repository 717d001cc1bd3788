"""Do the guards hold one hook back, and let it go again?"""

from __future__ import annotations

import pytest

from executor.guards import (
    FAILURES,
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    Breaker,
    Rate,
    Slots,
)
from executor.outcome import Cause, Outcome, Status, dropped, error, refused


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


OK = Outcome(Status.OK, Cause.EXIT, exit_code=0)
FAILED = Outcome(Status.FAILED, Cause.EXIT, exit_code=1)


def test_slots_let_in_so_many_and_hand_each_on_in_order() -> None:
    slots: Slots[str] = Slots()
    assert [slots.enter("h", name, 2) for name in "abcd"] == [True, True, False, False]
    assert slots.enter("other", "x", 2)
    assert slots.waiting == 2
    assert [slots.leave("h"), slots.leave("h"), slots.leave("h"), slots.leave("h")] == [
        "c",
        "d",
        None,
        None,
    ]
    assert slots.enter("h", "e", 2)


def test_what_waits_aside_can_be_taken_out() -> None:
    slots: Slots[str] = Slots()
    for name in "abc":
        slots.enter("h", name, 1)
    assert list(slots.empty()) == ["b", "c"]
    assert slots.leave("h") is None


def test_a_rate_lets_through_a_minutes_worth_and_then_steadily(clock: Clock) -> None:
    rate = Rate(clock)
    assert sum(rate.admits("h", 6) for _ in range(20)) == 6
    assert rate.admits("other", 6)
    clock.now += 10
    assert [rate.admits("h", 6), rate.admits("h", 6)] == [True, False]
    clock.now += 3600
    assert sum(rate.admits("h", 6) for _ in range(20)) == 6


def broken(breaker: Breaker, times: int = FAILURES) -> None:
    for _ in range(times):
        assert breaker.refusal("h") is None
        breaker.note("h", error("no cgroup"))


def test_a_hook_is_paused_after_failures_in_a_row_and_resumes_by_itself(clock: Clock) -> None:
    breaker = Breaker(clock)
    broken(breaker)
    refusal = breaker.refusal("h")
    assert refusal is not None
    assert (refusal.status, refusal.cause) == (Status.ERROR, Cause.SETUP)
    assert "paused" in (refusal.reason or "")
    assert "no cgroup" in (refusal.reason or "")
    assert breaker.refusal("other") is None
    assert (list(breaker.paused()), breaker.trips) == (["h"], 1)
    clock.now += FIRST_PAUSE_SECONDS + 1
    assert breaker.refusal("h") is None
    assert breaker.refusal("h") is not None, "one at a time may try"
    breaker.note("h", OK)
    assert breaker.refusal("h") is None
    assert breaker.paused() == {}


def test_each_failed_try_doubles_the_pause_up_to_a_limit(clock: Clock) -> None:
    breaker = Breaker(clock)
    broken(breaker)
    pauses = []
    for _ in range(8):
        until = breaker.paused()["h"].until
        assert until is not None
        pauses.append(until - clock.now)
        clock.now = until + 0.001
        assert breaker.refusal("h") is None
        breaker.note("h", error("still", Cause.ENGINE_LOST))
    assert pauses[:3] == pytest.approx([10, 20, 40])
    assert pauses[-1] == pytest.approx(LONGEST_PAUSE_SECONDS)
    assert breaker.trips == 9


@pytest.mark.parametrize("outcome", [OK, FAILED, error("absent", Cause.NOT_FOUND)])
def test_a_sandbox_that_started_ends_the_row(clock: Clock, outcome: Outcome) -> None:
    breaker = Breaker(clock)
    broken(breaker, FAILURES - 1)
    breaker.note("h", outcome)
    broken(breaker, FAILURES - 1)
    assert breaker.refusal("h") is None


@pytest.mark.parametrize("outcome", [refused("policy"), dropped("full", Cause.QUEUE)])
def test_an_end_that_says_nothing_of_sandboxes_changes_nothing(
    clock: Clock, outcome: Outcome
) -> None:
    breaker = Breaker(clock)
    broken(breaker)
    clock.now += FIRST_PAUSE_SECONDS + 1
    assert breaker.refusal("h") is None
    breaker.note("h", outcome)
    assert breaker.refusal("h") is None, "the next one may try"
    assert list(breaker.paused()) == ["h"]


def test_a_change_of_the_configuration_lets_it_try_at_once(clock: Clock) -> None:
    breaker = Breaker(clock)
    broken(breaker)
    breaker.clear()
    assert breaker.refusal("h") is None
