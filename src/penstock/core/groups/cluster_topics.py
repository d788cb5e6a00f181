"""What a group coordinator knows of topics: their ids, partitions and racks."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Protocol

from penstock.core.model import TopicId, TopicName, TopicPartition
from penstock.core.values import dataclass

_HASH_BYTES = 8


@dataclass(frozen=True, slots=True)
class AssignableTopic:
    """A topic whose partitions can be assigned.

    `racks` are those of each partition's replicas; empty where the cluster has no racks. `digest`
    differs where id, partition count or racks differ.
    """

    id: TopicId
    name: TopicName
    partitions: int
    racks: tuple[tuple[str, ...], ...] = ()
    digest: bytes = b""


class ClusterTopics(Protocol):
    """The topics of the cluster as they are now."""

    def find(self, name: str) -> AssignableTopic | None:
        """The topic of this name, if it exists."""

    def name_of(self, topic_id: TopicId) -> TopicName | None:
        """The name of a topic, if it exists."""

    def lacks(self, partition: TopicPartition) -> bool:
        """Whether this partition is known not to exist."""

    def names(self) -> Sequence[TopicName]:
        """The names that patterns are compared with: all but internal topics', sorted."""


class NoTopics:
    """The topics of a cluster that nothing is known of."""

    def find(self, name: str) -> AssignableTopic | None:  # noqa: ARG002
        return None

    def name_of(self, topic_id: TopicId) -> TopicName | None:  # noqa: ARG002
        return None

    def lacks(self, partition: TopicPartition) -> bool:  # noqa: ARG002
        return False

    def names(self) -> Sequence[TopicName]:
        return ()


def digest_of(topic_id: TopicId, partitions: int, racks: Iterable[Iterable[str]] = ()) -> bytes:
    """A digest of what an assignment depends on."""
    digest = hashlib.blake2b(topic_id.bytes + partitions.to_bytes(4, "big"), digest_size=_HASH_BYTES)
    for each in racks:
        digest.update(("\0".join(each) + "\n").encode())
    return digest.digest()


def metadata_hash(topics: Iterable[AssignableTopic]) -> int:
    """A number for the subscribed topics, in their order; 0 for none. It fits a signed 64-bit field."""
    digest, any_topic = hashlib.blake2b(digest_size=_HASH_BYTES), False
    for topic in topics:
        digest.update(topic.digest)
        any_topic = True
    return int.from_bytes(digest.digest(), "big", signed=True) if any_topic else 0
