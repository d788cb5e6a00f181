"""The administration clients of three independent implementations, against one node."""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioPartitions
from aiokafka.admin import NewTopic as AioTopic
from aiokafka.admin.config_resource import ConfigResource as AioResource
from aiokafka.admin.config_resource import ConfigResourceType as AioKind
from confluent_kafka import KafkaException, Producer, TopicCollection
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from kafka.admin import ConfigResource as PlainResource
from kafka.admin import ConfigResourceType as PlainKind
from kafka.admin import KafkaAdminClient
from kafka.admin import NewTopic as PlainTopic
from kafka.errors import InvalidReplicationFactorError, TopicAlreadyExistsError, UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from tests.support.nodes import NodeProcess

TIMEOUT_SECONDS = 30


@pytest.fixture
def plain(node: "NodeProcess") -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=node.kafka)
    yield client
    client.close()


@pytest.fixture
def librdkafka(node: "NodeProcess") -> Any:
    return AdminClient({"bootstrap.servers": node.kafka})


def result(futures: dict[Any, Any]) -> Any:
    """The outcome of the only item of a librdkafka call."""
    (future,) = futures.values()
    return future.result(TIMEOUT_SECONDS)


def code_of(caught: "pytest.ExceptionInfo[KafkaException]") -> str:
    name: str = caught.value.args[0].name()
    return name


def test_kafka_python_creates_describes_and_deletes(plain: Any) -> None:
    plain.create_topics([PlainTopic("plain", num_partitions=3, replication_factor=1)])

    (topic,) = plain.describe_topics(["plain"])
    listed = plain.list_topics()
    plain.delete_topics(["plain"])

    assert [part["leader_id"] for part in topic["partitions"]] == [1, 1, 1]
    assert "plain" in listed
    assert "plain" not in plain.list_topics()


def test_kafka_python_gets_the_reason_why_a_topic_is_refused(plain: Any) -> None:
    plain.create_topics([PlainTopic("plain-taken", num_partitions=1, replication_factor=1)])

    with pytest.raises(TopicAlreadyExistsError):
        plain.create_topics([PlainTopic("plain-taken", num_partitions=1, replication_factor=1)])
    with pytest.raises(InvalidReplicationFactorError):
        plain.create_topics([PlainTopic("plain-wide", num_partitions=1, replication_factor=3)])
    with pytest.raises(UnknownTopicOrPartitionError):
        plain.delete_topics(["plain-missing"])


def test_kafka_python_grows_and_configures_a_topic(plain: Any) -> None:
    plain.create_topics([PlainTopic("plain-grown", num_partitions=1, replication_factor=1)])

    plain.create_partitions({"plain-grown": 4})
    plain.alter_configs([PlainResource(PlainKind.TOPIC, "plain-grown", configs={"retention.ms": "1234"})])
    described = plain.describe_configs([PlainResource(PlainKind.TOPIC, "plain-grown")])

    (topic,) = plain.describe_topics(["plain-grown"])
    assert len(topic["partitions"]) == 4
    assert "1234" in str(described)


def test_kafka_python_describes_the_cluster_its_disks_and_its_features(
    plain: Any, node: "NodeProcess"
) -> None:
    cluster = plain.describe_cluster()
    (logs,) = plain.describe_log_dirs()
    features = plain.describe_features()

    host, port = node.address
    assert [(each["host"], each["port"]) for each in cluster["brokers"]] == [(host, port)]
    assert cluster["controller_id"] == 1
    assert [each["log_dir"] for each in logs["log_dirs"]] == [str(node.data_dir)]
    assert logs["log_dirs"][0]["total_bytes"] > logs["log_dirs"][0]["usable_bytes"] > 0
    assert "metadata.version" in str(features)


def test_kafka_python_pages_through_partitions(plain: Any) -> None:
    plain.create_topics([PlainTopic("plain-paged", num_partitions=5, replication_factor=1)])

    answer = plain.describe_topic_partitions(["plain-paged"], response_partition_limit=3)

    assert "plain-paged" in str(answer)


