"""Consumer groups (KIP-848) over a socket: librdkafka's members, one that dies, patterns, and the tools."""

from collections.abc import Callable
from uuid import UUID

import pytest
from confluent_kafka import Consumer

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeResponseGroup,
)
from penstock.core.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from penstock.core.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
)
from penstock.core.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tests.integration.groups.test_group_clients import consumer as classic_consumer
from tests.integration.groups.test_group_clients import poll_until, sizes
from tests.support.nodes import NodeProcess
from tests.support.wire import Wire

GROUP_RESOURCE, SET = 32, 0


def consumer(node: NodeProcess, group: str, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": node.kafka,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            **settings,
        }
    )


def heartbeat(wire: Wire, version: int = 1, **fields: object) -> ConsumerGroupHeartbeatResponse:
    given: dict[str, object] = {"member_id": "m", "member_epoch": 0, "topic_partitions": ()}
    if fields.get("member_epoch", 0) == 0:
        given |= {"rebalance_timeout_ms": 10_000, "subscribed_topic_names": ("orders",)}
    request = ConsumerGroupHeartbeatRequest(**(given | fields))  # type: ignore[arg-type]
    return wire.ask(request, ConsumerGroupHeartbeatResponse, version)


def describe(wire: Wire, group: str) -> ConsumerGroupDescribeResponseGroup:
    request = ConsumerGroupDescribeRequest(group_ids=(group,), include_authorized_operations=False)
    return wire.ask(request, ConsumerGroupDescribeResponse, 1).groups[0]


def configure(wire: Wire, group: str, **configs: str) -> None:
    resource = IncrementalAlterConfigsRequestResource(
        resource_type=GROUP_RESOURCE,
        resource_name=group,
        configs=tuple(
            IncrementalAlterConfigsRequestConfig(
                name=name.replace("_", "."), config_operation=SET, value=value
            )
            for name, value in configs.items()
        ),
    )
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    answer = wire.ask(request, IncrementalAlterConfigsResponse, 1)
    assert [row.error_code for row in answer.responses] == [ErrorCode.NONE]


def until(enough: Callable[[], bool], members: list[Consumer]) -> None:
    poll_until(members, enough)


def test_members_of_librdkafka_share_a_topic_and_take_over_from_one_that_left(
    node: NodeProcess, topic: str, wire: Wire
) -> None:
    first, second = consumer(node, "new"), consumer(node, "new", **{"group.remote.assignor": "range"})

    first.subscribe([topic])
    until(lambda: sizes(first) == [4], [first])
    second.subscribe([topic])
    until(lambda: sizes(first, second) == [2, 2], [first, second])
    request = ListGroupsRequest(states_filter=("Stable",), types_filter=("consumer",))
    listed = wire.ask(request, ListGroupsResponse, 5).groups
    second.close()
    until(lambda: sizes(first) == [4], [first])

    assert [(each.group_id, each.group_type) for each in listed if each.group_id == "new"] == [
        ("new", "consumer")
    ]
    first.close()


