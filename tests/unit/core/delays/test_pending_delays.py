"""The table of pending delays behaves as a dictionary does, in the order of ids, and stays small."""

from itertools import accumulate

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.delays import DelayedRecords, PendingDelay, PendingDelays
from penstock.core.delays import pending_delays as module
from penstock.core.model import Offset, Timestamp

IDS = st.integers(0, 200)
# Alone, in a row, or anywhere.
TOGETHER = st.one_of(
    st.lists(IDS, min_size=1, max_size=1),
    st.builds(lambda first, count: list(range(first, min(201, first + count))), IDS, st.integers(1, 30)),
    st.lists(IDS, min_size=1, max_size=20, unique=True),
)
STEPS = st.lists(
    st.tuples(st.sampled_from(("put", "put", "remove")), TOGETHER, st.integers(0, 3)), max_size=60
)


def delay(delay_id: int, number: int = 0) -> PendingDelay:
    return PendingDelay(
        delay_id, Timestamp(1_000 * number + delay_id), Offset(number), 10 * number + 1, f"topic-{number}"
    )


def put(table: PendingDelays, ids: list[int], number: int = 0) -> list[int]:
    """Store delays together; those that were not pending."""
    delays = [delay(each, number) for each in ids]
    sizes = [each.size_bytes for each in delays]
    records = DelayedRecords(
        f"topic-{number}",
        tuple(ids),
        tuple(each.deliver_at for each in delays),
        (-1,) * len(ids),
        tuple(accumulate(sizes)),
        bytes(sum(sizes)),
    )
    new, times = table.put(records, Offset(number))
    assert list(times) == [delay(each, number).deliver_at for each in new]
    return list(new)


@settings(max_examples=100)
@given(STEPS, IDS)
def test_the_table_behaves_as_a_dictionary(steps: list[tuple[str, list[int], int]], after: int) -> None:
    page_max, module.PAGE_MAX = module.PAGE_MAX, 8
    try:
        table, model = PendingDelays(), dict[int, PendingDelay]()
        for step, ids, number in steps:
            known = [each for each in ids if each in model]
            assert table.has_any_of(ids) == bool(known)
            if step == "put":
                assert put(table, ids, number) == [each for each in ids if each not in model]
                model.update((each, delay(each, number)) for each in ids)
            else:
                assert table.remove(ids) == sorted(known)
                for each in known:
                    del model[each]

        assert len(table) == len(model)
        assert table.size_bytes == sum(each.size_bytes for each in model.values())
        assert list(table.after(-1)) == [model[each] for each in sorted(model)]
        assert list(table.after(after)) == [model[each] for each in sorted(model) if each > after]
        for each in range(201):
            assert table.get(each) == model.get(each)
            assert (each in table) == (each in model)
        listed = [model.get(each) for each in range(201)]
        assert table.dues_of(range(201)) == [each and each.deliver_at for each in listed]
        assert table.places_of(range(201)) == (
            [-1 if each is None else each.offset for each in listed],
            [0 if each is None else each.size_bytes for each in listed],
        )
    finally:
        module.PAGE_MAX = page_max


def test_pages_that_are_nearly_empty_are_put_together() -> None:
    table = PendingDelays()
    for each in range(20_000):
        put(table, [each * 7919 % 20_011])
    for each in range(20_000):
        if each % 100:
            table.remove([each * 7919 % 20_011])

    assert len(table) == 200
    assert len(table._pages) <= 5
