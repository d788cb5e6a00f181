"""The state of the cluster that the facts so far add up to: brokers, topics, partitions, configuration.

Everything in an image is frozen. `PersistentMap` and `PersistentVector` copy a small part of
themselves on every write and share the rest with the version before. An image built of them
can be kept, compared or passed on for the price of a reference, and writing one topic among
fifty thousand copies a few hundred references.

`Broker` and `Partition` are stored inside facts as they stand, so that applying a fact is
putting a value in its place. Fields are written in order; a later format may only add
fields with defaults at the end.
"""

import enum
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from heapq import merge
from itertools import chain, compress, islice
from operator import is_, is_not
from types import MappingProxyType
from typing import Annotated, Any, Generic, NamedTuple, TypeVar, overload
from uuid import UUID

from penstock.core.metadata.access import AclBinding, ApiKey, ScramCredential, ScramMechanism
from penstock.core.metadata.levels import SESSIONS_LEVEL, StoredStruct, since
from penstock.core.metadata.topic_names import collision_key, is_internal
from penstock.core.model import (
    MILLISECOND,
    BrokerEpoch,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionIndex,
    ProducerId,
    TopicId,
    TopicName,
)
from penstock.core.values import dataclass

Key = TypeVar("Key")
Value = TypeVar("Value")
Item_co = TypeVar("Item_co", covariant=True)
SHARDS = 256
# So many keys are sorted in a millisecond.
SORTED_AT_ONCE = 1_000
# Of so few, the sorted list is kept.
SORTED_KEPT = 64
CHUNK = 64
NO_LEADER = NodeId(-1)
NO_BROKER = NodeId(-1)
NO_LEADER_EPOCH = LeaderEpoch(-1)
NO_BROKER_EPOCH = BrokerEpoch(-1)
UNKNOWN_END = Offset(-1)
# The session timeout of a broker that registered none.
DEFAULT_SESSION_MS = 2_000
NO_INCARNATION = UUID(int=0)
# Where brokers and controllers reach each other; every other name is a listener for clients.
PEER_LISTENER = "PEER"
FIRST_PRODUCER_ID = ProducerId(0)
_NO_CONFIG: Mapping[str, str] = MappingProxyType({})


