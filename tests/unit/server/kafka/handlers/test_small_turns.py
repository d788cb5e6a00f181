"""Requests that are short and name much work: it is bounded, done once, or cut into turns of the loop.

`test_largest_requests` tries what can be built from the message table; these need something that exists.
"""

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from penstock.core.metadata import CreateTopic
from penstock.core.model import ProducerEpoch, ProducerId, TopicId
from penstock.core.protocol import ErrorCode, Message
from penstock.core.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityPart,
    AlterClientQuotasRequestEntry,
    AlterClientQuotasRequestOperation,
    AlterClientQuotasResponse,
)
from penstock.core.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsRequestConfig,
    AlterConfigsRequestResource,
    AlterConfigsResponse,
)
from penstock.core.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from penstock.core.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from penstock.core.protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestAssignment,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from penstock.core.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from penstock.core.protocol.messages.describe_acls import DescribeAclsResponse
from penstock.core.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from penstock.core.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersRequestTopic,
    DescribeProducersResponse,
)
from penstock.core.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from penstock.core.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.core.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
)
from penstock.core.protocol.messages.queue_receive import (
    QueueReceiveRequest,
    QueueReceiveRequestTopic,
    QueueReceiveResponse,
)
from penstock.core.protocol.messages.share_acknowledge import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeRequestAcknowledgementBatch,
    ShareAcknowledgeRequestPartition,
    ShareAcknowledgeRequestTopic,
    ShareAcknowledgeResponse,
)
from penstock.core.protocol.messages.share_fetch import (
    ShareFetchRequest,
    ShareFetchRequestPartition,
    ShareFetchRequestTopic,
    ShareFetchResponse,
)
from penstock.core.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from penstock.core.replica import ProducerState
from penstock.server.kafka.share_acknowledgements import OFFSETS_MAX
from tests.support.call_counter import CALLS_PER_TURN_MAX, calls_of
from tests.unit.server.kafka.handlers.test_access import EVERYTHING, acl, as_user, secured

if TYPE_CHECKING:
    from tests.unit.server.kafka.handlers.conftest import Client, Stage

TOPIC = "many"


# Acknowledgements of so many records, then one that makes no sense.
REFUSED = ((0, OFFSETS_MAX - 1), (5, 1))


def create_topic(stage: "Stage", partitions: int) -> TopicId:
    topic_id = TopicId(UUID(int=1))
    stage.submit(CreateTopic(TOPIC, topic_id, partitions, 1))
    return topic_id


@pytest.mark.parametrize("partitions", [(), tuple(range(900))], ids=["whole", "partitions"])
def test_a_topic_that_a_queue_request_repeats_is_walked_once(
    stage: "Stage", partitions: tuple[int, ...]
) -> None:
    create_topic(stage, 900)
    topic = QueueReceiveRequestTopic(topic=TOPIC, partitions=partitions)
    repeats = 20 if partitions else 1_000
    request = QueueReceiveRequest(group_id="g", consumer="c", topics=(topic,) * repeats)
    client = stage.client()
    # The first one of all creates the topic for the state of queues.
    first = QueueReceiveRequestTopic(topic=TOPIC, partitions=(0,))
    stage.ask(QueueReceiveRequest(group_id="g", consumer="c", topics=(first,)), QueueReceiveResponse, 0)

    assert calls_of(stage, client, request, 0) <= CALLS_PER_TURN_MAX

    assert client.receive(QueueReceiveResponse, 0).error_code != ErrorCode.INVALID_REQUEST


def test_queues_that_are_too_many_are_refused_before_they_are_listed(stage: "Stage") -> None:
    create_topic(stage, 1_001)
    topic = QueueReceiveRequestTopic(topic=TOPIC, partitions=())
    request = QueueReceiveRequest(group_id="g", consumer="c", topics=(topic,))

    answer = stage.ask(request, QueueReceiveResponse, 0)

    assert answer.error_code == ErrorCode.INVALID_REQUEST


def share_fetch(topic_id: TopicId, partitions: int, epoch: int = 0) -> ShareFetchRequest:
    named = tuple(
        ShareFetchRequestPartition(partition_index=index, acknowledgement_batches=())
        for index in range(partitions)
    )
    return ShareFetchRequest(
        group_id="g",
        member_id="m",
        share_session_epoch=epoch,
        max_wait_ms=0,
        min_bytes=1,
        max_records=10,
        batch_size=10,
        topics=(ShareFetchRequestTopic(topic_id=topic_id, partitions=named),) if named else (),
        forgotten_topics_data=(),
    )


