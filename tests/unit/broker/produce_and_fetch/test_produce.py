"""What becomes of a producer's batch."""

import errno
from typing import TYPE_CHECKING

import pytest

from penstock.broker.partitions import LeaderPartition
from penstock.broker.produce import SKIPPED_MS, AppendResult, PendingAppend
from penstock.core.model import MILLISECOND, SECOND, ApiError, ErrorKind
from penstock.core.records import (
    HEADER_BYTES,
    CompressionType,
    Record,
    check_batches,
    read_header,
    read_records,
    write_batch,
)
from penstock.core.records.record import assemble
from penstock.storage.disk import FailureRule
from penstock.storage.sealing import SEAL_BYTES

if TYPE_CHECKING:
    from tests.unit.broker.produce_and_fetch.conftest import Bench

ME = {"producer_id": 7, "producer_epoch": 0}
LAST_SEQUENCE = 2**31 - 1


def kind_of(outcome: AppendResult | ApiError | PendingAppend) -> ErrorKind | None:
    return outcome.kind if isinstance(outcome, ApiError) else None


def stored(partition: LeaderPartition) -> bytes:
    return partition.log.read(partition.log.start, 1 << 20).to_bytes()


def test_a_batch_is_acknowledged_when_it_is_on_the_device_and_not_before(bench: "Bench") -> None:
    orders = bench.topic()

    placed = bench.append(orders, b"one", b"two")
    heard = bench.acknowledgement(orders, placed)

    assert isinstance(placed, AppendResult)
    assert (placed.first_offset, placed.end, placed.log_append_time) == (0, 2, -1)
    assert heard == []
    bench.run()
    assert heard == [None]
    assert orders.log.synced == 2


def test_a_retry_waits_for_the_sync_of_what_it_repeats(bench: "Bench") -> None:
    orders = bench.topic()
    first = bench.append(orders, base_sequence=0, **ME)

    again = bench.append(orders, base_sequence=0, **ME)
    heard = bench.acknowledgement(orders, again)

    assert again == first
    assert heard == []
    bench.run()
    assert heard == [None]
    assert orders.log.end == 1


def test_each_of_the_last_five_batches_is_known_again_and_the_sixth_is_a_hole(bench: "Bench") -> None:
    orders = bench.topic()
    for sequence in range(6):
        bench.append(orders, base_sequence=sequence, **ME)

    answers = [bench.append(orders, base_sequence=sequence, **ME) for sequence in range(6)]

    assert kind_of(answers[0]) is ErrorKind.OUT_OF_ORDER_SEQUENCE
    assert [placed.first_offset for placed in answers[1:] if isinstance(placed, AppendResult)] == [
        1,
        2,
        3,
        4,
        5,
    ]
    assert orders.log.end == 6


def test_sequences_begin_again_at_zero_after_the_last_one(bench: "Bench") -> None:
    orders = bench.topic()
    bench.append(orders, b"1", b"2", base_sequence=LAST_SEQUENCE - 1, **ME)

    assert kind_of(bench.append(orders, base_sequence=1, **ME)) is ErrorKind.OUT_OF_ORDER_SEQUENCE
    assert isinstance(bench.append(orders, base_sequence=0, **ME), AppendResult)


def test_a_batch_may_span_the_end_of_the_sequences(bench: "Bench") -> None:
    orders = bench.topic()
    spanning = bench.append(orders, b"1", b"2", b"3", base_sequence=LAST_SEQUENCE, **ME)

    assert bench.append(orders, b"1", b"2", b"3", base_sequence=LAST_SEQUENCE, **ME) == spanning
    assert isinstance(bench.append(orders, base_sequence=2, **ME), AppendResult)


def test_a_new_epoch_starts_at_zero_and_fences_the_old_one(bench: "Bench") -> None:
    orders = bench.topic()
    bench.append(orders, base_sequence=0, producer_id=7, producer_epoch=1)

    answers = [
        bench.append(orders, base_sequence=1, producer_id=7, producer_epoch=2),
        bench.append(orders, base_sequence=0, producer_id=7, producer_epoch=2),
        bench.append(orders, base_sequence=1, producer_id=7, producer_epoch=1),
    ]

    assert [kind_of(answer) for answer in answers] == [
        ErrorKind.OUT_OF_ORDER_SEQUENCE,
        None,
        ErrorKind.PRODUCER_FENCED,
    ]


def test_a_producer_that_is_not_known_any_more_goes_on_with_its_sequence(bench: "Bench") -> None:
    orders = bench.topic()

    assert isinstance(bench.append(orders, base_sequence=41, **ME), AppendResult)
    assert isinstance(bench.append(orders, base_sequence=42, **ME), AppendResult)


def test_a_retry_on_a_topic_with_the_brokers_time_is_told_the_time_of_the_first_copy(
    bench: "Bench",
) -> None:
    orders = bench.topic(message_timestamp_type="LogAppendTime")
    first = bench.append(orders, base_sequence=0, **ME)
    bench.run(180 * SECOND)

    again = bench.append(orders, base_sequence=0, **ME)

    assert isinstance(first, AppendResult)
    assert first.log_append_time > 0
    assert again == first


