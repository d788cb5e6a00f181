"""Who is served next: addresses take turns, and clients of each, by what they have had."""

from collections import Counter
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.fair_queue import FairQueue


class Caller(NamedTuple):
    """A client at an address."""

    address: str
    client: str

    def charge(self, elapsed_ns: int) -> None:
        pass


def take(queue: FairQueue[str, Caller], amount: int = 1) -> str:
    item, _ = queue.pop()
    queue.settle(amount)
    return item


def test_items_of_one_client_keep_their_order() -> None:
    queue: FairQueue[str, Caller] = FairQueue()
    for name in "abcd":
        queue.push(Caller("here", "one"), name)

    assert [take(queue) for _ in range(4)] == list("abcd")
    assert not queue


def test_clients_take_turns_however_many_items_one_has() -> None:
    queue: FairQueue[str, Caller] = FairQueue()
    for number in range(100):
        queue.push(Caller("here", "greedy"), f"greedy {number}")
    for number in range(3):
        queue.push(Caller("here", "modest"), f"modest {number}")

    first = [take(queue).split()[0] for _ in range(6)]

    assert Counter(first) == {"greedy": 3, "modest": 3}


def test_addresses_take_turns_however_many_clients_one_has() -> None:
    queue: FairQueue[str, Caller] = FairQueue()
    for number in range(100):
        queue.push(Caller("there", f"name {number}"), f"greedy {number}")
    for number in range(3):
        queue.push(Caller("here", "modest"), f"modest {number}")

    first = [take(queue).split()[0] for _ in range(6)]

    assert Counter(first) == {"greedy": 3, "modest": 3}


def test_who_has_had_more_waits_longer() -> None:
    queue: FairQueue[str, Caller] = FairQueue()
    costs = {"dear": 10, "cheap": 1}
    for number in range(50):
        for name in costs:
            queue.push(Caller("here", name), f"{name} {number}")

    served = Counter[str]()
    for _ in range(33):
        name = queue.first.split()[0]
        take(queue, costs[name])
        served[name] += 1

    assert served["cheap"] == 10 * served["dear"]


def test_who_comes_later_is_served_soon_and_saves_nothing_up() -> None:
    queue: FairQueue[str, Caller] = FairQueue()
    for number in range(100):
        queue.push(Caller("here", "greedy"), f"greedy {number}")
    for _ in range(50):
        take(queue, 10)
    for number in range(100):
        queue.push(Caller("here", "modest"), f"modest {number}")

    first = [take(queue, 10).split()[0] for _ in range(10)]

    assert first[:2].count("modest") == 1
    assert Counter(first) == {"greedy": 5, "modest": 5}


def test_what_is_removed_is_not_served() -> None:
    queue: FairQueue[str, Caller] = FairQueue()
    one, other = Caller("here", "one"), Caller("there", "other")
    queue.push(one, "a")
    queue.push(one, "b")
    queue.push(other, "c")

    queue.remove(one, "a")
    queue.remove(other, "c")
    queue.remove(other, "never there")

    assert len(queue) == 1
    assert take(queue) == "b"
    queue.push(other, "d")
    assert take(queue) == "d"


def test_clients_that_wait_for_nothing_are_forgotten() -> None:
    queue: FairQueue[str, Caller] = FairQueue()
    queue.push(Caller("here", "stays"), "stays")
    for number in range(10_000):
        queue.push(Caller("there", f"name {number}"), "gone")
        queue.push(Caller("here", "stays"), f"more {number}")
        take(queue)
        take(queue)

    assert sum(len(address.clients) for address in queue._addresses.values()) < 1_000


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("push"), st.integers(0, 2), st.integers(0, 3)),
            st.tuples(st.just("take"), st.integers(0, 20), st.just(0)),
            st.tuples(st.just("remove"), st.integers(0, 60), st.just(0)),
        ),
        max_size=60,
    )
)
def test_everything_that_was_pushed_comes_out_once_unless_it_was_removed(
    actions: list[tuple[str, int, int]],
) -> None:
    queue: FairQueue[str, Caller] = FairQueue()
    inside: dict[str, Caller] = {}
    pushed = 0
    for action, first, second in actions:
        if action == "push":
            caller, item = Caller(str(first), str(second)), str(pushed)
            pushed += 1
            queue.push(caller, item)
            inside[item] = caller
        elif action == "take" and inside:
            assert queue.first in inside
            assert inside.pop(take(queue, first))
        elif action == "remove" and str(first) in inside:
            queue.remove(inside.pop(str(first)), str(first))
        assert len(queue) == len(inside)

    assert {take(queue) for _ in range(len(queue))} == set(inside)
