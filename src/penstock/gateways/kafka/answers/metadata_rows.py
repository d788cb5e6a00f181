"""The rows of a Metadata answer.

A topic's row is made once and kept while the topic, the brokers and its logs stay as they
are: images share what did not change between them, so an unchanged topic is the same object
in the next image too.
"""

from collections.abc import Iterator
from typing import NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from penstock.broker.cluster import Controller
from penstock.core.metadata import MetadataImage, Partition, Topic
from penstock.core.model import NodeId, TopicId
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from penstock.gateways.kafka.addresses import Reach, Standing
from penstock.gateways.kafka.answers.operations import authorized_operations, topic_resource
from penstock.gateways.kafka.call import Call
from penstock.security import AclOperation

# Until here replicas that cannot be reached are left out, and only the first error is told.
FILTERED_UNTIL = 0
LISTENER_ERRORS_SINCE = 6
# How many rows of deleted topics may pile up.
SPARE_ROWS = 100


class _Kept(NamedTuple):
    """A row in which nothing is wrong, and what it was made of."""

    topic: Topic
    live: frozenset[NodeId]
    row: MetadataResponseTopic


class _Cache:
    """The rows of one node's topics, and the list of all topics."""

    def __init__(self) -> None:
        self.rows: dict[TopicId, _Kept] = {}
        self._listed: tuple[MetadataImage | None, list[Topic]] = (None, [])

    def topics(self, image: MetadataImage) -> list[Topic]:
        """Every topic in the order of names."""
        listed, topics = self._listed
        if listed is None or listed.topics is not image.topics:
            topics = list(image.each_topic())
            self._listed = (image, topics)
        return topics

    def keep(self, kept: _Kept, image: MetadataImage) -> None:
        self.rows[kept.topic.id] = kept
        if len(self.rows) > 2 * len(image.topics) + SPARE_ROWS:
            self.rows = {known: row for known, row in self.rows.items() if known in image.topics}


_CACHES: WeakKeyDictionary[Controller, _Cache] = WeakKeyDictionary()


class TopicRows:
    """Makes the rows of topics for one answer."""

    def __init__(self, call: Call, reach: Reach, *, with_operations: bool) -> None:
        self._call = call
        self._reach = reach
        self._with_operations = with_operations
        controller = call.backend.controller
        found = _CACHES.get(controller)
        if found is None:
            found = _CACHES[controller] = _Cache()
        self._cache = found

    def everything(self) -> Iterator[MetadataResponseTopic]:
        """Every topic that the caller may know of."""
        call = self._call
        for topic in self._cache.topics(call.backend.controller.image):
            if call.authorize(AclOperation.DESCRIBE, topic_resource(topic.name)):
                yield self.row(topic)

    def row(self, topic: Topic) -> MetadataResponseTopic:
        kept = self._cache.rows.get(topic.id)
        if kept is not None and kept.topic is topic and kept.live == self._reach.live:
            row = kept.row
        else:
            row = self._make(topic)
        if self._with_operations:
            operations = authorized_operations(self._call, topic_resource(topic.name))
            row = msgspec.structs.replace(row, topic_authorized_operations=operations)  # type: ignore[type-var]
        return row

    def _make(self, topic: Topic) -> MetadataResponseTopic:
        standings = [
            (partition, self._reach.standing(topic.name, partition)) for partition in topic.partitions
        ]
        row = MetadataResponseTopic(
            error_code=ErrorCode.NONE,
            name=topic.name,
            topic_id=topic.id,
            is_internal=topic.internal,
            partitions=tuple(
                _row(partition, standing, self._call.version) for partition, standing in standings
            ),
        )
        if all(standing.is_healthy for _, standing in standings):
            self._cache.keep(_Kept(topic, self._reach.live, row), self._call.backend.controller.image)
        return row


def _row(partition: Partition, standing: Standing, version: int) -> MetadataResponsePartition:
    code, leader, offline = standing
    replicas, isr = partition.replicas, partition.isr
    if version <= FILTERED_UNTIL and offline:
        replicas = tuple(node_id for node_id in replicas if node_id not in offline)
        isr = tuple(node_id for node_id in isr if node_id not in offline)
        code = ErrorCode.REPLICA_NOT_AVAILABLE if code is ErrorCode.NONE else code
    if version < LISTENER_ERRORS_SINCE and code is ErrorCode.LISTENER_NOT_FOUND:
        code = ErrorCode.LEADER_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=code,
        partition_index=partition.index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=offline,
    )
