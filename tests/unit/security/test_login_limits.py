"""How long failed logins wait."""

from penstock.core.model import SECOND, Instant
from penstock.security.login_limits import DELAY_MS_MAX, LoginLimits

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
