"""Consumer groups from the outside: who reads what, how far they got, and moving them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.client.admin import LATEST, OffsetSpec, answer_of, offsets_at
from penstock.client.connection import security_of
from penstock.client.consumer_group import consumer_group_epochs
from penstock.client.endpoint import (
    REQUEST_SECONDS,
    ClientError,
    Endpoint,
    client_error,
    opened,
    reach,
    reason,
)
from penstock.client.group_offsets import committed_offsets
from penstock.core.model import SECOND
from penstock.runtime.loop import MachineClock

TURN_SECONDS = 0.1
PATIENCE_SECONDS = 5


class ConsumerLag(NamedTuple):
    """How far a reader is behind: in records, and as the age of the first one that it has not read."""

    records: int
    seconds: float | None


def consumer_lag(endpoint: Endpoint, positions: Mapping[tuple[str, int], int]) -> ConsumerLag | None:
    """Compare the offsets that a reader will read next with the ends of their partitions.

    Nothing if a partition does not respond; the age is left out where no record gives it.
    """
    from confluent_kafka.admin import AdminClient

    ends = offsets_at(opened(AdminClient, endpoint.settings()), positions, LATEST)
    if ends.keys() != positions.keys():
        return None
    unread = {one: position for one, position in positions.items() if position < ends[one]}
    if not unread:
        return ConsumerLag(0, 0.0)
    records = sum(ends[one] - position for one, position in unread.items())
    oldest_ms = min(timestamps_at(endpoint, unread).values(), default=None)
    if oldest_ms is None:
        return ConsumerLag(records, None)
    return ConsumerLag(records, max(0, MachineClock().wall() - oldest_ms) / 1_000)


def timestamps_at(endpoint: Endpoint, offsets: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
    """The timestamp of the first record at or after an offset, of the partitions that respond."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    if not offsets:
        return {}
    settings = endpoint.settings(
        group_id="penstock-lag",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        enable_partition_eof=True,
        allow_auto_create_topics=False,
        # One batch of each partition is enough.
        max_partition_fetch_bytes=1_024,
        queued_min_messages=1,
    )
    clock = MachineClock()
    deadline = clock.now() + PATIENCE_SECONDS * SECOND
    consumer: Any = opened(Consumer, settings)
    found: dict[tuple[str, int], int] = {}
    waiting = dict.fromkeys(offsets)
    try:
        consumer.assign([TopicPartition(*one, offset) for one, offset in offsets.items()])
        while waiting and clock.now() < deadline:
            for message in consumer.consume(500, TURN_SECONDS):
                _take(message, waiting, found, consumer)
    except KafkaException:
        # The lag in records is known all the same.
        pass
    finally:
        consumer.close()
    return found


def _take(
    message: Any, waiting: dict[tuple[str, int], None], found: dict[tuple[str, int], int], consumer: Any
) -> None:
    from confluent_kafka import TopicPartition

    one = message.topic(), message.partition()
    if one not in waiting:
        return
    del waiting[one]
    consumer.pause([TopicPartition(*one)])
    if message.error() is None and message.timestamp()[0]:
        found[one] = int(message.timestamp()[1])


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """One line of a listing."""

    group: str
    state: str
    type: str


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a group got in one partition; None is "not known"."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    lag_seconds: float | None
    member: str | None


@dataclass(frozen=True, slots=True)
class GroupDetail:
    """One group: its members, and its lag in every partition it reads or has read."""

    group: str
    state: str
    type: str
    assignor: str
    coordinator: int
    members: tuple[Mapping[str, Any], ...]
    partitions: tuple[PartitionLag, ...]
    # Of consumer groups (KIP-848) alone: the group's epoch, and the one that its target is for.
    epoch: int | None = None
    target_epoch: int | None = None


