"""Why something was refused: one list for the whole system.

A refusal is a value. Each gateway owns one table from `Why` to its own code, and a test
asserts that every reason has a row in every table.
"""

import enum
from dataclasses import dataclass


class Why(enum.Enum):
    """The reasons, in words of the domain rather than of a protocol."""

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
    INCONSISTENT_CLUSTER = "cluster is another one"
    DUPLICATE_BROKER = "another broker is live under this id"
    NOT_CONTROLLER = "this node does not lead the metadata quorum"
    DUPLICATE_VOTER = "node votes already"
    VOTER_NOT_FOUND = "node is no voter"
    QUORUM_BUSY = "the metadata quorum cannot take this now"

    # Leadership of partitions
    FENCED_LEADER_EPOCH = "leader epoch is an old one"
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
    STALE_COORDINATOR = "a newer transaction coordinator has written already"
    INVALID_TRANSACTION = "transaction is not in a state that allows it"
    NOT_DELETABLE = "records of this topic are not deleted by offset"
    OFFSET_OUT_OF_RANGE = "offset lies outside of the log"
    OFFSET_NOT_AVAILABLE = "the new leader does not know yet how much is committed"
    DAMAGED_LOG = "the log is damaged there"
    STORAGE_FAILED = "the disk failed"
    TIMED_OUT = "it took too long"

    NOT_AUTHORIZED = "the caller may not do this"

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
    OFFSET_METADATA_TOO_LARGE = "offset metadata is too large"
    OFFSETS_UNSTABLE = "a transaction may still change the offset"
    STALE_MEMBER_EPOCH = "member epoch is stale"
    NOT_COORDINATOR = "this node does not coordinate the group"
    COORDINATOR_LOADING = "coordinator is reading its log"
    COORDINATOR_NOT_AVAILABLE = "there is no coordinator yet"


@dataclass(frozen=True, slots=True)
class Refused:
    """No, and why; `detail` is a sentence for the person who reads the error.

    `records` are the ones to blame, counted from 0 within their batch.
    """

    why: Why
    detail: str = ""
    records: tuple[int, ...] = ()

    def __str__(self) -> str:
        return self.detail or self.why.value
