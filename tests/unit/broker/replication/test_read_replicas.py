"""Consumers read from a follower in their rack: what is committed, and no more."""

import pytest

from penstock.broker.fetch import FetchedPartition, FetchLimits, FetchPartition, FetchService
from penstock.broker.lease import FOREVER, BrokerLease
from penstock.broker.partitions import FollowerPartition
from penstock.broker.read_replicas import ReadReplicaSelector
from penstock.core.metadata import (
    ALL_BROKERS,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigResourceType,
    ElectionType,
    ElectLeader,
    IncrementalAlterConfigs,
    Ok,
)
from penstock.core.metadata.configs.broker import LEADER_SELECTOR
from penstock.core.model import ErrorKind, Instant, NodeId, PartitionIndex, Timestamp
from penstock.core.records import Record, check_batches, write_batch
from tests.unit.broker.replication.stage import Broker, Stage

FIRST, SECOND, THIRD = NodeId(1), NodeId(2), NodeId(3)
AT_ONCE = FetchLimits(1, 1 << 20, 0)
PATIENT = FetchLimits(1, 1 << 20, 60_000)


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.create(1, 2, 3)
    stage.append("a")
    stage.run(200)
    # A consumer was sent to a follower before.
    stage.leader().readers_redirected()
    stage.run(20)
    return stage


def selector(stage: Stage, node: NodeId) -> ReadReplicaSelector:
    return ReadReplicaSelector(stage.machine, stage.brokers[node].partitions, node)


def nearest(stage: Stage, rack: str, offset: int = 0) -> NodeId | None:
    return selector(stage, FIRST).nearest(stage.leader(), offset, rack)


def follower(stage: Stage, node: NodeId = SECOND) -> FollowerPartition:
    found = selector(stage, node).followed("t", 0)
    assert found is not None
    return found


def service(broker: Broker, lease: BrokerLease | None = None) -> FetchService:
    return FetchService(broker.runtime, lease or BrokerLease(FOREVER))


def fetch(
    stage: Stage, offset: int, limits: FetchLimits = AT_ONCE, epoch: int = -1
) -> list[list[FetchedPartition]]:
    """What the second broker answers, as soon as it does."""
    answers: list[list[FetchedPartition]] = []
    want = FetchPartition(follower(stage), offset, 1 << 20, epoch)
    service(stage.brokers[SECOND]).fetch([want], limits, answers.append)
    return answers


def end_of(found: FetchedPartition) -> int:
    """The offset behind what was served."""
    assert found.records is not None
    return max(header.next_offset for header in check_batches(found.records.to_bytes()))


def test_a_consumer_is_sent_to_the_replica_in_its_rack(stage: Stage) -> None:
    assert nearest(stage, "rack-2") == SECOND
    assert nearest(stage, "rack-3") == THIRD


@pytest.mark.parametrize(("rack", "offset"), [("rack-1", 0), ("elsewhere", 0), ("rack-2", 2), ("rack-2", -1)])
def test_a_consumer_stays_with_the_leader(stage: Stage, rack: str, offset: int) -> None:
    assert nearest(stage, rack, offset) is None


def test_nobody_is_sent_to_a_replica_that_is_not_in_sync_or_behind(stage: Stage) -> None:
    stage.append("b")
    assert nearest(stage, "rack-2", 2) is None, "it has not fetched that yet"

    stage.kill(SECOND)
    stage.run(50)
    assert nearest(stage, "rack-2") is None
    stage.start(SECOND)
    stage.run(3)
    assert nearest(stage, "rack-2") is None, "it is back, and not in sync yet"


def test_a_cluster_can_keep_consumers_with_leaders(stage: Stage) -> None:
    change = ConfigChange(ConfigOperation.SET, "replica.selector.class", LEADER_SELECTOR)
    resource = ConfigResource(ConfigResourceType.BROKER, ALL_BROKERS)
    assert stage.perform(IncrementalAlterConfigs(resource, (change,))) == Ok()

    assert nearest(stage, "rack-2") is None


