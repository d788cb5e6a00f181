"""Produce, Fetch and ListOffsets on a partition with several replicas, of which one is a real node.

The other brokers are registered by hand; what they have fetched and synced is what the test says.
"""

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from penstock.broker.partitions import LeaderPartition
from penstock.core.metadata import (
    AlterPartition,
    BrokerEndpoint,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigResourceType,
    CreatedTopic,
    CreateTopic,
    FenceBroker,
    IncrementalAlterConfigs,
    IsrMember,
    ReplicaAssignment,
)
from penstock.core.metadata import Partition as PartitionState
from penstock.core.model import (
    MILLISECOND,
    SECOND,
    ApiError,
    BrokerEpoch,
    NodeId,
    Offset,
    PartitionIndex,
    TopicId,
)
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
)
from penstock.core.protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
)
from penstock.core.protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
    ProduceResponsePartition,
)
from penstock.core.records import Record, check_batches, write_batch

if TYPE_CHECKING:
    from tests.unit.server.kafka.handlers.conftest import Stage

TOPIC_ID = TopicId(UUID(int=5))
LATEST, EARLIEST = -1, -2
TIME_MS = 1_700_000_000_000
NOBODY = (-1, -1)
BY_NAME, LEADERS_NAMED = 11, 16
# Followers that say nothing stay in sync for as long as a test takes.
PATIENT = {"replica.lag.time.max.ms": "100000000"}


class Cluster:
    """Node 1, brokers 2 and 3, and the topic `orders` on all of them, led by the first."""

    def __init__(self, stage: "Stage", *replicas: int) -> None:
        self.stage = stage
        self.client = stage.client()
        for number in (2, 3):
            stage.add_broker(number, BrokerEndpoint("PLAINTEXT", f"host-{number}", 9092))
        placed = ReplicaAssignment(PartitionIndex(0), tuple(map(NodeId, replicas)))
        created = stage.submit(CreateTopic("orders", TOPIC_ID, assignments=(placed,)))
        assert isinstance(created, CreatedTopic)

    @property
    def state(self) -> PartitionState:
        state = self.stage.backend.controller.image.partition("orders", 0)
        assert state is not None
        return state

    @property
    def led(self) -> LeaderPartition:
        partition = self.stage.backend.partitions.find("orders", 0)
        assert partition is not None
        return partition

    def epoch_of(self, number: int) -> BrokerEpoch:
        broker = self.stage.backend.controller.image.broker(number)
        assert broker is not None
        return broker.epoch

    def fetched(self, number: int, offset: int) -> None:
        """A follower has everything below `offset`, on its disk."""
        end = Offset(offset)
        self.led.follower_fetched(NodeId(number), self.epoch_of(number), end, end)

    def change_isr(self, *members: int) -> None:
        state = self.state
        command = AlterPartition(
            state.leader,
            self.epoch_of(state.leader),
            TOPIC_ID,
            PartitionIndex(0),
            state.leader_epoch,
            state.partition_epoch,
            tuple(IsrMember(NodeId(number), self.epoch_of(number)) for number in members),
        )
        reply = self.stage.submit(command)
        assert not isinstance(reply, ApiError), reply

    def fence(self, number: int) -> None:
        self.stage.submit(FenceBroker(NodeId(number), self.epoch_of(number)))

    def take_over(self, records: int) -> None:
        """Node 1 has copied records of which it does not know whether they are committed, and leads."""
        followed = self.stage.backend.partitions.find_followed(TOPIC_ID, 0)
        assert followed is not None
        batch = write_batch([Record(0, TIME_MS, None, b"v")] * records)
        followed.append(batch, check_batches(batch))
        self.stage.run()
        self.fence(self.state.leader)
        assert (self.led.high_watermark, self.led.log.end) == (0, records)

    def produce(self, acks: int, *, timeout_ms: int = 30_000, version: int = BY_NAME) -> None:
        batch = write_batch([Record(0, TIME_MS, None, b"v")])
        part = ProduceRequestPartition(index=0, records=bytes(batch))
        topic = ProduceRequestTopic(name="orders", partition_data=(part,))
        self.client.send(ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=(topic,)), version)

    def is_answered(self) -> bool:
        """Whether there is a response, a while later."""
        self.stage.run(100 * MILLISECOND)
        return bool(self.client.tcp.written)

    def produced(self, version: int = BY_NAME) -> ProduceResponsePartition:
        return self.client.receive(ProduceResponse, version).responses[0].partition_responses[0]

    def fetch(self, offset: int, version: int = BY_NAME) -> FetchResponse:
        part = FetchRequestPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        by_id = version >= 13
        topic = FetchRequestTopic(
            topic="" if by_id else "orders", topic_id=TOPIC_ID if by_id else UUID(int=0), partitions=(part,)
        )
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=(topic,))
        return self.client.ask(request, FetchResponse, version)

    def fetched_row(self, offset: int) -> FetchResponsePartition:
        return self.fetch(offset).responses[0].partitions[0]

    def list_offset(self, timestamp: int, version: int = 7) -> ListOffsetsResponsePartition:
        part = ListOffsetsRequestPartition(partition_index=0, timestamp=timestamp)
        topic = ListOffsetsRequestTopic(name="orders", partitions=(part,))
        request = ListOffsetsRequest(replica_id=-1, topics=(topic,))
        return self.client.ask(request, ListOffsetsResponse, version).topics[0].partitions[0]


