"""Large batches of topics that have their records looked at: elsewhere, and still in order."""

from typing import TYPE_CHECKING, Any

import pytest

from penstock.broker.partitions import LeaderPartition
from penstock.broker.produce import LARGE_PACKED_BYTES, RECORDS_MAX, AppendResult, PendingAppend
from penstock.broker.worker_share import LIGHT_BYTES
from penstock.core.model import ApiError, ErrorKind, Offset
from penstock.core.records import (
    HEADER_BYTES,
    CompressionType,
    Record,
    check_batches,
    read_header,
    read_records,
    write_batch,
)
from penstock.core.records.batch import LAYOUT, seal
from penstock.core.records.compression import LIMIT_BYTES

if TYPE_CHECKING:
    from tests.unit.broker.produce_and_fetch.conftest import Bench

ME = {"producer_id": 7, "producer_epoch": 0}
LARGE = b"v" * 100_000
SMALL = b"v"


def produce(bench: "Bench", partition: LeaderPartition, value: bytes, **fields: Any) -> list[Any]:
    """Append a batch of one record; the list gets its outcome, at once or later."""
    records = [Record(0, bench.wall_ms, fields.pop("key", b"key"), value)]
    outcomes: list[Any] = []
    outcome = bench.backend.produce_service.append(partition, memoryview(write_batch(records, **fields)))
    if isinstance(outcome, PendingAppend):
        outcome.done = outcomes.append
    else:
        outcomes.append(outcome)
    return outcomes


def offsets(*outcomes: list[Any]) -> list[int | ErrorKind]:
    return [one.first_offset if isinstance(one, AppendResult) else one.kind for (one,) in outcomes]


def test_a_large_batch_is_compressed_anew_while_the_loop_goes_on(bench: "Bench") -> None:
    orders = bench.topic(compression_type="zstd")

    outcomes = produce(bench, orders, LARGE)
    at_once, end = list(outcomes), orders.log.end
    bench.run()

    assert (at_once, end) == ([], 0)
    assert offsets(outcomes) == [0]
    content = orders.log.read(Offset(0), 1 << 20).to_bytes()
    (header,) = check_batches(content)
    assert header.codec is CompressionType.ZSTD
    assert [record.value for record in read_records(memoryview(content))] == [LARGE]


def test_batches_of_a_partition_stay_in_order_whatever_their_size(bench: "Bench") -> None:
    orders = bench.topic(compression_type="gzip")
    sizes = (LARGE, SMALL, LARGE, SMALL, SMALL)

    outcomes = [produce(bench, orders, size, base_sequence=number, **ME) for number, size in enumerate(sizes)]
    waiting = sum(not outcome for outcome in outcomes)
    bench.run()

    assert waiting == 5
    assert offsets(*outcomes) == [0, 1, 2, 3, 4]
    assert orders.log.end == 5


def test_partitions_do_not_wait_for_each_other(bench: "Bench") -> None:
    orders, bills = bench.topic(compression_type="gzip"), bench.topic("bills", compression_type="gzip")

    slow = produce(bench, orders, LARGE)
    quick = produce(bench, bills, SMALL)

    assert slow == []
    assert offsets(quick) == [0]
    bench.run()
    assert offsets(slow) == [0]


def test_a_batch_that_comes_again_while_it_is_away_is_not_stored_twice(bench: "Bench") -> None:
    orders = bench.topic(compression_type="gzip")

    first = produce(bench, orders, LARGE, base_sequence=0, **ME)
    again = produce(bench, orders, LARGE, base_sequence=0, **ME)
    beyond = produce(bench, orders, SMALL, base_sequence=5, **ME)
    bench.run()

    assert offsets(first, again, beyond) == [0, 0, ErrorKind.OUT_OF_ORDER_SEQUENCE]
    assert orders.log.end == 1


@pytest.mark.parametrize("value", [LARGE, SMALL])
def test_a_compacted_topic_takes_no_record_without_a_key_however_large(bench: "Bench", value: bytes) -> None:
    orders = bench.topic(cleanup_policy="compact")

    outcomes = produce(bench, orders, value, key=None)
    bench.run()

    (refused,) = outcomes
    assert isinstance(refused, ApiError)
    assert (refused.kind, refused.records) == (ErrorKind.INVALID_RECORD, (0,))
    assert bench.produce_metrics.errors.of("orders", "invalid_record").count == 1


