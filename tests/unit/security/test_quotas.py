"""How long clients wait that asked for more than their share."""

import pytest

from penstock.core.metadata.access import entity_of
from penstock.core.metadata.commands import AlterClientQuotas
from penstock.core.metadata.records import QuotaSet
from penstock.core.model import SECOND, Instant
from penstock.security import QuotaType
from penstock.security.quotas import THROTTLE_MS_MAX, ClientQuotas
from tests.support.kept_memory import kept_bytes, long_names
from tests.unit.core.metadata.clusters import cluster, perform

IN = QuotaType.BYTES_IN
START = Instant(1_000 * SECOND)
Limits = tuple[tuple[tuple[tuple[str, str | None], ...], str, float], ...]


def quotas(*limits: tuple[tuple[tuple[str, str | None], ...], str, float]) -> ClientQuotas:
    machine = cluster()
    for entity, key, value in limits:
        perform(machine, AlterClientQuotas(entity, ((key, value),)))
    found = ClientQuotas()
    found.on_metadata(machine.image)
    return found


def test_without_limits_nobody_waits() -> None:
    assert quotas().charge("alice", "c", IN, 1 << 40, START) == 0


def test_a_client_waits_for_what_it_took_beyond_a_second_of_its_rate() -> None:
    found = quotas(((("user", "alice"),), "producer_byte_rate", 1_000.0))

    assert found.charge("alice", "c", IN, 1_000, START) == 0
    assert found.charge("alice", "c", IN, 500, START) == 501
    # Half of it has come back, and is taken again.
    later = Instant(START + SECOND // 2)
    assert found.charge("alice", "c", IN, 0, later) == 0
    assert found.charge("alice", "c", IN, 100, later) == 101
    # It does not pile up.
    assert found.charge("alice", "c", IN, 1_500, Instant(START + 100 * SECOND)) == 501


def test_what_is_owed_is_waited_for_in_parts() -> None:
    found = quotas(((("user", "alice"),), "producer_byte_rate", 1.0))

    assert found.charge("alice", "c", IN, 1_000_000, START) == THROTTLE_MS_MAX
    assert found.charge("alice", "c", IN, 0, Instant(START + 30 * SECOND)) == THROTTLE_MS_MAX


ALL: Limits = (
    ((("client-id", "c"), ("user", "alice")), "producer_byte_rate", 1.0),
    ((("client-id", None), ("user", "alice")), "producer_byte_rate", 2.0),
    ((("user", "alice"),), "producer_byte_rate", 3.0),
    ((("client-id", "c"), ("user", None)), "producer_byte_rate", 4.0),
    ((("client-id", None), ("user", None)), "producer_byte_rate", 5.0),
    ((("user", None),), "producer_byte_rate", 6.0),
    ((("client-id", "c"),), "producer_byte_rate", 7.0),
    ((("client-id", None),), "producer_byte_rate", 8.0),
)


@pytest.mark.parametrize("first", range(len(ALL)))
def test_the_limit_that_says_most_about_a_client_counts(first: int) -> None:
    found = quotas(*ALL[first:])
    rate = first + 1

    assert found.charge("alice", "c", IN, rate, START) == 0
    assert found.charge("alice", "c", IN, 1, START) == 1 + int(1_000 / rate)


def test_a_limit_of_a_user_is_shared_by_its_clients_and_a_default_is_not_by_users() -> None:
    found = quotas(
        ((("user", "alice"),), "producer_byte_rate", 10.0), ((("user", None),), "producer_byte_rate", 10.0)
    )
    found.charge("alice", "one", IN, 10, START)
    found.charge("bob", "one", IN, 10, START)

    assert found.charge("alice", "two", IN, 1, START) > 0
    assert found.charge("bob", "two", IN, 1, START) > 0
    assert found.charge("carol", "one", IN, 1, START) == 0


def test_request_time_is_a_share_of_a_processor() -> None:
    found = quotas(((("user", "alice"),), "request_percentage", 10.0))

    assert found.charge("alice", "c", QuotaType.REQUEST_NS, SECOND // 10, START) == 0
    assert found.charge("alice", "c", QuotaType.REQUEST_NS, SECOND // 10, START) == 1_001
    assert found.charge("alice", "c", IN, 1 << 40, START) == 0


def test_another_limit_counts_from_when_it_is_set() -> None:
    machine = cluster()
    perform(machine, AlterClientQuotas((("user", "alice"),), (("producer_byte_rate", 1.0),)))
    found = ClientQuotas()
    found.on_metadata(machine.image)
    assert found.charge("alice", "c", IN, 100, START) > 0

    perform(machine, AlterClientQuotas((("user", "alice"),), (("producer_byte_rate", 1_000.0),)))
    found.on_metadata(machine.image)
    assert found.charge("alice", "c", IN, 100, START) == 0

    perform(machine, AlterClientQuotas((("user", "alice"),), (("producer_byte_rate", None),)))
    found.on_metadata(machine.image)
    assert found.charge("alice", "c", IN, 1 << 40, START) == 0


def test_new_connections_of_an_address_are_counted() -> None:
    found = quotas(
        ((("ip", "127.0.0.1"),), "connection_creation_rate", 2.0),
        ((("ip", None),), "connection_creation_rate", 1.0),
    )

    assert [found.charge_connection("127.0.0.1", START) for _ in range(3)] == [0, 0, 501]
    assert [found.charge_connection("127.0.0.2", START) for _ in range(2)] == [0, 1_001]


def test_client_ids_that_are_made_up_are_not_kept() -> None:
    found = quotas(((("client-id", None),), "producer_byte_rate", 100.0))

    def charge() -> None:
        for name in long_names():
            assert found.charge("alice", name, IN, 100, START) == 0

    assert kept_bytes(charge) < 1 << 20


def test_a_long_client_id_has_a_limit_of_its_own() -> None:
    name = "c" * 400
    found = quotas(
        ((("client-id", name),), "producer_byte_rate", 100.0),
        ((("client-id", None),), "producer_byte_rate", 1_000.0),
    )

    assert found.charge("alice", name, IN, 100, START) == 0
    assert found.charge("bob", name, IN, 100, START) == 1_001
    assert found.charge("bob", name + "c", IN, 1_000, START) == 0


@pytest.mark.parametrize(
    ("written", "address"), [("2001:DB8::1", "2001:db8::1"), ("::ffff:10.0.0.7", "10.0.0.7")]
)
@pytest.mark.parametrize("is_old", [False, True])
def test_an_address_may_be_written_in_several_ways(written: str, address: str, is_old: bool) -> None:
    machine, found = cluster(), ClientQuotas()
    entity, key = (("ip", written),), "connection_creation_rate"
    if is_old:
        # Stored before addresses were written in one way.
        machine.apply(QuotaSet(entity, key, 1.0))
    else:
        perform(machine, AlterClientQuotas(entity, ((key, 1.0),)))
        (stored,) = machine.image.quotas.keys()
        assert entity_of(stored) == (("ip", address),)
    found.on_metadata(machine.image)
    assert [found.charge_connection(address, START) for _ in range(2)] == [0, 1_001]

    perform(machine, AlterClientQuotas(entity, ((key, None),)))
    found.on_metadata(machine.image)

    assert [found.charge_connection(address, START) for _ in range(2)] == [0, 0]
