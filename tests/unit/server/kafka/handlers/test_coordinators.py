"""Where groups are coordinated when there are several brokers, of which one is a real node."""

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from penstock.broker.coordinator import coordinators as keys
from penstock.broker.coordinator.runtime import CoordinatorState
from penstock.core.groups import Command, LeaveGroup
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
from penstock.core.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupRequestMember,
    LeaveGroupResponse,
)
from penstock.core.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
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


@pytest.mark.parametrize(
    ("key_type", "refused"),
    [(0, ErrorCode.INVALID_GROUP_ID), (1, ErrorCode.INVALID_REQUEST), (2, ErrorCode.INVALID_REQUEST)],
    ids=["group", "transaction", "share"],
)
def test_an_id_of_megabytes_is_refused_before_anything_is_made_of_it(
    stage: "Stage", monkeypatch: pytest.MonkeyPatch, key_type: int, refused: ErrorCode
) -> None:
    place_offsets_topic(stage, 1)
    monkeypatch.setattr(keys, "java_hash", lambda _: pytest.fail("the id was hashed"))

    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=("x" * 3_000_000,))
    found = stage.ask(request, FindCoordinatorResponse, 6).coordinators[0]

    assert (found.error_code, found.node_id) == (refused, -1)


def test_a_group_id_that_no_record_has_room_for_has_no_coordinator(stage: "Stage") -> None:
    place_offsets_topic(stage, 1)

    longest, longer = coordinator_of(stage, "x" * 8_000), coordinator_of(stage, "x" * 8_001)

    assert (longest.error_code, longer.error_code) == (ErrorCode.NONE, ErrorCode.INVALID_GROUP_ID)


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
    stage = stage_with(static={"group.metadata.memory.max.bytes": "200000"})
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

    # Half of it is for one host.
    large = [join(f"large-{number}", 35_000) for number in range(5)]
    small = join("small", 1_000)

    assert large == [ErrorCode.NONE] * 2 + [ErrorCode.GROUP_MAX_SIZE_REACHED] * 3
    assert small == ErrorCode.NONE


def test_whoever_asks_for_ids_in_ever_new_groups_gets_no_more_once_the_memory_of_a_host_is_used(
    stage_with: type["Stage"],
) -> None:
    stage = stage_with(static={"group.metadata.memory.max.bytes": "5000"})
    place_offsets_topic(stage, 1)

    def join(group_id: str, host: str = "127.0.0.1") -> int:
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=1_800_000,
            rebalance_timeout_ms=1_000,
            member_id="",
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
        )
        return int(stage.client(host=host).ask(request, JoinGroupResponse, 9).error_code)

    long_ids = [join(f"{number}" + "x" * 1_000) for number in range(8)]
    of_another_host = join("other", "10.1.1.1")
    stage.world.run(61_000_000_000)
    later = join("later")

    assert long_ids == [ErrorCode.MEMBER_ID_REQUIRED] * 6 + [ErrorCode.GROUP_MAX_SIZE_REACHED] * 2
    assert of_another_host == ErrorCode.MEMBER_ID_REQUIRED
    assert later == ErrorCode.MEMBER_ID_REQUIRED


def test_members_of_consumer_groups_with_large_subscriptions_share_the_memory_for_members(
    stage_with: type["Stage"],
) -> None:
    stage = stage_with(static={"group.metadata.memory.max.bytes": "1000000"})
    place_offsets_topic(stage, 1)
    names = tuple([f"topic-{number:08}" for number in range(2_000)])

    def join(member_id: str, topics: tuple[str, ...]) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(
            group_id="group",
            member_id=member_id,
            member_epoch=0,
            rebalance_timeout_ms=1_000,
            subscribed_topic_names=topics,
            topic_partitions=(),
        )
        return stage.ask(request, ConsumerGroupHeartbeatResponse, 1)

    large = [join(f"member-{number}", names).error_code for number in range(5)]
    small = join("small", names[:10]).error_code

    assert large == [ErrorCode.NONE] * 4 + [ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert small == ErrorCode.NONE


def test_share_groups_have_half_of_the_memory_for_members_and_leave_the_rest_to_others(
    stage_with: type["Stage"],
) -> None:
    stage = stage_with(static={"group.metadata.memory.max.bytes": "4000000"})
    place_offsets_topic(stage, 1)
    names = tuple([f"topic-{number:08}" for number in range(2_000)])

    def join(number: int, host: str) -> int:
        request = ShareGroupHeartbeatRequest(
            group_id=f"group-{number}",
            member_id="m",
            member_epoch=0,
            subscribed_topic_names=names,
            session_timeout_ms=1_800_000,
        )
        return int(stage.client(host=host).ask(request, ShareGroupHeartbeatResponse, 1).error_code)

    def join_classic(host: str) -> int:
        request = JoinGroupRequest(
            group_id="classic",
            session_timeout_ms=1_000_000,
            rebalance_timeout_ms=1_000_000,
            member_id="",
            protocol_type="custom",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=bytes(20_000)),),
        )
        return int(stage.client(host=host).ask(request, JoinGroupResponse, 3).error_code)

    first = [join(number, "10.1.1.1") for number in range(8)]
    second = [join(number, "10.1.1.2") for number in range(8, 16)]
    third = join(16, "10.1.1.3")
    classic = join_classic("10.1.1.1")

    # A member takes some 150 KB: of two million bytes, a host has half.
    assert first == [ErrorCode.NONE] * 7 + [ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert second == first
    assert third == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert classic == ErrorCode.NONE


def test_a_reason_of_megabytes_is_cut_before_it_is_logged(
    stage: "Stage", monkeypatch: pytest.MonkeyPatch
) -> None:
    place_offsets_topic(stage, 1)
    logged: list[str] = []
    monkeypatch.setattr(
        "penstock.broker.coordinator.group_metrics.events.info",
        lambda *_, **fields: logged.append(str(fields.get("reason"))),
    )
    join = JoinGroupRequest(
        group_id="group",
        session_timeout_ms=1_800_000,
        rebalance_timeout_ms=1_000_000,
        member_id="",
        group_instance_id="i",
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
        reason="x" * 1_000_000,
    )
    joined = stage.ask(join, JoinGroupResponse, 9)
    leaver = LeaveGroupRequestMember(member_id=joined.member_id, group_instance_id="i", reason="y" * 500_000)

    left = stage.ask(LeaveGroupRequest(group_id="group", members=(leaver,)), LeaveGroupResponse, 5)

    assert (joined.error_code, left.members[0].error_code) == (ErrorCode.NONE, ErrorCode.NONE)
    assert any("xxx" in reason for reason in logged)
    assert any("yyy" in reason for reason in logged)
    assert max(map(len, logged)) < 500


def test_very_many_members_leave_in_portions_with_a_row_for_each_in_its_place(
    stage: "Stage", monkeypatch: pytest.MonkeyPatch
) -> None:
    place_offsets_topic(stage, 1)
    submit, portions = stage.backend.groups.submit, []

    def noted(command: Command) -> None:
        assert isinstance(command, LeaveGroup)
        portions.append(len(command.members))
        submit(command)

    monkeypatch.setattr(stage.backend.groups, "submit", noted)
    members = tuple([LeaveGroupRequestMember(member_id=f"member-{number}") for number in range(1_200)])

    left = stage.ask(LeaveGroupRequest(group_id="group", members=members), LeaveGroupResponse, 5)

    assert portions == [500, 500, 200]
    assert [row.member_id for row in left.members] == [member.member_id for member in members]
    assert {row.error_code for row in left.members} == {ErrorCode.UNKNOWN_MEMBER_ID}
