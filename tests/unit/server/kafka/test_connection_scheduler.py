"""Loop time is shared by clients, whatever they send and on however many connections."""

from collections import Counter
from collections.abc import Callable

import pytest

from penstock.core.model import MICROSECOND, MILLISECOND, Instant
from penstock.server.kafka.connection_scheduler import (
    LONE_TURN_NS,
    LONG_TURN_NS,
    NAMES_MAX,
    TURN_NS,
    ConnectionScheduler,
)

REQUEST_NS = 50 * MICROSECOND
# What the loop does between two looks at its sockets, besides requests.
POLL_NS = 20 * MICROSECOND


class Loop:
    """Time passes with every request; sockets are readable in the order of their connections."""

    def __init__(self) -> None:
        self.now_ns = 3_600 * 1_000 * MILLISECOND
        self._soon: list[Callable[[], None]] = []
        self.scheduler = ConnectionScheduler(self.soon, self.now)
        self.connections: list[Client] = []
        self.longest_turn_ns = 0

    def now(self) -> Instant:
        return Instant(self.now_ns)

    def soon(self, fire: Callable[[], None]) -> None:
        self._soon.append(fire)

    def turn(self) -> None:
        began_ns = self.now_ns
        soon, self._soon = self._soon, []
        for fire in soon:
            fire()
        for connection in list(self.connections):
            if connection.is_readable:
                connection.readable()
        self.now_ns += POLL_NS
        self.longest_turn_ns = max(self.longest_turn_ns, self.now_ns - began_ns)

    def run_ms(self, duration_ms: int) -> None:
        end_ns = self.now_ns + duration_ms * MILLISECOND
        while self.now_ns < end_ns:
            self.turn()


class Client:
    """A connection with requests of the same cost; a flood never has fewer than `ahead` in its socket."""

    def __init__(
        self, loop: Loop, client_id: str, address: str = "10.0.0.1", ahead: int = 0, cost_ns: int = REQUEST_NS
    ) -> None:
        self._loop = loop
        self._scheduler = loop.scheduler
        self._ahead, self._cost_ns = ahead, cost_ns
        self.address_usage = self._scheduler.usage_of(address)
        self.client_usage = self._scheduler.usage_of(address, client_id)
        self._sent_at: list[int] = []
        self._is_waiting = False
        self.served = 0
        self.waits_ns: list[int] = []
        self.before_request: Callable[[], None] = lambda: None
        loop.connections.append(self)

    def send(self) -> None:
        self._sent_at.append(self._loop.now_ns)

    @property
    def is_readable(self) -> bool:
        return not self._is_waiting and bool(self._ahead or self._sent_at)

    def readable(self) -> None:
        scheduler = self._scheduler
        if scheduler.spent_ns <= scheduler.limit_ns or scheduler.admits(self):
            self._serve()
        else:
            self._wait()

    def take_turn(self) -> None:
        self._is_waiting = False
        self._serve()

    def _wait(self) -> None:
        self._is_waiting = True
        self._scheduler.enqueue(self)

    def _serve(self) -> None:
        loop, scheduler = self._loop, self._scheduler
        end_ns = loop.now_ns + scheduler.quantum_ns
        left = self._ahead or len(self._sent_at)
        while left:
            left -= 1
            self.before_request()
            loop.now_ns += self._cost_ns
            scheduler.spent_ns += self._cost_ns
            self.client_usage.used_ns += self._cost_ns
            self.address_usage.used_ns += self._cost_ns
            if scheduler.last_client is not self.client_usage:
                scheduler.last_client = self.client_usage
                scheduler.switches += 1
            self.served += 1
            if self._sent_at:
                self.waits_ns.append(loop.now_ns - self._sent_at.pop(0))
            if loop.now_ns >= end_ns:
                break
        if left:
            self._wait()


def share(connections: list[Client]) -> int:
    return sum(connection.served for connection in connections)


@pytest.mark.parametrize("ahead", [1, 50])
@pytest.mark.parametrize("flooding", [20, 400])
@pytest.mark.parametrize("address", ["10.0.0.1", "10.0.0.2"], ids=["same address", "other address"])
def test_a_client_that_asks_little_hardly_waits_beside_one_that_floods(
    flooding: int, ahead: int, address: str
) -> None:
    loop = Loop()
    for _ in range(flooding):
        Client(loop, "flood", ahead=ahead)
    modest = Client(loop, "modest", address, cost_ns=200 * MICROSECOND)
    loop.run_ms(300)

    for _ in range(50):
        modest.send()
        loop.run_ms(20)

    assert len(modest.waits_ns) == 50
    assert max(modest.waits_ns) < LONG_TURN_NS
    assert loop.longest_turn_ns < 50 * MILLISECOND


def test_connections_that_come_all_at_once_do_not_hold_up_another_client() -> None:
    loop = Loop()
    modest = Client(loop, "modest", cost_ns=200 * MICROSECOND)
    for _ in range(10):
        modest.send()
        loop.run_ms(20)

    for _ in range(400):
        Client(loop, "flood", ahead=50)
        if len(loop.connections) % 16 == 0:
            modest.send()
            loop.turn()
    loop.run_ms(100)

    assert max(modest.waits_ns) < 2 * LONG_TURN_NS


def test_a_flood_of_many_names_from_one_address_does_not_hold_up_another_address() -> None:
    loop = Loop()
    for number in range(400):
        Client(loop, f"name {number}", ahead=50)
    modest = Client(loop, "modest", "10.0.0.2")
    loop.run_ms(300)

    for _ in range(50):
        modest.send()
        loop.run_ms(20)

    assert max(modest.waits_ns) < LONG_TURN_NS


