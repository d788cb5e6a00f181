"""The commands of the metadata machine, and their replies.

Ids that must be random come in with the command.
"""

import enum
from dataclasses import field
from typing import ClassVar, NamedTuple, TypeAlias
from uuid import UUID

from penstock.core.metadata.access import (
    AclBinding,
    AclFilter,
    ApiKey,
    QuotaEntity,
    ScramCredential,
    ScramMechanism,
)
from penstock.core.metadata.image import (
    NO_BROKER_EPOCH,
    NO_INCARNATION,
    UNKNOWN_END,
    BrokerEndpoint,
    ConfigResource,
    FeatureRange,
    Partition,
    ReplicaLoss,
)
from penstock.core.metadata.levels import ACCESS_LEVEL, SESSIONS_LEVEL, since_level
from penstock.core.model import (
    ApiError,
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

# "As the broker's configuration says", for numbers of partitions and replicas.
BY_DEFAULT = -1


@dataclass(frozen=True, slots=True)
class BootstrapCluster:
    """Give a new cluster its identity and its feature levels; the first command of all."""

    cluster_id: str
    # None stands for the highest levels that this version writes.
    levels: tuple[tuple[str, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class RegisterBroker:
    """A broker has started. Every registration is a new broker epoch.

    `previous_epoch` is the epoch after which nothing can have been lost: the broker stopped cleanly,
    or its process ended and the machine went on. `synced` says whether everything it ever
    acknowledged was on disk first: a broker that can say neither may have lost records, and
    leaves ISR and ELR. With `fenced` it stays out of leadership until it is unfenced.

    `incarnation` names the run of the process, so that registering again does no harm, and
    `known_epoch` the newest epoch of this broker that it has seen: a registration that was on
    its way while a later incarnation registered is rejected. `session_ms` is the timeout of its
    sessions, 0 the default.
    """

    cluster_id: str
    node_id: NodeId
    directory_id: UUID
    listeners: tuple[BrokerEndpoint, ...] = ()
    rack: str | None = None
    features: tuple[FeatureRange, ...] = ()
    previous_epoch: BrokerEpoch = NO_BROKER_EPOCH
    synced: bool = True
    fenced: bool = True
    incarnation: UUID = NO_INCARNATION
    known_epoch: BrokerEpoch | None = None
    session_ms: int = field(default=0, metadata=since_level(SESSIONS_LEVEL))


@dataclass(frozen=True, slots=True)
class FenceBroker:
    """A broker is silent or stops: it may not lead any more."""

    node_id: NodeId
    epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class UnfenceBroker:
    """A broker has caught up and may lead."""

    node_id: NodeId
    epoch: BrokerEpoch


class PartitionReport(NamedTuple):
    """What a broker found in its log of one partition; see `ReplicaReport`."""

    topic_id: TopicId
    partition: PartitionIndex
    last_epoch: LeaderEpoch
    end: Offset
    # The leader epoch of the partition, as the broker knows it.
    leader_epoch: LeaderEpoch
    loss: ReplicaLoss = ReplicaLoss.NOTHING
    former_end: Offset = UNKNOWN_END


@dataclass(frozen=True, slots=True)
class ReportReplicas:
    """A broker says what its logs hold: before it is unfenced, and where nobody leads."""

    node_id: NodeId
    epoch: BrokerEpoch
    reports: tuple[PartitionReport, ...]


@dataclass(frozen=True, slots=True)
class BeginControlledShutdown:
    """A broker is about to stop: its leaderships go to others first, as far as they can.

    May be repeated; the reply says how many leaderships are left.
    """

    node_id: NodeId
    epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class DrainBroker:
    """An operator wants a broker to lead nothing and to get nothing new; `undo` ends that."""

    node_id: NodeId
    undo: bool = False


@dataclass(frozen=True, slots=True)
class UnregisterBroker:
    """A broker will not come back; its replicas stay assigned until they are moved."""

    node_id: NodeId


class ReplicaAssignment(NamedTuple):
    """Where the replicas of one partition shall be, the preferred leader first."""

    partition: PartitionIndex
    replicas: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """Create a topic with a number of partitions, or with replicas placed by hand."""

    name: str
    topic_id: TopicId
    partitions: int = BY_DEFAULT
    replication_factor: int = BY_DEFAULT
    assignments: tuple[ReplicaAssignment, ...] = ()
    configs: tuple[tuple[str, str | None], ...] = ()
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Delete a topic, named or by id: exactly one of the two is given."""

    name: str | None = None
    topic_id: TopicId | None = None


@dataclass(frozen=True, slots=True)
class CreatePartitions:
    """Let a topic have `count` partitions, which must be more than it has."""

    name: str
    count: int
    # Replicas of each new partition; None places them automatically.
    assignments: tuple[tuple[NodeId, ...], ...] | None = None
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class AlterConfigs:
    """Replace the whole configuration of a resource; keys left out return to the default."""

    resource: ConfigResource
    values: tuple[tuple[str, str | None], ...]
    validate_only: bool = False


class ConfigOperation(enum.IntEnum):
    """What to do with one key; numbered as Kafka numbers them."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """One key and what to do with it."""

    operation: ConfigOperation
    key: str
    value: str | None = None


@dataclass(frozen=True, slots=True)
class IncrementalAlterConfigs:
    """Change single keys of a resource and leave the others alone."""

    resource: ConfigResource
    changes: tuple[ConfigChange, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class AllocateProducerIds:
    """Give a broker the next block of producer ids."""

    node_id: NodeId
    broker_epoch: BrokerEpoch


class UpgradeType(enum.IntEnum):
    """Which way a feature level may go; numbered as Kafka numbers them."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A feature and the level it shall have; 0 takes it out of use."""

    name: str
    level: int
    direction: UpgradeType = UpgradeType.UPGRADE


@dataclass(frozen=True, slots=True)
class UpdateFeatures:
    """Change feature levels, all of them or none."""

    updates: tuple[FeatureUpdate, ...]
    validate_only: bool = False


class IsrMember(NamedTuple):
    """A replica that the leader found in sync, in the epoch in which it was (KIP-903)."""

    node_id: NodeId
    broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class AlterPartition:
    """A leader proposes another ISR for its partition."""

    node_id: NodeId
    broker_epoch: BrokerEpoch
    topic_id: TopicId
    index: PartitionIndex
    leader_epoch: LeaderEpoch
    partition_epoch: int
    isr: tuple[IsrMember, ...]


@dataclass(frozen=True, slots=True)
class ResignReplica:
    """A replica found its log damaged: it leaves the ISR."""

    node_id: NodeId
    broker_epoch: BrokerEpoch
    topic_id: TopicId
    index: PartitionIndex


@dataclass(frozen=True, slots=True)
class DeposeLeader:
    """A follower was asked to truncate records that it knows to be committed: its leader lacks them.

    The leader of this epoch asked for a cut at `offset`.
    """

    node_id: NodeId
    broker_epoch: BrokerEpoch
    topic_id: TopicId
    index: PartitionIndex
    leader_epoch: LeaderEpoch
    offset: Offset
    high_watermark: Offset


class ElectionType(enum.IntEnum):
    """Who shall lead; numbered as Kafka numbers them."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class ElectLeader:
    """Give a partition to its preferred replica, or to anyone alive if it has no leader."""

    topic: str
    index: PartitionIndex
    election: ElectionType = ElectionType.PREFERRED


@dataclass(frozen=True, slots=True)
class ElectReported:
    """The grace period is over: elect without the replicas that have not reported, if that is safe."""

    partitions: tuple[tuple[TopicId, PartitionIndex], ...]


@dataclass(frozen=True, slots=True)
class BalanceLeaders:
    """Give leadership back to preferred replicas, at most so many at a time; sent periodically."""

    moves_max: int = 1_000


@dataclass(frozen=True, slots=True)
class ReassignPartition:
    """Move a partition to these replicas, the preferred leader first; None cancels a move.

    A move that is under way is replaced by a new one.
    """

    topic: str
    index: PartitionIndex
    replicas: tuple[NodeId, ...] | None
    # Whether there may be more or fewer replicas afterwards than before.
    resize: bool = True


@dataclass(frozen=True, slots=True)
class WidenInternalTopics:
    """Give internal topics the replicas that they could not have with fewer brokers.

    Each move copies a log: only so many are under way at a time.
    """

    moves_max: int = 20


@dataclass(frozen=True, slots=True)
class CreateAcls:
    """Add access rules: all of them, or none if one is not possible."""

    SINCE: ClassVar[int] = ACCESS_LEVEL

    acls: tuple[AclBinding, ...]


@dataclass(frozen=True, slots=True)
class DeleteAcls:
    """Remove every access rule that one of the filters takes."""

    SINCE: ClassVar[int] = ACCESS_LEVEL

    filters: tuple[AclFilter, ...]


@dataclass(frozen=True, slots=True)
class AlterScramCredentials:
    """Set and remove a user's passwords: all of it, or nothing."""

    SINCE: ClassVar[int] = ACCESS_LEVEL

    user: str
    added: tuple[ScramCredential, ...] = ()
    removed: tuple[ScramMechanism, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateApiKey:
    """Let a secret stand for a user. Its id is random, and not used by another."""

    SINCE: ClassVar[int] = ACCESS_LEVEL

    api_key: ApiKey


@dataclass(frozen=True, slots=True)
class DeleteApiKey:
    """Let a secret stand for nobody any more."""

    SINCE: ClassVar[int] = ACCESS_LEVEL

    id: str


@dataclass(frozen=True, slots=True)
class SetDelegationSecret:
    """Let nodes sign with this, unless they have a secret already."""

    SINCE: ClassVar[int] = ACCESS_LEVEL

    secret: bytes

    def __repr__(self) -> str:
        return "SetDelegationSecret()"


@dataclass(frozen=True, slots=True)
class AddFirstAdministrator:
    """Add a user with these rules, unless the cluster has users, rules or API keys already."""

    SINCE: ClassVar[int] = ACCESS_LEVEL

    user: str
    credentials: tuple[ScramCredential, ...]
    acls: tuple[AclBinding, ...] = ()


@dataclass(frozen=True, slots=True)
class AlterClientQuotas:
    """Set limits of one entity, or remove those whose value is None."""

    SINCE: ClassVar[int] = ACCESS_LEVEL

    entity: QuotaEntity
    limits: tuple[tuple[str, float | None], ...]
    validate_only: bool = False


BrokerCommand: TypeAlias = (
    RegisterBroker
    | FenceBroker
    | ReportReplicas
    | UnfenceBroker
    | BeginControlledShutdown
    | DrainBroker
    | UnregisterBroker
)
ConfigCommand: TypeAlias = AlterConfigs | IncrementalAlterConfigs
TopicCommand: TypeAlias = CreateTopic | DeleteTopic | CreatePartitions
ReplicaCommand: TypeAlias = AlterPartition | ResignReplica | DeposeLeader
PartitionCommand: TypeAlias = (
    ReplicaCommand | ElectLeader | ElectReported | BalanceLeaders | ReassignPartition | WidenInternalTopics
)
AccessCommand: TypeAlias = (
    CreateAcls
    | DeleteAcls
    | AlterScramCredentials
    | CreateApiKey
    | DeleteApiKey
    | SetDelegationSecret
    | AlterClientQuotas
)
ClusterCommand: TypeAlias = BootstrapCluster | UpdateFeatures | AllocateProducerIds | AddFirstAdministrator
Command: TypeAlias = (
    ClusterCommand | BrokerCommand | ConfigCommand | TopicCommand | PartitionCommand | AccessCommand
)


@dataclass(frozen=True, slots=True)
class Ok:
    """Done; there is nothing else to return."""


@dataclass(frozen=True, slots=True)
class RegisteredBroker:
    """The epoch that the broker uses from now on."""

    epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class RemainingLeaderships:
    """What a broker that stops or is drained still leads: no other broker can lead these partitions."""

    leading: int
    replicas: int


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """The topic as it is, or as it would be if the command only asked for validation."""

    name: TopicName
    id: TopicId
    partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """What the topic was called and which id it had."""

    name: TopicName
    id: TopicId


@dataclass(frozen=True, slots=True)
class CreatedPartitions:
    """The number of partitions that the topic has now."""

    name: TopicName
    partitions: int


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """The ids from `start` on, `count` of them."""

    start: ProducerId
    count: int


@dataclass(frozen=True, slots=True)
class AlteredPartition:
    """The partition as it is after the change."""

    partition: Partition


@dataclass(frozen=True, slots=True)
class BalancedLeaders:
    """How many leaderships went back, and how many are to follow."""

    moved: int
    left: int


@dataclass(frozen=True, slots=True)
class StartedReassignments:
    """How many partitions began to move."""

    partitions: int


@dataclass(frozen=True, slots=True)
class DeletedAcls:
    """The rules that each filter has taken; one that several take is with the first."""

    by_filter: tuple[tuple[AclBinding, ...], ...]


Reply: TypeAlias = (
    Ok
    | RegisteredBroker
    | RemainingLeaderships
    | CreatedTopic
    | DeletedTopic
    | CreatedPartitions
    | ProducerIdBlock
    | AlteredPartition
    | BalancedLeaders
    | StartedReassignments
    | DeletedAcls
    | ApiError
)
