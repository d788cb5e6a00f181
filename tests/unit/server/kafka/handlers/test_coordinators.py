"""Where groups are coordinated when there are several brokers, of which one is a real node."""

from typing import TYPE_CHECKING
from uuid import UUID

from penstock.broker.coordinator.runtime import CoordinatorState
from penstock.core.metadata import (
    OFFSETS_TOPIC,
    BrokerEndpoint,
    CreatedTopic,
    CreateTopic,
    FenceBroker,
    ReplicaAssignment,
)
from penstock.core.model import NodeId, PartitionIndex, TopicId
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.core.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
)
from penstock.core.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.core.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)

if TYPE_CHECKING:
    from tests.unit.server.kafka.handlers.conftest import Stage


def place_offsets_topic(stage: "Stage", *leaders: int) -> None:
    """An offsets topic of as many partitions, each with one replica."""
    placed = tuple(
        ReplicaAssignment(PartitionIndex(index), (NodeId(leader),)) for index, leader in enumerate(leaders)
    )
    created = stage.submit(CreateTopic(OFFSETS_TOPIC, TopicId(UUID(int=6)), assignments=placed))
    assert isinstance(created, CreatedTopic)


def coordinator_of(stage: "Stage", group_id: str) -> FindCoordinatorResponseCoordinator:
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=(group_id,))
    return stage.ask(request, FindCoordinatorResponse, 4).coordinators[0]


def test_a_group_is_coordinated_where_its_partition_is_led(stage: "Stage") -> None:
    stage.add_broker(2, BrokerEndpoint("PLAINTEXT", "host-2", 9092))
    place_offsets_topic(stage, 1, 2)

    by_node = {found.node_id: found for found in (coordinator_of(stage, f"group-{n}") for n in range(8))}

    assert sorted(by_node) == [1, 2]
    assert (by_node[2].error_code, by_node[2].host, by_node[2].port) == (0, "host-2", 9092)
    assert (by_node[1].host, by_node[1].port) == ("127.0.0.1", 19092)


def test_a_group_whose_partition_nobody_leads_has_no_coordinator_for_now(stage: "Stage") -> None:
    stage.add_broker(2, BrokerEndpoint("PLAINTEXT", "host-2", 9092))
    place_offsets_topic(stage, 2)
    broker = stage.backend.controller.image.broker(2)
    assert broker is not None

    stage.submit(FenceBroker(NodeId(2), broker.epoch))

    found = coordinator_of(stage, "group")
    assert (found.error_code, found.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


def test_a_group_that_is_coordinated_elsewhere_is_not_served_here(stage: "Stage") -> None:
    stage.add_broker(2, BrokerEndpoint("PLAINTEXT", "host-2", 9092))
    place_offsets_topic(stage, 2)

    heartbeat = HeartbeatRequest(group_id="group", generation_id=1, member_id="member")
    answer = stage.ask(heartbeat, HeartbeatResponse, 4)

    assert answer.error_code == ErrorCode.NOT_COORDINATOR


def test_the_offsets_topic_is_made_on_demand_although_its_logs_are_elsewhere(
    stage_with: type["Stage"],
) -> None:
    stage = stage_with({"offsets.topic.num.partitions": "6", "offsets.topic.replication.factor": "1"})
    for number in (2, 3):
        stage.add_broker(number, BrokerEndpoint("PLAINTEXT", f"host-{number}", 9092))

    found = [coordinator_of(stage, f"group-{number}") for number in range(12)]

    assert [row.error_code for row in found] == [0] * 12
    assert {row.node_id for row in found} == {1, 2, 3}


def test_nobody_is_told_to_be_a_member_while_the_log_is_loaded(stage: "Stage") -> None:
    """A newer generation may have been there without them; "loading" would end the Java client."""
    place_offsets_topic(stage, 1)
    coordinator = next(iter(stage.backend.groups))
    coordinator.state = CoordinatorState.LOADING

    heartbeat = HeartbeatRequest(group_id="group", generation_id=1, member_id="member")
    answer = stage.ask(heartbeat, HeartbeatResponse, 4)

    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_member_id_that_cannot_be_stored_does_not_end_the_coordinator(stage: "Stage") -> None:
    place_offsets_topic(stage, 1)
    heartbeat = ConsumerGroupHeartbeatRequest(
        group_id="group",
        member_id="member",
        member_epoch=0,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=("t",),
        topic_partitions=(),
    )
    assert stage.ask(heartbeat, ConsumerGroupHeartbeatResponse, 1).error_code == ErrorCode.NONE
    subscription = bytes.fromhex("0001 00000000 ffffffff 00000000")
    join = JoinGroupRequest(
        group_id="group",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="x" * 40_000,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=subscription),),
    )

    machine = next(iter(stage.backend.groups)).machine
    refused = stage.ask(join, JoinGroupResponse, 9)

    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert next(iter(stage.backend.groups)).machine is machine, "it has started over"


def test_members_that_send_much_are_refused_once_the_memory_for_it_is_used_and_others_join(
    stage_with: type["Stage"],
) -> None:
    stage = stage_with(static={"group.metadata.memory.max.bytes": "100000"})
    place_offsets_topic(stage, 1)

    def join(group_id: str, size: int) -> int:
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=1_000_000,
            rebalance_timeout_ms=1_000_000,
            member_id="",
            protocol_type="custom",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=bytes(size)),),
        )
        return int(stage.ask(request, JoinGroupResponse, 3).error_code)

    large = [join(f"large-{number}", 30_000) for number in range(5)]
    small = join("small", 1_000)

    assert large == [ErrorCode.NONE] * 3 + [ErrorCode.GROUP_MAX_SIZE_REACHED] * 2
    assert small == ErrorCode.NONE