def share_acknowledge(
    topic_id: TopicId, partitions: int, *batches: tuple[int, int], epoch: int = 1
) -> ShareAcknowledgeRequest:
    said = tuple(
        ShareAcknowledgeRequestAcknowledgementBatch(
            first_offset=first, last_offset=last, acknowledge_types=(1,)
        )
        for first, last in batches
    )
    named = tuple(
        ShareAcknowledgeRequestPartition(partition_index=index, acknowledgement_batches=said)
        for index in range(partitions)
    )
    return ShareAcknowledgeRequest(
        group_id="g",
        member_id="m",
        share_session_epoch=epoch,
        topics=(ShareAcknowledgeRequestTopic(topic_id=topic_id, partitions=named),),
    )


def share_member(stage: "Stage", topic_id: TopicId, partitions: int) -> "Client":
    """A connection with a share session."""
    stage.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=("g",)), FindCoordinatorResponse, 4)
    client = stage.client()
    answer = client.ask(share_fetch(topic_id, partitions), ShareFetchResponse, 2)
    assert answer.error_code == ErrorCode.NONE
    return client


@pytest.mark.parametrize(
    ("partitions", "batches", "code"),
    [
        (100, REFUSED, ErrorCode.INVALID_REQUEST),
        (300, tuple((2 * each, 2 * each) for each in range(50)), ErrorCode.INVALID_RECORD_STATE),
    ],
    ids=["refused", "settled"],
)
def test_acknowledgements_are_counted_before_they_are_listed_and_settled_in_turns(
    stage: "Stage", partitions: int, batches: tuple[tuple[int, int], ...], code: ErrorCode
) -> None:
    topic_id = create_topic(stage, 300)
    client = share_member(stage, topic_id, partitions)

    calls = calls_of(stage, client, share_acknowledge(topic_id, partitions, *batches), 2)

    assert calls <= CALLS_PER_TURN_MAX
    (topic,) = client.receive(ShareAcknowledgeResponse, 2).responses
    assert [row.error_code for row in topic.partitions] == [code] * partitions


@pytest.mark.parametrize("epoch", [1, -1])
def test_a_share_session_of_many_partitions_is_served_in_turns(stage: "Stage", epoch: int) -> None:
    topic_id = create_topic(stage, 1_000)
    client = share_member(stage, topic_id, 1_000)

    assert calls_of(stage, client, share_fetch(topic_id, 0, epoch), 2) <= CALLS_PER_TURN_MAX

    assert client.receive(ShareFetchResponse, 2).error_code == ErrorCode.NONE


CONFIGS = [f"k{number}" for number in range(45_000)]


@pytest.mark.parametrize(
    ("request_", "response", "version"),
    [
        (
            AlterConfigsRequest(
                resources=(
                    AlterConfigsRequestResource(
                        resource_type=2,
                        resource_name=TOPIC,
                        configs=tuple(AlterConfigsRequestConfig(name=key, value="v") for key in CONFIGS),
                    ),
                ),
                validate_only=False,
            ),
            AlterConfigsResponse,
            2,
        ),
        (
            IncrementalAlterConfigsRequest(
                resources=(
                    IncrementalAlterConfigsRequestResource(
                        resource_type=2,
                        resource_name=TOPIC,
                        configs=tuple(
                            IncrementalAlterConfigsRequestConfig(name=key, config_operation=0, value="v")
                            for key in CONFIGS
                        ),
                    ),
                ),
                validate_only=False,
            ),
            IncrementalAlterConfigsResponse,
            1,
        ),
        (
            CreateTopicsRequest(
                topics=(
                    CreateTopicsRequestTopic(
                        name="new",
                        num_partitions=1,
                        replication_factor=1,
                        assignments=(),
                        configs=tuple(CreateTopicsRequestConfig(name=key, value="v") for key in CONFIGS),
                    ),
                )
            ),
            CreateTopicsResponse,
            7,
        ),
    ],
    ids=["AlterConfigs", "IncrementalAlterConfigs", "CreateTopics"],
)
def test_one_resource_with_very_many_settings_is_refused_before_they_are_looked_at(
    stage: "Stage", request_: Message, response: type[Message], version: int
) -> None:
    create_topic(stage, 1)
    client = stage.client()

    assert calls_of(stage, client, request_, version) <= CALLS_PER_TURN_MAX

    answer = client.receive(response, version)
    (row,) = getattr(answer, "topics", None) or answer.responses  # type: ignore[attr-defined]
    assert row.error_code == ErrorCode.INVALID_CONFIG


