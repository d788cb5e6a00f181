"""Facts about the cluster: the entries of the metadata log, and their bytes.

A tag names a fact for ever. A new field goes to the end and has a default; new facts and new fields
are written only at a level of `metadata.version` that knows them (see `levels`).

As bytes: one byte of format version, then the fact as a MessagePack row.

01 │ 93 ad "topic_created" a6 "orders" c4 10 <16 bytes of topic id>
└ format version 1
"""

from collections.abc import Iterator
from typing import ClassVar, TypeAlias, get_args

import msgspec

from penstock.core.metadata.access import (
    AclBinding,
    ApiKey,
    QuotaEntity,
    ScramCredential,
    ScramMechanism,
    entity_of,
)
from penstock.core.metadata.image import (
    NO_BROKER,
    NO_BROKER_EPOCH,
    Broker,
    ConfigResourceType,
    MetadataImage,
    Partition,
)
from penstock.core.metadata.levels import (
    ACCESS_LEVEL,
    HIGHEST_LEVEL,
    METADATA_VERSION,
    LevelTooHigh,
    StoredStruct,
    has_newer_fields,
    stored_row,
)
from penstock.core.model import BrokerEpoch, CorruptionError, NodeId, ProducerId, TopicId, TopicName

FORMAT_VERSION = 1
_encoder = msgspec.msgpack.Encoder(uuid_format="bytes")
_VERSION = bytes((FORMAT_VERSION,))


class ClusterIdSet(StoredStruct, frozen=True, tag="cluster_id_set"):
    """The cluster exists and has an identity."""

    cluster_id: str


class FeatureLevelSet(StoredStruct, frozen=True, tag="feature_level_set"):
    """A feature is in use at this level; 0 takes it out of use."""

    name: str
    level: int


class BrokerRegistered(StoredStruct, frozen=True, tag="broker_registered"):
    """A broker started, under a new epoch; it replaces its earlier registration."""

    broker: Broker


class BrokerFenced(StoredStruct, frozen=True, tag="broker_fenced"):
    """A broker may not lead any more."""

    node_id: NodeId
    epoch: BrokerEpoch


class BrokerUnfenced(StoredStruct, frozen=True, tag="broker_unfenced"):
    """A broker may lead."""

    node_id: NodeId
    epoch: BrokerEpoch


class BrokerStopping(StoredStruct, frozen=True, tag="broker_stopping"):
    """A broker stops soon and is not elected any more; its next registration ends this."""

    node_id: NodeId
    epoch: BrokerEpoch


class BrokerDrained(StoredStruct, frozen=True, tag="broker_drained"):
    """An operator began or ended draining a broker; registrations do not change it."""

    node_id: NodeId
    drained: bool


class BrokerUnregistered(StoredStruct, frozen=True, tag="broker_unregistered"):
    """A broker left for good."""

    node_id: NodeId
    epoch: BrokerEpoch


class BrokerEpochReserved(StoredStruct, frozen=True, tag="broker_epoch_reserved"):
    """No epoch up to this one is used again; in snapshots only."""

    epoch: BrokerEpoch


class TopicCreated(StoredStruct, frozen=True, tag="topic_created"):
    """A topic exists, still without partitions."""

    name: TopicName
    id: TopicId


class TopicDeleted(StoredStruct, frozen=True, tag="topic_deleted"):
    """A topic, its partitions and its configuration are gone."""

    id: TopicId


class PartitionCreated(StoredStruct, frozen=True, tag="partition_created"):
    """A topic has one more partition."""

    topic_id: TopicId
    partition: Partition


class PartitionChanged(StoredStruct, frozen=True, tag="partition_changed"):
    """A partition has other replicas, another ISR or another leader: its whole new state."""

    topic_id: TopicId
    partition: Partition


class ConfigSet(StoredStruct, frozen=True, tag="config_set"):
    """One key of one resource has a value of its own."""

    kind: ConfigResourceType
    name: str
    key: str
    value: str


class ConfigRemoved(StoredStruct, frozen=True, tag="config_removed"):
    """One key of one resource follows the default again."""

    kind: ConfigResourceType
    name: str
    key: str


class ProducerIdsAllocated(StoredStruct, frozen=True, tag="producer_ids_allocated"):
    """The ids from `start` on, `count` of them, belong to one broker to hand out."""

    node_id: NodeId
    broker_epoch: BrokerEpoch
    start: ProducerId
    count: int


class AclCreated(StoredStruct, frozen=True, tag="acl_created"):
    """An access rule holds."""

    SINCE: ClassVar[int] = ACCESS_LEVEL

    acl: AclBinding


class AclDeleted(StoredStruct, frozen=True, tag="acl_deleted"):
    """An access rule does not hold any more."""

    SINCE: ClassVar[int] = ACCESS_LEVEL

    acl: AclBinding


class ScramCredentialSet(StoredStruct, frozen=True, tag="scram_credential_set"):
    """A user logs in with this password."""

    SINCE: ClassVar[int] = ACCESS_LEVEL

    credential: ScramCredential


