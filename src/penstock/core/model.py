"""The types everything else is written in: ids, instants, errors and the roots of exceptions.

Ids are distinct types so that a leader epoch cannot be passed where an offset is
meant. Ranges are half open and named `start` and `end`. A point in time is either an
`Instant` (monotonic nanoseconds, never stored) or a `Timestamp` (wall-clock
milliseconds, as Kafka records carry them); mixing them up is a type error.

An expected error is a value, `ApiError`, with one `ErrorKind` from one list for the whole
system. Each server owns one table from `ErrorKind` to its own code, and a test asserts that
every kind has a row in every table. Failures of the world (bytes that break a rule, storage
that failed or is corrupt) are exceptions under `PenstockError`. Bugs are failed asserts.

A `Decision` of a machine is facts plus a reply.

Left out: anything that one package alone uses.
"""

import enum
from typing import Generic, NamedTuple, NewType, TypeVar
from uuid import UUID

from penstock.core.values import dataclass

NodeId = NewType("NodeId", int)
BrokerEpoch = NewType("BrokerEpoch", int)
TopicName = NewType("TopicName", str)
TopicId = NewType("TopicId", UUID)
PartitionIndex = NewType("PartitionIndex", int)
Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
# Monotonic nanoseconds of one process: for deadlines and durations, never stored.
Instant = NewType("Instant", int)
# Wall-clock milliseconds since 1970, as Kafka records carry them: never for deadlines,
# because the wall clock jumps.
Timestamp = NewType("Timestamp", int)
MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000
Fact_co = TypeVar("Fact_co", covariant=True)
Reply_co = TypeVar("Reply_co", covariant=True)


class PenstockError(Exception):
    """Something outside this code's control went wrong."""


class Fault(enum.Enum):
    """Whose fault a protocol error is: decides who gets the error, and what is logged."""

    PEER = "peer"
    OURS = "ours"


class ProtocolError(PenstockError):
    """Bytes from (or for) the other side of a connection break the protocol."""

    def __init__(self, message: str, fault: Fault = Fault.PEER) -> None:
        super().__init__(message)
        self.fault = fault


class CorruptionError(PenstockError):
    """Bytes that were good once are not any more. Not an I/O error: retrying cannot help."""


class StorageError(PenstockError):
    """The disk failed; it is unknown whether the operation has happened."""


class TopicPartition(NamedTuple):
    """One partition of one topic, by name."""

    topic: TopicName
    partition: PartitionIndex

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


@dataclass(frozen=True, slots=True)
class Decision(Generic[Fact_co, Reply_co]):
    """What becomes true, and what to reply once it is durable.

    Deciding changes nothing: the host appends `facts`, applies them, and releases
    `reply` when the log end it saw at the decision is committed.
    """

    facts: tuple[Fact_co, ...]
    reply: Reply_co


class Now(NamedTuple):
    """The present on both clocks: deadlines are monotonic, what is stored is wall-clock time."""

    instant: Instant
    wall: Timestamp


