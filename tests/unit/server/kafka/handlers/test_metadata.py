"""Metadata: which topics, which brokers, which errors, in which versions."""

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from penstock.broker.cluster import Controller
from penstock.core.metadata import (
    BeginControlledShutdown,
    BrokerEndpoint,
    CreatePartitions,
    CreateTopic,
    FenceBroker,
    MetadataImage,
    ReplicaAssignment,
)
from penstock.core.model import MILLISECOND, BrokerEpoch, NodeId, PartitionIndex, TopicId
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsRequestTopic,
    DeleteTopicsResponse,
)
from penstock.core.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from penstock.core.protocol.schema import ZERO_UUID
from penstock.runtime import Address
from penstock.security import AclOperation

if TYPE_CHECKING:
    from tests.unit.server.kafka.handlers.conftest import Stage

NOT_ASKED = -(2**31)
ORDERS = TopicId(UUID(int=77))


def named(*names: str, **more: Any) -> MetadataRequest:
    return MetadataRequest(topics=tuple(MetadataRequestTopic(name=name) for name in names), **more)


def by_id(*ids: UUID) -> MetadataRequest:
    return MetadataRequest(topics=tuple(MetadataRequestTopic(name=None, topic_id=each) for each in ids))


def with_orders(stage: "Stage", replicas: tuple[int, ...] = (1,)) -> None:
    placed = (ReplicaAssignment(PartitionIndex(0), tuple(NodeId(each) for each in replicas)),)
    stage.submit(CreateTopic("orders", ORDERS, assignments=placed))


def names_of(response: MetadataResponse) -> list[str | None]:
    return [topic.name for topic in response.topics]


def only_topic(response: MetadataResponse) -> MetadataResponseTopic:
    (topic,) = response.topics
    return topic


@pytest.mark.parametrize("version", range(14))
def test_every_version_names_brokers_and_partitions(stage: "Stage", version: int) -> None:
    with_orders(stage)

    answer = stage.ask(named("orders"), MetadataResponse, version)

    (broker,) = answer.brokers
    assert (broker.node_id, broker.host, broker.port) == (1, "127.0.0.1", 19092)
    topic = only_topic(answer)
    (partition,) = topic.partitions
    assert (topic.error_code, topic.name) == (0, "orders")
    assert topic.topic_id == (ORDERS if version >= 10 else ZERO_UUID)
    assert (partition.error_code, partition.leader_id, partition.replica_nodes) == (0, 1, (1,))
    assert answer.controller_id == (1 if version >= 1 else -1)
    assert answer.cluster_id == (stage.backend.node.cluster_id if version >= 2 else None)


@pytest.mark.parametrize("live", [1, 2])
def test_in_an_election_some_live_broker_is_named_since_librdkafka_waits_for_minutes_if_none_is(
    stage: "Stage", monkeypatch: pytest.MonkeyPatch, live: int
) -> None:
    stage.add_broker(2, BrokerEndpoint("PLAINTEXT", "host-2", 9092))
    monkeypatch.setattr(Controller, "is_leading", property(lambda _: False))
    monkeypatch.setattr(Controller, "leader", property(lambda _: None))
    monkeypatch.setattr(MetadataImage, "is_live", lambda _, number: number == live)

    answer = stage.ask(named(), MetadataResponse, 12)

    assert answer.controller_id == live


def test_an_empty_list_is_every_topic_in_version_0_and_none_after_it(stage: "Stage") -> None:
    with_orders(stage)

    oldest = stage.ask(named(), MetadataResponse, 0)
    newer = stage.ask(named(), MetadataResponse, 1)
    everything = stage.ask(MetadataRequest(topics=None), MetadataResponse, 1)

    assert (names_of(oldest), names_of(newer), names_of(everything)) == (["orders"], [], ["orders"])


def test_an_unknown_topic_is_created_and_described_in_the_same_answer(stage: "Stage") -> None:
    answer = stage.ask(named("fresh"), MetadataResponse, 4)

    topic = only_topic(answer)
    assert topic.error_code == ErrorCode.NONE
    assert [part.error_code for part in topic.partitions] == [0, 0]


