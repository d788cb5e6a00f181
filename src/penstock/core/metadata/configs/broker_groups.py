"""Settings of brokers about groups, offsets, transactions and queues."""

from penstock.core.metadata.configs.broker_log import INT, LONG
from penstock.core.metadata.configs.checks import at_least, at_least_or_auto, between
from penstock.core.metadata.configs.definition import (
    INT32_MAX,
    Check,
    ConfigDefinition,
    ConfigType,
)
from penstock.core.metadata.configs.group import NO_CONSUMER_GROUPS, NO_SHARE_GROUPS
from penstock.core.metadata.configs.topic import SEGMENT_BYTES_MIN

INTERNAL_PARTITIONS_MAX = 10_000

_NO_TRANSACTIONS = "there are no transactions so far"


def _ms(name: str, default: int, about: str, lowest: int = 1) -> ConfigDefinition:
    return ConfigDefinition(name, INT, str(default), about, at_least(lowest))


def _fixed(name: str, default: int, about: str, reason: str) -> ConfigDefinition:
    return ConfigDefinition(name, INT, str(default), about, fixed=reason)


def _count(name: str, default: int, about: str, check: Check) -> ConfigDefinition:
    return ConfigDefinition(name, INT, str(default), about, check)


CLASSIC = (
    _ms(
        "group.initial.rebalance.delay.ms",
        100,
        "Wait for further members before a new group's first turn.",
        0,
    ),
    _ms("group.min.session.timeout.ms", 6_000, "Shortest session timeout that a classic member may ask for."),
    _ms(
        "group.max.session.timeout.ms",
        1_800_000,
        "Longest session timeout that a classic member may ask for.",
    ),
    _count("group.max.size", INT32_MAX, "Members that a classic group may have.", at_least(1)),
)

CONSUMER = (
    _fixed(
        "group.consumer.session.timeout.ms",
        45_000,
        "Silence after which a member counts as gone.",
        NO_CONSUMER_GROUPS,
    ),
    _fixed(
        "group.consumer.min.session.timeout.ms",
        1_000,
        "Lower bound of a group's session timeout.",
        NO_CONSUMER_GROUPS,
    ),
    _fixed(
        "group.consumer.max.session.timeout.ms",
        60_000,
        "Upper bound of a group's session timeout.",
        NO_CONSUMER_GROUPS,
    ),
    _fixed(
        "group.consumer.heartbeat.interval.ms",
        500,
        "How often members are told to send a heartbeat.",
        NO_CONSUMER_GROUPS,
    ),
    _fixed(
        "group.consumer.min.heartbeat.interval.ms",
        100,
        "Lower bound of a group's heartbeat interval.",
        NO_CONSUMER_GROUPS,
    ),
    _fixed(
        "group.consumer.max.heartbeat.interval.ms",
        15_000,
        "Upper bound of a group's heartbeat interval.",
        NO_CONSUMER_GROUPS,
    ),
    _fixed(
        "group.consumer.max.size", INT32_MAX, "Members that a consumer group may have.", NO_CONSUMER_GROUPS
    ),
    ConfigDefinition(
        "group.consumer.assignors",
        ConfigType.LIST,
        "uniform,range",
        "Ways to spread partitions that members can choose from; the first one is the default.",
        fixed=NO_CONSUMER_GROUPS,
    ),
    ConfigDefinition(
        "group.consumer.migration.policy",
        ConfigType.STRING,
        "bidirectional",
        "Whether a group may change between the classic and the consumer protocol while it has members.",
        fixed=NO_CONSUMER_GROUPS,
    ),
    ConfigDefinition(
        "group.coordinator.rebalance.protocols",
        ConfigType.LIST,
        "classic",
        "Group protocols that the coordinator speaks.",
        fixed=NO_CONSUMER_GROUPS,
    ),
)

