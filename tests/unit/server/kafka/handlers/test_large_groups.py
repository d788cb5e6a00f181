"""Answers about very many groups, members and positions are put together in portions, and are complete."""

from typing import TYPE_CHECKING

import pytest

from penstock.core.groups import (
    Command,
    ConsumerGroupStored,
    ConsumerMemberStored,
    FetchOffsets,
    GroupCoordinator,
    GroupStored,
    OffsetCommitted,
    StoredMember,
)
from penstock.core.model import LeaderEpoch, Offset, PartitionIndex, Timestamp, TopicName, TopicPartition
from penstock.core.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from penstock.core.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from penstock.core.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.core.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from penstock.security import AclOperation
from tests.support.call_counter import CALLS_PER_TURN_MAX, calls_of
from tests.unit.server.kafka.handlers.test_coordinators import place_offsets_topic

if TYPE_CHECKING:
    from tests.unit.server.kafka.handlers.conftest import Stage


def machine_of(stage: "Stage") -> GroupCoordinator:
    place_offsets_topic(stage, 1)
    return next(iter(stage.backend.groups)).machine


def committed(group_id: str, topic: str, partition: int) -> OffsetCommitted:
    at = TopicPartition(TopicName(topic), PartitionIndex(partition))
    return OffsetCommitted(group_id, at, Offset(partition), LeaderEpoch(0), "", Timestamp(0))


def test_all_positions_of_a_group_with_thousands_are_fetched_in_portions_and_in_order(
    stage: "Stage", monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = machine_of(stage)
    for partition in reversed(range(1_000)):
        for name in ("b", "a"):
            machine.apply(committed("group", name, partition))
    submit, portions = stage.backend.groups.submit, []

    def noted(command: Command) -> None:
        assert isinstance(command, FetchOffsets)
        portions.append(sum([len(topic.partitions) for topic in command.topics or ()]))
        submit(command)

    monkeypatch.setattr(stage.backend.groups, "submit", noted)
    request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="group", topics=None),))
    (group,) = stage.ask(request, OffsetFetchResponse, 8).groups

    assert [topic.name for topic in group.topics] == ["a", "b"]
    for topic in group.topics:
        assert [(row.partition_index, row.committed_offset) for row in topic.partitions] == [
            (partition, partition) for partition in range(1_000)
        ]
    assert (sum(portions), max(portions)) == (2_000, 800)


def test_very_many_groups_are_listed_in_order(stage: "Stage") -> None:
    machine = machine_of(stage)
    names = [f"group-{number * 7_919 % 20_000}" for number in range(20_000)]
    for name in names:
        machine.apply(committed(name, "t", 0))

    client = stage.client()
    calls = calls_of(stage, client, ListGroupsRequest(), 4)
    listed = client.receive(ListGroupsResponse, 4)

    assert calls <= CALLS_PER_TURN_MAX
    assert [group.group_id for group in listed.groups] == sorted(names)


def test_a_group_with_very_many_members_is_described_with_all_of_them(stage: "Stage") -> None:
    machine = machine_of(stage)
    members = [
        StoredMember(f"member-{number}", None, "app", "/10.0.0.1", 1, 1_000_000, b"m", b"a")
        for number in range(3_000)
    ]
    machine.apply(GroupStored("group", "consumer", 1, "range", "member-0", Timestamp(0), tuple(members)))

    described = stage.ask(DescribeGroupsRequest(groups=("group", "none")), DescribeGroupsResponse, 5)

    large, none = described.groups
    assert [member.member_id for member in large.members] == [member.member_id for member in members]
    assert (none.group_id, none.members) == ("none", ())


def test_rights_to_a_topic_that_all_members_read_are_asked_for_once(stage: "Stage") -> None:
    machine = machine_of(stage)
    names = tuple([f"topic-{number}" for number in range(100)])
    machine.apply(ConsumerGroupStored("group", 1))
    for number in range(200):
        machine.apply(ConsumerMemberStored("group", f"member-{number}", topics=names))
    stage.authorizer.denied = denied = CountingSet()

    request = ConsumerGroupDescribeRequest(group_ids=("group",), include_authorized_operations=False)
    (group,) = stage.ask(request, ConsumerGroupDescribeResponse, 0).groups

    assert len(group.members) == 200
    assert denied.asked <= 110


class CountingSet(set[tuple[AclOperation, str]]):
    """Counts how often it is asked for something."""

    asked = 0

    def __contains__(self, _: object) -> bool:
        self.asked += 1
        return False