class ErrorKind(enum.Enum):
    """What can be wrong, in words of the domain rather than of a protocol."""

    # Topics and configuration
    TOPIC_EXISTS = "topic exists already"
    UNKNOWN_TOPIC = "no such topic"
    UNKNOWN_TOPIC_ID = "no topic has this id"
    UNKNOWN_PARTITION = "no such partition"
    INVALID_TOPIC_NAME = "topic name is not allowed"
    INVALID_PARTITIONS = "number of partitions is not allowed"
    INVALID_REPLICATION_FACTOR = "replication factor is not possible"
    INVALID_ASSIGNMENT = "replica assignment is not possible"
    INVALID_CONFIG = "configuration is not valid"
    INVALID_REQUEST = "request is not valid"
    NO_REASSIGNMENT = "no reassignment is under way"
    TOPIC_DELETION_DISABLED = "topic cannot be deleted"
    UNKNOWN_BROKER = "no such broker"
    STALE_BROKER_EPOCH = "broker epoch is stale"
    INVALID_FEATURE_LEVEL = "feature level is not possible"
    INCONSISTENT_CLUSTER = "cluster id does not match"
    DUPLICATE_BROKER = "another broker is live under this id"
    NOT_CONTROLLER = "this node does not lead the metadata quorum"
    DUPLICATE_VOTER = "node votes already"
    VOTER_NOT_FOUND = "node is not a voter"
    QUORUM_BUSY = "the metadata quorum cannot take this now"

    # Leadership of partitions
    FENCED_LEADER_EPOCH = "leader epoch is stale"
    UNKNOWN_LEADER_EPOCH = "leader epoch is newer than what is known here"
    STALE_PARTITION_EPOCH = "partition has changed since"
    INELIGIBLE_REPLICA = "replica may not join the in-sync replicas"
    ELECTION_NOT_NEEDED = "partition has the leader it should have"
    PREFERRED_LEADER_NOT_AVAILABLE = "preferred replica cannot lead now"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = "no replica can lead now"

    # Records
    NOT_LEADER = "this node does not lead the partition"
    NOT_ENOUGH_REPLICAS = "too few replicas are in sync"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = "too few replicas were in sync after the append"
    CORRUPT_BATCH = "batch is damaged"
    UNSUPPORTED_FORMAT = "message format is older than magic 2"
    INVALID_RECORD = "a record is not valid"
    BATCH_TOO_LARGE = "batch is larger than the topic allows"
    INVALID_TIMESTAMP = "timestamp is too far from the broker's clock"
    OUT_OF_ORDER_SEQUENCE = "sequence does not follow the producer's last batch"
    PRODUCER_FENCED = "a newer instance of this producer has written already"
    PRODUCER_FORGOTTEN = "there were too many producers, and what this one wrote last is not known any more"
    STALE_COORDINATOR = "a newer transaction coordinator has written already"
    INVALID_TRANSACTION = "transaction is not in a state that allows it"
    TRANSACTION_ABORTABLE = "the transaction cannot go on; abort it and try again"
    CONCURRENT_TRANSACTIONS = "the transaction before is still being ended"
    UNKNOWN_PRODUCER = "this producer does not belong to the transactional id"
    UNKNOWN_TRANSACTIONAL_ID = "no such transactional id"
    INVALID_TRANSACTION_TIMEOUT = "transaction timeout is outside the allowed range"
    NOT_DELETABLE = "records of this topic are not deleted by offset"
    OFFSET_OUT_OF_RANGE = "offset lies outside of the log"
    OFFSET_NOT_AVAILABLE = "the new leader does not know yet how much is committed"
    DAMAGED_LOG = "the log is damaged there"
    STORAGE_FAILED = "the disk failed"
    TIMED_OUT = "request timed out"

    # Access
    INVALID_ACL = "access rule is not possible"
    UNKNOWN_CREDENTIAL = "the user has no such credential"
    INVALID_CREDENTIAL = "credential is not acceptable"
    UNKNOWN_API_KEY = "no such API key"
    ACCESS_LIMIT = "the cluster keeps no more of these"

    NOT_AUTHORIZED = "the caller may not do this"
    TRANSACTIONAL_ID_NOT_AUTHORIZED = "the caller may not use this transactional id"
    THROTTLED = "the caller asks too often"
    UNKNOWN_SUBSCRIPTION = "the client's metrics are not subscribed to in this way"
    TELEMETRY_TOO_LARGE = "client metrics are larger than the broker takes"
    UNSUPPORTED_COMPRESSION = "compression type is not known"

    # Groups
    UNKNOWN_GROUP = "no such group"
    UNKNOWN_MEMBER = "no such member"
    MEMBER_ID_REQUIRED = "a member joins with the id it was just given"
    ILLEGAL_GENERATION = "generation is not the current one"
    INCONSISTENT_PROTOCOL = "protocols have nothing in common with the group's"
    REBALANCE_IN_PROGRESS = "group is rebalancing"
    FENCED_INSTANCE = "another member took over this instance id"
    GROUP_FULL = "group has reached its size limit"
    GROUP_NOT_EMPTY = "group still has members"
    GROUP_SUBSCRIBED = "group is subscribed to the topic"
    INVALID_GROUP = "group id is not allowed"
    INVALID_SESSION_TIMEOUT = "session timeout is outside the allowed range"
    TOPIC_CREATION_LIMITED = "topics are created more slowly than they are asked for"
    TOO_MANY_OFFSETS = "the coordinator has no room for more committed offsets"
    OFFSET_METADATA_TOO_LARGE = "offset metadata is too large"
    OFFSETS_UNSTABLE = "a transaction may still change the offset"
    STALE_MEMBER_EPOCH = "member epoch is stale"
    FENCED_MEMBER_EPOCH = "member epoch is not the one the coordinator knows"
    NO_MEMBER_EPOCH = "members of consumer groups commit with OffsetCommit 9 and later"
    UNRELEASED_INSTANCE = "another member still has this instance id"
    UNSUPPORTED_ASSIGNOR = "assignor is not supported"
    INVALID_REGULAR_EXPRESSION = "regular expression is not valid"
    NOT_COORDINATOR = "this node does not coordinate the group"
    COORDINATOR_LOADING = "coordinator is reading its log"
    COORDINATOR_NOT_AVAILABLE = "there is no coordinator yet"

    # Queues
    INVALID_RECORD_STATE = "the record is not leased to this consumer, or not any more"


@dataclass(frozen=True, slots=True)
class ApiError:
    """What is wrong; `detail` is a sentence for the person who reads the error.

    `records` are the ones to blame, counted from 0 within their batch.
    """

    kind: ErrorKind
    detail: str = ""
    records: tuple[int, ...] = ()

    def __str__(self) -> str:
        return self.detail or self.kind.value