class PersistentMap(Generic[Key, Value]):
    """A map split over a fixed number of dictionaries; a write copies one of them.

    Which shard a key falls into may differ between processes (string hashes are salted),
    so nothing is ever listed in that order: listings are sorted by key.
    """

    __slots__ = ("_shards", "_size", "_sorted")

    def __init__(self) -> None:
        empty: dict[Key, Value] = {}
        self._shards: list[dict[Key, Value]] = [empty] * SHARDS
        self._size = 0
        # What is listed, if that is little and was asked for.
        self._sorted: list[tuple[Key, Value]] | None = None

    def __len__(self) -> int:
        return self._size

    def __contains__(self, key: Key) -> bool:
        return key in self._shards[hash(key) % SHARDS]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, PersistentMap) and self._size == other._size and self._union() == other._union()
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Table({dict(self.items())!r})"

    def get(self, key: Key) -> Value | None:
        return self._shards[hash(key) % SHARDS].get(key)

    def put(self, key: Key, value: Value) -> "PersistentMap[Key, Value]":
        """A map that holds `value` under `key` as well."""
        number = hash(key) % SHARDS
        shard = self._shards[number].copy()
        shard[key] = value
        return self._with_shard(number, shard)

    def drop(self, key: Key) -> "PersistentMap[Key, Value]":
        """A map without `key`; this very map if it has no such key."""
        if key not in self:
            return self
        number = hash(key) % SHARDS
        shard = self._shards[number].copy()
        del shard[key]
        return self._with_shard(number, shard)

    def keys(self) -> list[Key]:
        return sorted(chain.from_iterable(self._shards), key=_as_is)

    def items(self) -> list[tuple[Key, Value]]:
        if self._size > SORTED_KEPT:
            return sorted(chain.from_iterable(map(dict.items, self._shards)), key=_first)
        # Brokers and features are listed for many requests, and to look through all shards takes long.
        if self._sorted is None:
            self._sorted = sorted(chain.from_iterable(map(dict.items, self._shards)), key=_first)
        return self._sorted.copy()

    def values(self) -> list[Value]:
        """The values in the order of their keys."""
        return [value for _, value in self.items()]

    def items_in_steps(self) -> Generator[None, None, Iterator[tuple[Key, Value]]]:
        """The same for very many: shards are sorted a few at a time, and merged as far as is read."""
        if self._size <= SORTED_AT_ONCE:
            return iter(self.items())
        runs: list[list[tuple[Key, Value]]] = []
        for shard in self._shards:
            runs.append(sorted(shard.items(), key=_first))
            yield
        return merge(*runs, key=_first)

    def in_order(self) -> Iterator[tuple[Key, Value]]:
        """The same as `items`, one by one, for threads: sorting all at once keeps other threads waiting."""
        shards = [sorted(shard.items(), key=_first) for shard in self._shards if shard]
        return merge(*shards, key=_first)

    def keys_missing_in(self, other: "PersistentMap[Key, Value]") -> list[Key]:
        """What is here and not there; costs little if one map was made from the other."""
        pairs = zip(self._shards, other._shards, strict=True)
        missing = (_missing(ours, theirs) for ours, theirs in pairs if ours is not theirs)
        return sorted(chain.from_iterable(missing), key=_as_is)

    def keys_changed_since(self, before: "PersistentMap[Key, Value]") -> list[Key]:
        """What is new here or has been replaced; costs little if one map was made from the other."""
        pairs = zip(self._shards, before._shards, strict=True)
        changed = (_changed(ours, theirs) for ours, theirs in pairs if ours is not theirs)
        return sorted(chain.from_iterable(changed), key=_as_is)

    def _with_shard(self, number: int, shard: dict[Key, Value]) -> "PersistentMap[Key, Value]":
        table: PersistentMap[Key, Value] = PersistentMap.__new__(PersistentMap)
        table._shards = self._shards.copy()
        table._shards[number] = shard
        table._size = self._size + len(shard) - len(self._shards[number])
        table._sorted = None
        return table

    def _union(self) -> dict[Key, Value]:
        return dict(chain.from_iterable(map(dict.items, self._shards)))


def _goes_on(ours: dict[Key, Value], theirs: dict[Key, Value]) -> bool:
    """Whether a shard was made from another one by adding and replacing: its keys are those, then others.

    It tells without computing hashes, which takes long for keys such as rules.
    """
    return len(ours) >= len(theirs) and all(map(is_, ours, theirs))


def _missing(ours: dict[Key, Value], theirs: dict[Key, Value]) -> Iterable[Key]:
    """Keys that are in one shard only."""
    if _goes_on(ours, theirs):
        return islice(ours, len(theirs), None)
    # A set has the hashes of the dictionary that it is made from; it is sorted later.
    return () if _goes_on(theirs, ours) else set(ours).difference(theirs)


def _changed(ours: dict[Key, Value], theirs: dict[Key, Value]) -> Iterable[Key]:
    """Keys that are in one shard only, or have another value there."""
    if _goes_on(ours, theirs):
        replaced = compress(ours, map(is_not, ours.values(), theirs.values()))
        return chain(replaced, islice(ours, len(theirs), None))
    return [key for key, value in ours.items() if key not in theirs or value is not theirs[key]]


