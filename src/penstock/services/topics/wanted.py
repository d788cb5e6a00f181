"""What clients ask for."""

from dataclasses import dataclass

from penstock.core.metadata import BY_DEFAULT, ReplicaAssignment
from penstock.core.model import NodeId


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic that somebody wants; -1 leaves a number to the cluster."""

    name: str
    partitions: int = BY_DEFAULT
    replication_factor: int = BY_DEFAULT
    assignments: tuple[ReplicaAssignment, ...] = ()
    configs: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class MorePartitions:
    """How many partitions a topic shall have, and where the new ones go (None: anywhere)."""

    name: str
    count: int
    assignments: tuple[tuple[NodeId, ...], ...] | None = None
