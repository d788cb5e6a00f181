"""A Produce request with one batch has a shorter way, with the same results as any other."""

from typing import TYPE_CHECKING

import pytest

from penstock.broker.partitions import LeaderPartition
from penstock.broker.produce import AppendResult, PendingBatch
from penstock.core.model import ApiError, ErrorKind

if TYPE_CHECKING:
    from tests.unit.broker.produce_and_fetch.conftest import Bench

LARGE = b"v" * 100_000
TIMEOUT_MS = 1_000


class HeardBatch(PendingBatch):
    """Notes its results, and when reads are paused."""

    __slots__ = ("_client", "heard", "reads")

    def __init__(
        self, bench: "Bench", acks: int, partition: LeaderPartition, client: str = "a client"
    ) -> None:
        super().__init__(bench.backend.produce_service, acks, bench.now, partition)
        self._client = client
        self.heard: list[int | ErrorKind] = []
        self.reads: list[str] = []

    @property
    def client(self) -> str:
        return self._client

    def respond(self, result: AppendResult | ApiError) -> None:
        self.heard.append(result.first_offset if isinstance(result, AppendResult) else result.kind)

    def pause(self) -> None:
        self.reads.append("pause")

    def resume(self) -> None:
        self.reads.append("resume")


def produce(
    bench: "Bench", partition: LeaderPartition, acks: int = 1, value: bytes = b"1", client: str = "a client"
) -> HeardBatch:
    request = HeardBatch(bench, acks, partition, client)
    bench.backend.produce_service.produce_one(request, bench.batch(value), TIMEOUT_MS)
    return request


@pytest.mark.parametrize("acks", [1, -1])
def test_it_is_answered_when_it_is_on_the_device(bench: "Bench", acks: int) -> None:
    orders = bench.topic()

    requests = [produce(bench, orders, acks) for _ in range(2)]
    at_once = [request.heard for request in requests if request.heard]
    bench.run()

    assert at_once == []
    assert [request.heard for request in requests] == [[0], [1]]
    assert orders.log.synced == 2
    assert sum(bench.produce_metrics.seconds_to_ack.of("orders").counts) == 2


def test_one_that_is_refused_is_answered_at_once_and_counted(bench: "Bench") -> None:
    orders = bench.topic(max_message_bytes="1000")

    request = produce(bench, orders, value=LARGE)

    assert request.heard == [ErrorKind.BATCH_TOO_LARGE]
    assert bench.produce_metrics.errors.of("orders", "batch_too_large").count == 1


def test_one_that_waits_for_a_partition_that_stops_is_sent_to_look_for_its_leader(bench: "Bench") -> None:
    orders = bench.topic()

    request = produce(bench, orders)
    orders.stop("another broker leads it", wanted=True)
    bench.run()

    assert request.heard == [ErrorKind.NOT_LEADER]


@pytest.mark.parametrize("acks", [1, -1])
def test_it_is_not_acknowledged_when_the_lease_ended_during_its_sync(bench: "Bench", acks: int) -> None:
    orders = bench.topic()

    request = produce(bench, orders, acks)
    bench.end_lease()
    bench.run()

    assert request.heard == [ErrorKind.NOT_LEADER]
    assert orders.log.end == 1


def test_without_a_lease_it_is_not_taken(bench: "Bench") -> None:
    orders = bench.topic()
    bench.end_lease()

    request = produce(bench, orders)

    assert request.heard == [ErrorKind.NOT_LEADER]
    assert orders.log.end == 0


def test_its_client_is_not_read_while_a_worker_has_it_and_the_next_one_waits_behind_it(
    bench: "Bench",
) -> None:
    orders = bench.topic(compression_type="zstd")

    large = produce(bench, orders, value=LARGE)
    small = produce(bench, orders)
    at_once = [list(request.reads) for request in (large, small)]
    bench.run()

    assert at_once == [["pause"], ["pause"]]
    assert [large.reads, small.reads] == [["pause", "resume"], ["pause", "resume"]]
    assert [large.heard, small.heard] == [[0], [1]]


def test_another_client_does_not_wait_behind_it(bench: "Bench") -> None:
    orders = bench.topic(compression_type="zstd")

    large = produce(bench, orders, value=LARGE)
    small = produce(bench, orders, client="another client")
    paused, end = list(small.reads), orders.log.end
    bench.run()

    assert (paused, end) == ([], 1)
    assert [large.heard, small.heard] == [[1], [0]]