class ScramCredentialRemoved(StoredStruct, frozen=True, tag="scram_credential_removed"):
    """A user does not log in with this mechanism any more."""

    SINCE: ClassVar[int] = ACCESS_LEVEL

    user: str
    mechanism: ScramMechanism


class ApiKeySet(StoredStruct, frozen=True, tag="api_key_set"):
    """A secret stands for a user."""

    SINCE: ClassVar[int] = ACCESS_LEVEL

    api_key: ApiKey


class ApiKeyRemoved(StoredStruct, frozen=True, tag="api_key_removed"):
    """A secret stands for nobody any more."""

    SINCE: ClassVar[int] = ACCESS_LEVEL

    id: str


class DelegationSecretSet(StoredStruct, frozen=True, tag="delegation_secret_set"):
    """What nodes sign with when one of them says who a client of its gateway is."""

    SINCE: ClassVar[int] = ACCESS_LEVEL

    secret: bytes

    def __repr__(self) -> str:
        return "DelegationSecretSet()"


class QuotaSet(StoredStruct, frozen=True, tag="quota_set"):
    """A client has a limit."""

    SINCE: ClassVar[int] = ACCESS_LEVEL

    entity: QuotaEntity
    key: str
    value: float


class QuotaRemoved(StoredStruct, frozen=True, tag="quota_removed"):
    """A client does not have this limit any more."""

    SINCE: ClassVar[int] = ACCESS_LEVEL

    entity: QuotaEntity
    key: str


Fact: TypeAlias = (
    ClusterIdSet
    | FeatureLevelSet
    | BrokerRegistered
    | BrokerFenced
    | BrokerUnfenced
    | BrokerStopping
    | BrokerDrained
    | BrokerUnregistered
    | BrokerEpochReserved
    | TopicCreated
    | TopicDeleted
    | PartitionCreated
    | PartitionChanged
    | ConfigSet
    | ConfigRemoved
    | ProducerIdsAllocated
    | AclCreated
    | AclDeleted
    | ScramCredentialSet
    | ScramCredentialRemoved
    | ApiKeySet
    | ApiKeyRemoved
    | DelegationSecretSet
    | QuotaSet
    | QuotaRemoved
)
_decoder: msgspec.msgpack.Decoder[Fact] = msgspec.msgpack.Decoder(Fact)
_with_newer_fields = tuple(kind for kind in get_args(Fact) if has_newer_fields(kind))


def encode_fact(fact: Fact) -> bytes:
    row = stored_row(fact) if isinstance(fact, _with_newer_fields) else fact
    return _VERSION + _encoder.encode(row)


def decode_fact(content: bytes | bytearray | memoryview) -> Fact:
    """The fact in `content`; CorruptionError if it is none that this version knows.

    An unknown fact must not be skipped: the image would silently differ from those of the
    other nodes from there on. Facts of a newer version come after the one that raises the level:
    LevelTooHigh, which is no damage.
    """
    view = memoryview(content)
    if len(view) == 0:
        raise CorruptionError("an empty entry is not a metadata fact")
    if view[0] != FORMAT_VERSION:
        raise CorruptionError(f"metadata fact has format version {view[0]}, this node reads {FORMAT_VERSION}")
    try:
        fact = _decoder.decode(view[1:])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptionError(f"not a metadata fact that this node knows: {error}") from None
    if isinstance(fact, FeatureLevelSet) and fact.name == METADATA_VERSION and fact.level > HIGHEST_LEVEL:
        raise LevelTooHigh(fact.level)
    return fact


def snapshot(image: MetadataImage) -> Iterator[Fact]:
    """Facts that make `image` out of nothing, always in the same order."""
    if image.cluster_id is not None:
        yield ClusterIdSet(image.cluster_id)
    for name, level in image.features.items():
        yield FeatureLevelSet(name, level)
    yield from _brokers(image)
    for topic in image.each_topic():
        yield TopicCreated(topic.name, topic.id)
        for partition in topic.partitions:
            yield PartitionCreated(topic.id, partition)
    for resource, values in image.configs.in_order():
        for key, value in values.items():
            yield ConfigSet(resource.kind, resource.name, key, value)
    if image.next_producer_id:
        yield ProducerIdsAllocated(NO_BROKER, NO_BROKER_EPOCH, image.next_producer_id, 0)
    yield from _access(image)


def _access(image: MetadataImage) -> Iterator[Fact]:
    for _, credential in image.credentials.in_order():
        yield ScramCredentialSet(credential)
    for _, api_key in image.api_keys.in_order():
        yield ApiKeySet(api_key)
    if image.delegation_secret:
        yield DelegationSecretSet(image.delegation_secret)
    for acl, _ in image.acls.in_order():
        yield AclCreated(acl)
    for key, limits in image.quotas.in_order():
        for name, value in limits.items():
            yield QuotaSet(entity_of(key), name, value)


def _brokers(image: MetadataImage) -> Iterator[Fact]:
    brokers = image.each_broker()
    for broker in brokers:
        yield BrokerRegistered(broker)
    # An unregistered broker may have had the highest epoch: it must not be used again.
    if image.last_broker_epoch > max((broker.epoch for broker in brokers), default=NO_BROKER_EPOCH):
        yield BrokerEpochReserved(image.last_broker_epoch)
