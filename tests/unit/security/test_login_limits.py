"""How long failed logins wait."""

import tracemalloc

import pytest

from penstock.core.model import SECOND, Instant
from penstock.security import login_limits
from penstock.security.login_limits import (
    DELAY_MS_MAX,
    WAITING_MAX,
    Finished,
    LoginLimits,
    LoginTurns,
)
from tests.support.manual_runtime import HandTimers

START = Instant(1_000 * SECOND)


def test_each_failure_of_an_address_costs_twice_as_much() -> None:
    limits = LoginLimits()

    delays = [limits.failed("10.0.0.1", f"user-{number}", START) for number in range(9)]

    assert delays[:4] == [100, 200, 400, 800]
    assert delays[-1] == DELAY_MS_MAX
    assert limits.failed("10.0.0.2", "someone", START) == 100


def test_guessing_at_one_user_is_slow_wherever_it_comes_from() -> None:
    limits = LoginLimits()

    delays = [limits.failed(f"10.0.0.{number}", "admin", START) for number in range(4)]

    assert delays == [100, 200, 400, 800]


def test_a_success_forgives_the_address_and_not_the_user() -> None:
    limits = LoginLimits()
    for _ in range(3):
        limits.failed("10.0.0.1", "admin", START)

    limits.succeeded("10.0.0.1")

    assert limits.failed("10.0.0.1", "", START) == 100
    assert limits.failed("10.0.0.3", "admin", START) == 800


def test_a_quiet_while_forgives_everything() -> None:
    limits = LoginLimits()
    for _ in range(3):
        limits.failed("10.0.0.1", "admin", START)

    assert limits.failed("10.0.0.1", "admin", Instant(START + 301 * SECOND)) == 100


def test_what_is_remembered_is_bounded() -> None:
    limits = LoginLimits()
    limits.failed("10.0.0.1", "", START)

    for number in range(20_000):
        limits.failed(f"host-{number}", "", START)

    assert limits.failed("10.0.0.1", "", START) == 100


def test_an_account_of_ones_own_does_not_make_guessing_cheap() -> None:
    limits = LoginLimits()
    delays = []
    for number in range(24):
        delays.append(limits.failed("10.0.0.1", f"user-{number}", START))
        limits.succeeded("10.0.0.1")

    assert delays[:21] == [100] * 21
    assert delays[21:] == [200, 400, 800]


def test_a_network_of_ipv6_is_one_address() -> None:
    limits = LoginLimits()

    delays = [limits.failed(f"2001:db8::{number:x}", "", START) for number in range(1, 4)]

    assert delays == [100, 200, 400]
    assert limits.failed("2001:db8:0:1::1", "", START) == 100


def test_made_up_users_push_no_address_out_and_cost_little() -> None:
    limits = LoginLimits()
    limits.failed("10.0.0.1", "", START)
    long = "x" * 4_000
    tracemalloc.start()

    for number in range(22_000):
        limits.failed("10.0.0.2", f"{long}{number}", START)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert used < 16 << 20
    assert limits.failed("10.0.0.1", "", START) == 200


class Turns:
    """Checks that are all wrong, each of which takes a moment, and cost as much as they do on a node."""

    def __init__(self) -> None:
        self.timers = HandTimers()
        self._limits = LoginLimits()
        self._turns = LoginTurns(self.timers, self.timers)
        self.checked: list[str] = []
        self.refused: list[str] = []

    def guess(self, host: str, user: str, times: int = 1) -> None:
        def begin(finished: Finished) -> None:
            self.checked.append(user)

            def fail() -> None:
                delay_ms = self._limits.failed(host, user, self.timers.now())
                self._turns.penalize(host, user, delay_ms)
                finished(False)

            self.timers.soon(fail)

        for _ in range(times):
            self._turns.take(host, user, begin, lambda: self.refused.append(user))


def test_a_network_of_ipv6_has_one_turn() -> None:
    turns = Turns()

    for number in range(1, 100):
        turns.guess(f"2001:db8::{number:x}", f"user-{number}")
    turns.timers.pass_ms(1_000)

    assert 3 <= len(turns.checked) <= 6


def test_of_too_many_passwords_that_wait_those_of_the_busiest_user_give_way() -> None:
    turns = Turns()
    turns.guess("10.0.0.1", "admin", 2 + WAITING_MAX)
    assert turns.refused == []

    turns.guess("10.0.0.1", "alice")
    turns.guess("10.0.0.1", "admin")

    assert turns.refused == ["admin", "admin"]
    turns.timers.pass_ms(1_000)
    assert "alice" in turns.checked


def test_a_password_is_not_checked_when_nobody_waits_for_the_answer_any_more() -> None:
    turns = Turns()

    turns.guess("10.0.0.1", "admin", 40)
    turns.timers.pass_ms(200_000)

    assert 8 <= len(turns.checked) <= 12
    assert len(turns.checked) + len(turns.refused) == 40


def test_turns_of_too_many_networks_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_limits, "REMEMBERED_MAX", 100)
    turns = Turns()
    turns.guess("10.0.0.1", "admin", 3)
    turns.timers.run()
    assert len(turns.checked) == 2

    for number in range(100):
        turns.guess(f"2001:db8:0:{number:x}::1", "")
        turns.timers.run()
    turns.guess("10.0.0.1", "alice")

    assert turns.checked[-1] == "alice"
