"""How long work is cut and admitted: a little in each turn of the loop, each client in its turn."""

from collections.abc import Callable, Iterator

from penstock.core.model import MILLISECOND, Instant
from penstock.runtime.sliced_work import SLICES_PER_TURN_MAX, TURN_NS
from penstock.server.kafka.slice_scheduler import (
    ADDRESS_BYTES,
    ROOM_BYTES,
    SLICE_NS,
    SLICE_STEPS_MAX,
    SMALL_BYTES,
    Room,
    SliceScheduler,
)

MB = 1 << 20
TURN_STEPS = SLICE_STEPS_MAX * SLICES_PER_TURN_MAX


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


class Client:
    """A client at an address."""

    def __init__(self, client: str = "one", address: str = "here") -> None:
        self.client = client
        self.address = address
        self.charged_ns = 0

    def charge(self, elapsed_ns: int) -> None:
        self.charged_ns += elapsed_ns


class Work:
    """So many steps, each of which takes so long."""

    def __init__(self, loop: Loop, slices: SliceScheduler, steps: int, step_ns: int = 0) -> None:
        self._loop = loop
        self._slices = slices
        self._steps = self._run(steps, step_ns)
        self.taken = 0
        self.slices = 0
        self.room: Room | None = None

    def _run(self, steps: int, step_ns: int) -> Iterator[None]:
        for _ in range(steps):
            self.taken += 1
            self._loop.now_ns += step_ns
            yield

    def admitted(self, room: Room) -> None:
        self.room = room

    def advance(self) -> bool:
        self.slices += 1
        return self._slices.advance(self._steps)

    def reply(self) -> None:
        assert self.room is not None
        self.room.give_back()


def scheduler() -> tuple[Loop, SliceScheduler]:
    loop = Loop()
    return loop, SliceScheduler(loop.now, loop.soon)


def waiting_work(loop: Loop, slices: SliceScheduler, client: Client, frame_bytes: int) -> Work:
    work = Work(loop, slices, 1)
    slices.add(work, client, frame_bytes)
    loop.turn()
    return work


def test_a_turn_has_so_many_steps_and_no_more() -> None:
    loop, slices = scheduler()
    work = Work(loop, slices, 3 * TURN_STEPS - 1)
    slices.add(work, Client())

    taken = []
    while loop.turn():
        taken.append(work.taken)

    assert taken == [TURN_STEPS, 2 * TURN_STEPS, 3 * TURN_STEPS - 1]


