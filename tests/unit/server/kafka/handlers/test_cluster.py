"""DescribeCluster, DescribeTopicPartitions, DescribeLogDirs and UpdateFeatures."""

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from penstock.core.metadata import BrokerEndpoint, CreateTopic
from penstock.core.model import TopicId
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.core.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from penstock.core.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.core.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from penstock.core.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsRequestTopic,
    DescribeLogDirsResponse,
)
from penstock.core.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsRequestTopic,
    DescribeTopicPartitionsResponse,
)
from penstock.core.protocol.messages.update_features import (
    UpdateFeaturesRequest,
    UpdateFeaturesRequestFeature,
    UpdateFeaturesResponse,
)
from penstock.core.records import Record, write_batch
from penstock.security import AclOperation
from penstock.server.kafka.handlers import describe_topic_partitions

if TYPE_CHECKING:
    from tests.unit.server.kafka.handlers.conftest import Stage

NOT_ASKED = -(2**31)
Shown = list[tuple[str | None, list[int]]]


def with_topics(stage: "Stage", **partitions: int) -> None:
    for number, (name, count) in enumerate(partitions.items()):
        stage.submit(CreateTopic(name, TopicId(UUID(int=number + 1)), count, 1))


def page(
    stage: "Stage", *names: str, limit: int = 2_000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=tuple(DescribeTopicPartitionsRequestTopic(name=name) for name in names),
        response_partition_limit=limit,
        cursor=None
        if cursor is None
        else DescribeTopicPartitionsRequestCursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    return stage.ask(request, DescribeTopicPartitionsResponse, 0)


def shown(answer: DescribeTopicPartitionsResponse) -> Shown:
    return [(row.name, [part.partition_index for part in row.partitions]) for row in answer.topics]


def next_of(answer: DescribeTopicPartitionsResponse) -> tuple[str, int] | None:
    cursor = answer.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


@pytest.mark.parametrize("version", range(3))
def test_every_version_describes_the_cluster(stage: "Stage", version: int) -> None:
    asked = DescribeClusterRequest(include_cluster_authorized_operations=True)
    silent = DescribeClusterRequest(include_cluster_authorized_operations=False)

    answer = stage.ask(asked, DescribeClusterResponse, version)

    assert (answer.error_code, answer.controller_id) == (0, 1)
    assert answer.cluster_id == stage.backend.node.cluster_id
    assert [(each.broker_id, each.host, each.port) for each in answer.brokers] == [(1, "127.0.0.1", 19092)]
    assert answer.cluster_authorized_operations > 0
    assert stage.ask(silent, DescribeClusterResponse, version).cluster_authorized_operations == NOT_ASKED


def test_fenced_brokers_are_shown_to_those_who_ask(stage: "Stage") -> None:
    stage.add_broker(2, BrokerEndpoint("PLAINTEXT", "two", 9092), fenced=True)
    request = DescribeClusterRequest(include_cluster_authorized_operations=False)
    with_fenced = DescribeClusterRequest(
        include_cluster_authorized_operations=False, include_fenced_brokers=True
    )

    live = stage.ask(request, DescribeClusterResponse, 2)
    everyone = stage.ask(with_fenced, DescribeClusterResponse, 2)

    assert [each.broker_id for each in live.brokers] == [1]
    assert [(each.broker_id, each.is_fenced) for each in everyone.brokers] == [(1, False), (2, True)]


@pytest.mark.parametrize(
    ("endpoint", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_endpoints_other_than_brokers_are_not_served_here(
    stage: "Stage", endpoint: int, code: ErrorCode
) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=endpoint)

    answer = stage.ask(request, DescribeClusterResponse, 1)

    assert (answer.error_code, answer.brokers) == (code, ())
    assert answer.error_message


def test_pages_follow_each_other_until_everything_was_shown(stage: "Stage") -> None:
    with_topics(stage, b=5, a=3, c=1)

    pages: list[Shown] = []
    cursor: tuple[str, int] | None = ("", 0)
    while cursor is not None:
        answer = page(stage, limit=4, cursor=cursor)
        pages.append(shown(answer))
        cursor = next_of(answer)

    assert pages == [
        [("a", [0, 1, 2]), ("b", [0])],
        [("b", [1, 2, 3, 4])],
        [("c", [0])],
    ]


def test_very_many_names_are_sorted_a_few_at_a_time(stage: "Stage", monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []

    def sorted_run(names: list[str]) -> list[str]:
        lengths.append(len(names))
        return sorted(names)

    monkeypatch.setattr(describe_topic_partitions, "NAMES_PER_RUN", 3)
    monkeypatch.setattr(describe_topic_partitions, "sorted", sorted_run, raising=False)
    names = [f"{number * 7 % 10}" for number in range(10)]

    answer = page(stage, *names, "3", cursor=("2", 0))

    assert [row.name for row in answer.topics] == sorted(names)[2:]
    assert lengths == [3, 3, 2]


def test_a_page_has_room_for_one_partition_at_least(stage: "Stage") -> None:
    with_topics(stage, a=2)

    answer = page(stage, limit=0)

    assert (shown(answer), next_of(answer)) == ([("a", [0])], ("a", 1))


def test_a_cursor_whose_topic_is_gone_goes_on_with_the_next_one(stage: "Stage") -> None:
    with_topics(stage, a=1, c=2)

    answer = page(stage, cursor=("b", 7))

    assert (shown(answer), next_of(answer)) == ([("c", [0, 1])], None)


def test_a_cursor_past_the_last_partition_shows_the_topic_without_any(stage: "Stage") -> None:
    with_topics(stage, a=2, b=3)

    answer = page(stage, cursor=("a", 9), limit=1)

    assert (shown(answer), next_of(answer)) == ([("a", []), ("b", [0])], ("b", 1))


def test_a_cursor_below_the_first_partition_is_invalid(stage: "Stage") -> None:
    with_topics(stage, a=2)

    answer = page(stage, "a", cursor=("a", -1))

    assert [row.error_code for row in answer.topics] == [ErrorCode.INVALID_REQUEST]


def test_named_topics_are_sorted_and_each_has_its_own_error(stage: "Stage") -> None:
    with_topics(stage, b=1, secret=1)
    stage.authorizer.denied = {(AclOperation.DESCRIBE, "secret")}

    named = page(stage, "secret", "no spaces", "b", "a", "b")
    everything = page(stage)

    assert [(row.name, row.error_code) for row in named.topics] == [
        ("a", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("b", ErrorCode.NONE),
        ("no spaces", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("secret", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ]
    assert shown(everything) == [("b", [0])]


def test_a_described_partition_has_lists_where_kafka_has_lists(stage: "Stage") -> None:
    with_topics(stage, a=1)

    (row,) = page(stage, "a").topics

    (part,) = row.partitions
    assert (part.leader_id, part.replica_nodes, part.isr_nodes) == (1, (1,), (1,))
    assert (part.eligible_leader_replicas, part.last_known_elr, part.offline_replicas) == ((), (), ())
    assert row.topic_authorized_operations > 0


@pytest.mark.parametrize("version", range(6))
def test_every_version_tells_how_large_logs_are(stage: "Stage", version: int) -> None:
    with_topics(stage, a=2, b=1)
    partition = stage.backend.partitions.find("a", 1)
    assert partition is not None
    batch = write_batch([Record(0, 1_700_000_000_000, None, b"x" * 500)])
    stage.backend.produce_service.append(partition, memoryview(batch))

    (directory,) = stage.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, version).results

    assert (directory.error_code, directory.log_dir) == (0, "data")
    assert [
        (topic.name, [part.partition_size for part in topic.partitions]) for topic in directory.topics
    ] == [
        ("a", [0, len(batch)]),
        ("b", [0]),
    ]
    assert {
        (part.offset_lag, part.is_future_key) for topic in directory.topics for part in topic.partitions
    } == {(0, False)}


def test_logs_can_be_asked_for_by_name(stage: "Stage") -> None:
    with_topics(stage, a=2, b=1)
    request = DescribeLogDirsRequest(
        topics=(
            DescribeLogDirsRequestTopic(topic="a", partitions=(1, 5)),
            DescribeLogDirsRequestTopic(topic="missing", partitions=(0,)),
        )
    )

    (directory,) = stage.ask(request, DescribeLogDirsResponse, 4).results

    assert [
        (topic.name, [part.partition_index for part in topic.partitions]) for topic in directory.topics
    ] == [("a", [1])]


@pytest.mark.parametrize(("version", "code"), [(2, 0), (3, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)])
def test_who_may_not_describe_the_cluster_sees_no_logs(stage: "Stage", version: int, code: int) -> None:
    stage.authorizer.denied = {(AclOperation.DESCRIBE, "kafka-cluster")}

    answer = stage.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, version)

    assert (answer.error_code, answer.results) == (code, ())


def update(stage: "Stage", version: int, *features: UpdateFeaturesRequestFeature, **more: Any) -> ErrorCode:
    request = UpdateFeaturesRequest(feature_updates=features, **more)
    answer = stage.ask(request, UpdateFeaturesResponse, version)
    assert (answer.error_message is None) == (answer.error_code == 0)
    if version < 2:
        assert [row.error_code for row in answer.results] == [answer.error_code] * len(features)
    return ErrorCode(answer.error_code)


def feature(name: str, level: int, **more: Any) -> UpdateFeaturesRequestFeature:
    return UpdateFeaturesRequestFeature(feature=name, max_version_level=level, **more)


@pytest.mark.parametrize("version", range(3))
def test_every_version_lowers_a_level_only_when_told_to(stage: "Stage", version: int) -> None:
    allowed = {"allow_downgrade": True} if version == 0 else {"upgrade_type": 2}

    plain = update(stage, version, feature("group.version", 0))
    before = stage.backend.controller.image.feature_level("group.version")
    down = update(stage, version, feature("group.version", 0, **allowed))

    assert (plain, before) == (ErrorCode.INVALID_UPDATE_VERSION, 1)
    assert (down, stage.backend.controller.image.feature_level("group.version")) == (ErrorCode.NONE, 0)


def test_features_are_updated_all_or_none_and_can_be_tried(stage: "Stage") -> None:
    down = feature("group.version", 0, upgrade_type=2)

    mixed = update(stage, 1, down, feature("no.such.feature", 1))
    tried = update(stage, 1, down, validate_only=True)
    sideways = update(stage, 1, feature("group.version", 0, upgrade_type=9))

    assert (mixed, tried) == (ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.NONE)
    assert sideways == ErrorCode.INVALID_UPDATE_VERSION
    assert stage.backend.controller.image.feature_level("group.version") == 1


def test_who_may_not_alter_the_cluster_updates_no_features(stage: "Stage") -> None:
    stage.authorizer.denied = {(AclOperation.ALTER, "kafka-cluster")}

    assert update(stage, 2, feature("group.version", 0, upgrade_type=2)) == (
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    )


def test_features_are_announced_as_they_can_be_set_and_as_they_are(stage: "Stage") -> None:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")

    response = stage.ask(request, ApiVersionsResponse, 4)

    supported = {one.name: (one.min_version, one.max_version) for one in response.supported_features}
    finalized = {one.name: one.max_version_level for one in response.finalized_features}
    assert supported.items() >= {"transaction.version": (0, 2), "group.version": (0, 1)}.items()
    assert finalized.items() >= {"transaction.version": 2, "group.version": 1}.items()
    assert supported.keys() == finalized.keys()
    assert response.finalized_features_epoch >= 0
    update(stage, 2, feature("transaction.version", 1, upgrade_type=2))
    later = stage.ask(request, ApiVersionsResponse, 4)
    assert ("transaction.version", 1) in [
        (one.name, one.max_version_level) for one in later.finalized_features
    ]
    assert later.finalized_features_epoch > response.finalized_features_epoch


def test_consumer_groups_are_off_at_level_0_of_group_version(stage: "Stage") -> None:
    heartbeat = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=("t",),
        topic_partitions=(),
    )
    describe = ConsumerGroupDescribeRequest(group_ids=("g",), include_authorized_operations=False)
    update(stage, 2, feature("group.version", 0, upgrade_type=2))

    off = ErrorCode.UNSUPPORTED_VERSION
    assert stage.ask(heartbeat, ConsumerGroupHeartbeatResponse, 1).error_code == off
    (row,) = stage.ask(describe, ConsumerGroupDescribeResponse, 1).groups
    assert row.error_code == off
    update(stage, 2, feature("group.version", 1, upgrade_type=1))
    assert stage.ask(heartbeat, ConsumerGroupHeartbeatResponse, 1).error_code != off