def test_very_many_assignments_of_one_topic_are_read_in_turns(stage: "Stage") -> None:
    topic = CreateTopicsRequestTopic(
        name="new",
        num_partitions=-1,
        replication_factor=-1,
        assignments=tuple(
            CreateTopicsRequestAssignment(partition_index=index, broker_ids=(1,)) for index in range(20_000)
        ),
        configs=(),
    )
    client = stage.client()

    assert calls_of(stage, client, CreateTopicsRequest(topics=(topic,)), 7) <= CALLS_PER_TURN_MAX

    (row,) = client.receive(CreateTopicsResponse, 7).topics
    assert row.error_code == ErrorCode.INVALID_PARTITIONS


def test_very_many_quotas_are_described_in_turns(stage: "Stage") -> None:
    entries = tuple(
        AlterClientQuotasRequestEntry(
            entity=(AlterClientQuotasRequestEntityPart(entity_type="user", entity_name=f"u{number}"),),
            ops=(AlterClientQuotasRequestOperation(key="producer_byte_rate", value=1.0, remove=False),),
        )
        for number in range(4_000)
    )
    changes = AlterClientQuotasRequest(entries=entries, validate_only=False)
    changed = stage.ask(changes, AlterClientQuotasResponse, 1)
    assert {entry.error_code for entry in changed.entries} == {ErrorCode.NONE}
    client = stage.client()

    calls = calls_of(stage, client, DescribeClientQuotasRequest(components=(), strict=False), 1)

    assert calls <= CALLS_PER_TURN_MAX
    assert len(client.receive(DescribeClientQuotasResponse, 1).entries or ()) == len(entries)


def test_very_many_rules_are_described_in_turns(stage_with: type["Stage"]) -> None:
    stage = secured(stage_with)
    rules = tuple(acl(f"t{number}", 3) for number in range(4_000))
    administrator = as_user(stage, "admin")
    created = administrator.ask(CreateAclsRequest(creations=rules), CreateAclsResponse, 3)
    assert {row.error_code for row in created.results} == {ErrorCode.NONE}

    assert calls_of(stage, administrator, EVERYTHING, 3) <= CALLS_PER_TURN_MAX

    rows = administrator.receive(DescribeAclsResponse, 3).resources
    names = [row.resource_name for row in rows]
    assert names == sorted(names)
    assert len(names) == len(rules)


def test_very_many_producers_of_a_partition_are_described_in_turns(stage: "Stage") -> None:
    create_topic(stage, 1)
    partition = stage.backend.partitions.find(TOPIC, 0)
    assert partition is not None
    for number in range(12_000):
        partition.log.producers._producers[ProducerId(number)] = ProducerState(ProducerEpoch(0))
    request = DescribeProducersRequest(
        topics=(DescribeProducersRequestTopic(name=TOPIC, partition_indexes=(0,)),)
    )
    client = stage.client()

    assert calls_of(stage, client, request, 0) <= CALLS_PER_TURN_MAX

    ((row,),) = [topic.partitions for topic in client.receive(DescribeProducersResponse, 0).topics]
    assert len(row.active_producers) == 12_000


def share_group(stage: "Stage") -> None:
    """A group that had a member."""
    stage.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=("g",)), FindCoordinatorResponse, 4)
    for epoch in (0, -1):
        beat = ShareGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=epoch, subscribed_topic_names=(TOPIC,)
        )
        assert stage.ask(beat, ShareGroupHeartbeatResponse, 1).error_code == ErrorCode.NONE


def test_offsets_of_a_share_group_are_changed_described_and_forgotten_in_turns(stage: "Stage") -> None:
    create_topic(stage, 300)
    share_group(stage)
    rows = tuple(
        AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=0) for index in range(300)
    )
    alter = AlterShareGroupOffsetsRequest(
        group_id="g", topics=(AlterShareGroupOffsetsRequestTopic(topic_name=TOPIC, partitions=rows),) * 30
    )
    every = DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)
    describe = DescribeShareGroupOffsetsRequest(groups=(every,))
    delete = DeleteShareGroupOffsetsRequest(
        group_id="g", topics=(DeleteShareGroupOffsetsRequestTopic(topic_name=TOPIC),)
    )
    client = stage.client()

    calls = [calls_of(stage, client, alter, 0)]
    (altered,) = client.receive(AlterShareGroupOffsetsResponse, 0).responses
    calls.append(calls_of(stage, client, describe, 1))
    (described,) = client.receive(DescribeShareGroupOffsetsResponse, 1).groups
    calls.append(calls_of(stage, client, delete, 0))
    (deleted,) = client.receive(DeleteShareGroupOffsetsResponse, 0).responses

    assert max(calls) <= CALLS_PER_TURN_MAX
    # Each once, though it is named again and again.
    assert [row.partition_index for row in altered.partitions] == list(range(300))
    assert len(described.topics[0].partitions) == 300
    assert deleted.error_code == ErrorCode.NONE
