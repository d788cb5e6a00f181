"""Which topics of a pattern a member of a consumer group gets."""

from typing import TYPE_CHECKING
from uuid import UUID

from penstock.core.metadata import CreateTopic
from penstock.core.metadata.commands import CreatedTopic
from penstock.core.model import TopicId, TopicName
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from penstock.core.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.core.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from penstock.core.protocol.messages.delete_acls import (
    DeleteAclsRequest,
    DeleteAclsRequestFilter,
    DeleteAclsResponse,
)
from penstock.security import AclOperation, ResourceType
from tests.unit.server.kafka.handlers.test_access import acl, as_user, secured
from tests.unit.server.kafka.handlers.test_coordinators import place_offsets_topic

if TYPE_CHECKING:
    from tests.unit.server.kafka.handlers.conftest import Client, Stage

NAMES = {UUID(int=11): "orders", UUID(int=12): "secret"}
READ = AclOperation.READ


class Reader:
    """A member that subscribes to every topic."""

    def __init__(self, client: "Client") -> None:
        self._client = client
        self._epoch = 0
        self._owned: tuple[UUID, ...] = ()

    def topics(self) -> set[str]:
        """Send heartbeats until there is nothing new, and return what is assigned then."""
        for _ in range(4):
            self._beat()
        return {NAMES[topic_id] for topic_id in self._owned}

    def _beat(self) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id="readers",
            member_id="m",
            member_epoch=self._epoch,
            rebalance_timeout_ms=60_000,
            subscribed_topic_regex=".*",
            topic_partitions=(),
        )
        answer = self._client.ask(request, ConsumerGroupHeartbeatResponse, 1)
        assert answer.error_code == ErrorCode.NONE, answer.error_message
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            self._owned = tuple(row.topic_id for row in answer.assignment.topic_partitions)


def test_a_member_gets_the_topics_that_it_may_see_at_present(stage_with: type["Stage"]) -> None:
    stage = secured(stage_with)
    place_offsets_topic(stage, 1)
    for topic_id, name in NAMES.items():
        made = stage.submit(CreateTopic(TopicName(name), TopicId(topic_id), 1, 1))
        assert isinstance(made, CreatedTopic)
    admin, reader = as_user(stage, "admin"), Reader(as_user(stage, "alice"))

    group = acl("readers", READ, kind=ResourceType.GROUP)
    admin.ask(CreateAclsRequest(creations=(group,)), CreateAclsResponse, 3)
    assert reader.topics() == set()

    admin.ask(CreateAclsRequest(creations=(acl("orders", READ),)), CreateAclsResponse, 3)
    assert reader.topics() == {"orders"}

    admin.ask(CreateAclsRequest(creations=(acl("*", AclOperation.DESCRIBE),)), CreateAclsResponse, 3)
    assert reader.topics() == {"orders", "secret"}

    taken_away = DeleteAclsRequestFilter(
        resource_type_filter=2,
        resource_name_filter="*",
        pattern_type_filter=3,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    admin.ask(DeleteAclsRequest(filters=(taken_away,)), DeleteAclsResponse, 3)
    assert reader.topics() == {"orders"}


def test_a_super_user_gets_all_of_them(stage_with: type["Stage"]) -> None:
    stage = secured(stage_with)
    place_offsets_topic(stage, 1)
    for topic_id, name in NAMES.items():
        stage.submit(CreateTopic(TopicName(name), TopicId(topic_id), 1, 1))

    assert Reader(as_user(stage, "admin")).topics() == {"orders", "secret"}


def test_topics_of_a_pattern_are_not_told_to_who_may_not_see_them(stage_with: type["Stage"]) -> None:
    stage = secured(stage_with)
    place_offsets_topic(stage, 1)
    for topic_id, name in NAMES.items():
        stage.submit(CreateTopic(TopicName(name), TopicId(topic_id), 1, 1))
    admin, alice = as_user(stage, "admin"), as_user(stage, "alice")
    rules = (acl("readers", AclOperation.DESCRIBE, kind=ResourceType.GROUP), acl("orders", READ))
    admin.ask(CreateAclsRequest(creations=rules), CreateAclsResponse, 3)
    assert Reader(as_user(stage, "admin")).topics() == {"orders", "secret"}

    def described(client: "Client") -> ConsumerGroupDescribeResponse:
        asked = ConsumerGroupDescribeRequest(group_ids=("readers",), include_authorized_operations=False)
        return client.ask(asked, ConsumerGroupDescribeResponse, 1)

    assert "secret" in repr(described(admin))
    refused = described(alice)
    assert refused.groups[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert "secret" not in repr(refused)
