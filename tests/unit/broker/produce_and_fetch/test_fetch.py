"""What a fetch returns, and when."""

from typing import TYPE_CHECKING

import pytest

from penstock.broker.fetch import FetchedPartition, FetchLimits, FetchPartition
from penstock.core.model import MILLISECOND, SECOND, ApiError, ErrorKind, Offset

if TYPE_CHECKING:
    from tests.unit.broker.produce_and_fetch.conftest import Bench

PATIENT = FetchLimits(min_bytes=1, max_bytes=1 << 20, max_wait_ms=60_000)
AT_ONCE = PATIENT._replace(max_wait_ms=0)
LARGE = b"x" * 10_000


def size_of(found: FetchedPartition) -> int:
    return 0 if found.records is None else found.records.length


def kind_of(found: FetchedPartition) -> ErrorKind | None:
    return None if found.error is None else found.error.kind


def test_what_is_there_is_answered_at_once(bench: "Bench") -> None:
    orders = bench.topic()
    bench.written(orders, b"one", b"two")

    ((found,),) = bench.fetch(PATIENT, FetchPartition(orders, 0, 1 << 20))

    assert size_of(found) > 0
    assert (found.high_watermark, found.last_stable_offset, found.log_start) == (2, 2, 0)
    assert found.aborted is None


def test_a_reader_of_committed_records_gets_the_list_of_aborted_ones_even_if_empty(bench: "Bench") -> None:
    orders = bench.topic()
    bench.written(orders)

    ((found,),) = bench.fetch(AT_ONCE._replace(read_committed=True), FetchPartition(orders, 0, 1 << 20))

    assert size_of(found) > 0
    assert found.aborted == []


def test_a_fetch_at_the_end_waits_for_the_next_record(bench: "Bench") -> None:
    orders = bench.topic()
    answers = bench.fetch(PATIENT, FetchPartition(orders, 0, 1 << 20))
    bench.run()
    assert answers == []

    bench.written(orders)

    ((found,),) = answers
    assert size_of(found) > 0


def test_records_that_are_not_acknowledged_are_not_given_and_no_error_either(bench: "Bench") -> None:
    orders = bench.topic()
    bench.append(orders)
    assert (orders.high_watermark, orders.log.end) == (0, 1)

    answers = [bench.fetch(AT_ONCE, FetchPartition(orders, offset, 1 << 20)) for offset in (0, 1)]

    assert [(kind_of(found), size_of(found)) for ((found,),) in answers] == [(None, 0), (None, 0)]


def test_a_fetch_ends_when_its_time_is_up_with_what_there_is(bench: "Bench") -> None:
    orders = bench.topic()
    bench.written(orders)
    answers = bench.fetch(
        PATIENT._replace(min_bytes=5_000, max_wait_ms=2_000), FetchPartition(orders, 0, 1 << 20)
    )

    bench.run(1 * SECOND)
    assert answers == []
    bench.run(2 * SECOND)

    ((found,),) = answers
    assert 0 < size_of(found) < 5_000


def test_a_fetch_waits_for_its_least_bytes_over_all_partitions_together(bench: "Bench") -> None:
    orders, bills = bench.topic("orders"), bench.topic("bills")
    answers = bench.fetch(
        PATIENT._replace(min_bytes=15_000),
        FetchPartition(orders, 0, 1 << 20),
        FetchPartition(bills, 0, 1 << 20),
    )

    bench.written(orders, LARGE)
    assert answers == []
    bench.written(bills, LARGE)

    assert [size_of(found) > 10_000 for found in answers[0]] == [True, True]


def test_a_fetch_from_a_full_segment_does_not_wait_for_what_the_next_one_has_already(
    bench: "Bench",
) -> None:
    orders = bench.topic()
    bench.written(orders, b"small")
    orders.log.roll()
    bench.written(orders, LARGE)

    answers = bench.fetch(PATIENT._replace(min_bytes=5_000), FetchPartition(orders, 0, 1 << 20))

    assert len(answers) == 1


@pytest.mark.parametrize("offset", [-1, 3])
def test_an_offset_outside_the_log_is_refused_without_waiting(bench: "Bench", offset: int) -> None:
    orders = bench.topic()
    bench.written(orders, b"one", b"two")

    ((found,),) = bench.fetch(PATIENT, FetchPartition(orders, offset, 1 << 20))

    assert kind_of(found) is ErrorKind.OFFSET_OUT_OF_RANGE
    assert (found.high_watermark, found.log_start) == (2, 0)


def test_one_refusal_ends_the_waiting_for_all(bench: "Bench") -> None:
    orders = bench.topic()

    ((quiet, unknown),) = bench.fetch(
        PATIENT, FetchPartition(orders, 0, 1 << 20), FetchPartition(ApiError(ErrorKind.UNKNOWN_TOPIC), 0, 0)
    )

    assert (kind_of(quiet), size_of(quiet)) == (None, 0)
    assert kind_of(unknown) is ErrorKind.UNKNOWN_TOPIC


