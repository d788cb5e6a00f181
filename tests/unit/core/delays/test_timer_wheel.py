"""The timer wheel: no timer early, none lost, and no more memory than there are timers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.delays.timer_wheel import TimerWheel

START = 1_700_000_000_000
NEAR_AND_FAR = st.one_of(
    st.integers(-10, 300), st.integers(0, 70_000), st.integers(0, 20_000_000), st.integers(0, 2**44)
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.just(0), NEAR_AND_FAR),
        st.tuples(st.just("add"), st.just(0), NEAR_AND_FAR),
        st.tuples(st.just("cancel"), st.integers(0, 60), st.just(0)),
        st.tuples(st.just("pass"), st.just(0), NEAR_AND_FAR),
        st.tuples(st.just("back"), st.just(0), st.integers(1, 100_000)),
    ),
    max_size=60,
)


class Timers:
    """A wheel and the table of its owner."""

    def __init__(self, *limits: int) -> None:
        self.due: dict[int, int] = {}
        self.wheel = TimerWheel(START, lambda ids: [self.due.get(each) for each in ids], *limits)

    def add(self, timer_id: int, due: int) -> None:
        self.due[timer_id] = due
        self.wheel.add((timer_id,), (due,))

    def cancel(self, timer_id: int) -> bool:
        if self.due.pop(timer_id, None) is None:
            return False
        self.wheel.cancelled(1)
        return True

    def pop_due(self, now: int, timers_max: int = 1_000) -> list[int]:
        found = self.wheel.pop_due(now, timers_max)
        for each in found:
            del self.due[each]
        return found

    def next_due(self) -> int | None:
        return self.wheel.next_due()


def drain(wheel: Timers, now: int) -> list[int]:
    """All that is due, as a host asks for it."""
    found: list[int] = []
    while (due := wheel.next_due()) is not None and due <= now:
        found += wheel.pop_due(now, 7)
    return found


@settings(max_examples=200)
@given(st.integers(0, 3_000), st.integers(1, 30), STEPS)
def test_timers_are_due_at_their_time_and_never_before(
    ahead_ms: int, near_max: int, steps: list[tuple[str, int, int]]
) -> None:
    wheel, model, now = Timers(ahead_ms, near_max), dict[int, int](), START
    for at, (step, timer_id, number) in enumerate(steps):
        if step == "add":
            model[at] = max(0, now + number)
            wheel.add(at, model[at])
        elif step == "cancel":
            assert wheel.cancel(timer_id) == (model.pop(timer_id, None) is not None)
        else:
            now += -number if step == "back" else max(0, number)
        found = drain(wheel, now)
        due = [each for each, time in model.items() if time <= now]

        assert sorted(found) == sorted(due)
        assert len(wheel.wheel) == len(model) - len(due)
        for each in due:
            del model[each]


def test_the_earliest_comes_first() -> None:
    wheel = Timers()
    for timer_id, delay_ms in enumerate((5_000, 3, 70_000, 400, 3)):
        wheel.add(timer_id, START + delay_ms)

    assert wheel.pop_due(START + 80_000) == [1, 4, 3, 0, 2]


def test_an_id_that_is_used_again_is_not_due_at_the_time_that_was_cancelled() -> None:
    wheel = Timers()
    wheel.add(1, START + 1_000)
    assert wheel.pop_due(START) == []
    assert wheel.cancel(1)
    wheel.add(1, START + 60_000)

    assert wheel.pop_due(START + 1_000) == []
    assert drain(wheel, START + 59_999) == []
    assert drain(wheel, START + 60_000) == [1]
    assert len(wheel.wheel) == 0


def test_a_host_that_sleeps_until_the_next_time_misses_nothing() -> None:
    wheel, now, late = Timers(), START, dict[int, int]()
    dues = {timer_id: START + timer_id * 37 % 400_000 for timer_id in range(5_000)}
    for timer_id, due in dues.items():
        wheel.add(timer_id, due)

    wakes = 0
    while (wake := wheel.next_due()) is not None:
        now = max(now + 1, wake)
        wakes += 1
        for timer_id in wheel.pop_due(now):
            late[timer_id] = now - dues[timer_id]

    assert len(late) == len(dues)
    assert min(late.values()) >= 0
    assert max(late.values()) <= 100
    assert wakes < 12_000


def test_a_slot_with_very_many_timers_is_spread_in_portions_and_ahead_of_time() -> None:
    wheel = Timers()
    due = START + 10_000_000
    for timer_id in range(20_000):
        wheel.add(timer_id, due)

    now, steps = due - 2_000, 0
    while wheel.next_due() != due:
        assert wheel.pop_due(now, 1_000) == []
        steps += 1

    assert steps >= 15
    assert wheel.pop_due(due - 1, 20_000) == []
    assert len(wheel.pop_due(due, 20_000)) == 20_000


def test_timers_that_are_set_together_stand_where_each_would_alone() -> None:
    alone, together = Timers(), Timers()
    dues = [START + each * each % 70_001 for each in range(3_000)] + [START + 5] * 3_000
    for timer_id, due in enumerate(dues):
        alone.add(timer_id, due)
    together.due.update(enumerate(dues))
    together.wheel.add(range(len(dues)), dues)

    for now in range(START, START + 80_000, 777):
        assert sorted(together.pop_due(now, 10_000)) == sorted(alone.pop_due(now, 10_000))
    assert len(together.wheel) == len(alone.wheel) == 0


@pytest.mark.parametrize("portion", [1, 1_000])
def test_timers_that_are_cancelled_leave_little_behind(portion: int) -> None:
    wheel = Timers()
    for timer_id in range(60_000):
        wheel.add(timer_id, START + 10**9 + timer_id)
        if timer_id % portion == portion - 1:
            for each in range(timer_id + 1 - portion, timer_id + 1):
                del wheel.due[each]
            wheel.wheel.cancelled(portion)

    left = sum(len(portion) for slots in wheel.wheel._levels for slot in slots.values() for portion in slot)
    assert len(wheel.wheel) == 0
    assert left < 20_000
