"""A cluster at one moment, and what is wrong with it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

RUNNING, FENCED, DRAINED, UNKNOWN = "running", "fenced", "drained", "unknown"


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker; `unknown` is one that holds replicas and is not registered."""

    node_id: int
    address: str | None
    rack: str | None
    state: str
    leads: int
    replicas: int


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition, and how many replicas its topic wants in sync before it takes writes."""

    topic: str
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    minimum: int = 1

    @property
    def name(self) -> str:
        return f"{self.topic}:{self.partition}"

    @property
    def is_offline(self) -> bool:
        return self.leader is None

    @property
    def is_under_replicated(self) -> bool:
        return len(self.in_sync) < len(self.replicas)

    @property
    def is_under_minimum(self) -> bool:
        return len(self.in_sync) < self.minimum


@dataclass(frozen=True, slots=True)
class Move:
    """A reassignment under way. Bytes are those that the new replicas have, and shall have."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    bytes_done: int = 0
    bytes_all: int = 0

    @property
    def name(self) -> str:
        return f"{self.topic}:{self.partition}"

    @property
    def percent(self) -> int:
        """How far the new replicas have got; the last step is for the controller, so never 100."""
        if not self.adding:
            return 99
        return min(99, 100 * self.bytes_done // self.bytes_all) if self.bytes_all else 0


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything that `cluster status` shows."""

    cluster_id: str
    controller: int | None
    brokers: tuple[Broker, ...]
    partitions: int
    offline: tuple[Partition, ...]
    under_replicated: tuple[Partition, ...]
    under_minimum: tuple[Partition, ...]
    moves: tuple[Move, ...]


@dataclass(frozen=True, slots=True)
class Registered:
    """A broker as it is registered."""

    address: str
    rack: str | None
    state: str


def survey(
    cluster: tuple[str, int | None],
    registered: Mapping[int, Registered],
    partitions: Sequence[Partition],
    moves: Sequence[Move],
) -> Overview:
    """Put together what was asked for bit by bit; `cluster` is its id and its controller."""
    cluster_id, controller = cluster
    return Overview(
        cluster_id,
        controller,
        tuple(_brokers(registered, partitions)),
        len(partitions),
        tuple(one for one in partitions if one.is_offline),
        tuple(one for one in partitions if one.is_under_replicated),
        tuple(one for one in partitions if one.is_under_minimum),
        tuple(moves),
    )


def _brokers(registered: Mapping[int, Registered], partitions: Sequence[Partition]) -> list[Broker]:
    leads: dict[int, int] = {}
    holds: dict[int, int] = {}
    for one in partitions:
        if one.leader is not None:
            leads[one.leader] = leads.get(one.leader, 0) + 1
        for node_id in one.replicas:
            holds[node_id] = holds.get(node_id, 0) + 1
    return [
        Broker(
            node_id,
            known.address if (known := registered.get(node_id)) else None,
            known.rack if known else None,
            known.state if known else UNKNOWN,
            leads.get(node_id, 0),
            holds.get(node_id, 0),
        )
        for node_id in sorted({*registered, *holds})
    ]
