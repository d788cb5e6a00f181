"""How long work is cut: a slice in each turn of the loop, and each piece of work in its turn."""

from collections.abc import Callable, Iterator

from penstock.core.model import MILLISECOND, Instant
from penstock.server.kafka.slice_scheduler import ACTIVE_MAX, SLICE_NS, SLICE_STEPS_MAX, SliceScheduler


class Loop:
    """Time passes only in steps."""

    def __init__(self) -> None:
        self.now_ns = 1
        self._soon: list[Callable[[], None]] = []

    def now(self) -> Instant:
        return Instant(self.now_ns)

    def soon(self, fire: Callable[[], None]) -> None:
        self._soon.append(fire)

    def turn(self) -> bool:
        waiting, self._soon = self._soon, []
        for fire in waiting:
            fire()
        return bool(waiting)


class Work:
    """So many steps, each of which takes so long."""

    def __init__(self, loop: Loop, slices: SliceScheduler, steps: int, step_ns: int = 0) -> None:
        self._loop = loop
        self._slices = slices
        self._steps = self._run(steps, step_ns)
        self.taken = 0
        self.slices = 0

    def _run(self, steps: int, step_ns: int) -> Iterator[None]:
        for _ in range(steps):
            self.taken += 1
            self._loop.now_ns += step_ns
            yield

    def advance(self) -> bool:
        self.slices += 1
        return self._slices.advance(self._steps)


def scheduler() -> tuple[Loop, SliceScheduler]:
    loop = Loop()
    return loop, SliceScheduler(loop.now, loop.soon)


def test_a_slice_has_so_many_steps_and_no_more() -> None:
    loop, slices = scheduler()
    work = Work(loop, slices, 3 * SLICE_STEPS_MAX - 1)
    slices.add(work)

    taken = []
    while loop.turn():
        taken.append(work.taken)

    assert taken == [SLICE_STEPS_MAX, 2 * SLICE_STEPS_MAX, 3 * SLICE_STEPS_MAX - 1]


def test_a_slice_ends_when_its_time_is_over() -> None:
    loop, slices = scheduler()
    work = Work(loop, slices, 100, step_ns=MILLISECOND)
    slices.add(work)

    loop.turn()

    assert work.taken == SLICE_NS // MILLISECOND


def test_one_turn_of_the_loop_has_one_slice_however_much_work_there_is() -> None:
    loop, slices = scheduler()
    everything = [Work(loop, slices, 10 * SLICE_STEPS_MAX) for _ in range(50)]
    for work in everything:
        slices.add(work)

    loop.turn()

    assert sum(work.slices for work in everything) == 1


def test_active_work_takes_turns() -> None:
    loop, slices = scheduler()
    long, short = Work(loop, slices, 100 * SLICE_STEPS_MAX), Work(loop, slices, SLICE_STEPS_MAX)
    slices.add(long)
    slices.add(short)

    for _ in range(4):
        loop.turn()

    # The last slice of the short one finds that there is nothing left.
    assert (long.slices, short.slices) == (2, 2)


def test_work_that_waits_is_not_begun_before_other_work_has_ended() -> None:
    loop, slices = scheduler()
    active = [Work(loop, slices, 3 * SLICE_STEPS_MAX) for _ in range(ACTIVE_MAX)]
    waiting = Work(loop, slices, 1)
    for work in (*active, waiting):
        slices.add(work)

    while not waiting.taken:
        assert loop.turn()

    assert max(work.taken for work in active) == 3 * SLICE_STEPS_MAX


def test_all_work_ends_and_then_the_loop_is_left_alone() -> None:
    loop, slices = scheduler()
    everything = [Work(loop, slices, number * SLICE_STEPS_MAX) for number in range(20)]
    for work in everything:
        slices.add(work)

    while loop.turn():
        pass

    assert [work.taken for work in everything] == [number * SLICE_STEPS_MAX for number in range(20)]
    assert slices.is_idle
