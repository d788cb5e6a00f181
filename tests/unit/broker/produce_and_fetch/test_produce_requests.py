"""When a Produce request is done: by what it asked for, and not before its last batch."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from penstock.broker.partitions import LeaderPartition
from penstock.broker.produce import AppendResult, PendingProduce, Results
from penstock.core.model import ApiError, ErrorKind
from penstock.core.records import Record, write_batch

if TYPE_CHECKING:
    from tests.unit.broker.produce_and_fetch.conftest import Bench

NOT_HERE = ApiError(ErrorKind.NOT_LEADER)
LARGE = b"v" * 100_000


class Client:
    """Sends one request and keeps the results."""

    def __init__(self, bench: "Bench", acks: int) -> None:
        self.heard: list[Results] = []
        self.reads: list[str] = []
        self._bench = bench
        self._acks = acks

    def produce(self, *batches: tuple[LeaderPartition | ApiError, bytes]) -> "Client":
        request = PendingProduce(
            self._acks, 1_000, 0, self.heard.append, self._note("pause"), self._note("resume")
        )
        made = [(partition, self._batch(value)) for partition, value in batches]
        self._bench.backend.produce_service.produce(request, made)
        return self

    def _batch(self, value: bytes) -> memoryview | None:
        if not value:
            return None
        return memoryview(write_batch([Record(0, self._bench.wall_ms, b"key", value)]))

    def _note(self, what: str) -> Callable[[], None]:
        return lambda: self.reads.append(what)


def offsets(results: Results) -> list[int | ErrorKind]:
    return [one.first_offset if isinstance(one, AppendResult) else one.kind for one in results]


@pytest.mark.parametrize("acks", [1, -1])
def test_a_request_is_done_when_its_last_batch_is_on_the_device(bench: "Bench", acks: int) -> None:
    orders, bills = bench.topic(), bench.topic("bills")

    client = Client(bench, acks).produce((orders, b"1"), (bills, b"2"), (orders, b"3"))
    at_once = list(client.heard)
    bench.run()

    assert at_once == []
    assert [offsets(results) for results in client.heard] == [[0, 0, 1]]


def test_who_wants_no_acknowledgement_waits_for_nothing(bench: "Bench") -> None:
    orders = bench.topic()

    client = Client(bench, 0).produce((orders, b"1"))

    assert [offsets(results) for results in client.heard] == [[0]]
    assert orders.log.synced == 0


def test_results_stand_in_the_order_of_the_batches_whatever_became_of_each(bench: "Bench") -> None:
    orders = bench.topic()

    client = Client(bench, -1).produce((NOT_HERE, b"1"), (orders, b"2"), (orders, b""))
    bench.run()

    assert [offsets(results) for results in client.heard] == [
        [ErrorKind.NOT_LEADER, 0, ErrorKind.INVALID_RECORD]
    ]


def test_what_is_refused_altogether_is_done_at_once(bench: "Bench") -> None:
    client = Client(bench, -1).produce((NOT_HERE, b"1"))

    assert client.heard == [[NOT_HERE]]


def test_a_client_is_not_read_while_a_worker_has_its_batch(bench: "Bench") -> None:
    orders = bench.topic(compression_type="zstd")

    client = Client(bench, -1).produce((orders, LARGE))
    at_once = list(client.reads)
    bench.run()

    assert at_once == ["pause"]
    assert client.reads == ["pause", "resume"]
    assert [offsets(results) for results in client.heard] == [[0]]


def test_whoever_waits_for_a_partition_that_stops_is_sent_to_look_for_its_leader(bench: "Bench") -> None:
    orders, bills = bench.topic(), bench.topic("bills")

    client = Client(bench, -1).produce((orders, b"1"), (bills, b"2"))
    orders.stop("another broker leads it", wanted=True)
    bench.run()

    assert [offsets(results) for results in client.heard] == [[ErrorKind.NOT_LEADER, 0]]


def test_only_what_was_acknowledged_counts_in_the_time_to_an_acknowledgement(bench: "Bench") -> None:
    orders = bench.topic()
    took = bench.produce_metrics.seconds_to_ack.of("orders")

    Client(bench, -1).produce((orders, b"1"), (orders, b"2"))
    Client(bench, -1).produce((orders, b"3"), (NOT_HERE, b"4"))
    Client(bench, 0).produce((orders, b"5"))
    bench.run()

    assert sum(took.counts) == 1
