"""The table of pending delays behaves as a dictionary does, in the order of ids, and stays small."""

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.delays import PendingDelay, PendingDelays
from penstock.core.delays import pending_delays as module
from penstock.core.model import Offset, Timestamp

IDS = st.integers(0, 200)
STEPS = st.lists(st.tuples(st.sampled_from(("put", "put", "remove")), IDS, st.integers(0, 3)), max_size=400)


def delay(delay_id: int, number: int = 0) -> PendingDelay:
    return PendingDelay(
        delay_id, Timestamp(1_000 * number + delay_id), Offset(number), 10 * number, f"topic-{number}"
    )


@settings(max_examples=100)
@given(STEPS, IDS)
def test_the_table_behaves_as_a_dictionary(steps: list[tuple[str, int, int]], after: int) -> None:
    page_max, module.PAGE_MAX = module.PAGE_MAX, 8
    try:
        table, model = PendingDelays(), dict[int, PendingDelay]()
        for step, delay_id, number in steps:
            if step == "put":
                assert table.put(*delay(delay_id, number)) == (delay_id not in model)
                model[delay_id] = delay(delay_id, number)
            else:
                assert table.remove(delay_id) == (model.pop(delay_id, None) is not None)

        assert len(table) == len(model)
        assert table.size_bytes == sum(each.size_bytes for each in model.values())
        assert list(table.after(-1)) == [model[each] for each in sorted(model)]
        assert list(table.after(after)) == [model[each] for each in sorted(model) if each > after]
        for each in range(201):
            assert table.get(each) == model.get(each)
            assert (each in table) == (each in model)
    finally:
        module.PAGE_MAX = page_max


def test_pages_that_are_nearly_empty_are_put_together() -> None:
    table = PendingDelays()
    for each in range(20_000):
        table.put(*delay(each * 7919 % 20_011))
    for each in range(20_000):
        if each % 100:
            table.remove(each * 7919 % 20_011)

    assert len(table) == 200
    assert len(table._pages) <= 5
