"""Topics and brokers from the outside: what there is, what it looks like, and changing it.

Kafka has no request that keeps a broker empty, so that is a setting of the broker here
(`draining`), which any administration client can change too.

Left out: reassignments, elections and the quorum. `penstock.cli.cluster` sends those requests itself.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from penstock.client.connection import BrokerConnection, connect
from penstock.client.endpoint import (
    REQUEST_SECONDS,
    ClientError,
    Endpoint,
    client_error,
    opened,
    reach,
    reason,
)
from penstock.core.model import SECOND
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
)
from penstock.core.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
)
from penstock.runtime.loop import MachineClock

# As ListOffsets spells them.
EARLIEST = -2
LATEST = -1
# The second is how librdkafka says it if none of the partitions it was asked for has one.
WITHOUT_LEADER = ("LEADER_NOT_AVAILABLE", "_NOENT")
# A leader that has just been chosen may not know it yet, and librdkafka does not ask again by itself.
LEADER_CHANGES = ("NOT_LEADER_FOR_PARTITION",)
LEADER_CHANGE_SECONDS = 2
TURN_SECONDS = 0.05
# A coordinator that is starting, or moves: it did nothing, and librdkafka does not ask again by itself.
COORDINATOR_CHANGES = ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR")
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_AGE = re.compile(r"(\d{1,12})(ms|s|m|h|d)")
_WORDS = {"beginning": EARLIEST, "earliest": EARLIEST, "end": LATEST, "latest": LATEST}
ALLOWED = "beginning, end, an offset, an age such as 15m, or a time such as 2026-11-02T10:00"
DRAINED = "broker.drained"
BROKER = 4
SET, DELETE = 0, 1


class Watermarks(NamedTuple):
    """The first offset of a partition, and the one that its next record will get."""

    start: int
    end: int


def watermarks(admin: Any, topic: str, partitions: Sequence[int]) -> dict[int, Watermarks]:
    """The offsets of the partitions that have a leader to ask."""
    starts = offsets_at(admin, [(topic, partition) for partition in partitions], EARLIEST)
    ends = offsets_at(admin, [(topic, partition) for partition in partitions], LATEST)
    return {
        partition: Watermarks(starts[topic, partition], ends[topic, partition])
        for partition in partitions
        if (topic, partition) in starts and (topic, partition) in ends
    }


def offsets_at(admin: Any, partitions: Iterable[tuple[str, int]], moment: int) -> dict[tuple[str, int], int]:
    """For each partition the offset at EARLIEST, LATEST or a timestamp in ms.

    -1 is "no record that late", and a partition without a leader is left out.
    """
    from confluent_kafka import KafkaException, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    spec = {EARLIEST: OffsetSpec.earliest(), LATEST: OffsetSpec.latest()}.get(moment)
    asked = {TopicPartition(*one): spec or OffsetSpec.for_timestamp(moment) for one in partitions}
    if not asked:
        return {}
    found = {}
    clock = MachineClock()
    deadline = clock.now() + LEADER_CHANGE_SECONDS * SECOND
    while asked:
        moving = {}
        for one, future in admin.list_offsets(asked, request_timeout=REQUEST_SECONDS).items():
            try:
                found[one.topic, one.partition] = int(future.result(REQUEST_SECONDS + 5).offset)
            except KafkaException as error:
                name = error.args[0].name()
                if name in LEADER_CHANGES and clock.now() < deadline:
                    moving[TopicPartition(one.topic, one.partition)] = asked[one]
                elif not error.args[0].retriable() and name not in WITHOUT_LEADER + LEADER_CHANGES:
                    raise client_error(f"offsets of {one.topic}-{one.partition}", error) from None
        asked = moving
        if asked:
            time.sleep(TURN_SECONDS)
    return found


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


class TopicAdmin:
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
    """Wait for a result of librdkafka, and through a change of coordinator; ClientError is about `what`."""
    from confluent_kafka import KafkaException

    clock = MachineClock()
    deadline = clock.now() + round(REQUEST_SECONDS * SECOND)
    while True:
        try:
            return ask().result(REQUEST_SECONDS + 5)
        except KafkaException as error:
            if error.args[0].name() not in COORDINATOR_CHANGES or clock.now() >= deadline:
                raise client_error(what, error) from None
        except TimeoutError:
            raise ClientError(f"{what}: no response within {REQUEST_SECONDS + 5:.0f} s") from None
        except (TypeError, ValueError) as error:
            raise ClientError(f"{what}: {reason(error)}") from None
        time.sleep(TURN_SECONDS)


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


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """An offset that is the same in every partition, or a moment (EARLIEST, LATEST, ms) that is not."""

    offset: int | None = None
    moment: int | None = None

    def resolve(self, admin: Any, topic: str, partitions: Sequence[int]) -> Mapping[int, int]:
        """The offset in each partition, never outside what the partition holds."""
        marks = watermarks(admin, topic, partitions)
        if self.offset is not None:
            return {one: min(max(self.offset, mark.start), mark.end) for one, mark in marks.items()}
        assert self.moment is not None
        if self.moment in (EARLIEST, LATEST):
            return {one: mark.start if self.moment == EARLIEST else mark.end for one, mark in marks.items()}
        found = offsets_at(admin, [(topic, partition) for partition in marks], self.moment)
        return {
            one: found[topic, one] if found.get((topic, one), -1) >= 0 else mark.end
            for one, mark in marks.items()
        }


BEGINNING = OffsetSpec(moment=EARLIEST)


def parse_position(text: str, now_ms: int) -> OffsetSpec:
    """Read what `--from` and `--to` take; ValueError says what is allowed.

    A time without a zone is local, as whoever types it means it.
    """
    word = text.strip()
    if word in _WORDS:
        return OffsetSpec(moment=_WORDS[word])
    if word.isascii() and word.isdigit() and len(word) <= 18:
        return OffsetSpec(offset=int(word))
    if age := _AGE.fullmatch(word):
        return OffsetSpec(moment=max(0, now_ms - int(age[1]) * _UNITS_MS[age[2]]))
    try:
        moment = datetime.fromisoformat(word).astimezone()
        return OffsetSpec(moment=max(0, int(moment.timestamp() * 1_000)))
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{text!r} is not {ALLOWED}") from None


def drain(endpoint: Endpoint, node_id: int, *, undo: bool = False) -> None:
    """Let a broker lead nothing that another can lead, and get nothing new; any broker can be asked.

    Its leaderships are elsewhere when this returns, as far as others are in sync. Replicas that it
    has stay until they are moved.
    """
    connection = connect(endpoint)
    try:
        change_drain(connection, node_id, undo=undo)
    finally:
        connection.close()


def change_drain(connection: BrokerConnection, node_id: int, *, undo: bool = False) -> None:
    config = IncrementalAlterConfigsRequestConfig(
        name=DRAINED, config_operation=DELETE if undo else SET, value=None if undo else "true"
    )
    resource = IncrementalAlterConfigsRequestResource(
        resource_type=BROKER, resource_name=str(node_id), configs=(config,)
    )
    answer = connection.ask(IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False))
    for row in answer.responses:
        _expect(f"broker {node_id}", row.error_code, row.error_message)


def is_drained(connection: BrokerConnection, node_id: int) -> bool:
    """Whether the broker at the other end, whose number this is, is drained."""
    resource = DescribeConfigsRequestResource(
        resource_type=BROKER, resource_name=str(node_id), configuration_keys=(DRAINED,)
    )
    answer = connection.ask(DescribeConfigsRequest(resources=(resource,)))
    for row in answer.results:
        _expect(f"broker {node_id}", row.error_code, row.error_message)
    return any(config.value == "true" for row in answer.results for config in row.configs)


def _expect(what: str, code: int, message: str | None) -> None:
    if code != ErrorCode.NONE:
        raise ClientError(f"{what}: {message or ErrorCode(code).name.lower().replace('_', ' ')}")