@pytest.fixture
def leading(stage_with: type["Stage"]) -> Cluster:
    """Node 1 leads."""
    return Cluster(stage_with(PATIENT), 1, 2, 3)


@pytest.fixture
def following(stage_with: type["Stage"]) -> Cluster:
    """Broker 2 leads."""
    return Cluster(stage_with(PATIENT), 2, 1, 3)


def test_acks_all_waits_for_every_replica_that_is_in_sync_and_acks_1_for_the_leader_alone(
    leading: Cluster,
) -> None:
    leading.produce(acks=1)
    assert leading.is_answered()
    assert leading.produced().error_code == 0

    leading.produce(acks=-1)
    assert not leading.is_answered()
    leading.fetched(2, 2)
    assert not leading.is_answered()
    leading.fetched(3, 2)

    assert leading.is_answered()
    row = leading.produced()
    assert (row.error_code, row.base_offset) == (0, 1)


def test_with_too_few_replicas_in_sync_acks_all_is_refused_before_anything_is_written(
    leading: Cluster,
) -> None:
    leading.change_isr(1)

    leading.produce(acks=-1)
    assert leading.is_answered()
    row = leading.produced()
    assert row.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert row.error_message == "1 of 3 replicas are in sync, 2 are needed"
    assert leading.led.log.end == 0

    leading.produce(acks=1)
    assert leading.is_answered()
    assert leading.produced().error_code == 0
    refused = leading.stage.backstage.produce_metrics.errors.of("orders", "not_enough_replicas")
    assert refused.count == 1


def test_whoever_waited_for_replicas_as_long_as_they_asked_to_is_told_so(leading: Cluster) -> None:
    leading.produce(acks=-1, timeout_ms=2_000)
    leading.stage.run(1 * SECOND)
    assert not leading.is_answered()

    leading.stage.run(2 * SECOND)

    assert leading.produced().error_code == ErrorCode.REQUEST_TIMED_OUT
    assert leading.led.log.end == 1


def test_those_whose_replicas_left_while_they_waited_are_told_that_too(leading: Cluster) -> None:
    leading.produce(acks=-1, timeout_ms=10_000)
    leading.change_isr(1)

    leading.stage.run(10 * SECOND)

    assert leading.produced().error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_whoever_waits_when_another_node_takes_over_is_sent_there(leading: Cluster) -> None:
    leading.produce(acks=-1)
    assert not leading.is_answered()

    leading.fence(1)

    row = leading.produced()
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (2, 1)


