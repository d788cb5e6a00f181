"""Settings that are changed: which logs follow them, and when."""

from typing import cast
from uuid import UUID

import pytest

from penstock.broker.produce import AppendResult, ProduceMetrics, ProduceService
from penstock.broker.transactions.verification import TransactionVerification
from penstock.broker.worker_share import WorkerShare
from penstock.core.metadata import (
    ALL_BROKERS,
    ConfigResourceType,
    ConfigSet,
    CreateTopic,
    ReplicaAssignment,
)
from penstock.core.model import ApiError, ErrorKind, NodeId, PartitionIndex, TopicId
from penstock.storage.log import LogOptions, PartitionLog
from tests.support.manual_runtime import hand_runtime
from tests.unit.broker.partitions.replicas_bench import Broker, Producer, ReplicasBench, batch

TOPICS = 100


class ConfiguredLogs:
    """The directories of the logs that were given options."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directories: list[str] = []
        configure = PartitionLog.configure

        def count(log: PartitionLog, options: LogOptions) -> None:
            self.directories.append(log.directory)
            configure(log, options)

        monkeypatch.setattr(PartitionLog, "configure", count)

    def take(self) -> list[str]:
        taken, self.directories = self.directories, []
        return taken


def bench_of(topics: int) -> ReplicasBench:
    bench = ReplicasBench()
    for number in range(topics):
        placed = ReplicaAssignment(PartitionIndex(0), (NodeId(1),))
        bench.perform(
            CreateTopic(f"topic-{number:03}", TopicId(UUID(int=100 + number)), assignments=(placed,))
        )
    return bench


def change(bench: ReplicasBench, kind: ConfigResourceType, name: str, key: str, value: str) -> Broker:
    """Broker 1 hears of the change, and nothing else happens yet."""
    bench.machine.replay((ConfigSet(kind, name, key, value),))
    bench[1].partitions.on_metadata(bench.image)
    return bench[1]


def test_only_the_logs_of_a_topic_that_was_changed_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, logs = bench_of(3), ConfiguredLogs(monkeypatch)

    change(bench, ConfigResourceType.GROUP, "readers", "queue.retries.max", "3")
    change(bench, ConfigResourceType.BROKER, "2", "log.segment.bytes", "5000")
    bench[1].settle()
    assert logs.take() == []

    change(bench, ConfigResourceType.TOPIC, "topic-001", "segment.bytes", "6000")
    assert logs.take() == ["logs/topic-001/0"]
    assert bench[1].partitions.options("topic-001").segment_bytes == 6000


def test_all_logs_follow_the_settings_of_brokers_not_in_one_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, logs = bench_of(TOPICS), ConfiguredLogs(monkeypatch)

    broker = change(bench, ConfigResourceType.BROKER, ALL_BROKERS, "log.segment.bytes", "5000")
    assert logs.take() == []
    assert broker.timers.step()
    assert 0 < len(logs.directories) < TOPICS // 2

    broker.settle()
    assert sorted(logs.take()) == [f"logs/topic-{number:03}/0" for number in range(TOPICS)]


def test_settings_that_brokers_change_meanwhile_count_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, logs = bench_of(TOPICS), ConfiguredLogs(monkeypatch)

    change(bench, ConfigResourceType.BROKER, ALL_BROKERS, "log.segment.bytes", "5000")
    bench[1].timers.step()
    early = logs.take()
    change(bench, ConfigResourceType.BROKER, "1", "log.retention.ms", "7000")
    bench[1].settle()

    assert early
    assert sorted(logs.take()) == [f"logs/topic-{number:03}/0" for number in range(TOPICS)]


def test_a_topic_whose_settings_are_asked_for_has_its_logs_follow_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, logs = bench_of(TOPICS), ConfiguredLogs(monkeypatch)
    broker = change(bench, ConfigResourceType.BROKER, ALL_BROKERS, "log.segment.bytes", "5000")

    assert broker.partitions.options("topic-099").segment_bytes == 5000
    assert logs.take() == ["logs/topic-099/0"]

    broker.settle()
    assert "logs/topic-099/0" not in logs.take()


def test_a_producer_meets_a_minimum_isr_of_brokers_with_its_first_batch() -> None:
    bench = ReplicasBench(static={"min.insync.replicas": "1"}).create()
    bench.change_isr(1)
    broker = change(bench, ConfigResourceType.BROKER, ALL_BROKERS, "min.insync.replicas", "2")
    runtime = hand_runtime(broker.timers, broker.syncs)
    verification = cast(TransactionVerification, None)
    service = ProduceService(
        broker.partitions, broker.timers, ProduceMetrics(), WorkerShare(runtime), verification
    )

    refused = service.append(broker.led, memoryview(batch()), on_all=True)

    assert isinstance(refused, ApiError)
    assert refused.kind is ErrorKind.NOT_ENOUGH_REPLICAS
    assert isinstance(service.append(broker.led, memoryview(batch())), AppendResult)


@pytest.mark.parametrize(
    "configs",
    [
        {"segment_ms": "1"},
        {"cleanup_policy": "compact", "max_compaction_lag_ms": "1"},
        {"segment_ms": "1000", "segment_jitter_ms": "1000"},
    ],
)
def test_a_log_is_rolled_for_its_age_once_a_second_at_most(configs: dict[str, str]) -> None:
    bench = ReplicasBench().create(1, **configs)
    led, producer = bench[1].led, Producer(bench[1])

    for _ in range(25):
        producer.append(b"x")
        bench.timers.pass_ms(100)

    assert len(led.log.segments()) == 3
