"""Which brokers keep the replicas of new partitions."""

from collections.abc import Sequence

from penstock.core.metadata.image import MetadataImage
from penstock.core.metadata.state import Partition
from penstock.core.model import NodeId, PartitionIndex


def place(image: MetadataImage, start: int, count: int, replication_factor: int) -> list[Partition]:
    """New partitions from index `start` on, their leaders dealt out to the live brokers in turn.

    The deal goes on where the partitions that exist have ended, so that many small topics
    spread as evenly as one large one. Each round over the brokers shifts the followers by
    one more place, so that a broker's partitions do not all have the same second replica.
    Fenced brokers get replicas only where there are not enough live ones, and never lead.
    """
    live = [broker.node_id for broker in image.live_brokers()]
    fenced = [broker.node_id for broker in image.each_broker() if broker.fenced]
    assert live, "somebody must lead"
    assert 0 < replication_factor <= len(live) + len(fenced), "enough brokers"
    placed = []
    for number in range(count):
        turn = image.partition_count + number
        replicas = _dealt(live, turn, min(replication_factor, len(live)))
        spare = replication_factor - len(replicas)
        if spare:
            replicas += _dealt(fenced, turn, spare)
        placed.append(new_partition(image, start + number, replicas))
    return placed


def new_partition(image: MetadataImage, index: int, replicas: Sequence[NodeId]) -> Partition:
    """A partition that starts with every live replica in sync and the first of them leading."""
    isr = tuple(node_id for node_id in replicas if image.is_live(node_id))
    directories = []
    for node_id in replicas:
        broker = image.broker(node_id)
        assert broker is not None, "replicas are on registered brokers"
        directories.append(broker.directory_id)
    return Partition(PartitionIndex(index), tuple(replicas), isr, isr[0], directories=tuple(directories))


def _dealt(brokers: list[NodeId], turn: int, count: int) -> list[NodeId]:
    size = len(brokers)
    first = turn % size
    shift = turn // size
    return [
        brokers[first],
        *(brokers[(first + 1 + (shift + place) % (size - 1)) % size] for place in range(count - 1)),
    ]
