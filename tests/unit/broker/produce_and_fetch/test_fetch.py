"""What a fetch returns, and when."""

from typing import TYPE_CHECKING, Any

import pytest

from penstock.broker import fetch as fetch_module
from penstock.broker.client_shares import ShareLimits
from penstock.broker.fetch import (
    SLICE_PARTITIONS,
    SLICE_RANGES,
    FetchedPartition,
    FetchLimits,
    FetchPartition,
    FetchService,
)
from penstock.broker.partitions import LeaderPartition
from penstock.broker.topics import NewTopic
from penstock.core.metadata import CreatedTopic
from penstock.core.model import MILLISECOND, SECOND, ApiError, ErrorKind
from penstock.storage.log import FileRange, OpenedBatches

if TYPE_CHECKING:
    from tests.unit.broker.produce_and_fetch.conftest import Bench

PATIENT = FetchLimits(min_bytes=1, max_bytes=1 << 20, max_wait_ms=60_000)
AT_ONCE = PATIENT._replace(max_wait_ms=0)
LARGE = b"x" * 10_000


def size_of(found: FetchedPartition) -> int:
    return 0 if found.records is None else found.records.length


def content_of(found: FetchedPartition) -> bytes:
    assert found.records is not None
    return found.records.to_bytes() if isinstance(found.records, FileRange) else found.records


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

    bench.deleted((orders, 1))

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
    bench.deleted((orders, 1))

    answers = [bench.fetch(AT_ONCE, FetchPartition(orders, offset, 1 << 20)) for offset in (0, 1, 2, 3)]

    assert [kind_of(found) for ((found,),) in answers] == [ErrorKind.OFFSET_OUT_OF_RANGE, None, None, None]
    assert [size_of(found) > 0 for ((found,),) in answers] == [False, True, True, False]


def many(bench: "Bench", count: int = 2 * SLICE_PARTITIONS + 1) -> list[LeaderPartition]:
    """The partitions of a topic that has so many that they are read in slices."""
    outcome: list[CreatedTopic | ApiError] = []
    bench.backend.topics.create([NewTopic("many", partitions=count)], outcome.extend)
    bench.run(5 * SECOND)
    assert isinstance(outcome[0], CreatedTopic), outcome
    found = [bench.backend.partitions.find("many", index) for index in range(count)]
    return [partition for partition in found if partition is not None]


def wants(partitions: list[LeaderPartition]) -> list[FetchPartition]:
    return [FetchPartition(partition, 0, 1 << 20) for partition in partitions]