def test_a_turn_ends_when_its_time_is_over_however_much_work_there_is() -> None:
    loop, slices = scheduler()
    everything = [Work(loop, slices, 100, step_ns=SLICE_NS // 4) for _ in range(50)]
    for work in everything:
        slices.add(work, Client())
    began_ns = loop.now_ns

    loop.turn()

    assert 0 < loop.now_ns - began_ns <= TURN_NS


def test_work_is_charged_to_its_client() -> None:
    loop, slices = scheduler()
    client, other = Client(), Client("other")
    slices.add(Work(loop, slices, 10, MILLISECOND), client)
    slices.add(Work(loop, slices, 1, MILLISECOND), other)

    while loop.turn():
        pass

    assert (client.charged_ns, other.charged_ns) == (10 * MILLISECOND, MILLISECOND)


def test_a_client_with_little_work_does_not_wait_for_all_of_another_one() -> None:
    loop, slices = scheduler()
    greedy = [Work(loop, slices, 1_000, SLICE_NS) for _ in range(50)]
    for work in greedy:
        slices.add(work, Client("greedy"))
    for _ in range(10):
        loop.turn()
    modest = Work(loop, slices, 3, SLICE_NS)
    slices.add(modest, Client("modest"))
    before = sum(work.slices for work in greedy)

    while modest.taken < 3:
        loop.turn()

    assert sum(work.slices for work in greedy) - before <= 4


def test_large_frames_that_find_no_room_are_not_begun_before_others_have_a_response() -> None:
    loop, slices = scheduler()
    client = Client()
    first, second = (waiting_work(loop, slices, client, 8 * MB) for _ in range(2))
    assert (first.taken, second.taken, slices.held_bytes) == (1, 0, 8 * MB)

    while loop.turn():
        pass
    assert second.taken == 0
    first.reply()
    while loop.turn():
        pass

    assert second.taken == 1


def test_an_address_has_half_of_the_room_and_others_are_served_beside_it() -> None:
    loop, slices = scheduler()
    greedy = [waiting_work(loop, slices, Client(f"name {number}"), 8 * MB) for number in range(10)]
    assert sum(work.taken for work in greedy) == 1
    assert slices.held_bytes <= ADDRESS_BYTES

    other = waiting_work(loop, slices, Client("one", "there"), 8 * MB)
    loop.turn()

    assert other.taken == 1
    assert slices.held_bytes <= ROOM_BYTES


def test_small_frames_do_not_wait_for_large_ones() -> None:
    loop, slices = scheduler()
    kept = [
        waiting_work(loop, slices, Client(address=f"address {number}"), size)
        for number, size in enumerate((8 * MB, 8 * MB, 8 * MB, MB))
    ]
    assert [work.taken for work in kept] == [1, 1, 1, 0]

    assert waiting_work(loop, slices, Client(address="there"), SMALL_BYTES).taken == 1
    assert waiting_work(loop, slices, Client(address="address 0"), SMALL_BYTES).taken == 1


def test_nobody_overtakes_a_large_frame_for_ever() -> None:
    loop, slices = scheduler()
    kept = [waiting_work(loop, slices, Client(address=f"address {number}"), 6 * MB) for number in range(4)]
    large = waiting_work(loop, slices, Client(address="large"), 8 * MB)
    medium = [waiting_work(loop, slices, Client(address=f"m {number}"), 3 * MB) for number in range(4)]

    kept[0].reply()
    while loop.turn():
        pass
    assert not any(work.taken for work in (large, *medium))
    kept[1].reply()
    while loop.turn():
        pass

    assert large.taken == 1


def test_a_frame_that_is_larger_than_all_the_room_is_served_when_it_is_alone() -> None:
    loop, slices = scheduler()
    first = waiting_work(loop, slices, Client(), MB)
    huge = waiting_work(loop, slices, Client("other"), 2 * ROOM_BYTES)
    assert huge.taken == 0

    first.reply()
    while loop.turn():
        pass

    assert huge.taken == 1


def test_a_client_that_leaves_waits_for_nothing() -> None:
    loop, slices = scheduler()
    client = Client()
    first = waiting_work(loop, slices, client, 8 * MB)
    gone = waiting_work(loop, slices, client, 8 * MB)
    assert slices.waiting == 1

    slices.remove(gone, client)
    first.reply()
    while loop.turn():
        pass

    assert (gone.taken, slices.waiting, slices.held_bytes) == (0, 0, 0)


def test_room_comes_back_with_a_request_that_is_dropped_without_a_response() -> None:
    loop, slices = scheduler()
    work = waiting_work(loop, slices, Client(), MB)
    assert slices.held_bytes == MB

    work.room = None

    assert slices.held_bytes == 0


def test_all_work_ends_and_then_the_loop_is_left_alone() -> None:
    loop, slices = scheduler()
    everything = [Work(loop, slices, number * SLICE_STEPS_MAX) for number in range(20)]
    for work in everything:
        slices.add(work, Client(), 3 * MB)

    while loop.turn():
        for work in everything:
            if work.room is not None and work.slices * SLICE_STEPS_MAX >= work.taken + SLICE_STEPS_MAX:
                work.reply()

    assert [work.taken for work in everything] == [number * SLICE_STEPS_MAX for number in range(20)]
    assert slices.is_idle
    assert slices.held_bytes == 0