def test_a_follower_sends_producers_to_the_leader(following: Cluster) -> None:
    following.produce(acks=1, version=10)
    following.stage.run()

    answer = following.client.receive(ProduceResponse, 10)

    row = answer.responses[0].partition_responses[0]
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (2, 0)
    (node,) = answer.node_endpoints
    assert (node.node_id, node.host, node.port, node.rack) == (2, "host-2", 9092, "rack-2")


def test_producers_whose_version_has_no_place_for_it_get_only_not_leader(
    following: Cluster,
) -> None:
    following.produce(acks=1, version=9)
    following.stage.run()

    row = following.produced(9)

    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == NOBODY


@pytest.mark.parametrize(
    ("version", "leader", "nodes"), [(BY_NAME, NOBODY, []), (LEADERS_NAMED, (2, 0), [(2, "host-2", 9092)])]
)
def test_a_follower_sends_consumers_to_the_leader(
    following: Cluster, version: int, leader: tuple[int, int], nodes: list[tuple[int, str, int]]
) -> None:
    answer = following.fetch(0, version)

    row = answer.responses[0].partitions[0]
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == leader
    assert [(node.node_id, node.host, node.port) for node in answer.node_endpoints] == nodes


def test_nobody_is_sent_to_a_leader_that_there_is_not(following: Cluster) -> None:
    resource = ConfigResource(ConfigResourceType.TOPIC, "orders")
    one_is_enough = ConfigChange(ConfigOperation.SET, "min.insync.replicas", "1")
    following.stage.submit(IncrementalAlterConfigs(resource, (one_is_enough,)))
    following.change_isr(2)
    following.fence(2)
    assert following.state.leader == -1

    answer = following.fetch(0, LEADERS_NAMED)

    row = answer.responses[0].partitions[0]
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (row.current_leader.leader_id, answer.node_endpoints) == (-1, ())


def test_consumers_do_not_see_what_is_not_on_all_replicas(leading: Cluster) -> None:
    leading.produce(acks=1)
    leading.stage.run()
    leading.produced()

    before = leading.fetched_row(0)
    leading.fetched(2, 1)
    leading.fetched(3, 1)
    after = leading.fetched_row(0)

    assert (before.error_code, before.high_watermark, before.records) == (0, 0, b"")
    assert (after.error_code, after.high_watermark) == (0, 1)
    assert after.records


def test_a_new_leader_has_no_data_above_its_high_watermark_and_no_error_either(following: Cluster) -> None:
    following.take_over(records=3)

    for offset in (0, 1, 3):
        row = following.fetched_row(offset)
        assert (row.error_code, row.high_watermark, row.records) == (0, 0, b"")


def test_a_new_leader_does_not_call_an_offset_too_large_before_it_knows_what_is_committed(
    following: Cluster,
) -> None:
    following.take_over(records=3)
    before = following.fetched_row(4).error_code

    following.fetched(3, 3)
    after = following.fetched_row(4).error_code

    assert (before, after) == (ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.OFFSET_OUT_OF_RANGE)


def test_a_new_leader_does_not_tell_the_latest_offset_before_it_knows_it(following: Cluster) -> None:
    following.take_over(records=3)
    latest = following.list_offset(LATEST).error_code
    to_old_clients = following.list_offset(LATEST, version=4).error_code
    by_time = following.list_offset(TIME_MS).error_code
    earliest = following.list_offset(EARLIEST)

    following.fetched(3, 3)

    assert latest == by_time == ErrorCode.OFFSET_NOT_AVAILABLE
    assert to_old_clients == ErrorCode.LEADER_NOT_AVAILABLE
    assert (earliest.error_code, earliest.offset) == (0, 0)
    known = following.list_offset(LATEST)
    assert (known.error_code, known.offset) == (0, 3)
    assert following.list_offset(TIME_MS).offset == 0
