"""Depth follows the chain of causes, not the clock and not a counter."""

from __future__ import annotations

import threading

import anyio
import anyio.to_thread
import pytest

from executor import depth


def test_the_outermost_event_has_depth_1() -> None:
    assert depth.handled_depth() == 0
    assert depth.next_depth() == 1


def test_what_is_emitted_while_handling_is_one_deeper_and_the_block_ends_that() -> None:
    with depth.handling(3):
        assert depth.next_depth() == 4
        with depth.handling(1):
            assert depth.next_depth() == 2
        assert depth.next_depth() == 4
    assert depth.next_depth() == 1


@pytest.mark.anyio
async def test_it_crosses_tasks_and_threads_and_nine_siblings_do_not_add_up() -> None:
    seen: list[int] = []

    async def sibling() -> None:
        with depth.handling(depth.next_depth()):
            seen.append(await anyio.to_thread.run_sync(depth.next_depth))

    with depth.handling(1):
        async with anyio.create_task_group() as group:
            for _ in range(9):
                group.start_soon(sibling)
    assert seen == [3] * 9
    assert depth.next_depth() == 1


def test_a_bare_thread_begins_a_chain_of_its_own() -> None:
    seen: list[int] = []
    with depth.handling(5):
        thread = threading.Thread(target=lambda: seen.append(depth.next_depth()))
        thread.start()
        thread.join()
    assert seen == [1]


def test_a_child_process_inherits_it_by_its_environment() -> None:
    assert depth.environment() == {}
    with depth.handling(4):
        assert depth.inherited_depth(depth.environment()) == 4


@pytest.mark.parametrize("lie", ["", "-3", "0", "x", "1.5", "٣", " 2", "0x2"])
def test_what_is_no_depth_in_the_environment_counts_as_none(lie: str) -> None:
    assert depth.inherited_depth({"ZERO_HOOK_DEPTH": lie}) == 0


def test_a_huge_depth_in_the_environment_is_the_deepest_and_no_more() -> None:
    assert depth.inherited_depth({"ZERO_HOOK_DEPTH": "9" * 10_000}) == depth.MAX_DEPTH