def test_a_topic_is_not_created_against_the_request_or_the_settings(
    stage: "Stage", stage_with: type["Stage"]
) -> None:
    forbidding = stage_with({"auto.create.topics.enable": "false"})

    unwanted = stage.ask(named("fresh", allow_auto_topic_creation=False), MetadataResponse, 12)
    switched_off = forbidding.ask(named("fresh"), MetadataResponse, 12)

    assert only_topic(unwanted).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert only_topic(switched_off).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert stage.backend.controller.image.topic_names() == []


def test_a_name_that_no_topic_may_have_is_an_invalid_topic(stage: "Stage") -> None:
    answer = stage.ask(named("no spaces", "x" * 250, ""), MetadataResponse, 12)

    assert {topic.error_code for topic in answer.topics} == {ErrorCode.INVALID_TOPIC_EXCEPTION}


def test_a_topic_that_cannot_be_created_says_why(stage_with: type["Stage"]) -> None:
    stage = stage_with({"default.replication.factor": "3"})

    answer = stage.ask(named("fresh"), MetadataResponse, 12)

    assert only_topic(answer).error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_topic_asked_for_twice_is_answered_once(stage: "Stage") -> None:
    answer = stage.ask(named("fresh", "fresh"), MetadataResponse, 12)

    assert names_of(answer) == ["fresh"]


def test_a_log_that_is_not_there_yet_has_no_leader_and_the_answer_is_not_kept(stage: "Stage") -> None:
    client = stage.client()
    replies: list[object] = []
    stage.backend.controller.submit(CreateTopic("orders", ORDERS, 1, 1), replies.append)
    while not replies:
        stage.world.run(1_000)

    client.send(named("orders"), 12)
    early = client.receive(MetadataResponse, 12)
    stage.run()
    late = client.ask(named("orders"), MetadataResponse, 12)

    assert [part.error_code for part in only_topic(early).partitions] == [ErrorCode.LEADER_NOT_AVAILABLE]
    assert [part.leader_id for part in only_topic(early).partitions] == [-1]
    assert [part.leader_id for part in only_topic(late).partitions] == [1]


def test_topics_are_found_by_id_from_version_12_on(stage: "Stage") -> None:
    with_orders(stage)
    unknown = UUID(int=78)

    answer = stage.ask(by_id(ORDERS, unknown), MetadataResponse, 12)

    assert [(topic.error_code, topic.name, topic.topic_id) for topic in answer.topics] == [
        (ErrorCode.NONE, "orders", ORDERS),
        (ErrorCode.UNKNOWN_TOPIC_ID, None, unknown),
    ]


@pytest.mark.parametrize("version", [10, 11])
def test_ids_in_versions_without_lookups_by_id_are_invalid(stage: "Stage", version: int) -> None:
    answer = stage.ask(by_id(ORDERS), MetadataResponse, version)

    assert [(topic.error_code, topic.name) for topic in answer.topics] == [(ErrorCode.INVALID_REQUEST, "")]


def test_internal_topics_are_created_on_demand_and_marked(stage_with: type["Stage"]) -> None:
    stage = stage_with({"offsets.topic.num.partitions": "2"})

    answer = stage.ask(named("__consumer_offsets"), MetadataResponse, 12)

    topic = only_topic(answer)
    assert (topic.error_code, topic.is_internal, len(topic.partitions)) == (0, True, 2)


def test_operations_are_told_only_to_those_who_ask(stage: "Stage") -> None:
    with_orders(stage)
    stage.authorizer.denied = {(AclOperation.DELETE, "orders"), (AclOperation.CREATE, "kafka-cluster")}

    silent = stage.ask(named("orders"), MetadataResponse, 8)
    asked = stage.ask(
        named("orders", include_topic_authorized_operations=True, include_cluster_authorized_operations=True),
        MetadataResponse,
        8,
    )

    assert silent.cluster_authorized_operations == NOT_ASKED
    assert only_topic(silent).topic_authorized_operations == NOT_ASKED
    topic_bits, cluster_bits = (
        only_topic(asked).topic_authorized_operations,
        asked.cluster_authorized_operations,
    )
    assert [bit for bit in range(32) if topic_bits >> bit & 1] == [3, 4, 5, 7, 8, 10, 11]
    assert [bit for bit in range(32) if cluster_bits >> bit & 1] == [7, 8, 9, 10, 11, 12]