def test_a_follower_never_serves_what_is_not_committed(stage: Stage) -> None:
    """Step by step, while records are on their way."""
    ahead = 0
    for number in range(5):
        stage.append(f"r{number}")
        for _ in range(20):
            stage.run(1)
            partition = follower(stage)
            ahead += partition.log.end > partition.high_watermark
            ((found,),) = fetch(stage, 0)
            assert found.error is None
            assert found.high_watermark == partition.high_watermark <= stage.leader().high_watermark
            assert end_of(found) == found.high_watermark
            ((at_the_end,),) = fetch(stage, found.high_watermark)
            assert at_the_end.records is None

    assert ahead > 0, "records that are not committed were there to be served"
    assert follower(stage).high_watermark == stage.leader().high_watermark == 6


def test_a_consumer_that_waits_at_a_follower_gets_what_is_committed_then(stage: Stage) -> None:
    answers = fetch(stage, 1, PATIENT)
    assert answers == []

    stage.append("b")
    stage.run(100)

    ((found,),) = answers
    assert end_of(found) == 2


def test_a_consumer_that_waits_is_told_when_the_follower_follows_no_more(stage: Stage) -> None:
    answers = fetch(stage, 1, PATIENT)

    stage.perform(ElectLeader("t", PartitionIndex(0), ElectionType.PREFERRED))
    stage.kill(FIRST)
    stage.run(50)

    ((found,),) = answers
    assert found.error is not None
    assert found.error.kind is ErrorKind.NOT_LEADER


@pytest.mark.parametrize(
    ("newer", "kind"),
    [(0, None), (-1, ErrorKind.FENCED_LEADER_EPOCH), (1, ErrorKind.UNKNOWN_LEADER_EPOCH)],
)
def test_a_follower_checks_the_leader_epoch(stage: Stage, newer: int, kind: ErrorKind | None) -> None:
    stage.kill(FIRST)
    stage.run(500)
    assert stage.leader().leader_epoch == 1
    broker = THIRD if stage.leader() is stage.brokers[SECOND].partitions.find("t", 0) else SECOND
    want = FetchPartition(follower(stage, broker), 0, 1 << 20, 1 + newer)
    answers: list[list[FetchedPartition]] = []

    service(stage.brokers[broker]).fetch([want], AT_ONCE, answers.append)

    ((found,),) = answers
    assert (None if found.error is None else found.error.kind) is kind


def test_an_offset_that_a_follower_does_not_have_is_out_of_range_so_that_the_leader_is_asked(
    stage: Stage,
) -> None:
    ((found,),) = fetch(stage, 2)

    assert found.error is not None
    assert found.error.kind is ErrorKind.OFFSET_OUT_OF_RANGE
    assert found.high_watermark == 1


def test_a_follower_without_a_lease_serves_nothing(stage: Stage) -> None:
    answers: list[list[FetchedPartition]] = []
    late = BrokerLease(Instant(0))

    service(stage.brokers[SECOND], late).fetch(
        [FetchPartition(follower(stage), 0, 1 << 20)], PATIENT, answers.append
    )

    ((found,),) = answers
    assert found.error is not None
    assert found.error.kind is ErrorKind.NOT_LEADER


def test_a_replica_that_is_not_in_sync_serves_nobody(stage: Stage) -> None:
    stage.fence(SECOND)
    stage.run(20)

    assert stage.isr() == [1, 3]
    assert selector(stage, SECOND).followed("t", 0) is None
    assert selector(stage, FIRST).followed("t", 0) is None, "it leads"
    assert selector(stage, SECOND).followed("nothing", 0) is None


def test_a_follower_shows_nothing_of_an_open_transaction_to_who_reads_what_is_committed(stage: Stage) -> None:
    records = [Record(0, 1_000, None, b"open")]
    batch = write_batch(records, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    stage.leader().append(batch, check_batches(batch), Timestamp(1_000))
    stage.append("behind it")
    stage.run(100)

    ((committed,),) = fetch(stage, 0, AT_ONCE._replace(read_committed=True))
    ((everything,),) = fetch(stage, 0)

    assert (end_of(committed), committed.last_stable_offset, committed.high_watermark) == (1, 1, 3)
    assert end_of(everything) == 3
