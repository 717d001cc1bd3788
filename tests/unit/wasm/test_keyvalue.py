"""Is a plugin's store bounded, whatever a worker asks?"""

from __future__ import annotations

from hypothesis import given, strategies

from executor.wasm.keyvalue import ENTRY_BYTES, MAX_KEY_CHARACTERS, KeyValue

LIMIT = 1000
QUESTIONS = ("get", "set", "delete", "list-keys", "increment", "drop everything")


def test_what_was_set_is_there_until_it_is_deleted() -> None:
    store = KeyValue(LIMIT)
    assert store.answer("get", "a", b"") == (False, b"")
    assert store.answer("set", "a", b"\x00\xff") == (True, b"")
    assert store.answer("get", "a", b"") == (True, b"\x00\xff")
    assert store.answer("delete", "a", b"") == (True, b"")
    assert store.answer("delete", "a", b"") == (False, b"")
    assert store.size == 0


def test_a_full_store_refuses_and_keeps_what_it_has() -> None:
    store = KeyValue(LIMIT)
    room = LIMIT - ENTRY_BYTES - 1
    assert store.answer("set", "a", b"x" * room) == (True, b"")
    assert store.answer("set", "b", b"") == (False, b"the store is full: 1000 bytes")
    assert store.answer("set", "a", b"x" * (room + 1))[0] is False
    assert store.answer("get", "a", b"") == (True, b"x" * room)
    assert store.answer("set", "a", b"") == (True, b"")
    assert store.answer("set", "b", b"") == (True, b"")


def test_increment_counts_from_nothing_and_refuses_what_is_no_number() -> None:
    store = KeyValue(LIMIT)
    assert store.answer("increment", "n", b"2") == (True, b"2")
    assert store.answer("increment", "n", b"-5") == (True, b"-3")
    store.answer("set", "t", b"text")
    assert store.answer("increment", "t", b"1") == (False, b"the value is no number")
    assert store.answer("increment", "n", str(2**63 + 9).encode())[0] is False


def test_keys_are_listed_by_prefix() -> None:
    store = KeyValue(LIMIT)
    for key in ("a:1", "b:1", "a:2"):
        store.answer("set", key, b"")
    assert store.answer("list-keys", "a:", b"") == (True, b"a:1\0a:2")
    assert store.answer("list-keys", "c", b"") == (True, b"")


@given(
    strategies.lists(
        strategies.tuples(
            strategies.sampled_from(QUESTIONS),
            strategies.text(max_size=MAX_KEY_CHARACTERS + 1) | strategies.just("k\ud800"),
            strategies.binary(max_size=LIMIT),
        ),
        max_size=30,
    )
)
def test_no_sequence_of_questions_grows_it_beyond_its_limit(
    questions: list[tuple[str, str, bytes]],
) -> None:
    store = KeyValue(LIMIT)
    for question, key, value in questions:
        found, answer = store.answer(question, key, value)
        assert isinstance(found, bool)
        assert isinstance(answer, bytes)
        assert 0 <= store.size <= LIMIT
