"""Work that is due for many logs at once is not done for all of them at once."""

import itertools
from uuid import UUID

from penstock.core.metadata import CreateTopic, ReplicaAssignment
from penstock.core.model import LeaderEpoch, NodeId, PartitionIndex, Timestamp, TopicId
from penstock.core.records import Record, check_batches, write_batch
from penstock.storage.log import PartitionLog
from tests.unit.broker.partitions.replicas_bench import ReplicasBench

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
