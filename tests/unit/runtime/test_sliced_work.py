"""Long work in slices: all of it is done, in turns, and others are served in between."""

from collections.abc import Callable

from penstock.core.model import Instant
from penstock.runtime.sliced_work import SlicedWork, Slices


class Loop:
    """Callbacks that run when the test says so; every slice takes a unit of time."""

    def __init__(self) -> None:
        self.time = 0
        self.waiting: list[Callable[[], None]] = []
        self.work = SlicedWork(self.now, self.soon, turn_ns=2)
        self.done: list[str] = []

    def now(self) -> Instant:
        return Instant(self.time)

    def soon(self, fire: Callable[[], None]) -> None:
        self.waiting.append(fire)

    def turn(self) -> None:
        waiting, self.waiting = self.waiting, []
        for fire in waiting:
            fire()

    def job(self, name: str, slices: int) -> Slices:
        for number in range(slices):
            self.time += 1
            self.done.append(f"{name}{number}")
            yield


def test_nothing_is_done_before_the_next_turn() -> None:
    loop = Loop()

    loop.work.run(loop.job("a", 1))

    assert loop.done == []
    loop.turn()
    assert loop.done == ["a0"]


def test_all_work_together_takes_so_much_of_a_turn_and_jobs_alternate() -> None:
    loop = Loop()
    for name in "abc":
        loop.work.run(loop.job(name, 2))

    loop.turn()
    assert loop.done == ["a0", "b0"]
    loop.turn()
    assert loop.done == ["a0", "b0", "c0", "a1"]


def test_work_that_is_done_leaves_nothing_behind() -> None:
    loop = Loop()
    loop.work.run(loop.job("a", 5))

    for _ in range(10):
        loop.turn()

    assert len(loop.done) == 5
    assert (len(loop.work), loop.waiting) == (0, [])
    loop.work.run(loop.job("b", 1))
    loop.turn()
    assert loop.done[-1] == "b0"


class Client:
    """Counts what is charged to it."""

    def __init__(self, client: str, address: str = "here") -> None:
        self.client = client
        self.address = address
        self.charged_ns = 0

    def charge(self, elapsed_ns: int) -> None:
        self.charged_ns += elapsed_ns


def test_clients_take_turns_not_their_jobs_and_are_charged_what_theirs_took() -> None:
    loop = Loop()
    greedy, modest = Client("greedy"), Client("modest")
    for number in range(50):
        loop.work.run(loop.job(f"greedy {number} ", 4), greedy)
    loop.work.run(loop.job("modest ", 4), modest)

    while len([name for name in loop.done if name.startswith("modest")]) < 4:
        loop.turn()

    assert len(loop.done) <= 9
    assert (greedy.charged_ns, modest.charged_ns) == (len(loop.done) - 4, 4)