class PersistentVector(Sequence[Item_co]):
    """A sequence in chunks; appending or replacing copies one chunk and the list of chunks."""

    __slots__ = ("_chunks", "_size")

    def __init__(self, items: Iterable[Item_co] = ()) -> None:
        everything = tuple(items)
        self._size = len(everything)
        self._chunks = tuple(everything[at : at + CHUNK] for at in range(0, self._size, CHUNK))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Item_co]:
        return chain.from_iterable(self._chunks)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PersistentVector) and self._chunks == other._chunks

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Series({list(self)!r})"

    @overload
    def __getitem__(self, index: int) -> Item_co: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Item_co]: ...

    def __getitem__(self, index: int | slice) -> Item_co | Sequence[Item_co]:
        if isinstance(index, slice):
            return tuple(self)[index]
        if index < 0:
            index += self._size
        if not 0 <= index < self._size:
            raise IndexError(index)
        return self._chunks[index // CHUNK][index % CHUNK]

    def extended(self, items: Sequence[Any]) -> "PersistentVector[Item_co]":
        """A vector with more items at its end."""
        full = self._size // CHUNK
        rest = (*chain.from_iterable(self._chunks[full:]), *items)
        chunks = tuple(rest[at : at + CHUNK] for at in range(0, len(rest), CHUNK))
        return self._of((*self._chunks[:full], *chunks), self._size + len(items))

    def replaced(self, index: int, item: Any) -> "PersistentVector[Item_co]":
        """A vector with another item at `index`."""
        number, place = divmod(index, CHUNK)
        old = self._chunks[number]
        chunk = (*old[:place], item, *old[place + 1 :])
        return self._of((*self._chunks[:number], chunk, *self._chunks[number + 1 :]), self._size)

    def _of(self, chunks: tuple[tuple[Item_co, ...], ...], size: int) -> "PersistentVector[Item_co]":
        series: PersistentVector[Item_co] = PersistentVector.__new__(PersistentVector)
        series._chunks = chunks
        series._size = size
        return series


def _as_is(key: Any) -> Any:
    return key


def _first(pair: tuple[Any, Any]) -> Any:
    return pair[0]


class BrokerEndpoint(StoredStruct, frozen=True):
    """The address of one listener of a broker, as advertised to clients and peers."""

    name: str
    host: str
    port: int
    security: str = "PLAINTEXT"


class FeatureRange(StoredStruct, frozen=True):
    """The levels of one feature that a broker can read and write."""

    name: str
    lowest: int
    highest: int


def supports(features: tuple[FeatureRange, ...], feature: str, level: int) -> bool:
    """Whether the level is in these ranges. Level 0 is the absence of a feature."""
    ranges = (known for known in features if known.name == feature)
    return level == 0 or any(known.lowest <= level <= known.highest for known in ranges)


class Broker(StoredStruct, frozen=True):
    """One registration of a broker: each start is a new epoch."""

    node_id: NodeId
    epoch: BrokerEpoch
    directory_id: UUID
    listeners: tuple[BrokerEndpoint, ...] = ()
    rack: str | None = None
    features: tuple[FeatureRange, ...] = ()
    # The epoch before this one, if nothing of it can be lost; -1 if the machine went down with it.
    previous_epoch: BrokerEpoch = NO_BROKER_EPOCH
    fenced: bool = True
    # About to stop: it keeps what no other broker can lead, and is never elected.
    stopping: bool = False
    # An operator wants it empty: no new replicas, and it leads only what no other broker can.
    drained: bool = False
    # Whether this incarnation acknowledges only what is on disk: its crash loses nothing then.
    synced: bool = True
    # Which incarnation of its process registered: a registration that arrives twice is one.
    incarnation: UUID = NO_INCARNATION
    # How long it may be silent before it is fenced, and answers clients meanwhile; 0 is the default.
    session_ms: Annotated[int, since(SESSIONS_LEVEL)] = 0

    @property
    def session_ns(self) -> int:
        """The timeout of its sessions: the same for every controller, and for the broker itself."""
        return (self.session_ms or DEFAULT_SESSION_MS) * MILLISECOND

    def listener(self, name: str) -> BrokerEndpoint | None:
        return next((listener for listener in self.listeners if listener.name == name), None)

    def supports(self, feature: str, level: int) -> bool:
        """Whether it supports the level. Level 0 is the absence of a feature, which every broker supports."""
        return supports(self.features, feature, level)


class ReplicaLoss(enum.IntEnum):
    """What a replica lost of the records it once acknowledged; stored in facts by number."""

    NOTHING = 0
    # Perhaps what it had not synced when it fell: nobody can tell.
    DOUBTFUL = 1
    # Its last records. What is left of its log is whole.
    TAIL = 2
    # Records in the middle of its log.
    RANGE = 3
    # Its disk is another one, or its log is missing.
    EVERYTHING = 4


class ReplicaReport(StoredStruct, frozen=True):
    """What a replica found in its log when its broker started.

    Of two logs, the one with the later last epoch has every committed record of the other, and
    of two with the same last epoch the longer one has (Raft's rule for votes).
    """

    node_id: NodeId
    broker_epoch: BrokerEpoch
    last_epoch: LeaderEpoch
    end: Offset
    loss: ReplicaLoss = ReplicaLoss.NOTHING
    # Where the log ended once, as far as that is known: what is lost lies between `end` and here.
    former_end: Offset = UNKNOWN_END
    # The partition's leader epoch when this was found. Under a leader of a later one the log has changed.
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH

    @property
    def position(self) -> tuple[LeaderEpoch, Offset]:
        """How far the log goes, in the order of logs."""
        return self.last_epoch, self.end


class Partition(StoredStruct, frozen=True):
    """Who keeps one partition, who leads it, and who may lead it next.

    `elr` are replicas outside the ISR that hold every committed record all the same
    (KIP-966); `last_known_elr` are those that once did. The leader epoch grows with every
    change of leader, the partition epoch with every change at all. While replicas move,
    `replicas` holds the old and the new ones: first those that shall be, then `removing`.
    """

    index: PartitionIndex
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    leader: NodeId
    leader_epoch: LeaderEpoch = LeaderEpoch(0)
    partition_epoch: int = 0
    elr: tuple[NodeId, ...] = ()
    last_known_elr: tuple[NodeId, ...] = ()
    # Where each replica was when it was in sync last; on another disk it has nothing of that.
    directories: tuple[UUID, ...] = ()
    # Replicas that a reassignment brings, and those it takes away once the new ones are in sync.
    adding: tuple[NodeId, ...] = ()
    removing: tuple[NodeId, ...] = ()
    # The last leader epoch that began with an unclean election: replicas whose records are older may
    # have to truncate even what was committed.
    unclean_epoch: LeaderEpoch = NO_LEADER_EPOCH
    # While nobody leads: what its replicas found in their logs. Under a leader: the same of eligible
    # replicas that have restarted and are not in sync again.
    reports: tuple[ReplicaReport, ...] = ()

    @property
    def is_moving(self) -> bool:
        """Whether a reassignment is under way."""
        return bool(self.adding or self.removing)

    @property
    def complete(self) -> tuple[NodeId, ...]:
        """The replicas that hold every committed record: ISR and ELR."""
        return (*self.isr, *self.elr)

    def report(self, node_id: NodeId) -> ReplicaReport | None:
        """What a replica has reported."""
        return next((report for report in self.reports if report.node_id == node_id), None)

    @property
    def answers(self) -> tuple[ReplicaReport, ...]:
        """The reports that were made since the partition has no leader."""
        return tuple(report for report in self.reports if report.leader_epoch == self.leader_epoch)

    @property
    def target(self) -> tuple[NodeId, ...]:
        """The replicas that the partition shall have, the preferred leader first."""
        return tuple(node_id for node_id in self.replicas if node_id not in self.removing)

    @property
    def origin(self) -> tuple[NodeId, ...]:
        """The replicas that the partition had before a reassignment."""
        return tuple(node_id for node_id in self.replicas if node_id not in self.adding)

    @property
    def replicas_to_rely_on(self) -> int:
        """How many replicas there are, both before and after a reassignment."""
        return len(self.replicas) - max(len(self.adding), len(self.removing))


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic and its partitions, in the order of their indexes."""

    id: TopicId
    name: TopicName
    partitions: PersistentVector[Partition] = field(default_factory=PersistentVector)
    # How many partitions there are per number of replicas: nearly always one pair.
    factors: tuple[tuple[int, int], ...] = ()

    @property
    def internal(self) -> bool:
        return is_internal(self.name)

    @property
    def replication_factor(self) -> int:
        """How many replicas a partition shall have; reassignments may make that differ."""
        return len(self.partitions[0].target) if self.partitions else 0

    @property
    def replicas_to_rely_on(self) -> int:
        """The smallest number of replicas that any partition has or shall have."""
        return self.factors[0][0] if self.factors else 0

    def with_partition(self, partition: Partition) -> "Topic":
        """The topic with one more partition, or with another state of one it has."""
        former = self.partition(partition.index)
        if former is None:
            return self.with_partitions((partition,))
        partitions = self.partitions.replaced(partition.index, partition)
        if partition.replicas_to_rely_on == former.replicas_to_rely_on:
            return Topic(self.id, self.name, partitions, self.factors)
        factors = dict(self.factors)
        factors[former.replicas_to_rely_on] -= 1
        return Topic(self.id, self.name, partitions, _counted(factors, (partition,)))

    def with_partitions(self, more: Sequence[Partition]) -> "Topic":
        """The topic with more partitions, which are numbered on from those it has."""
        assert more[0].index == len(self.partitions), "partitions are numbered without a gap"
        counts = _counted(dict(self.factors), more)
        return Topic(self.id, self.name, self.partitions.extended(more), counts)

    def partition(self, index: int) -> Partition | None:
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


def _counted(factors: dict[int, int], partitions: Sequence[Partition]) -> tuple[tuple[int, int], ...]:
    """The factors of a topic with these partitions besides."""
    for partition in partitions:
        factor = partition.replicas_to_rely_on
        factors[factor] = factors.get(factor, 0) + 1
    return tuple(sorted((factor, count) for factor, count in factors.items() if count))


class ConfigResourceType(enum.IntEnum):
    """What a configuration belongs to; numbered as Kafka numbers them."""

    TOPIC = 2
    BROKER = 4
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """One thing that can be configured. The broker named "" stands for every broker."""

    kind: ConfigResourceType
    name: str


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """Topics, brokers, configuration and counters at one point of the metadata log.

    An image never changes: applying a fact makes the next one, which shares nearly
    everything with it. An image may be kept and compared with a later one.
    """

    cluster_id: str | None = None
    topics: PersistentMap[TopicId, Topic] = field(default_factory=PersistentMap)
    topic_ids: PersistentMap[TopicName, TopicId] = field(default_factory=PersistentMap)
    # Names that differ in '.' and '_' only, under what they have in common.
    lookalikes: PersistentMap[str, tuple[TopicName, ...]] = field(default_factory=PersistentMap)
    partition_count: int = 0
    # How many replicas each broker has; those without any are not in it.
    replica_counts: Mapping[NodeId, int] = field(default_factory=lambda: MappingProxyType({}))
    brokers: PersistentMap[NodeId, Broker] = field(default_factory=PersistentMap)
    last_broker_epoch: BrokerEpoch = NO_BROKER_EPOCH
    configs: PersistentMap[ConfigResource, Mapping[str, str]] = field(default_factory=PersistentMap)
    features: PersistentMap[str, int] = field(default_factory=PersistentMap)
    next_producer_id: ProducerId = FIRST_PRODUCER_ID
    acls: PersistentMap[AclBinding, bool] = field(default_factory=PersistentMap)
    credentials: PersistentMap[tuple[str, ScramMechanism], ScramCredential] = field(
        default_factory=PersistentMap
    )
    api_keys: PersistentMap[str, ApiKey] = field(default_factory=PersistentMap)
    # What nodes sign with when they say who somebody is; empty until there is one.
    delegation_secret: bytes = field(default=b"", repr=False)
    # The values of each entity, which is in the form of `access.entity_key`.
    quotas: PersistentMap[tuple[tuple[str, bool, str], ...], Mapping[str, float]] = field(
        default_factory=PersistentMap
    )

    def topic(self, name: str) -> Topic | None:
        topic_id = self.topic_ids.get(TopicName(name))
        return None if topic_id is None else self.topics.get(topic_id)

    def topic_by_id(self, topic_id: TopicId) -> Topic | None:
        return self.topics.get(topic_id)

    def topic_id(self, name: str) -> TopicId | None:
        return self.topic_ids.get(TopicName(name))

    def topic_name(self, topic_id: TopicId) -> TopicName | None:
        topic = self.topics.get(topic_id)
        return None if topic is None else topic.name

    def topic_names(self) -> list[TopicName]:
        """Every topic's name, sorted."""
        return self.topic_ids.keys()

    def each_topic(self) -> Iterator[Topic]:
        """Every topic in the order of names."""
        for topic_id in self.topic_ids.values():
            topic = self.topics.get(topic_id)
            assert topic is not None, "a name without its topic"
            yield topic

    def colliding_topic(self, name: str) -> TopicName | None:
        """A topic that metrics could not tell from one called `name`."""
        key = collision_key(name)
        names = None if key is None else self.lookalikes.get(key)
        return names[0] if names else None

    def partition(self, name: str, index: int) -> Partition | None:
        topic = self.topic(name)
        return None if topic is None else topic.partition(index)

    def partitions_of(self, node_id: NodeId) -> Iterator[tuple[Topic, Partition]]:
        """Every partition that has a replica on the broker, in the order of names."""
        for topic in self.each_topic():
            for partition in topic.partitions:
                if node_id in partition.replicas:
                    yield topic, partition

    def moving_partitions(self) -> Iterator[tuple[Topic, Partition]]:
        """Every partition that is being reassigned, in the order of names."""
        for topic in self.each_topic():
            for partition in topic.partitions:
                if partition.is_moving:
                    yield topic, partition

    def broker(self, node_id: int) -> Broker | None:
        return self.brokers.get(NodeId(node_id))

    def is_live(self, node_id: int) -> bool:
        """Whether the broker is registered and may lead."""
        broker = self.brokers.get(NodeId(node_id))
        return broker is not None and not broker.fenced

    def session_ns(self, node_id: int) -> int:
        """How long a broker may answer clients after it has lost the controller."""
        broker = self.brokers.get(NodeId(node_id))
        return DEFAULT_SESSION_MS * MILLISECOND if broker is None else broker.session_ns

    def may_lead(self, node_id: int) -> bool:
        """Whether the broker can be elected: live, and not about to stop."""
        broker = self.brokers.get(NodeId(node_id))
        return broker is not None and not broker.fenced and not broker.stopping

    def is_leaving(self, node_id: int) -> bool:
        """Whether other brokers should lead its partitions: it stops, or is drained."""
        broker = self.brokers.get(NodeId(node_id))
        return broker is not None and (broker.stopping or broker.drained)

    def each_broker(self) -> list[Broker]:
        """Every registered broker, fenced ones too, in the order of node ids."""
        return self.brokers.values()

    def live_brokers(self) -> list[Broker]:
        return [broker for broker in self.brokers.values() if not broker.fenced]

    def config(self, kind: ConfigResourceType, name: str) -> Mapping[str, str]:
        """What was set for this very resource, without defaults."""
        return self.configs.get(ConfigResource(kind, name)) or _NO_CONFIG

    def configured(self, kind: ConfigResourceType) -> list[str]:
        """The names of the resources of a kind that have configuration of their own."""
        return [resource.name for resource, _ in self.configs.items() if resource.kind == kind]

    def feature_level(self, name: str) -> int:
        """0 if the feature is not in use."""
        return self.features.get(name) or 0


EMPTY_IMAGE = MetadataImage()