def test_topics_that_the_caller_may_not_see_are_left_out_of_lists_and_refused_by_name(stage: "Stage") -> None:
    with_orders(stage)
    stage.authorizer.denied = {(AclOperation.DESCRIBE, "orders")}

    everything = stage.ask(MetadataRequest(topics=None), MetadataResponse, 12)
    by_name = stage.ask(named("orders"), MetadataResponse, 12)
    with_id = stage.ask(by_id(ORDERS), MetadataResponse, 12)

    assert everything.topics == ()
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert [(each.error_code, each.name, each.topic_id) for each in by_name.topics] == [
        (refused, "orders", ZERO_UUID)
    ]
    assert [(each.error_code, each.name, each.topic_id) for each in with_id.topics] == [
        (refused, None, ORDERS)
    ]


def test_who_may_not_create_topics_gets_an_error(stage: "Stage") -> None:
    stage.authorizer.denied = {(AclOperation.CREATE, "fresh"), (AclOperation.CREATE, "kafka-cluster")}

    answer = stage.ask(named("fresh"), MetadataResponse, 12)

    assert only_topic(answer).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert stage.backend.controller.image.topic_names() == []


def test_a_client_is_told_the_address_it_came_to_unless_another_is_advertised(
    stage: "Stage", stage_with: type["Stage"]
) -> None:
    advertising = stage_with(advertised=Address("kafka.example", 29092))

    came = stage.client(("10.1.2.3", 4444)).ask(named(), MetadataResponse, 12)
    sent = advertising.client(("10.1.2.3", 4444)).ask(named(), MetadataResponse, 12)

    assert [(each.host, each.port) for each in came.brokers] == [("10.1.2.3", 4444)]
    assert [(each.host, each.port) for each in sent.brokers] == [("kafka.example", 29092)]


def test_other_brokers_are_named_by_the_listener_that_the_client_came_to(stage: "Stage") -> None:
    stage.add_broker(2, BrokerEndpoint("PLAINTEXT", "two", 9092), BrokerEndpoint("INSIDE", "inner", 1))
    stage.add_broker(3, BrokerEndpoint("INSIDE", "inner", 3))
    stage.add_broker(4, BrokerEndpoint("PLAINTEXT", "four", 9092), fenced=True)

    answer = stage.ask(named(), MetadataResponse, 12)

    assert [(each.node_id, each.host, each.rack) for each in answer.brokers] == [
        (1, "127.0.0.1", None),
        (2, "two", "rack-2"),
    ]


@pytest.mark.parametrize(
    ("version", "code"), [(5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)]
)
def test_a_leader_without_the_clients_listener_cannot_be_named(
    stage: "Stage", version: int, code: ErrorCode
) -> None:
    stage.add_broker(3, BrokerEndpoint("INSIDE", "inner", 3))
    with_orders(stage, replicas=(3,))

    answer = stage.ask(named("orders"), MetadataResponse, version)

    (partition,) = only_topic(answer).partitions
    assert (partition.error_code, partition.leader_id) == (code, -1)


def test_replicas_that_are_down_are_offline_and_version_0_leaves_them_out(stage: "Stage") -> None:
    stage.add_broker(2, BrokerEndpoint("PLAINTEXT", "two", 9092))
    with_orders(stage, replicas=(1, 2))
    healthy = stage.ask(named("orders"), MetadataResponse, 12)
    stage.submit(FenceBroker(NodeId(2), BrokerEpoch(1)))

    newest = stage.ask(named("orders"), MetadataResponse, 12)
    oldest = stage.ask(named("orders"), MetadataResponse, 0)

    assert only_topic(healthy).partitions[0].offline_replicas == ()
    (partition,) = only_topic(newest).partitions
    assert (partition.error_code, partition.replica_nodes) == (0, (1, 2))
    assert partition.offline_replicas == (2,)
    (partition,) = only_topic(oldest).partitions
    assert (partition.error_code, partition.replica_nodes) == (ErrorCode.REPLICA_NOT_AVAILABLE, (1,))