SHARE = (
    _fixed(
        "group.share.session.timeout.ms",
        45_000,
        "Silence after which a share member counts as gone.",
        NO_SHARE_GROUPS,
    ),
    _fixed(
        "group.share.min.session.timeout.ms",
        1_000,
        "Lower bound of a share group's session timeout.",
        NO_SHARE_GROUPS,
    ),
    _fixed(
        "group.share.max.session.timeout.ms",
        60_000,
        "Upper bound of a share group's session timeout.",
        NO_SHARE_GROUPS,
    ),
    _fixed(
        "group.share.heartbeat.interval.ms",
        500,
        "How often share members are told to send a heartbeat.",
        NO_SHARE_GROUPS,
    ),
    _fixed(
        "group.share.min.heartbeat.interval.ms",
        100,
        "Lower bound of a share group's heartbeat interval.",
        NO_SHARE_GROUPS,
    ),
    _fixed(
        "group.share.max.heartbeat.interval.ms",
        15_000,
        "Upper bound of a share group's heartbeat interval.",
        NO_SHARE_GROUPS,
    ),
    _fixed("group.share.max.size", 200, "Members that a share group may have.", NO_SHARE_GROUPS),
    _fixed(
        "group.share.record.lock.duration.ms",
        30_000,
        "How long a delivered record stays leased.",
        NO_SHARE_GROUPS,
    ),
    _fixed(
        "group.share.min.record.lock.duration.ms",
        1_000,
        "Lower bound of a share group's lease.",
        NO_SHARE_GROUPS,
    ),
    _fixed(
        "group.share.max.record.lock.duration.ms",
        3_600_000,
        "Upper bound of a share group's lease.",
        NO_SHARE_GROUPS,
    ),
    _fixed(
        "group.share.delivery.count.limit",
        4,
        "Deliveries of a record before it is given up.",
        NO_SHARE_GROUPS,
    ),
    _fixed(
        "group.share.partition.max.record.locks",
        2_000,
        "Records of one partition that one group may have in flight.",
        NO_SHARE_GROUPS,
    ),
)

OFFSETS = (
    _count(
        "offset.metadata.max.bytes",
        4_096,
        "Size of the note that may go with a committed offset.",
        at_least(0),
    ),
    _count(
        "offsets.topic.num.partitions",
        50,
        "Partitions of the offsets topic; they never change.",
        between(1, INTERNAL_PARTITIONS_MAX),
    ),
    _count(
        "offsets.topic.replication.factor",
        -1,
        "Replicas of the offsets topic; -1 is the smaller of 3 and the number of brokers.",
        at_least_or_auto(1),
    ),
    _count(
        "offsets.topic.segment.bytes",
        100 << 20,
        "Segment size of the offsets topic.",
        at_least(SEGMENT_BYTES_MIN),
    ),
    _count(
        "offsets.retention.minutes",
        10_080,
        "How long the offsets of an empty group are remembered.",
        at_least(1),
    ),
    ConfigDefinition(
        "offsets.retention.check.interval.ms", LONG, "600000", "How often they are looked at.", at_least(1)
    ),
    _ms("offsets.commit.timeout.ms", 5_000, "How long a commit waits for the replicas of the offsets topic."),
)

TRANSACTIONS = (
    _count(
        "transaction.state.log.num.partitions",
        50,
        "Partitions of the transaction topic; they never change.",
        between(1, INTERNAL_PARTITIONS_MAX),
    ),
    _count(
        "transaction.state.log.replication.factor",
        -1,
        "Replicas of the transaction topic; -1 is the smaller of 3 and the number of brokers.",
        at_least_or_auto(1),
    ),
    _fixed(
        "transaction.state.log.min.isr",
        2,
        "In-sync replicas the transaction topic needs.",
        _NO_TRANSACTIONS,
    ),
    _fixed(
        "transaction.max.timeout.ms",
        900_000,
        "Longest timeout that a transaction may ask for.",
        _NO_TRANSACTIONS,
    ),
    _fixed(
        "transactional.id.expiration.ms",
        604_800_000,
        "How long an unused transactional id is remembered.",
        _NO_TRANSACTIONS,
    ),
    _ms("producer.id.expiration.ms", 86_400_000, "How long a silent idempotent producer is remembered."),
    ConfigDefinition(
        "transaction.partition.verification.enable",
        ConfigType.BOOLEAN,
        "true",
        "Whether a transaction's first write to a partition is checked with its coordinator.",
        fixed=_NO_TRANSACTIONS,
    ),
)

GROUP_SETTINGS = (*CLASSIC, *CONSUMER, *SHARE, *OFFSETS, *TRANSACTIONS)