def test_an_append_has_a_long_poll_read_the_partition_it_went_to_and_no_other(
    bench: "Bench", monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions = many(bench, 20)
    read: list[str] = []

    def read_one(partition: LeaderPartition, *rest: Any) -> FetchedPartition:
        read.append(str(partition.name))
        return original(partition, *rest)

    original = fetch_module.read_one
    monkeypatch.setattr(fetch_module, "read_one", read_one)
    answers = bench.fetch(PATIENT._replace(min_bytes=25_000), *wants(partitions))
    assert len(read) == 20
    read.clear()

    bench.written(partitions[3], LARGE)
    bench.written(partitions[3], b"small")
    bench.written(partitions[7], LARGE)

    assert answers == []
    assert read == ["many/3", "many/3", "many/7"]
    bench.written(partitions[3], LARGE)
    assert [index for index, found in enumerate(answers[0]) if found.records is not None] == [3, 7]


def test_a_fetch_of_very_many_partitions_returns_what_there_is(bench: "Bench") -> None:
    partitions = many(bench)
    bench.written(partitions[0], LARGE)
    bench.written(partitions[-1], b"last")

    answers = bench.fetch(PATIENT, *wants(partitions))
    assert answers == []
    bench.run()

    (found,) = answers
    assert len(found) == len(partitions)
    assert [index for index, part in enumerate(found) if size_of(part)] == [0, len(partitions) - 1]


def test_the_limits_of_a_response_hold_for_very_many_partitions_as_well(bench: "Bench") -> None:
    partitions = many(bench)
    for index in (0, 1, SLICE_PARTITIONS + 1):
        bench.written(partitions[index], LARGE)

    answers = bench.fetch(AT_ONCE._replace(max_bytes=15_000), *wants(partitions))
    bench.run()

    assert [index for index, part in enumerate(answers[0]) if size_of(part)] == [0]


@pytest.mark.parametrize("index", [0, SLICE_PARTITIONS, -1])
def test_a_long_poll_of_very_many_partitions_waits_for_any_of_them(bench: "Bench", index: int) -> None:
    partitions = many(bench)
    answers = bench.fetch(PATIENT, *wants(partitions))
    bench.run()
    assert answers == []

    bench.written(partitions[index])

    (found,) = answers
    assert [part.high_watermark for part in found].count(1) == 1
    assert sum(partition.watchers for partition in partitions) == 0


def test_what_is_written_while_a_long_poll_is_being_read_is_not_missed(bench: "Bench") -> None:
    partitions = many(bench)
    answers = bench.fetch(PATIENT, *wants(partitions))

    # Nothing of it was read so far, and it is acknowledged after the first slice.
    bench.append(partitions[0])
    bench.run()

    assert [size_of(part) > 0 for part in answers[0]].count(True) == 1


def test_a_long_poll_of_very_many_partitions_ends_at_its_time_or_is_cancelled(bench: "Bench") -> None:
    partitions = many(bench)
    answers = bench.fetch(PATIENT._replace(max_wait_ms=2_000), *wants(partitions))
    cancelled: list[list[FetchedPartition]] = []
    waiting = bench.backend.fetch_service.fetch(wants(partitions), PATIENT, cancelled.append)
    assert waiting is not None
    bench.run()
    assert len(bench.backend.fetch_service.waiting) == 2

    waiting.cancel()
    bench.run(3 * SECOND)

    assert [len(found) for found in answers] == [len(partitions)]
    assert cancelled == []
    assert sum(partition.watchers for partition in partitions) == 0
    assert len(bench.backend.fetch_service.waiting) == 0


def test_a_long_poll_that_holds_much_gives_way_to_one_that_holds_little(bench: "Bench") -> None:
    partitions = many(bench, 60)
    service = FetchService(bench.runtime, bench.backend.partitions.lease, ShareLimits(10, 100, 80))
    answers: dict[str, list[list[FetchedPartition]]] = {"greedy": [], "greedier": [], "modest": []}

    service.fetch(wants(partitions), PATIENT, answers["greedy"].append, "10.6.6.6")
    service.fetch(wants(partitions), PATIENT, answers["greedier"].append, "10.6.6.6")
    assert (len(answers["greedy"]), len(answers["greedier"])) == (0, 1)
    service.fetch(wants(partitions[:50]), PATIENT, answers["modest"].append, "10.0.0.1")
    bench.run()

    assert len(answers["greedy"]) == 1
    assert answers["modest"] == []
    assert (len(service.waiting), service.waiting.weight) == (1, 50)


def test_short_ranges_of_several_partitions_are_read_and_long_ones_are_sent_from_their_files(
    bench: "Bench",
) -> None:
    first, second, third = many(bench, 3)
    for partition in (first, second, third):
        bench.written(partition, *[LARGE * 2] * (partition is second))

    (found,) = bench.fetch(AT_ONCE, *[FetchPartition(each, 0, 1 << 20) for each in (first, second, third)])
    ((alone,),) = bench.fetch(AT_ONCE, FetchPartition(first, 0, 1 << 20))
    bench.run()

    is_encrypted = bench.vault is not None
    assert [isinstance(part.records, OpenedBatches) for part in found] == [True, is_encrypted, True]
    assert isinstance(alone.records, OpenedBatches) is is_encrypted
    assert content_of(found[0]) == content_of(alone)


def test_what_many_partitions_have_is_looked_at_in_slices(bench: "Bench") -> None:
    partitions = many(bench, SLICE_RANGES + 1)
    for partition in partitions:
        bench.append(partition)
    bench.run()

    answers = bench.fetch(AT_ONCE, *[FetchPartition(each, 0, 1 << 20) for each in partitions])

    assert answers == []
    bench.run()
    (found,) = answers
    assert [size_of(part) > 0 for part in found] == [True] * len(partitions)
