"""How many connections a node accepts, of everybody and of one address."""

import pytest

from penstock.core.metadata.configs.broker import connection_overrides, connection_overrides_problem
from penstock.runtime.tcp import ConnectionQuotaLimits, ConnectionQuotas


def opened(quotas: ConnectionQuotas, address: str, tries: int) -> int:
    return sum(quotas.open(address) for _ in range(tries))


def accepted(quotas: ConnectionQuotas, now: float) -> int:
    """How many connections are accepted one after the other."""
    count = 0
    while not quotas.delay_seconds(now):
        count += quotas.open("10.0.0.1")
    return count


def test_one_address_cannot_take_all_connections() -> None:
    quotas = ConnectionQuotas(ConnectionQuotaLimits(connections_max=10, per_address_max=6))

    assert opened(quotas, "10.0.0.1", 20) == 6
    assert opened(quotas, "10.0.0.2", 20) == 4
    assert (quotas.connections, quotas.refused) == (10, 30)


def test_a_connection_that_ended_makes_room_for_another_one() -> None:
    quotas = ConnectionQuotas(ConnectionQuotaLimits(per_address_max=2))
    opened(quotas, "10.0.0.1", 2)

    quotas.close("10.0.0.1")

    assert opened(quotas, "10.0.0.1", 2) == 1
    assert quotas.of("10.0.0.1") == 2


def test_an_address_may_have_a_number_of_its_own() -> None:
    limits = ConnectionQuotaLimits(per_address_max=2, overrides={"10.0.0.1": 5, "10.0.0.2": 0})
    quotas = ConnectionQuotas(limits)

    assert [opened(quotas, f"10.0.0.{host}", 9) for host in (1, 2, 3)] == [5, 0, 2]


def test_a_limit_that_is_lowered_closes_nothing_and_admits_nobody() -> None:
    quotas = ConnectionQuotas()
    opened(quotas, "10.0.0.1", 5)

    quotas.limits = ConnectionQuotaLimits(per_address_max=3)

    assert opened(quotas, "10.0.0.1", 1) == 0
    for _ in range(3):
        quotas.close("10.0.0.1")
    assert opened(quotas, "10.0.0.1", 5) == 1


def test_connections_are_accepted_at_a_rate() -> None:
    quotas = ConnectionQuotas(ConnectionQuotaLimits(opened_per_second_max=10))
    now = 1_000.0

    at_once = accepted(quotas, now)
    wait = quotas.delay_seconds(now)

    assert at_once == 10
    assert 0 < wait <= 0.1
    assert accepted(quotas, now + wait + 0.001) == 1
    assert accepted(quotas, now + 100) == 10


def test_a_rate_that_is_lowered_counts_at_once() -> None:
    quotas = ConnectionQuotas()
    assert not quotas.delay_seconds(1_000.0)

    quotas.limits = ConnectionQuotaLimits(opened_per_second_max=10)

    assert accepted(quotas, 1_000.0) == 10


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", {}),
        ("10.0.0.1:5", {"10.0.0.1": 5}),
        (" 10.0.0.1:5, ::1:7 ,[fe80::2]:0", {"10.0.0.1": 5, "::1": 7, "fe80::2": 0}),
        ("[FE80::2]:1,::ffff:10.0.0.1:2", {"fe80::2": 1, "10.0.0.1": 2}),
    ],
)
def test_overrides_are_read_as_kafka_writes_them(value: str, expected: dict[str, int]) -> None:
    assert connection_overrides(value) == expected


@pytest.mark.parametrize("value", ["10.0.0.1", "10.0.0.1:", "10.0.0.1:-1", ":5", "a:b"])
def test_overrides_that_are_none_are_refused(value: str) -> None:
    assert connection_overrides_problem(value) is not None