def test_a_member_that_dies_is_replaced_after_the_groups_own_session_timeout(
    node: NodeProcess, topic: str, wire: Wire
) -> None:
    configure(wire, "mortal", consumer_session_timeout_ms="1000", consumer_heartbeat_interval_ms="200")

    joined = heartbeat(wire, group_id="mortal")
    survivor = consumer(node, "mortal")
    survivor.subscribe([topic])
    until(lambda: sizes(survivor) == [4], [survivor])

    assert joined.heartbeat_interval_ms == 200
    assert joined.assignment is not None
    assert sum(len(each.partitions) for each in joined.assignment.topic_partitions) == 4
    assert heartbeat(wire, group_id="mortal", member_epoch=1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    survivor.close()


def test_librdkafka_subscribes_by_pattern(node: NodeProcess, topic: str, wire: Wire) -> None:
    # With this protocol the pattern goes to the coordinator.
    member = consumer(node, "by-pattern")

    member.subscribe([f"^{topic[:3]}.*"])
    until(lambda: sizes(member) == [4], [member])

    assert describe(wire, "by-pattern").members[0].subscribed_topic_regex == f"(^{topic[:3]}.*)"
    member.close()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_of_librdkafka_changes_its_protocol_and_changes_back_while_it_reads(
    node: NodeProcess, topic: str, wire: Wire, strategy: str
) -> None:
    group = f"moving-{strategy}"
    old = classic_consumer(node, group, **{"partition.assignment.strategy": strategy})
    old.subscribe([topic])
    until(lambda: sizes(old) == [4], [old])

    new = consumer(node, group)
    new.subscribe([topic])
    until(lambda: sizes(old, new) == [2, 2], [old, new])
    kinds = sorted(member.member_type for member in describe(wire, group).members)
    new.close()
    until(lambda: sizes(old) == [4], [old])

    assert kinds == [0, 1]
    assert describe(wire, group).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    old.close()


def test_a_group_is_described_with_its_epochs_and_the_partitions_of_each_member(
    node: NodeProcess, topic: str, wire: Wire
) -> None:
    heartbeat(wire, group_id="described", rack_id="east", instance_id="i")

    group = describe(wire, "described")

    member = group.members[0]
    assert (group.error_code, group.group_state, group.assignor_name) == (0, "Stable", "uniform")
    assert (group.group_epoch, group.assignment_epoch, member.member_epoch) == (1, 1, 1)
    assert (member.rack_id, member.instance_id, member.member_type) == ("east", "i", 1)
    assert [(each.topic_name, each.partitions) for each in member.assignment.topic_partitions] == [
        (topic, (0, 1, 2, 3))
    ]
    assert member.assignment == member.target_assignment


def test_the_oldest_version_gives_a_member_its_id(wire: Wire, topic: str) -> None:
    assert heartbeat(wire, 0, group_id="oldest", member_id="").member_id
    assert heartbeat(wire, 1, group_id="oldest", member_id="").error_code == ErrorCode.INVALID_REQUEST


def test_members_commit_by_a_version_that_knows_epochs(wire: Wire, topic: str) -> None:
    joined = heartbeat(wire, group_id="committing")

    def commit(version: int) -> int:
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=3, committed_metadata=None)
        request = OffsetCommitRequest(
            group_id="committing",
            generation_id_or_member_epoch=joined.member_epoch,
            member_id="m",
            topics=(OffsetCommitRequestTopic(name=topic, partitions=(part,)),),
        )
        return wire.ask(request, OffsetCommitResponse, version).topics[0].partitions[0].error_code

    assert [commit(version) for version in (8, 9)] == [ErrorCode.UNSUPPORTED_VERSION, ErrorCode.NONE]


def test_errors_are_kafkas_own(wire: Wire, topic: str) -> None:
    unknown = ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=UUID(int=1), partitions=(0,))
    heartbeat(wire, group_id="errors")

    assert heartbeat(wire, group_id="errors", server_assignor="x").error_code == (
        ErrorCode.UNSUPPORTED_ASSIGNOR
    )
    assert heartbeat(wire, group_id="errors", subscribed_topic_regex="(").error_code == (
        ErrorCode.INVALID_REGULAR_EXPRESSION
    )
    assert heartbeat(wire, group_id="errors", member_epoch=7).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert heartbeat(wire, group_id="errors", topic_partitions=(unknown,)).error_code == (
        ErrorCode.INVALID_REQUEST
    )
    assert heartbeat(wire, group_id="errors", subscribed_topic_names=("x",) * 10_001).error_code == (
        ErrorCode.INVALID_REQUEST
    )
    assert heartbeat(wire, group_id="errors", subscribed_topic_names=("x" * 999,) * 500).error_code == (
        ErrorCode.INVALID_REQUEST
    )
    assert heartbeat(wire, group_id="nobody", member_epoch=7).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert describe(wire, "nobody").error_code == ErrorCode.GROUP_ID_NOT_FOUND