def test_librdkafka_creates_lists_describes_and_deletes(librdkafka: Any) -> None:
    result(librdkafka.create_topics([NewTopic("ck", 3, 1, config={"retention.ms": "4321"})]))

    listed = librdkafka.list_topics(timeout=TIMEOUT_SECONDS)
    described = result(
        librdkafka.describe_topics(TopicCollection(["ck"]), include_authorized_operations=True)
    )
    configs = result(librdkafka.describe_configs([ConfigResource(ResourceType.TOPIC, "ck")]))
    result(librdkafka.delete_topics(["ck"]))

    assert sorted(listed.topics["ck"].partitions) == [0, 1, 2]
    assert listed.cluster_id
    assert described.name == "ck"
    assert len(described.authorized_operations) == 8
    assert (configs["retention.ms"].value, configs["retention.ms"].source) == ("4321", 1)
    assert configs["retention.ms"].synonyms
    assert "ck" not in librdkafka.list_topics(timeout=TIMEOUT_SECONDS).topics


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("no spaces", 1, 1), "TOPIC_EXCEPTION"),
        (NewTopic("ck-none", 1, 4), "INVALID_REPLICATION_FACTOR"),
        (NewTopic("ck-bad", 1, 1, config={"retention.ms": "soon"}), "INVALID_CONFIG"),
        (NewTopic("ck-bad", 1, 1, config={"no.such.key": "1"}), "INVALID_CONFIG"),
    ],
)
def test_librdkafka_gets_the_reason_why_a_topic_is_refused(librdkafka: Any, topic: Any, code: str) -> None:
    with pytest.raises(KafkaException) as caught:
        result(librdkafka.create_topics([topic]))

    assert code_of(caught) == code
    assert caught.value.args[0].str()


def test_librdkafka_tries_a_topic_without_creating_it(librdkafka: Any) -> None:
    result(librdkafka.create_topics([NewTopic("ck-tried", 2, 1)], validate_only=True))

    assert "ck-tried" not in librdkafka.list_topics(timeout=TIMEOUT_SECONDS).topics


def test_librdkafka_grows_and_configures_a_topic(librdkafka: Any) -> None:
    result(librdkafka.create_topics([NewTopic("ck-grown", 1, 1)]))
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND)

    result(librdkafka.create_partitions([NewPartitions("ck-grown", 4)]))
    result(
        librdkafka.incremental_alter_configs(
            [ConfigResource(ResourceType.TOPIC, "ck-grown", incremental_configs=[entry])]
        )
    )
    configs = result(librdkafka.describe_configs([ConfigResource(ResourceType.TOPIC, "ck-grown")]))

    assert len(librdkafka.list_topics("ck-grown", timeout=TIMEOUT_SECONDS).topics["ck-grown"].partitions) == 4
    assert configs["cleanup.policy"].value == "delete,compact"


def test_librdkafka_describes_a_broker_and_misses_an_unknown_topic(librdkafka: Any) -> None:
    broker = result(librdkafka.describe_configs([ConfigResource(ResourceType.BROKER, "1")]))
    with pytest.raises(KafkaException) as caught:
        result(librdkafka.describe_configs([ConfigResource(ResourceType.TOPIC, "ck-missing")]))
    cluster = librdkafka.describe_cluster(include_authorized_operations=True).result(TIMEOUT_SECONDS)

    assert broker["num.partitions"].value == "3"
    assert broker["num.partitions"].is_read_only
    assert code_of(caught) == "UNKNOWN_TOPIC_OR_PART"
    assert [each.id for each in cluster.nodes] == [1]
    assert cluster.controller.id == 1


def test_librdkafka_creates_a_topic_by_producing_to_it(librdkafka: Any, node: "NodeProcess") -> None:
    failures: list[Any] = []
    producer = Producer({"bootstrap.servers": node.kafka, "enable.idempotence": True})

    producer.produce("ck-automatic", b"v", on_delivery=lambda error, _: failures.append(error))
    producer.flush(TIMEOUT_SECONDS)

    assert failures == [None]
    assert len(librdkafka.list_topics(timeout=TIMEOUT_SECONDS).topics["ck-automatic"].partitions) == 3


def test_aiokafka_manages_topics(node: "NodeProcess") -> None:
    async def manage() -> tuple[Any, Any, Any, Any]:
        client = AIOKafkaAdminClient(bootstrap_servers=node.kafka)
        await client.start()
        try:
            await client.create_topics([AioTopic("aio", 2, 1, topic_configs={"retention.ms": "99"})])
            await client.create_partitions({"aio": AioPartitions(3)})
            await client.alter_configs([AioResource(AioKind.TOPIC, "aio", {"retention.ms": "100"})])
            (topic,) = await client.describe_topics(["aio"])
            configs = await client.describe_configs([AioResource(AioKind.TOPIC, "aio")])
            cluster = await client.describe_cluster()
            await client.delete_topics(["aio"])
            return topic, configs, cluster, await client.list_topics()
        finally:
            await client.close()

    topic, configs, cluster, left = asyncio.run(manage())

    assert len(topic["partitions"]) == 3
    assert "'100'" in str(configs)
    assert cluster["controller_id"] == 1
    assert "aio" not in left