class GroupAdmin:
    """The consumer groups of one cluster."""

    def __init__(self, endpoint: Endpoint) -> None:
        from confluent_kafka.admin import AdminClient

        reach(endpoint)
        self._endpoint = endpoint
        self._admin: Any = opened(AdminClient, endpoint.settings())

    def list(self) -> list[GroupSummary]:
        listed = answer_of(
            "groups", lambda: self._admin.list_consumer_groups(request_timeout=REQUEST_SECONDS)
        )
        if listed.errors:
            raise client_error("groups", listed.errors[0])
        return sorted(
            (GroupSummary(one.group_id, _word(one.state), _word(one.type)) for one in listed.valid),
            key=lambda one: one.group,
        )

    def describe(self, group: str) -> GroupDetail:
        """The group with its lag: in records, and as the age of the first record it has not read."""
        described = self._described(group)
        committed = self.committed(group)
        if _word(described.state) == "dead" and not committed:
            raise ClientError(f"group {group} does not exist")
        holders = {
            (one.topic, one.partition): member
            for member in described.members
            for one in (member.assignment.topic_partitions if member.assignment else ())
        }
        members, epochs = [_member(member) for member in described.members], None
        if _word(described.type) == "consumer" and described.coordinator is not None:
            coordinator = described.coordinator
            epochs = consumer_group_epochs(
                (coordinator.host, coordinator.port), group, security_of(self._endpoint)
            )
            members = [{**member, **epochs.members.get(member["member"], {})} for member in members]
        return GroupDetail(
            group,
            _word(described.state),
            _word(described.type),
            described.partition_assignor or "",
            described.coordinator.id if described.coordinator is not None else -1,
            tuple(members),
            self._lags(committed, holders),
            None if epochs is None else epochs.group_epoch,
            None if epochs is None else epochs.target_epoch,
        )

    def members(self, group: str) -> tuple[str, ...]:
        """Who is in the group now; nobody, if there is no such group."""
        return tuple(str(member.client_id or member.member_id) for member in self._described(group).members)

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """The group's committed offset in each partition where it has one."""
        if self._endpoint.is_plaintext or not self._endpoint.needs_librdkafka:
            return committed_offsets(self._endpoint, group)
        # Our own connection does not know every way to log in.
        from confluent_kafka import ConsumerGroupTopicPartitions

        asked = ConsumerGroupTopicPartitions(group)
        answer = answer_of(
            f"group {group}",
            lambda: self._admin.list_consumer_group_offsets([asked], request_timeout=REQUEST_SECONDS)[group],
        )
        return {(one.topic, one.partition): one.offset for one in answer.topic_partitions if one.offset >= 0}

    def targets(
        self, group: str, topics: tuple[str, ...], position: OffsetSpec
    ) -> dict[tuple[str, int], int]:
        """Where a reset would put the group: in the topics named, or wherever it has committed."""
        metadata = reach(self._endpoint)
        named = topics or tuple(sorted({topic for topic, _ in self.committed(group)}))
        if not named:
            raise ClientError(f"group {group} has no committed offsets; name a topic")
        found = {}
        for topic in named:
            if topic not in metadata.topics:
                raise ClientError(f"topic {topic} does not exist")
            partitions = sorted(metadata.topics[topic].partitions)
            for partition, offset in position.resolve(self._admin, topic, partitions).items():
                found[topic, partition] = offset
        return found

    def reset(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit these offsets for a group that has no members."""
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        asked = ConsumerGroupTopicPartitions(
            group, [TopicPartition(*one, offset) for one, offset in offsets.items()]
        )
        answer = answer_of(
            f"group {group}",
            lambda: self._admin.alter_consumer_group_offsets([asked], request_timeout=REQUEST_SECONDS)[group],
        )
        for one in answer.topic_partitions:
            if one.error is not None:
                raise ClientError(f"group {group}, {one.topic}-{one.partition}: {reason(one.error)}")

    def delete(self, group: str) -> None:
        answer_of(
            f"group {group}",
            lambda: self._admin.delete_consumer_groups([group], request_timeout=REQUEST_SECONDS)[group],
        )

    def _described(self, group: str) -> Any:
        return answer_of(
            f"group {group}",
            lambda: self._admin.describe_consumer_groups([group], request_timeout=REQUEST_SECONDS)[group],
        )

    def _lags(
        self, committed: Mapping[tuple[str, int], int], holders: Mapping[tuple[str, int], Any]
    ) -> tuple[PartitionLag, ...]:
        partitions = sorted({**committed, **holders})
        existing = reach(self._endpoint).topics
        ends = offsets_at(self._admin, [one for one in partitions if one[0] in existing], LATEST)
        behind = {one: offset for one, offset in committed.items() if one in ends and ends[one] > offset}
        stamps = timestamps_at(self._endpoint, behind)
        now = MachineClock().wall()
        lags = []
        for one in partitions:
            end, offset = ends.get(one), committed.get(one)
            lag = max(0, end - offset) if end is not None and offset is not None else None
            seconds = 0.0 if lag == 0 else max(0, now - stamps[one]) / 1_000 if one in stamps else None
            member = holders[one].member_id if one in holders else None
            lags.append(PartitionLag(*one, offset, end, lag, seconds, member))
        return tuple(lags)


def _word(value: Any) -> str:
    """An enum of librdkafka as a lower-case word."""
    return str(getattr(value, "name", value)).lower()


def _member(member: Any) -> dict[str, Any]:
    assignment = member.assignment.topic_partitions if member.assignment else ()
    return {
        "member": member.member_id,
        "client": member.client_id,
        "host": member.host,
        "instance": member.group_instance_id,
        "partitions": [f"{one.topic}-{one.partition}" for one in assignment],
    }
