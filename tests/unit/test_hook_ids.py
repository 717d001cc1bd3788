"""Does a hook keep its id, and is no id given twice?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from executor.hook_ids import HookIds
from executor.hooks import Hook, parse_hooks


@pytest.fixture
def ids(tmp_path: Path) -> HookIds:
    return HookIds(tmp_path / "state")


def hooks(*entries: dict[str, object]) -> tuple[Hook, ...]:
    return parse_hooks(json.dumps({"hooks": {"error": list(entries)}}).encode())


def named(settled: tuple[Hook, ...]) -> list[tuple[str, str | None]]:
    return [(hook.action.command, hook.id) for hook in settled]


def test_an_id_in_the_file_is_kept_and_its_number_not_given_again(ids: HookIds) -> None:
    settled = ids.settle(hooks({"command": "a", "id": "hook_07"}, {"command": "b"}))
    assert named(settled) == [("a", "hook_07"), ("b", "hook_08")]


def test_the_number_of_a_hook_that_is_gone_is_not_given_again(ids: HookIds) -> None:
    ids.settle(hooks({"command": "a"}, {"command": "b"}))
    ids.settle(hooks({"command": "a"}))
    assert named(ids.settle(hooks({"command": "a"}, {"command": "b"}))) == [
        ("a", "hook_01"),
        ("b", "hook_03"),
    ]


def test_an_edited_hook_keeps_its_id_and_its_first_time(ids: HookIds) -> None:
    (before,) = ids.settle(hooks({"command": "a"}))
    (after,) = ids.settle(hooks({"command": "a", "args": ["--more"]}))
    assert (after.id, after.created_at) == (before.id, before.created_at)


def test_the_same_words_are_the_same_hook_wherever_they_stand(ids: HookIds) -> None:
    first: dict[str, object] = {"command": "p", "args": ["1"]}
    second: dict[str, object] = {"command": "p", "args": ["2"]}
    before = ids.settle(hooks(first, second))
    after = ids.settle(hooks(second, first))
    assert [hook.id for hook in after] == [before[1].id, before[0].id]


def test_looking_remembers_nothing(ids: HookIds, tmp_path: Path) -> None:
    assert named(ids.settle(hooks({"command": "a"}), keep=False)) == [("a", "hook_01")]
    assert not (tmp_path / "state").exists()


def test_a_broken_memory_is_no_memory(ids: HookIds, tmp_path: Path) -> None:
    ids.settle(hooks({"command": "a"}))
    for text in ("{", "[]", '{"next": "x", "known": []}', '{"next": 1, "known": [[1]]}'):
        (tmp_path / "state" / "hook_ids.json").write_text(text)
        fresh = HookIds(tmp_path / "state")
        assert named(fresh.settle(hooks({"command": "a"}))) == [("a", "hook_01")]


def test_a_fresh_id_is_beyond_all_that_were_ever_given(ids: HookIds) -> None:
    settled = ids.settle(hooks({"command": "a"}, {"command": "b", "id": "hook_40"}))
    assert ids.fresh(settled) == "hook_42"
    assert ids.fresh(settled) == "hook_43"
