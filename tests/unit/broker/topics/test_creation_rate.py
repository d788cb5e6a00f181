"""How fast clients may have topics created."""

from penstock.broker import creation_rate
from penstock.broker.creation_rate import CreationLimits, CreationRate
from penstock.core.model import SECOND, Instant

LIMITS = CreationLimits(per_second=10, burst=100)


def admitted(rate: CreationRate, client: str, asked: int, at_seconds: float = 0) -> int:
    """How many of so many topics that a client asks for are created."""
    now = Instant(int(at_seconds * SECOND))
    return sum([rate.admit(client, now) for _ in range(asked)])


def test_a_client_gets_half_of_what_the_node_may_do_at_once() -> None:
    rate = CreationRate(LIMITS, Instant(0))

    assert admitted(rate, "10.0.0.1", 20_000) == 50
    assert admitted(rate, "10.0.0.2", 20_000) == 50
    assert admitted(rate, "10.0.0.3", 20_000) == 0
    assert rate.refusals == 19_950 * 2 + 20_000


def test_more_are_created_as_time_passes() -> None:
    rate = CreationRate(LIMITS, Instant(0))
    admitted(rate, "10.0.0.1", 50)

    assert admitted(rate, "10.0.0.1", 50, at_seconds=1) == 5
    assert admitted(rate, "10.0.0.1", 500, at_seconds=1_000) == 50


def test_a_client_that_is_refused_takes_nothing_from_the_others() -> None:
    rate = CreationRate(LIMITS, Instant(0))

    for second in range(10):
        admitted(rate, "10.6.6.6", 1_000, at_seconds=second)

    assert admitted(rate, "10.0.0.1", 50, at_seconds=10) == 50


def test_clients_that_are_remembered_are_bounded() -> None:
    rate = CreationRate(LIMITS, Instant(0))

    for number in range(creation_rate.CLIENTS_MAX + 500):
        rate.admit(f"client-{number}", Instant(0))

    assert len(rate._clients) == creation_rate.CLIENTS_MAX