def test_the_brokers_time_is_stored_in_the_batch(bench: "Bench") -> None:
    orders = bench.topic(message_timestamp_type="LogAppendTime")
    batch = memoryview(write_batch([Record(0, 5, None, b"long ago")]))

    placed = bench.backend.produce_service.append(orders, batch)

    (header,) = check_batches(stored(orders))
    assert isinstance(placed, AppendResult)
    assert header.is_log_append_time
    assert header.max_timestamp == placed.log_append_time == bench.wall_ms


def test_a_topics_own_codec_leaves_sequences_and_records_as_they_were(bench: "Bench") -> None:
    orders = bench.topic(compression_type="zstd")
    first = bench.append(orders, b"one", b"two", base_sequence=0, **ME)

    again = bench.append(orders, b"one", b"two", base_sequence=0, **ME)
    after = bench.append(orders, b"three", base_sequence=2, **ME)

    assert again == first
    assert isinstance(after, AppendResult)
    assert after.first_offset == 2
    content = stored(orders)
    headers = check_batches(content)
    assert [(header.codec, header.base_sequence, header.producer_id) for header in headers] == [
        (CompressionType.ZSTD, 0, 7),
        (CompressionType.ZSTD, 2, 7),
    ]
    assert [record.value for record in read_records(content[: headers[0].size_bytes])] == [b"one", b"two"]


def test_a_topics_own_codec_works_as_hard_as_the_topic_says(bench: "Bench") -> None:
    quick = bench.topic("quick", compression_type="zstd", compression_zstd_level="-1000")
    thorough = bench.topic("thorough", compression_type="zstd", compression_zstd_level="19")
    text = b"".join(b"line %d of a text that packs well\n" % number for number in range(1_000))

    bench.append(quick, text)
    bench.append(thorough, text)

    assert len(stored(thorough)) < len(stored(quick))


def test_what_is_counted_is_what_was_stored(bench: "Bench") -> None:
    orders = bench.topic()
    bench.append(orders, b"one", b"two", base_sequence=0, **ME)
    bench.append(orders, b"one", b"two", base_sequence=0, **ME)

    metrics = bench.produce_metrics

    assert metrics.messages.of("orders").count == 2
    sealed = 0 if orders.log.keys is None else SEAL_BYTES
    assert metrics.bytes.of("orders").count == orders.log.size_bytes - sealed


def test_a_batch_and_its_retry_on_a_partition_that_stopped_are_both_answered(bench: "Bench") -> None:
    orders = bench.topic()
    # That of the journal, and that of the log in its place.
    bench.node.fail_disk(FailureRule("sync"))
    bench.node.fail_disk(FailureRule("sync", path_ends="orders/0/00000000000000000000.log"))
    placed = bench.append(orders, base_sequence=0, **ME)
    heard = bench.acknowledgement(orders, placed)
    bench.run()

    again = bench.append(orders, base_sequence=0, **ME)

    assert [error is None for error in heard] == [False]
    assert kind_of(again) is ErrorKind.NOT_LEADER


OTHER = {"producer_id": 8, "producer_epoch": 0}


def test_what_follows_a_batch_that_found_no_room_is_refused_for_the_same_reason(bench: "Bench") -> None:
    orders = bench.topic()
    bench.append(orders, base_sequence=0, **ME)
    bench.node.fail_disk(FailureRule("append", errno.ENOSPC, path_ends=".log", times=1))

    first = bench.append(orders, base_sequence=1, **ME)
    # There is room again, as another producer finds out first.
    bench.append(orders, base_sequence=0, **OTHER)
    turned_away = [first, bench.append(orders, base_sequence=2, **ME)]
    again = [bench.append(orders, base_sequence=sequence, **ME) for sequence in (1, 2)]
    out_of_order = bench.append(orders, base_sequence=9, **ME)

    assert [kind_of(outcome) for outcome in turned_away] == [
        ErrorKind.STORAGE_FAILED,
        ErrorKind.STORAGE_FAILED,
    ]
    assert [kind_of(outcome) for outcome in again] == [None, None]
    assert kind_of(out_of_order) is ErrorKind.OUT_OF_ORDER_SEQUENCE


def test_what_follows_a_batch_for_which_too_few_replicas_were_in_sync_as_well(bench: "Bench") -> None:
    orders = bench.topic()
    bench.append(orders, base_sequence=0, **ME)

    orders.has_min_isr = False
    first = bench.backend.produce_service.append(orders, bench.batch(base_sequence=1, **ME), on_all=True)
    orders.has_min_isr = True
    second = bench.append(orders, base_sequence=2, **ME)

    assert [kind_of(first), kind_of(second)] == [ErrorKind.NOT_ENOUGH_REPLICAS] * 2
    assert kind_of(bench.append(orders, base_sequence=1, **ME)) is None
    assert kind_of(bench.append(orders, base_sequence=2, **ME)) is None


