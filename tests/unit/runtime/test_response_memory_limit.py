"""Who may add to what a node keeps for slow readers."""

from collections.abc import Callable

from penstock.runtime.memory_limits import ResponseMemoryLimit


class Turns:
    def __init__(self) -> None:
        self._soon: list[Callable[[], None]] = []

    def soon(self, fire: Callable[[], None]) -> None:
        self._soon.append(fire)

    def turn(self) -> None:
        due, self._soon = self._soon, []
        for fire in due:
            fire()


def test_a_share_shrinks_with_what_is_free() -> None:
    backlog = ResponseMemoryLimit(Turns().soon, bytes_max=1_000)

    at_first = backlog.refuses(200)
    backlog.moved(600)

    assert not at_first
    assert backlog.refuses(200)
    assert not backlog.refuses(100)


def test_many_who_take_all_they_may_leave_something_for_the_next() -> None:
    backlog = ResponseMemoryLimit(Turns().soon, bytes_max=100_000)

    for _ in range(20):
        own = 0
        while not backlog.refuses(own + 1):
            backlog.moved(1)
            own += 1

    assert not backlog.is_full
    assert not backlog.refuses(0)


def test_those_who_wait_go_on_in_order_and_not_all_at_once() -> None:
    turns, woken = Turns(), list[int]()
    backlog = ResponseMemoryLimit(turns.soon, bytes_max=10)
    backlog.moved(10)
    wakes = [lambda number=number: woken.append(number) for number in range(40)]
    for wake in wakes:
        backlog.wait(wake)
    backlog.forget(wakes[0])

    turns.turn()
    assert woken == []
    backlog.moved(-1)
    turns.turn()
    in_one_turn = len(woken)
    for _ in range(5):
        turns.turn()

    assert 0 < in_one_turn < 39
    assert woken == list(range(1, 40))


def test_nobody_goes_on_when_it_is_full_again() -> None:
    turns, woken = Turns(), list[str]()
    backlog = ResponseMemoryLimit(turns.soon, bytes_max=10)
    backlog.moved(10)

    def first() -> None:
        woken.append("first")
        backlog.moved(10)

    backlog.wait(first)
    backlog.wait(lambda: woken.append("second"))
    backlog.moved(-1)
    turns.turn()
    turns.turn()

    assert woken == ["first"]
    assert backlog.waiting == 1