def test_a_flood_of_many_names_holds_up_a_neighbour_for_a_round_of_one_request_each_at_most() -> None:
    loop = Loop()
    for number in range(400):
        Client(loop, f"name {number}", ahead=50)
    modest = Client(loop, "modest")
    loop.run_ms(500)

    for _ in range(50):
        modest.send()
        loop.run_ms(20)
    loop.run_ms(200)

    assert len(modest.waits_ns) == 50
    assert max(modest.waits_ns) < 3 * 400 * REQUEST_NS


def test_two_clients_that_both_flood_get_the_same_time_whatever_their_connections() -> None:
    loop = Loop()
    many = [Client(loop, "many", ahead=50) for _ in range(100)]
    one = Client(loop, "one", ahead=50, cost_ns=2 * REQUEST_NS)

    loop.run_ms(2_000)
    before = share(many), one.served
    loop.run_ms(2_000)

    many_ns, one_ns = (share(many) - before[0]) * REQUEST_NS, (one.served - before[1]) * 2 * REQUEST_NS
    assert 0.8 < many_ns / one_ns < 1.25


def test_connections_of_one_client_get_the_same_time() -> None:
    loop = Loop()
    flood = [Client(loop, "flood", ahead=50) for _ in range(20)]
    Client(loop, "other", ahead=5)

    loop.run_ms(4_000)

    counts = Counter(connection.served for connection in flood)
    assert min(counts) > 0
    assert max(counts) < 1.5 * min(counts)


def test_who_is_alone_does_not_wait_in_turns_that_are_not_too_long() -> None:
    loop = Loop()
    alone = [Client(loop, "alone", ahead=1) for _ in range(100)]
    waited = 0

    for _ in range(200):
        loop.turn()
        waited = max(waited, loop.scheduler.waiting)

    assert waited == 0
    assert loop.longest_turn_ns <= LONE_TURN_NS
    assert share(alone) == 200 * 100


def test_the_loop_looks_at_its_sockets_often_however_many_flood() -> None:
    loop = Loop()
    for number in range(1_000):
        Client(loop, f"name {number % 7}", ahead=100)
    loop.run_ms(300)
    loop.longest_turn_ns = 0

    loop.run_ms(1_000)

    assert loop.longest_turn_ns < LONG_TURN_NS + 2 * TURN_NS


def test_what_a_client_used_is_forgotten_after_a_while_and_not_with_its_connection() -> None:
    loop = Loop()
    usage = loop.scheduler.usage_of("10.0.0.1", "flood")
    usage.used_ns = 100 * MILLISECOND
    loop.scheduler.release(usage)

    again = loop.scheduler.usage_of("10.0.0.1", "flood")
    assert again.recent_ns(loop.now()) == 100 * MILLISECOND

    loop.now_ns += 10_000 * MILLISECOND
    assert again.recent_ns(loop.now()) == 0


def test_names_that_nobody_uses_any_more_are_not_kept() -> None:
    loop = Loop()
    for number in range(100_000):
        loop.now_ns += MILLISECOND
        usage = loop.scheduler.usage_of("10.0.0.1", f"name {number}")
        usage.used_ns = MILLISECOND
        loop.scheduler.release(usage)

    assert len(loop.scheduler._usages) < 20_000


def test_a_connection_that_calls_itself_something_else_with_each_request_leaves_nothing_behind() -> None:
    loop = Loop()
    usage = loop.scheduler.usage_of("10.0.0.1", "")
    for number in range(3_000):
        usage = loop.scheduler.rename(usage, "10.0.0.1", "x" * 32_000 + str(number))
        usage.used_ns += MILLISECOND

    assert len(loop.scheduler._usages) == 1
    assert usage.recent_ns(loop.now()) == 3_000 * MILLISECOND


def test_long_names_are_told_apart_and_not_kept_whole() -> None:
    scheduler = Loop().scheduler
    usages = [scheduler.usage_of("10.0.0.1", "x" * 32_000 + str(number)) for number in range(100)]

    assert len(set(usages)) == 100
    assert scheduler.usage_of("10.0.0.1", "x" * 32_000 + "7") is usages[7]
    assert max(len(name or "") for _, name in scheduler._usages) <= 64


def test_clients_of_an_address_beyond_a_number_share_a_count_and_others_do_not() -> None:
    scheduler = Loop().scheduler
    usages = [scheduler.usage_of("10.0.0.1", f"name {number}") for number in range(2 * NAMES_MAX)]

    assert len(set(usages)) == NAMES_MAX + 1
    assert scheduler.usage_of("10.0.0.2", "name 1") not in usages
    for usage in usages:
        scheduler.release(usage)
    scheduler.forget()
    assert len(scheduler._usages) == 1


def test_what_names_used_is_forgotten_without_new_ones() -> None:
    loop = Loop()
    for number in range(200):
        usage = loop.scheduler.usage_of("10.0.0.1", f"name {number}")
        usage.used_ns = 100 * MILLISECOND
        loop.scheduler.release(usage)

    loop.now_ns += 3_000 * MILLISECOND
    loop.scheduler.forget()

    assert not loop.scheduler._usages


def test_another_name_with_each_request_is_no_way_to_the_front_of_those_who_used_much() -> None:
    loop = Loop()
    honest = Client(loop, "honest", ahead=50)
    renaming = Client(loop, "name", ahead=50)
    number = 0

    def rename() -> None:
        nonlocal number
        number += 1
        renaming.client_usage = loop.scheduler.rename(renaming.client_usage, "10.0.0.1", f"name {number}")

    renaming.before_request = rename
    loop.run_ms(2_000)

    assert 0.8 < honest.served / renaming.served < 1.25