@pytest.mark.parametrize(
    ("epoch", "kind"), [(-1, None), (0, ErrorKind.FENCED_LEADER_EPOCH), (7, ErrorKind.UNKNOWN_LEADER_EPOCH)]
)
def test_a_client_with_another_idea_of_the_leader_is_told(
    bench: "Bench", epoch: int, kind: ErrorKind | None
) -> None:
    orders = bench.topic()
    orders.leader_epoch = type(orders.leader_epoch)(3)

    ((found,),) = bench.fetch(AT_ONCE, FetchPartition(orders, 0, 1 << 20, epoch))

    assert kind_of(found) is kind


def test_the_first_batch_is_given_however_large_and_a_later_one_only_if_it_fits(bench: "Bench") -> None:
    orders, bills = bench.topic("orders"), bench.topic("bills")
    bench.written(orders, LARGE)
    bench.written(bills, LARGE)

    ((first, second),) = bench.fetch(
        AT_ONCE._replace(max_bytes=100), FetchPartition(orders, 0, 100), FetchPartition(bills, 0, 100)
    )

    assert size_of(first) > 10_000
    assert size_of(second) == 0


def test_a_partition_gives_no_more_than_it_was_asked_for_but_whole_batches(bench: "Bench") -> None:
    orders = bench.topic()
    for _ in range(5):
        bench.written(orders, LARGE)

    ((found,),) = bench.fetch(AT_ONCE, FetchPartition(orders, 0, 25_000))

    assert 20_000 < size_of(found) < 25_000


def test_a_waiting_fetch_returns_when_its_offset_is_deleted(bench: "Bench") -> None:
    orders = bench.topic()
    bench.written(orders, b"one", b"two")
    limits = PATIENT._replace(min_bytes=100_000)
    answers = bench.fetch(limits, FetchPartition(orders, 0, 1 << 20))
    assert answers == []

    bench.backend.offset_lookup.delete_before(orders, 1)
    bench.run()

    ((found,),) = answers
    assert kind_of(found) is ErrorKind.OFFSET_OUT_OF_RANGE
    assert found.log_start == 1


def test_a_waiting_fetch_returns_when_the_partition_stops(bench: "Bench") -> None:
    orders = bench.topic()
    answers = bench.fetch(PATIENT, FetchPartition(orders, 0, 1 << 20))

    orders.stop("the disk failed")
    bench.run()

    ((found,),) = answers
    assert kind_of(found) is ErrorKind.NOT_LEADER


def test_a_fetch_is_answered_once_though_several_partitions_wake_it_up(bench: "Bench") -> None:
    orders, bills = bench.topic("orders"), bench.topic("bills")
    answers = bench.fetch(
        PATIENT._replace(max_wait_ms=200),
        FetchPartition(orders, 0, 1 << 20),
        FetchPartition(bills, 0, 1 << 20),
    )

    bench.append(orders)
    bench.append(bills)
    bench.run(1 * SECOND)

    assert len(answers) == 1


def test_a_fetch_that_is_cancelled_is_never_answered_and_nobody_remembers_it(bench: "Bench") -> None:
    orders = bench.topic()
    answers: list[list[FetchedPartition]] = []
    waiting = bench.backend.fetch_service.fetch([FetchPartition(orders, 0, 1 << 20)], PATIENT, answers.append)
    assert waiting is not None
    assert orders.watchers == 1

    waiting.cancel()

    assert orders.watchers == 0
    bench.written(orders)
    bench.run(120 * SECOND)
    assert answers == []


def test_a_fetch_that_ended_leaves_no_watcher_behind(bench: "Bench") -> None:
    orders = bench.topic()
    bench.fetch(PATIENT._replace(max_wait_ms=50), FetchPartition(orders, 0, 1 << 20))
    bench.run(100 * MILLISECOND)
    bench.fetch(PATIENT, FetchPartition(orders, 0, 1 << 20))
    bench.written(orders)

    assert orders.watchers == 0


def test_a_reader_between_log_start_and_high_watermark_gets_the_batch_that_holds_its_offset(
    bench: "Bench",
) -> None:
    orders = bench.topic()
    bench.written(orders, b"0", b"1", b"2")
    bench.backend.offset_lookup.delete_before(orders, Offset(1))

    answers = [bench.fetch(AT_ONCE, FetchPartition(orders, offset, 1 << 20)) for offset in (0, 1, 2, 3)]

    assert [kind_of(found) for ((found,),) in answers] == [ErrorKind.OFFSET_OUT_OF_RANGE, None, None, None]
    assert [size_of(found) > 0 for ((found,),) in answers] == [False, True, True, False]
