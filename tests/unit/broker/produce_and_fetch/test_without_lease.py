"""Without its lease a broker gives no answer that another leader could contradict."""

from typing import TYPE_CHECKING

import pytest

from penstock.broker.fetch import FetchLimits, FetchPartition
from penstock.broker.lease import FOREVER
from penstock.broker.partitions import LeaderPartition
from penstock.broker.produce import AppendResult, PendingProduce, Results
from penstock.core.model import ApiError, BrokerEpoch, ErrorKind, NodeId, Offset

if TYPE_CHECKING:
    from tests.unit.broker.produce_and_fetch.conftest import Bench

UNKNOWN = ApiError(ErrorKind.UNKNOWN_TOPIC_ID)
LONG_POLL = FetchLimits(min_bytes=1, max_bytes=1 << 20, max_wait_ms=60_000)
AT_ONCE = LONG_POLL._replace(max_wait_ms=0)


def ignore() -> None:
    """Reads are not paused in these tests."""


def produce(bench: "Bench", partition: LeaderPartition | ApiError, acks: int, **fields: int) -> list[Results]:
    heard: list[Results] = []
    request = PendingProduce(acks, 1_000, bench.now, heard.append, ignore, ignore)
    bench.backend.produce_service.produce(request, [(partition, bench.batch(**fields))])
    return heard


def kinds(heard: list[Results]) -> list[ErrorKind | None]:
    (results,) = heard
    return [one.kind if isinstance(one, ApiError) else None for one in results]


def with_follower(partition: LeaderPartition) -> None:
    """Another replica is in sync, and has whatever the test says."""
    both = (NodeId(1), NodeId(2))
    partition.assignment_changed(partition.isr.assignment._replace(replicas=both, isr=both, minimum=1))


def replicate(bench: "Bench", partition: LeaderPartition, end: int) -> None:
    partition.follower_fetched(NodeId(2), BrokerEpoch(0), Offset(end), Offset(end))
    bench.run()


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_what_only_this_node_would_confirm_is_not_taken(bench: "Bench", acks: int) -> None:
    orders = bench.topic()
    bench.end_lease()

    heard = produce(bench, orders, acks)

    assert kinds(heard) == [ErrorKind.NOT_LEADER]
    assert orders.log.end == 0


def test_a_partition_that_is_not_here_keeps_its_own_error(bench: "Bench") -> None:
    bench.end_lease()

    assert kinds(produce(bench, UNKNOWN, 1)) == [ErrorKind.UNKNOWN_TOPIC_ID]


@pytest.mark.parametrize("acks", [1, -1])
def test_a_write_is_not_acknowledged_when_the_lease_ended_during_its_sync(bench: "Bench", acks: int) -> None:
    orders = bench.topic()

    heard = produce(bench, orders, acks)
    bench.end_lease()
    bench.run()

    assert kinds(heard) == [ErrorKind.NOT_LEADER]
    assert orders.log.end == 1


def test_a_write_to_all_is_acknowledged_by_the_replicas_and_needs_no_lease(bench: "Bench") -> None:
    orders = bench.topic()
    with_follower(orders)
    bench.end_lease()

    heard = produce(bench, orders, -1)
    bench.run()
    before = list(heard)
    replicate(bench, orders, 1)

    assert before == []
    assert kinds(heard) == [None]


def test_a_write_to_the_leader_alone_needs_one_although_there_are_others(bench: "Bench") -> None:
    orders = bench.topic()
    with_follower(orders)
    bench.end_lease()

    assert kinds(produce(bench, orders, 1)) == [ErrorKind.NOT_LEADER]


def test_an_idempotent_producer_is_not_judged_by_what_may_be_old(bench: "Bench") -> None:
    orders = bench.topic()
    with_follower(orders)
    produce(bench, orders, -1, producer_id=7, producer_epoch=0, base_sequence=0)
    fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 5}
    with_lease = kinds(produce(bench, orders, -1, **fields))
    bench.end_lease()

    without = kinds(produce(bench, orders, -1, **fields))

    assert with_lease == [ErrorKind.OUT_OF_ORDER_SEQUENCE]
    assert without == [ErrorKind.NOT_LEADER]


def test_a_consumer_gets_neither_records_nor_ends(bench: "Bench") -> None:
    orders = bench.topic()
    bench.written(orders, b"1")
    bench.end_lease()

    heard = bench.fetch(LONG_POLL, FetchPartition(orders, 0, 1 << 20), FetchPartition(UNKNOWN, 0, 1 << 20))

    assert [(one.error and one.error.kind, one.high_watermark, one.records) for one in heard[0]] == [
        (ErrorKind.NOT_LEADER, -1, None),
        (ErrorKind.UNKNOWN_TOPIC_ID, -1, None),
    ]


def test_a_long_poll_is_not_answered_with_what_it_finds_when_the_lease_has_ended(bench: "Bench") -> None:
    orders = bench.topic()
    heard = bench.fetch(LONG_POLL, FetchPartition(orders, 0, 1 << 20))
    bench.end_lease(in_ms=1_000)
    bench.run(70_000_000_000)

    assert [one.error and one.error.kind for one in heard[0]] == [ErrorKind.NOT_LEADER]


def test_a_long_poll_that_more_records_wake_up_looks_at_the_lease(bench: "Bench") -> None:
    orders = bench.topic()
    heard = bench.fetch(LONG_POLL, FetchPartition(orders, 0, 1 << 20))
    assert isinstance(bench.append(orders, b"1"), AppendResult)
    bench.end_lease()
    bench.run()

    assert [one.error and one.error.kind for one in heard[0]] == [ErrorKind.NOT_LEADER]


def test_no_position_is_looked_up_and_nothing_is_deleted(bench: "Bench") -> None:
    orders = bench.topic()
    bench.written(orders, b"1")
    lookup = bench.backend.offset_lookup
    late: list[Offset | ApiError] = []
    bench.backend.record_deletion.delete([(orders, -1)], 1_000, late.extend)
    bench.end_lease()

    refused = [
        lookup.find(orders, -1, read_committed=False),
        lookup.end_of_epoch(orders, orders.leader_epoch, -1),
        *bench.deleted((orders, -1)),
        lookup.check(orders),
        *late,
    ]

    assert [one.kind for one in refused if isinstance(one, ApiError)] == [ErrorKind.NOT_LEADER] * 5
    assert orders.log.start == 0


def test_with_the_lease_everything_is_served_again(bench: "Bench") -> None:
    orders = bench.topic()
    bench.end_lease()
    produce(bench, orders, 1)
    bench.backend.partitions.lease.until = FOREVER

    heard = produce(bench, orders, 1)
    bench.run()

    assert kinds(heard) == [None]
    assert bench.fetch(AT_ONCE, FetchPartition(orders, 0, 1 << 20))[0][0].high_watermark == 1