def test_a_leader_whose_process_has_just_ended_is_not_named_though_it_is_not_fenced_yet(
    stage: "Stage",
) -> None:
    stage.add_broker(2, BrokerEndpoint("PLAINTEXT", "two", 9092))
    with_orders(stage, replicas=(2, 1))
    client = stage.client()
    before = client.ask(named("orders"), MetadataResponse, 12)

    stage.backend.peers.keep("test", {NodeId(2): Address("two", 7000)})
    while not stage.backend.peers.just_ended():
        stage.world.run(1_000)
    client.send(named("orders"), 12)
    ended = client.receive(MetadataResponse, 12)
    is_fenced = not stage.backend.controller.image.is_live(NodeId(2))
    stage.run(100 * MILLISECOND)
    client.send(named("orders"), 12)
    fenced = client.receive(MetadataResponse, 12)
    stage.run()
    last = client.ask(named("orders"), MetadataResponse, 12)

    assert not is_fenced
    answers = (before, ended, fenced, last)
    assert [only_topic(each).partitions[0].leader_id for each in answers] == [2, -1, 1, 1]
    assert [only_topic(each).partitions[0].error_code for each in answers] == [
        *(ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NONE, ErrorCode.NONE)
    ]
    # In the list it stays a little longer, for the sake of librdkafka: see `node_addresses`.
    assert [len(each.brokers) for each in answers] == [2, 2, 2, 1]
    assert only_topic(fenced).partitions[0].offline_replicas == (2,)


def test_a_broker_that_has_stopped_is_not_in_the_list_though_its_process_has_just_ended(
    stage: "Stage",
) -> None:
    stage.add_broker(2, BrokerEndpoint("PLAINTEXT", "two", 9092))
    epoch = BrokerEpoch(1)
    stage.submit(BeginControlledShutdown(NodeId(2), epoch))
    stage.submit(FenceBroker(NodeId(2), epoch))
    client = stage.client()

    stage.backend.peers.keep("test", {NodeId(2): Address("two", 7000)})
    while not stage.backend.peers.just_ended():
        stage.world.run(1_000)
    client.send(named(), 12)

    assert [each.node_id for each in client.receive(MetadataResponse, 12).brokers] == [1]


def test_an_answer_follows_changes_of_the_topic(stage: "Stage") -> None:
    with_orders(stage)
    before = stage.ask(MetadataRequest(topics=None), MetadataResponse, 12)
    doomed = DeleteTopicsRequest(
        topics=(DeleteTopicsRequestTopic(name="orders", topic_id=ZERO_UUID),), timeout_ms=1000
    )
    stage.ask(doomed, DeleteTopicsResponse, 6)

    after = stage.ask(MetadataRequest(topics=None), MetadataResponse, 12)
    again = stage.ask(named("orders"), MetadataResponse, 12)

    assert (names_of(before), names_of(after)) == (["orders"], [])
    assert only_topic(again).topic_id != ORDERS
    assert len(only_topic(again).partitions) == 2


def test_an_answer_follows_the_growth_of_the_topic(stage: "Stage") -> None:
    with_orders(stage)
    before = stage.ask(named("orders"), MetadataResponse, 12)
    stage.submit(CreatePartitions("orders", 3))

    after = stage.ask(named("orders"), MetadataResponse, 12)

    assert [len(only_topic(each).partitions) for each in (before, after)] == [1, 3]


def test_what_clients_of_one_listener_reach_says_nothing_about_another(stage: "Stage") -> None:
    stage.add_broker(2, BrokerEndpoint("PLAINTEXT", "two", 9092))
    with_orders(stage, replicas=(1, 2))

    outside = stage.ask(named("orders"), MetadataResponse, 12)
    inside = stage.client(listener="INSIDE").ask(named("orders"), MetadataResponse, 12)

    assert only_topic(outside).partitions[0].offline_replicas == ()
    assert only_topic(inside).partitions[0].offline_replicas == (2,)


def test_a_throttled_client_gets_the_throttle_time(stage: "Stage") -> None:
    stage.authorizer.throttle_ms = 40

    answer = stage.ask(named(), MetadataResponse, 3)

    assert answer.throttle_time_ms == 40
