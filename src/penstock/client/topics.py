"""Topics from the outside: which there are, what they look like, and changing them."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from penstock.client.endpoint import REQUEST_SECONDS, Endpoint, opened, reach
from penstock.client.errors import ClientError, reason, refused
from penstock.client.offsets import Watermarks, watermarks


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """One line of a listing."""

    name: str
    partitions: int
    replication_factor: int
    internal: bool


@dataclass(frozen=True, slots=True)
class PartitionDetail:
    """One partition: who serves it, who copies it, and which offsets it holds."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    start_offset: int | None
    end_offset: int | None


@dataclass(frozen=True, slots=True)
class TopicDetail:
    """Everything about one topic; `configs` are those that somebody set."""

    name: str
    topic_id: str
    internal: bool
    partitions: tuple[PartitionDetail, ...]
    configs: Mapping[str, str]


class Topics:
    """The topics of one cluster."""

    def __init__(self, endpoint: Endpoint) -> None:
        from confluent_kafka.admin import AdminClient

        self._endpoint = endpoint
        self._metadata = reach(endpoint)
        self._admin = opened(AdminClient, endpoint.settings())

    def list(self) -> list[TopicSummary]:
        return [
            TopicSummary(
                name,
                len(topic.partitions),
                max((len(partition.replicas) for partition in topic.partitions.values()), default=0),
                is_internal(name),
            )
            for name, topic in sorted(self._metadata.topics.items())
        ]

    def describe(self, name: str) -> TopicDetail:
        from confluent_kafka import TopicCollection

        described = answer_of(
            f"topic {name}",
            lambda: self._admin.describe_topics(TopicCollection([name]), request_timeout=REQUEST_SECONDS)[
                name
            ],
        )
        indexes = [partition.id for partition in described.partitions]
        marks = watermarks(self._admin, name, indexes)
        return TopicDetail(
            described.name,
            # librdkafka writes ids with an alphabet that no file name could hold; Kafka does not.
            str(described.topic_id).replace("+", "-").replace("/", "_"),
            bool(described.is_internal),
            tuple(_partition(partition, marks) for partition in described.partitions),
            self._configs_set(name),
        )

    def create(self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> None:
        """Create a topic; -1 leaves a count to the broker."""
        from confluent_kafka.admin import NewTopic

        topic = NewTopic(
            name, num_partitions=partitions, replication_factor=replication_factor, config=dict(configs)
        )
        answer_of(
            f"topic {name}",
            lambda: self._admin.create_topics([topic], operation_timeout=REQUEST_SECONDS)[name],
        )

    def add_partitions(self, name: str, total: int) -> None:
        from confluent_kafka.admin import NewPartitions

        answer_of(
            f"topic {name}",
            lambda: self._admin.create_partitions(
                [NewPartitions(name, total)], operation_timeout=REQUEST_SECONDS
            )[name],
        )

    def alter_configs(self, name: str, values: Mapping[str, str], removed: Sequence[str] = ()) -> None:
        """Set and remove single configs, leaving the others as they are."""
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in values.items()
        ]
        entries += [ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in removed]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        answer_of(
            f"topic {name}",
            lambda: self._admin.incremental_alter_configs([resource], request_timeout=REQUEST_SECONDS)[
                resource
            ],
        )

    def delete(self, name: str) -> None:
        answer_of(
            f"topic {name}",
            lambda: self._admin.delete_topics([name], operation_timeout=REQUEST_SECONDS)[name],
        )

    def _configs_set(self, name: str) -> dict[str, str]:
        from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType

        resource = ConfigResource(ResourceType.TOPIC, name)
        entries = answer_of(
            f"topic {name}",
            lambda: self._admin.describe_configs([resource], request_timeout=REQUEST_SECONDS)[resource],
        )
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {key: entry.value for key, entry in sorted(entries.items()) if entry.source == own}


def answer_of(what: str, ask: "Callable[[], Future[Any]]") -> Any:
    """Wait for an answer of librdkafka; what goes wrong is a ClientError about `what`."""
    from confluent_kafka import KafkaException

    try:
        return ask().result(REQUEST_SECONDS + 5)
    except KafkaException as error:
        raise refused(what, error) from None
    except TimeoutError:
        raise ClientError(f"{what}: no answer within {REQUEST_SECONDS + 5:.0f} s") from None
    except (TypeError, ValueError) as error:
        raise ClientError(f"{what}: {reason(error)}") from None


def is_internal(name: str) -> bool:
    """Whether a topic is the brokers' own, by its name: listings do not say."""
    return name.startswith("__")


def _partition(partition: Any, marks: Mapping[int, Watermarks]) -> PartitionDetail:
    found = marks.get(partition.id)
    return PartitionDetail(
        partition.id,
        partition.leader.id if partition.leader is not None else -1,
        tuple(node.id for node in partition.replicas),
        tuple(node.id for node in partition.isr),
        found.start if found else None,
        found.end if found else None,
    )