def test_a_topic_that_goes_while_its_batch_is_away_takes_nothing(bench: "Bench") -> None:
    orders = bench.topic(compression_type="gzip")

    outcomes = [produce(bench, orders, LARGE), produce(bench, orders, SMALL)]
    orders.stop("the topic was deleted", wanted=True)
    bench.run()

    assert offsets(*outcomes) == [ErrorKind.NOT_LEADER, ErrorKind.NOT_LEADER]


def test_the_log_append_time_is_that_of_the_append(bench: "Bench") -> None:
    orders = bench.topic(compression_type="gzip", message_timestamp_type="LogAppendTime")

    outcomes = produce(bench, orders, LARGE)
    bench.run()

    (placed,) = outcomes
    (header,) = check_batches(orders.log.read(Offset(0), 1 << 20).to_bytes())
    assert header.is_log_append_time
    assert header.max_timestamp == placed.log_append_time > 0


def test_nothing_is_left_waiting_when_all_is_done(bench: "Bench") -> None:
    orders = bench.topic(compression_type="gzip")
    produce(bench, orders, LARGE)
    produce(bench, orders, SMALL)
    bench.run()

    outcomes = produce(bench, orders, SMALL)

    assert offsets(outcomes) == [2]


def test_a_few_bytes_that_unpack_to_many_are_not_unpacked_on_the_loop(bench: "Bench") -> None:
    orders = bench.topic(cleanup_policy="compact")

    bomb = produce(bench, orders, bytes(1 << 20), codec=CompressionType.ZSTD)
    at_once = list(bomb)
    bench.run()

    assert at_once == []
    assert offsets(bomb) == [0]


def test_a_few_bytes_that_unpack_to_more_than_a_quick_job_takes_are_stored_all_the_same(
    bench: "Bench",
) -> None:
    orders = bench.topic(penstock_validation="deep")

    bomb = produce(bench, orders, bytes(2 * LIGHT_BYTES), codec=CompressionType.GZIP)
    bench.run()

    assert offsets(bomb) == [0]
    (header,) = check_batches(orders.log.read(Offset(0), 1 << 20).to_bytes())
    assert header.size_bytes < LARGE_PACKED_BYTES * 4


def test_what_unpacks_to_more_than_anybody_reads_is_refused(bench: "Bench") -> None:
    orders = bench.topic(penstock_validation="deep")

    bomb = produce(bench, orders, bytes(LIMIT_BYTES), codec=CompressionType.ZSTD)
    bench.run()

    assert offsets(bomb) == [ErrorKind.BATCH_TOO_LARGE]
    assert orders.log.end == 0


@pytest.mark.parametrize("codec", list(CompressionType)[1:])
def test_records_that_cannot_be_unpacked_are_not_worth_another_try(
    bench: "Bench", codec: CompressionType
) -> None:
    orders = bench.topic(penstock_validation="deep")
    batch = write_batch([Record(0, bench.wall_ms, None, bytes(range(256)) * 4)], codec=codec)
    batch[-40:] = bytes(40)
    seal(batch, 0, len(batch))

    outcome = bench.backend.produce_service.append(orders, memoryview(batch))

    assert isinstance(outcome, ApiError)
    assert outcome.kind is ErrorKind.INVALID_RECORD


def test_producers_without_ids_of_one_partition_do_not_wait_for_those_that_have(bench: "Bench") -> None:
    orders = bench.topic(compression_type="gzip")

    slow = produce(bench, orders, LARGE, base_sequence=0, **ME)
    behind = produce(bench, orders, SMALL, base_sequence=1, **ME)
    beside = produce(bench, orders, SMALL)
    at_once = [list(outcomes) for outcomes in (slow, behind)]
    bench.run()

    assert at_once == [[], []]
    assert offsets(beside, slow, behind) == [0, 1, 2]


def test_more_records_than_a_worker_looks_into_at_once_are_refused(bench: "Bench") -> None:
    orders = bench.topic(cleanup_policy="compact")
    batch = write_batch([Record(0, bench.wall_ms, b"key", b"value" * 20_000)], codec=CompressionType.GZIP)
    header = read_header(batch)._replace(record_count=RECORDS_MAX + 1, last_offset_delta=RECORDS_MAX)
    told = bytearray(LAYOUT.pack(*header) + batch[HEADER_BYTES:] + bytes(RECORDS_MAX))
    told[8:12] = (len(told) - 12).to_bytes(4, "big")
    seal(told, 0, len(told))

    outcome = bench.backend.produce_service.append(orders, memoryview(told))

    assert isinstance(outcome, ApiError)
    assert outcome.kind is ErrorKind.BATCH_TOO_LARGE
