"""Maps and sequences that share what their versions have in common."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.metadata.image import CHUNK, SORTED_AT_ONCE, PersistentMap, PersistentVector


def test_writing_to_a_table_leaves_earlier_versions_alone() -> None:
    empty: PersistentMap[str, int] = PersistentMap()
    one = empty.put("a", 1)
    two = one.put("a", 2).put("b", 3)
    none = two.drop("a").drop("b")

    assert (len(empty), len(one), len(two), len(none)) == (0, 1, 2, 0)
    assert (empty.get("a"), one.get("a"), two.get("a"), none.get("a")) == (None, 1, 2, None)
    assert none == empty
    assert one != two


def test_a_table_lists_by_key_whatever_the_order_of_writing() -> None:
    forward: PersistentMap[int, int] = PersistentMap()
    backward: PersistentMap[int, int] = PersistentMap()
    for key in range(1_000):
        forward = forward.put(key, -key)
        backward = backward.put(999 - key, key - 999)

    assert forward == backward
    assert forward.keys() == list(range(1_000))
    assert backward.values() == [-key for key in range(1_000)]


def test_what_is_listed_is_the_callers_and_follows_the_map() -> None:
    few: PersistentMap[str, int] = PersistentMap[str, int]().put("b", 2).put("a", 1)

    few.items().clear()
    more = few.put("c", 3).drop("a")

    assert few.items() == [("a", 1), ("b", 2)]
    assert more.items() == [("b", 2), ("c", 3)]


@pytest.mark.parametrize("count", [3, SORTED_AT_ONCE + 1])
def test_a_large_table_is_listed_in_steps_in_the_same_order(count: int) -> None:
    table: PersistentMap[str, int] = PersistentMap()
    for key in range(count):
        table = table.put(f"k{key}", key)

    steps = table.items_in_steps()
    turns = 0
    while True:
        try:
            next(steps)
            turns += 1
        except StopIteration as end:
            found = list(end.value)
            break

    assert found == table.items()
    assert bool(turns) == (count > SORTED_AT_ONCE)


def test_dropping_an_absent_key_answers_the_same_table() -> None:
    table = PersistentMap[str, int]().put("a", 1)

    assert table.drop("b") is table


def test_a_write_copies_one_shard_of_a_large_table() -> None:
    table: PersistentMap[int, int] = PersistentMap()
    for key in range(10_000):
        table = table.put(key, key)

    changed = table.put(5, 0)

    shared = [old is new for old, new in zip(table._shards, changed._shards, strict=True)]
    assert shared.count(False) == 1


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK + 3])
def test_a_series_built_item_by_item_equals_one_built_at_once(size: int) -> None:
    grown: PersistentVector[int] = PersistentVector()
    for item in range(size):
        grown = grown.extended((item,))

    assert grown == PersistentVector(range(size))
    assert list(grown) == list(range(size))
    assert len(grown) == size
    assert [grown[index] for index in range(-size, size)] == [*range(size), *range(size)]


class OneShard(str):
    """Keys that share a shard."""

    __slots__ = ()

    def __hash__(self) -> int:
        return 1


def test_replacing_an_item_leaves_earlier_versions_alone() -> None:
    before = PersistentVector(range(200))

    after = before.replaced(64, -1).replaced(199, -2)

    assert list(before) == list(range(200))
    assert [n for n in after if n < 0] == [-1, -2]
    assert (after[64], after[-1], after[63:66]) == (-1, -2, (63, -1, 65))


@pytest.mark.parametrize("index", [3, -4, 100])
def test_a_series_has_nothing_outside_its_ends(index: int) -> None:
    with pytest.raises(IndexError):
        PersistentVector(range(3))[index]


@given(st.dictionaries(st.text(max_size=3), st.integers(), max_size=40))
def test_a_table_can_be_read_in_order_one_by_one(content: dict[str, int]) -> None:
    table: PersistentMap[str, int] = PersistentMap()
    for key, value in content.items():
        table = table.put(key, value)

    assert list(table.in_order()) == table.items() == sorted(content.items())


def test_a_table_knows_what_is_new_or_replaced_since_an_earlier_one() -> None:
    before: PersistentMap[str, str] = PersistentMap()
    for key in ("a", "b", "c"):
        before = before.put(key, key)

    after = before.put("b", "another").put("d", "new").drop("c")

    assert after.keys_changed_since(before) == ["b", "d"]
    assert before.keys_changed_since(before) == []


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 2))),
    st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from([None, 3, 4]), st.booleans())),
)
def test_a_table_knows_how_it_differs_from_an_earlier_one(
    first: list[tuple[str, int]], then: list[tuple[str, int | None, bool]]
) -> None:
    before: PersistentMap[OneShard, int | None] = PersistentMap()
    for name, number in first:
        before = before.put(OneShard(name), number)
    after = before
    for name, value, is_dropped in then:
        after = after.drop(OneShard(name)) if is_dropped else after.put(OneShard(name), value)

    old, new = dict(before.items()), dict(after.items())
    assert after.keys_missing_in(before) == sorted(new.keys() - old.keys())
    assert before.keys_missing_in(after) == sorted(old.keys() - new.keys())
    changed = {key for key in new if key not in old or new[key] != old[key]}
    assert changed <= set(after.keys_changed_since(before)) <= set(new)
    assert before.keys_changed_since(before) == []
