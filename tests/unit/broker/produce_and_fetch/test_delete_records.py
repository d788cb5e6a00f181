"""Deleting records of many partitions: how much work it is, and whose turn it is."""

from typing import TYPE_CHECKING

import pytest

from penstock.broker import delete_records
from penstock.broker.partitions import LeaderPartition
from penstock.broker.topics import NewTopic
from penstock.core.metadata import CreatedTopic
from penstock.core.model import SECOND, ApiError, ErrorKind, Offset

if TYPE_CHECKING:
    from tests.unit.broker.produce_and_fetch.conftest import Bench

Outcomes = list[Offset | ApiError]


def partitions(bench: "Bench", count: int, name: str = "many") -> list[LeaderPartition]:
    """The partitions of a topic, with a record in each."""
    created: list[CreatedTopic | ApiError] = []
    bench.backend.topics.create([NewTopic(name, partitions=count)], created.extend)
    bench.run(5 * SECOND)
    found = []
    for index in range(count):
        partition = bench.backend.partitions.find(name, index)
        assert partition is not None
        bench.append(partition)
        found.append(partition)
    bench.run(1 * SECOND)
    return found


def test_rows_about_one_partition_are_one_deletion_of_the_most_that_is_asked_for(bench: "Bench") -> None:
    orders = bench.topic()
    bench.written(orders, *[b"value"] * 10)
    before = orders.log.stats.checkpoints

    outcomes = bench.deleted(*[(orders, offset) for offset in (3, 7, -5, 1, 7, 11)] * 500)

    starts = {outcome for outcome in outcomes if not isinstance(outcome, ApiError)}
    kinds = [outcome.kind for outcome in outcomes if isinstance(outcome, ApiError)]
    assert starts == {7}
    assert kinds == [ErrorKind.OFFSET_OUT_OF_RANGE] * 1_000
    assert orders.log.stats.checkpoints - before == 1


def test_few_logs_are_worked_on_at_a_time(bench: "Bench", monkeypatch: pytest.MonkeyPatch) -> None:
    many = partitions(bench, 30)
    running: list[int] = []
    begin = delete_records.RecordDeletionService._begin

    def noted(self: delete_records.RecordDeletionService, deletion: delete_records.RecordDeletion) -> None:
        begin(self, deletion)
        running.append(self._running)

    monkeypatch.setattr(delete_records.RecordDeletionService, "_begin", noted)

    outcomes = bench.deleted(*[(partition, -1) for partition in many], timeout_ms=60_000)

    assert outcomes == [1] * 30
    assert len(running) == 30
    assert max(running) == delete_records.DELETIONS_MAX


def test_a_small_request_does_not_wait_for_all_of_a_large_one(bench: "Bench") -> None:
    many, orders = partitions(bench, 60), bench.topic()
    bench.written(orders)
    order: list[str] = []
    service = bench.backend.record_deletion

    service.delete([(partition, -1) for partition in many], 60_000, lambda _: order.append("large"))
    service.delete([(orders, -1)], 60_000, lambda _: order.append("small"))
    bench.run(10 * SECOND)

    assert order == ["small", "large"]


def test_a_request_that_waits_for_no_replica_has_its_records_deleted_here(bench: "Bench") -> None:
    many = partitions(bench, 4)

    assert bench.deleted(*[(partition, -1) for partition in many], timeout_ms=0) == [1] * 4


def test_what_has_not_begun_when_the_time_is_up_is_given_up(
    bench: "Bench", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delete_records, "LOCAL_MS", 0)
    many = partitions(bench, 60)
    outcomes: Outcomes = []

    bench.backend.record_deletion.delete([(partition, -1) for partition in many], 0, outcomes.extend)
    bench.run(10 * SECOND)

    assert {outcome.kind for outcome in outcomes if isinstance(outcome, ApiError)} == {ErrorKind.TIMED_OUT}
    assert [partition.log.start for partition in many].count(Offset(0)) > 30


def test_what_has_not_begun_when_the_client_leaves_is_given_up(bench: "Bench") -> None:
    many = partitions(bench, 60)
    outcomes: Outcomes = []
    wanted = [(partition, -1) for partition in many]

    cancel = bench.backend.record_deletion.delete(wanted, 60_000, outcomes.extend)
    cancel()
    bench.run(10 * SECOND)

    assert outcomes == []
    assert {partition.log.start for partition in many} == {0}


def test_a_partition_that_is_stopped_before_its_turn_is_not_touched(bench: "Bench") -> None:
    many = partitions(bench, 10)
    outcomes: Outcomes = []

    bench.backend.record_deletion.delete([(partition, -1) for partition in many], 60_000, outcomes.extend)
    many[9].stop("somebody else leads", wanted=True)
    bench.run(10 * SECOND)

    assert outcomes[:9] == [1] * 9
    assert isinstance(outcomes[9], ApiError)
    assert outcomes[9].kind is ErrorKind.NOT_LEADER
    assert many[9].log.start == 0
