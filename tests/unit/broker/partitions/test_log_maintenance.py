"""Work that is due for many logs at once is not done for all of them at once."""

import itertools
from uuid import UUID

import pytest

from penstock.broker.partitions import log_maintenance
from penstock.broker.partitions.log_maintenance import LogMaintenance, LogMaintenanceOptions, fair_share
from penstock.core.metadata import CreateTopic, ReplicaAssignment
from penstock.core.model import Instant, LeaderEpoch, NodeId, PartitionIndex, Timestamp, TopicId
from penstock.core.records import Record, check_batches, write_batch
from penstock.runtime import Callback, Timer
from penstock.storage.log import PartitionLog
from tests.support.manual_runtime import hand_runtime
from tests.support.recorded_events import recorded_events
from tests.unit.broker.partitions.replicas_bench import Producer, ReplicasBench

MANY = TopicId(UUID(int=79))
LOGS = 60


def many_logs(bench: ReplicasBench) -> list[PartitionLog]:
    """Logs of broker 1 that were all written just now."""
    placed = [ReplicaAssignment(PartitionIndex(index), (NodeId(1),)) for index in range(LOGS)]
    bench.perform(CreateTopic("many", MANY, assignments=tuple(placed)))
    bench[1].settle()
    logs = []
    for index in range(LOGS):
        partition = bench[1].partitions.find("many", index)
        assert partition is not None
        batch = write_batch([Record(0, 1000, None, b"v", ())])
        partition.log.append(batch, check_batches(batch), LeaderEpoch(0), Timestamp(1))
        logs.append(partition.log)
    return logs


def test_checkpoints_of_logs_that_were_written_together_are_spread() -> None:
    bench = ReplicasBench()
    logs = many_logs(bench)
    before = [log.stats.checkpoints for log in logs]
    counts = [0]

    for _ in range(130):
        bench.timers.pass_ms(100)
        bench[1].settle()
        taken = [log.stats.checkpoints - first for log, first in zip(logs, before, strict=True)]
        counts.append(sum(taken))

    assert taken == [1] * LOGS
    most = max(later - earlier for earlier, later in itertools.pairwise(counts))
    assert most <= LOGS // 6


def test_logs_get_a_checkpoint_soon_when_descriptors_are_short() -> None:
    bench = ReplicasBench()
    logs = many_logs(bench)
    replicas = list(bench[1].partitions)
    shortages = [True]
    bench[1].partitions.maintenance.stop()
    maintenance = LogMaintenance(
        hand_runtime(bench.timers, bench[1].syncs),
        lambda: replicas,
        LogMaintenanceOptions(),
        take_shortage=lambda: bool(shortages and shortages.pop()),
    )
    maintenance.start()

    # Long before any of them is due.
    bench.timers.pass_ms(2_500)
    bench[1].settle()

    assert all(log.is_checkpointed for log in logs)


def test_a_look_at_many_logs_takes_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_maintenance, "LOGS_PER_TURN", 10)
    bench = ReplicasBench()
    many_logs(bench)
    looked, turns = 0, []
    is_due = PartitionLog.is_checkpoint_due

    def count(log: PartitionLog, now: Instant) -> bool:
        nonlocal looked
        looked += 1
        return is_due(log, now)

    soon = bench.timers.soon

    def note(fire: Callback) -> Timer:
        turns.append(looked)
        return soon(fire)

    monkeypatch.setattr(PartitionLog, "is_checkpoint_due", count)
    monkeypatch.setattr(bench.timers, "soon", note)
    bench.timers.pass_ms(1_000)
    bench[1].settle()

    assert looked >= LOGS
    assert [turn for turn in turns if turn][: LOGS // 10 - 1] == list(range(10, LOGS, 10))


def write_as(log: PartitionLog, producer_ids: range) -> None:
    for producer_id in producer_ids:
        batch = write_batch(
            [Record(0, 1000, None, b"v", ())], producer_id=producer_id, producer_epoch=0, base_sequence=0
        )
        log.append(batch, check_batches(batch), LeaderEpoch(0), Timestamp(1))


def test_the_logs_with_the_most_producers_forget_some_when_the_node_remembers_too_many() -> None:
    bench = ReplicasBench(static={"producer.ids.max": "100"})
    logs = many_logs(bench)
    write_as(logs[0], range(200))
    write_as(logs[1], range(300, 390))
    write_as(logs[2], range(400, 410))

    bench.timers.pass_ms(2_000)
    bench[1].settle()

    assert [len(log.producers) for log in logs[:3]] == [45, 45, 10]
    assert [int(producer_id) for producer_id, _ in logs[0].producers] == list(range(155, 200))
    assert bench[1].partitions.maintenance.producers == 100


def test_producers_of_many_logs_are_counted_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_maintenance, "LOGS_PER_TURN", 10)
    bench = ReplicasBench()
    logs = many_logs(bench)
    for number, log in enumerate(logs):
        write_as(log, range(number * 10, number * 10 + 2))
    replicas = list(bench[1].partitions)
    bench[1].partitions.maintenance.stop()
    runtime = hand_runtime(bench.timers, bench[1].syncs)
    maintenance = LogMaintenance(
        runtime, lambda: replicas, LogMaintenanceOptions(), producers_max=lambda: LOGS
    )

    maintenance.limit_producers()
    in_one_turn = sum(len(log.producers) for log in logs)
    bench[1].settle()

    assert in_one_turn == 2 * LOGS
    assert [len(log.producers) for log in logs] == [1] * LOGS
    assert (maintenance.producers, maintenance.evicted_producers) == (LOGS, LOGS)


def test_every_log_gets_what_it_wants_or_as_much_as_the_largest() -> None:
    assert fair_share([5, 5, 5], 100) >= 5
    assert fair_share([50, 50, 10], 60) == 25
    assert fair_share([50, 50, 0], 1) == 0
    assert fair_share([], 10) == 0


def test_segments_that_expire_together_go_over_many_turns_and_are_reported_once() -> None:
    bench = ReplicasBench().create(1, retention_bytes="0")
    producer = Producer(bench[1])
    for _ in range(100):
        producer.append(b"v")
        bench[1].led.log.roll()
    log = bench[1].led.log

    with recorded_events() as events:
        bench[1].partitions.maintenance.enforce_retention()
        first = len(log.segments())
        bench[1].settle()

    assert 101 - first <= 16
    assert len(log.segments()) == 1
    assert log.start == log.end == 100
    assert [event["segments"] for event in events.named("partition.segments_deleted")] == [100]
    assert [name for name in bench[1].disk.listdir(log.directory) if "deleted" in name] == []