def test_somebody_waits_for_a_larger_isr_once_a_batch_was_refused_for_want_of_one(bench: "Bench") -> None:
    orders = bench.topic()
    orders.has_min_isr = False
    before = orders.is_waited_for

    bench.backend.produce_service.append(orders, bench.batch(), on_all=True)
    refused = orders.is_waited_for
    orders.assignment_changed(orders.isr.assignment)

    assert (before, refused, orders.is_waited_for) == (False, True, False)


def test_a_batch_that_was_given_up_leaves_a_hole(bench: "Bench") -> None:
    orders = bench.topic()
    bench.append(orders, base_sequence=0, **ME)
    bench.node.fail_disk(FailureRule("append", errno.ENOSPC, path_ends=".log", times=1))
    bench.append(orders, base_sequence=1, **ME)

    bench.run(SKIPPED_MS * MILLISECOND)

    assert kind_of(bench.append(orders, base_sequence=2, **ME)) is ErrorKind.OUT_OF_ORDER_SEQUENCE


def test_whoever_asks_a_stopped_partition_for_an_acknowledgement_is_told(bench: "Bench") -> None:
    orders = bench.topic()
    placed = bench.append(orders)
    orders.stop("the disk failed")

    heard = bench.acknowledgement(orders, placed)
    bench.run()

    assert [str(error) for error in heard] == ["orders/0: the disk failed"]


@pytest.mark.parametrize(
    ("config", "value", "kind"),
    [
        ("max_message_bytes", "500", ErrorKind.BATCH_TOO_LARGE),
        ("message_timestamp_after_max_ms", "1000", ErrorKind.INVALID_TIMESTAMP),
    ],
)
def test_what_a_topic_does_not_allow_is_refused(
    bench: "Bench", config: str, value: str, kind: ErrorKind
) -> None:
    strict, open_to_all = bench.topic("strict", **{config: value}), bench.topic("open")
    records = [Record(0, bench.wall_ms + 60_000, b"key", b"x" * 1_000)]

    answers = [
        bench.backend.produce_service.append(topic, memoryview(write_batch(records)))
        for topic in (strict, open_to_all)
    ]

    assert [kind_of(answer) for answer in answers] == [kind, None]
    assert strict.log.end == 0


def test_every_damage_to_a_batch_is_refused(bench: "Bench") -> None:
    orders = bench.topic()
    good = bytes(bench.batch(b"one", b"two"))
    damaged = {
        "a flipped bit": good[:-1] + bytes([good[-1] ^ 1]),
        "an old magic": good[:16] + b"\x01" + good[17:],
        "a second batch": good + good,
        "a missing end": good[:-1],
    }

    answers = {
        what: kind_of(bench.backend.produce_service.append(orders, memoryview(bytearray(batch))))
        for what, batch in damaged.items()
    }

    assert answers == {
        "a flipped bit": ErrorKind.CORRUPT_BATCH,
        "an old magic": ErrorKind.UNSUPPORTED_FORMAT,
        "a second batch": ErrorKind.INVALID_RECORD,
        "a missing end": ErrorKind.CORRUPT_BATCH,
    }
    assert orders.log.end == 0


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"max_timestamp": -1}, None),
        ({"base_timestamp": -1, "max_timestamp": -1}, None),
        ({"base_timestamp": -1}, None),
        ({"base_timestamp": 1, "max_timestamp": -1}, ErrorKind.INVALID_TIMESTAMP),
        ({"base_timestamp": 2**45, "max_timestamp": -1}, ErrorKind.INVALID_TIMESTAMP),
        ({"base_timestamp": 1}, ErrorKind.INVALID_TIMESTAMP),
        ({"max_timestamp": 2**45}, ErrorKind.INVALID_TIMESTAMP),
    ],
)
def test_times_that_a_client_leaves_out_are_not_compared_with_the_clock(
    bench: "Bench", fields: dict[str, int], kind: ErrorKind | None
) -> None:
    orders = bench.topic(message_timestamp_before_max_ms="60000")
    batch = bench.batch()
    told = assemble(read_header(batch)._replace(**fields), bytes(batch[HEADER_BYTES:]))

    answer = bench.backend.produce_service.append(orders, memoryview(told))

    assert kind_of(answer) is kind


def test_a_false_number_of_records_does_not_move_the_end(bench: "Bench") -> None:
    orders = bench.topic()
    batch = bench.batch()
    count = 2**31 - 1
    told = assemble(
        read_header(batch)._replace(record_count=count, last_offset_delta=count - 1),
        bytes(batch[HEADER_BYTES:]),
    )

    answer = bench.backend.produce_service.append(orders, memoryview(told))

    assert kind_of(answer) is ErrorKind.INVALID_RECORD
    assert orders.log.end == 0
