"""The configuration of brokers: defaults of topics, the node's own settings, groups and transactions."""

from penstock.core.ip_address import canonical_address
from penstock.core.metadata.configs.definition import (
    INT16_MAX,
    INT32_MAX,
    Check,
    ConfigDefinition,
    ConfigSynonym,
    ConfigType,
    ConfigValue,
    DynamicUpdateMode,
    at_least,
    at_least_or_auto,
    between,
    level,
    list_of,
    one_of,
    some_of,
)
from penstock.core.metadata.configs.group import DELIVERIES_MAX, LEASE_MS_MAX, WINDOW_LIMITS
from penstock.core.metadata.configs.topic import (
    COMPRESSION_TYPES,
    DAY_MS,
    HOUR_MS,
    INDEX_BYTES_MAX,
    INDEX_BYTES_MIN,
    INDEX_INTERVAL_BYTES_MAX,
    MESSAGE_BYTES_MAX,
    MESSAGE_BYTES_MIN,
    MINUTE_MS,
    NEVER,
    SEGMENT_BYTES_MIN,
    TOPIC_CONFIGS,
)

BOOLEAN, STRING, INT, LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
# Kafka's names of the classes; the second is what Kafka does without a value.
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
PARTITIONS_MAX = 100_000
REPLICAS_MAX = INT16_MAX
# They are one entry of the metadata log.
COMMAND_PARTITIONS_MAX = 10_000
# Work that goes through all logs, or all groups: more often, and the node would do nothing else.
PERIOD_MS_MIN = 100
# A follower that has everything asks twice a second.
LAG_MS_MIN = 1_000
# Clients are told the interval, and send so many requests.
HEARTBEAT_MS_MIN = 10
SESSION_MS_MIN = 100
# It has to fit into a record of the offsets topic.
OFFSET_METADATA_CHARS_MAX = 1 << 16
LIST, PASSWORD = ConfigType.LIST, ConfigType.PASSWORD
_PEM_FILES = "certificates and keys are PEM files, named by security.tls.certificate, key and authority"
# Kafka's name of the class that judges as ours does.
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_ONE_LOOP = "a node has one event loop"
# Clients send batches of up to a megabyte without being asked.
REQUEST_BYTES_MIN = 2 << 20
CONNECTIONS_MIN = 100
ADDRESS_CONNECTIONS_MIN = 10
IDLE_MS_MIN = 1_000
INTERNAL_PARTITIONS_MAX = 10_000
QUEUE_WINDOW_MAX = 10_000
_ALWAYS_VERIFIED = "a transaction that is not verified can stop its readers for ever"
_MIN_ISR = "the transaction topic follows min.insync.replicas as every other does"


def connection_overrides(value: str) -> dict[str, int]:
    """The value of `max.connections.per.ip.overrides`: how many connections each of these addresses may open.

    Raises ValueError if it is something else. An IPv6 address has colons of its own: the last one counts.
    """
    pairs = (item.strip().rpartition(":") for item in value.split(",") if item.strip())
    overrides = {canonical_address(address.strip("[]")): int(number) for address, _, number in pairs}
    if "" in overrides or any(number < 0 for number in overrides.values()):
        raise ValueError(value)
    return overrides


def connection_overrides_problem(value: ConfigValue) -> str | None:
    try:
        connection_overrides(str(value))
    except ValueError:
        return "must be a list of address:number"
    return None


def _shared(
    name: str,
    kind: ConfigType,
    default: str | None,
    about: str,
    check: Check | None = None,
    *others: ConfigSynonym,
) -> ConfigDefinition:
    """A setting that can be changed for the whole cluster at once."""
    return ConfigDefinition(
        name, kind, default, about, check, DynamicUpdateMode.CLUSTER_WIDE, synonyms=others
    )


def _unchangeable(name: str, topics: str, about: str) -> ConfigDefinition:
    """A key that is fixed for topics too, for the reason given there."""
    topic = TOPIC_CONFIGS[topics]
    return ConfigDefinition(
        name, topic.type, topic.default, about, None, DynamicUpdateMode.CLUSTER_WIDE, fixed=topic.fixed
    )


def _fixed(
    name: str, kind: ConfigType, default: str | None, about: str, check: Check | None = None
) -> ConfigDefinition:
    """A setting that needs a restart to change."""
    return ConfigDefinition(name, kind, default, about, check)


NEW_TOPICS = (
    _fixed(
        "num.partitions",
        INT,
        "6",
        "Partitions of a topic that is created without a number.",
        between(1, PARTITIONS_MAX),
    ),
    _fixed(
        "default.replication.factor",
        INT,
        "-1",
        "Replicas of a topic that is created without a number; -1 is the smaller of 3 and all brokers.",
        at_least_or_auto(1, REPLICAS_MAX),
    ),
    _fixed(
        "auto.create.topics.enable", BOOLEAN, "true", "Whether asking for an unknown topic can create it."
    ),
    _fixed(
        "auto.create.topics.per.second",
        INT,
        "20",
        "Topics per second that a node creates because clients ask for them, and half of that for one "
        "address; who asks for more is told to try again (LEADER_NOT_AVAILABLE).",
        at_least(1),
    ),
    _fixed(
        "auto.create.topics.burst",
        INT,
        "200",
        "How many topics can be created at once that way, after a pause, and half of that for one address.",
        at_least(2),
    ),
    _shared(
        "create.partitions.max",
        INT,
        "2000",
        "Partitions that one CreateTopics or CreatePartitions may give a topic at once; a topic that shall "
        "have more gets them by several. Every broker applies all of them in one step.",
        between(1, COMMAND_PARTITIONS_MAX),
    ),
    _shared(
        "max.broker.partitions",
        INT,
        "20000",
        "Replicas that a broker may have; topics and partitions that would bring it more are refused. Those "
        "of reassignments and of internal topics count, and are never refused.",
        between(1, PARTITIONS_MAX),
    ),
    _fixed("delete.topic.enable", BOOLEAN, "true", "Whether topics can be deleted at all."),
)
RETENTION = (
    _shared(
        "log.retention.ms",
        LONG,
        None,
        "Age above which segments are deleted, in milliseconds; -1 is no limit.",
        at_least_or_auto(1),
        ConfigSynonym("log.retention.minutes", MINUTE_MS),
        ConfigSynonym("log.retention.hours", HOUR_MS),
    ),
    _fixed(
        "log.retention.minutes",
        INT,
        None,
        "The same in minutes, where milliseconds are not set.",
        at_least_or_auto(1),
    ),
    _fixed(
        "log.retention.hours",
        INT,
        "168",
        "The same in hours, where neither of the others is set.",
        at_least_or_auto(1),
    ),
    _shared(
        "log.retention.bytes",
        LONG,
        "-1",
        "Size of a partition above which its oldest segments are deleted; -1 is no limit.",
        at_least(-1),
    ),
    _fixed(
        "log.retention.check.interval.ms",
        LONG,
        "300000",
        "How often segments are checked for retention.",
        at_least(PERIOD_MS_MIN),
    ),
    _shared(
        "log.cleanup.policy",
        ConfigType.LIST,
        "delete",
        "What happens to old records of topics that do not say: delete, compact, or both.",
        list_of("compact", "delete"),
    ),
    _shared(
        "log.segment.delete.delay.ms",
        LONG,
        "0",
        "How long the files of a deleted segment stay on disk.",
        at_least(0),
    ),
    _unchangeable(
        "log.local.retention.ms", "local.retention.ms", "Age limit on the local disk of tiered topics."
    ),
    _unchangeable(
        "log.local.retention.bytes", "local.retention.bytes", "Size limit on the local disk of tiered topics."
    ),
)
COMPACTION = (
    _fixed("log.cleaner.enable", BOOLEAN, "true", "Whether compaction runs."),
    _fixed(
        "log.cleaner.backoff.ms",
        LONG,
        "15000",
        "How often logs are checked for compaction.",
        at_least(PERIOD_MS_MIN),
    ),
    _shared(
        "log.cleaner.delete.retention.ms",
        LONG,
        str(DAY_MS),
        "How long tombstones outlive compaction.",
        at_least(0),
    ),
    _shared(
        "log.cleaner.min.cleanable.ratio",
        ConfigType.DOUBLE,
        "0.5",
        "Share of a log that must be uncompacted before it is compacted.",
        between(0, 1),
    ),
    _shared(
        "log.cleaner.min.compaction.lag.ms",
        LONG,
        "0",
        "How long a record is safe from compaction.",
        at_least(0),
    ),
    _shared(
        "log.cleaner.max.compaction.lag.ms",
        LONG,
        NEVER,
        "How long a record may wait for compaction.",
        at_least(1),
    ),
)
SCRUBBING = (
    _fixed(
        "log.scrub.bytes.per.second",
        LONG,
        str(2 << 20),
        "How fast segments are verified in the background; 0 switches that off.",
        at_least(0),
    ),
    _fixed(
        "log.scrub.interval.ms",
        LONG,
        str(7 * DAY_MS),
        "How often every segment is verified.",
        at_least(PERIOD_MS_MIN),
    ),
    ConfigDefinition(
        "log.scrub.requested.ms",
        LONG,
        "0",
        "A time in milliseconds: if the broker's last scrub began before it, the next one begins at once.",
        at_least(0),
        update=DynamicUpdateMode.PER_BROKER,
    ),
    ConfigDefinition(
        "log.quarantine.drop.before.ms",
        LONG,
        "0",
        "A time in milliseconds: what went to the broker's quarantines before it is removed.",
        at_least(0),
        update=DynamicUpdateMode.PER_BROKER,
    ),
)
SEGMENTS = (
    _shared(
        "log.segment.bytes",
        INT,
        str(1 << 30),
        "Size at which a log starts a new segment file.",
        at_least(SEGMENT_BYTES_MIN),
    ),
    _shared(
        "log.roll.ms",
        LONG,
        None,
        "Age at which a segment is closed, in milliseconds; less than a second counts as a second.",
        at_least(1),
        ConfigSynonym("log.roll.hours", HOUR_MS),
    ),
    _fixed("log.roll.hours", INT, "168", "The same in hours, where milliseconds are not set.", at_least(1)),
    _shared(
        "log.roll.jitter.ms",
        LONG,
        None,
        "Up to how much earlier a segment is closed, in milliseconds.",
        at_least(0),
        ConfigSynonym("log.roll.jitter.hours", HOUR_MS),
    ),
    _fixed(
        "log.roll.jitter.hours", INT, "0", "The same in hours, where milliseconds are not set.", at_least(0)
    ),
    _shared(
        "log.index.size.max.bytes",
        INT,
        str(10 << 20),
        "Size to which an index may grow.",
        between(INDEX_BYTES_MIN, INDEX_BYTES_MAX),
    ),
    _shared(
        "log.index.interval.bytes",
        INT,
        "4096",
        "Log bytes between two entries of the offset index.",
        between(1, INDEX_INTERVAL_BYTES_MAX),
    ),
    _shared(
        "log.encryption.at.rest",
        BOOLEAN,
        "false",
        "Whether record batches are encrypted on disk; true where `security.encryption` is enabled.",
    ),
    _unchangeable("log.preallocate", "preallocate", "Whether new segment files get their full size at once."),
    _shared(
        "log.flush.interval.messages",
        LONG,
        NEVER,
        "Records after which a log is forced to disk.",
        at_least(1),
    ),
    _shared(
        "log.flush.interval.ms",
        LONG,
        None,
        "Time after which written records are forced to disk.",
        at_least(0),
        ConfigSynonym("log.flush.scheduler.interval.ms"),
    ),
    _fixed(
        "log.flush.scheduler.interval.ms",
        LONG,
        NEVER,
        "How often logs are checked for the time above.",
        at_least(0),
    ),
)
RECORDS = (
    _shared(
        "message.max.bytes",
        INT,
        str((1 << 20) + 12),
        "Largest batch that is accepted.",
        between(MESSAGE_BYTES_MIN, MESSAGE_BYTES_MAX),
    ),
    _shared(
        "compression.type",
        STRING,
        "producer",
        "Codec in which batches are kept; `producer` keeps what arrives.",
        one_of(*COMPRESSION_TYPES),
    ),
    _shared("compression.gzip.level", INT, "-1", "Effort of gzip.", level(1, 9)),
    _shared("compression.lz4.level", INT, "9", "Effort of lz4.", between(1, 17)),
    _shared("compression.zstd.level", INT, "3", "Effort of zstd.", between(-131072, 22)),
    _shared(
        "log.message.timestamp.type",
        STRING,
        "CreateTime",
        "Whose clock stamps records: CreateTime or LogAppendTime.",
        one_of("CreateTime", "LogAppendTime"),
    ),
    _shared(
        "log.message.timestamp.before.max.ms",
        LONG,
        NEVER,
        "How far timestamps may lie in the past.",
        at_least(0),
    ),
    _shared(
        "log.message.timestamp.after.max.ms",
        LONG,
        str(HOUR_MS),
        "How far timestamps may lie in the future.",
        at_least(0),
    ),
    _shared("min.insync.replicas", INT, "1", "In-sync replicas that acks=all needs.", at_least(1)),
    _shared(
        "unclean.leader.election.enable",
        BOOLEAN,
        "false",
        "Whether a replica that may miss records can lead when no other is left.",
    ),
)
LOG_SETTINGS = (*NEW_TOPICS, *RETENTION, *COMPACTION, *SCRUBBING, *SEGMENTS, *RECORDS)


def _about(name: str, kind: ConfigType, default: str | None, about: str) -> ConfigDefinition:
    """A setting that is shown; the node's own configuration file is where it is changed."""
    return ConfigDefinition(name, kind, default, about)


def _number(name: str, default: int, about: str, lowest: int = 1) -> ConfigDefinition:
    return ConfigDefinition(name, INT, str(default), about, at_least(lowest))


def _fixed_node_setting(
    name: str, kind: ConfigType, default: str | None, about: str, reason: str
) -> ConfigDefinition:
    return ConfigDefinition(name, kind, default, about, fixed=reason)


IDENTITY = (
    ConfigDefinition("node.id", INT, None, "Number of this node.", at_least(0)),
    ConfigDefinition("broker.id", INT, None, "The same number, under its old name.", at_least(0)),
    ConfigDefinition("broker.rack", STRING, None, "Where the node stands; replicas are spread over racks."),
    ConfigDefinition(
        "process.roles",
        LIST,
        "broker,controller",
        "What the node does: serve clients, take part in the metadata quorum, or both.",
        list_of("broker", "controller"),
    ),
    _about("log.dir", LIST, None, "Directory that holds the logs."),
    _about("log.dirs", LIST, None, "Directories that hold the logs; a node has one."),
    _about("controller.quorum.voters", LIST, "", "Voters of the metadata quorum, as id@host:port."),
    _about("controller.listener.names", LIST, "PEER", "Listeners of the metadata quorum."),
)
NETWORK = (
    _about("listeners", LIST, None, "Where the node listens."),
    _about("advertised.listeners", LIST, None, "Addresses that are advertised to clients."),
    _about("listener.security.protocol.map", STRING, None, "Which listener speaks which security protocol."),
    _about("inter.broker.listener.name", STRING, "PEER", "Listener over which brokers talk to each other."),
    _fixed_node_setting(
        "num.network.threads", INT, "1", "Event loops that serve connections; a node has one.", _ONE_LOOP
    ),
    _fixed_node_setting(
        "num.io.threads", INT, "1", "Threads that serve requests; a node has one.", _ONE_LOOP
    ),
    _number("socket.request.max.bytes", 100 << 20, "Largest request that is read.", REQUEST_BYTES_MIN),
    # An administrator has to get in to change them again.
    _shared(
        "max.connections",
        INT,
        "10000",
        "Connections that a node accepts on all Kafka listeners together.",
        at_least(CONNECTIONS_MIN),
    ),
    _shared(
        "max.connections.per.ip",
        INT,
        str(INT32_MAX),
        "Connections that one address may open.",
        at_least(ADDRESS_CONNECTIONS_MIN),
    ),
    _fixed(
        "max.connections.per.ip.overrides",
        STRING,
        "",
        "The same for single addresses, as address:number,address:number.",
        connection_overrides_problem,
    ),
    _shared(
        "max.connection.creation.rate",
        INT,
        str(INT32_MAX),
        "Connections that a node accepts per second; more wait in the kernel's queue.",
        at_least(ADDRESS_CONNECTIONS_MIN),
    ),
    ConfigDefinition(
        "connections.max.idle.ms",
        LONG,
        "600000",
        "Silence after which a connection is closed.",
        at_least(IDLE_MS_MIN),
    ),
    _number("max.incremental.fetch.session.cache.slots", 1_000, "Fetch sessions that are remembered.", 0),
    _number(
        "max.incremental.fetch.session.cache.partitions",
        100_000,
        "Partitions that all fetch sessions have together; half of them may belong to one address.",
        2,
    ),
    _number(
        "max.waiting.fetch.partitions",
        100_000,
        "Partitions that all waiting fetches wait for together; half of them may belong to one address. "
        "A fetch that finds no room, or gives way to others, is answered with what there is.",
        2,
    ),
    _fixed_node_setting(
        "telemetry.max.bytes",
        INT,
        str(1 << 20),
        "Most that a client pushes of its metrics at once.",
        "what clients push is bounded",
    ),
    _number("fetch.max.bytes", 55 << 20, "Most that one fetch returns.", 1_024),
)
REPLICATION = (
    ConfigDefinition(
        "replica.lag.time.max.ms",
        LONG,
        "30000",
        "Lag after which a replica leaves the ISR.",
        at_least(LAG_MS_MIN),
    ),
    _shared(
        "replica.selector.class",
        STRING,
        RACK_AWARE_SELECTOR,
        "Which replica serves consumers that name their rack: one in that rack, or the leader.",
        one_of(RACK_AWARE_SELECTOR, LEADER_SELECTOR),
    ),
    _number("replica.fetch.max.bytes", 1 << 20, "Bytes of one partition in one fetch between brokers.", 0),
    ConfigDefinition(
        "auto.leader.rebalance.enable",
        BOOLEAN,
        "true",
        "Whether leadership returns to preferred replicas by itself.",
    ),
    ConfigDefinition(
        "leader.imbalance.check.interval.seconds",
        LONG,
        "300",
        "How often preferred leadership is checked.",
        at_least(1),
    ),
    _number(
        "leader.imbalance.per.broker.percentage",
        10,
        "Share of leaderships that a broker may miss before they return to it.",
        0,
    ),
    ConfigDefinition(
        "leader.replication.throttled.rate",
        LONG,
        str(2**63 - 1),
        "Bytes per second that a broker sends to replicas which are not in sync.",
        at_least(1),
        update=DynamicUpdateMode.CLUSTER_WIDE,
    ),
    _number("broker.session.timeout.ms", 2_000, "Silence after which a broker is fenced."),
    _number("broker.heartbeat.interval.ms", 500, "How often a broker reports to the controller."),
    _fixed_node_setting(
        "controlled.shutdown.enable",
        BOOLEAN,
        "true",
        "Whether a stopping node hands over its leadership.",
        "a node always does if it is given the time",
    ),
    ConfigDefinition(
        "broker.drained",
        BOOLEAN,
        "false",
        "Whether the broker leads only what no other broker can, and gets no new replicas.",
        update=DynamicUpdateMode.PER_BROKER,
    ),
    _fixed_node_setting(
        "remote.log.storage.system.enable",
        BOOLEAN,
        "false",
        "Whether the node has remote storage for old segments.",
        "there is none so far",
    ),
)
SECURITY = (
    _fixed("authorizer.class.name", STRING, "", "What decides who may do what; empty allows everything."),
    _fixed("super.users", STRING, "", "Principals that may do everything, with semicolons between them."),
    _fixed("sasl.enabled.mechanisms", LIST, "", "Ways to log in that listeners with SASL offer."),
    _fixed(
        "connections.max.reauth.ms",
        LONG,
        "0",
        "Time after which a client has to log in again; 0 is never.",
        at_least(0),
    ),
    ConfigDefinition(
        "sasl.kerberos.min.time.before.relogin",
        LONG,
        "60000",
        "Time between two logins with Kerberos, which this node does not offer; taken as Kafka takes it.",
        update=DynamicUpdateMode.PER_BROKER,
    ),
    _fixed(
        "ssl.client.auth",
        STRING,
        "none",
        "Whether clients are asked for a certificate (requested), or must show one (required).",
        one_of("none", "requested", "required"),
    ),
    _fixed_node_setting(
        "ssl.keystore.location", STRING, None, "File with the node's certificate and key.", _PEM_FILES
    ),
    _fixed_node_setting("ssl.keystore.password", PASSWORD, None, "Password of that file.", _PEM_FILES),
    _fixed_node_setting("ssl.key.password", PASSWORD, None, "Password of the private key.", _PEM_FILES),
    _fixed_node_setting(
        "ssl.truststore.location", STRING, None, "File with the certificates that are trusted.", _PEM_FILES
    ),
    _fixed_node_setting("ssl.truststore.password", PASSWORD, None, "Password of that file.", _PEM_FILES),
)
NODE_SETTINGS = (*IDENTITY, *NETWORK, *REPLICATION, *SECURITY)


def _ms(name: str, default: int, about: str, lowest: int = 1) -> ConfigDefinition:
    return ConfigDefinition(name, INT, str(default), about, at_least(lowest))


def _fixed_group_setting(name: str, default: int, about: str, reason: str) -> ConfigDefinition:
    return ConfigDefinition(name, INT, str(default), about, fixed=reason)


def _count(name: str, default: int, about: str, check: Check) -> ConfigDefinition:
    return ConfigDefinition(name, INT, str(default), about, check)


def _lease(name: str, default: int, about: str) -> ConfigDefinition:
    return _count(name, default, about, between(1, LEASE_MS_MAX))


CLASSIC = (
    _ms(
        "group.initial.rebalance.delay.ms",
        100,
        "Wait for further members before a new group's first rebalance.",
        0,
    ),
    _ms(
        "group.min.session.timeout.ms",
        6_000,
        "Shortest session timeout that a classic member may ask for.",
        SESSION_MS_MIN,
    ),
    _ms(
        "group.max.session.timeout.ms",
        1_800_000,
        "Longest session timeout that a classic member may ask for.",
        SESSION_MS_MIN,
    ),
    _count("group.max.size", INT32_MAX, "Members that a classic group may have.", at_least(1)),
)
CONSUMER = (
    _ms(
        "group.consumer.session.timeout.ms",
        45_000,
        "Silence after which a member counts as gone.",
        SESSION_MS_MIN,
    ),
    _ms(
        "group.consumer.min.session.timeout.ms",
        1_000,
        "Lower bound of a group's session timeout.",
        SESSION_MS_MIN,
    ),
    _ms(
        "group.consumer.max.session.timeout.ms",
        60_000,
        "Upper bound of a group's session timeout.",
        SESSION_MS_MIN,
    ),
    _ms("group.consumer.heartbeat.interval.ms", 500, "How often members send a heartbeat.", HEARTBEAT_MS_MIN),
    _ms(
        "group.consumer.min.heartbeat.interval.ms",
        100,
        "Lower bound of a group's heartbeat interval.",
        HEARTBEAT_MS_MIN,
    ),
    _ms(
        "group.consumer.max.heartbeat.interval.ms",
        15_000,
        "Upper bound of a group's heartbeat interval.",
        HEARTBEAT_MS_MIN,
    ),
    _count("group.consumer.max.size", INT32_MAX, "Members that a consumer group may have.", at_least(1)),
    ConfigDefinition(
        "group.consumer.assignors",
        ConfigType.LIST,
        "uniform,range",
        "Ways to spread partitions that members can choose from; the first one is the default.",
        some_of("uniform", "range"),
    ),
    ConfigDefinition(
        "group.consumer.migration.policy",
        ConfigType.STRING,
        "bidirectional",
        "Whether a group may change between the classic and the consumer protocol while it has members.",
        one_of("bidirectional", "upgrade", "downgrade", "disabled"),
    ),
    ConfigDefinition(
        "group.coordinator.rebalance.protocols",
        ConfigType.LIST,
        "classic,consumer",
        "Group protocols that the coordinator speaks.",
        fixed="both are always spoken",
    ),
)
SHARE = (
    _ms(
        "group.share.session.timeout.ms",
        45_000,
        "Silence after which a share member counts as gone.",
        SESSION_MS_MIN,
    ),
    _ms(
        "group.share.min.session.timeout.ms",
        1_000,
        "Lower bound of a share group's session timeout.",
        SESSION_MS_MIN,
    ),
    _ms(
        "group.share.max.session.timeout.ms",
        60_000,
        "Upper bound of a share group's session timeout.",
        SESSION_MS_MIN,
    ),
    _ms(
        "group.share.heartbeat.interval.ms",
        500,
        "How often share members send a heartbeat.",
        HEARTBEAT_MS_MIN,
    ),
    _ms(
        "group.share.min.heartbeat.interval.ms",
        100,
        "Lower bound of a share group's heartbeat interval.",
        HEARTBEAT_MS_MIN,
    ),
    _ms(
        "group.share.max.heartbeat.interval.ms",
        15_000,
        "Upper bound of a share group's heartbeat interval.",
        HEARTBEAT_MS_MIN,
    ),
    _count("group.share.max.size", 200, "Members that a share group may have.", at_least(1)),
    _count("group.share.max.share.sessions", 2_000, "Share sessions that a node remembers.", at_least(1)),
    _lease("group.share.record.lock.duration.ms", 30_000, "How long a delivered record stays locked."),
    _lease("group.share.min.record.lock.duration.ms", 1_000, "Lower bound of a share group's lease."),
    _lease("group.share.max.record.lock.duration.ms", 3_600_000, "Upper bound of a share group's lease."),
    _count(
        "group.share.delivery.count.limit",
        4,
        "Deliveries of a record before it is given up.",
        between(1, DELIVERIES_MAX),
    ),
    _fixed_group_setting(
        "group.share.partition.max.record.locks",
        10_000,
        "Records of one partition that one group may have in flight.",
        WINDOW_LIMITS,
    ),
)
QUEUES = (
    _count(
        "group.queue.visibility.timeout.ms",
        30_000,
        "How long a record that was received from a queue stays leased to its consumer.",
        between(1, LEASE_MS_MAX),
    ),
    _count(
        "group.queue.retries.max",
        3,
        "Deliveries of a queue's record after the first before it is given up.",
        between(0, DELIVERIES_MAX - 1),
    ),
    ConfigDefinition(
        "group.queue.dead.letter.enable",
        ConfigType.BOOLEAN,
        "true",
        "Whether records that queues give up are moved to <topic>.dlq.",
    ),
    _count(
        "group.queue.backoff.ms",
        1_000,
        "How long a released record is not delivered; doubled with every further failure.",
        between(0, LEASE_MS_MAX),
    ),
    _count(
        "group.queue.backoff.max.ms",
        60_000,
        "The longest that a released record is not delivered, unless its consumer says so.",
        between(0, LEASE_MS_MAX),
    ),
    _count(
        "group.queue.window.max",
        10_000,
        "Records of a partition that a queue may have in flight or ready at a time.",
        between(1, QUEUE_WINDOW_MAX),
    ),
)
OFFSETS = (
    _count(
        "offset.metadata.max.bytes",
        4_096,
        "Largest metadata of a committed offset.",
        between(0, OFFSET_METADATA_CHARS_MAX),
    ),
    ConfigDefinition(
        "offsets.memory.max.bytes",
        LONG,
        str(256 << 20),
        "Memory for committed offsets on a node, about 400 bytes each and their metadata; once it is used, "
        "offsets can be moved, and those of partitions that a group had none of are refused.",
        at_least(1),
    ),
    ConfigDefinition(
        "offsets.metadata.memory.max.bytes",
        LONG,
        str(32 << 20),
        "Memory for the metadata of committed offsets on a node. An offset may have a 1,024th of what is "
        "left of it, and 128 bytes in any case.",
        at_least(1),
    ),
    ConfigDefinition(
        "group.metadata.memory.max.bytes",
        LONG,
        str(32 << 20),
        "Memory for groups and their members on a node; half of it for clients of one host, and half for "
        "share groups. Once it is used, new members that send more than 4 KB are refused, and once eight "
        "times as much is used, all new members.",
        at_least(1),
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
        at_least_or_auto(1, REPLICAS_MAX),
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
        "offsets.retention.check.interval.ms",
        LONG,
        "600000",
        "How often committed offsets are checked for expiry.",
        at_least(PERIOD_MS_MIN),
    ),
    _ms(
        "offsets.commit.timeout.ms",
        5_000,
        "How long a commit waits for the replicas of the offsets topic.",
        PERIOD_MS_MIN,
    ),
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
        at_least_or_auto(1, REPLICAS_MAX),
    ),
    _fixed_group_setting(
        "transaction.state.log.min.isr",
        2,
        "In-sync replicas the transaction topic needs.",
        _MIN_ISR,
    ),
    _ms("transaction.max.timeout.ms", 900_000, "Longest timeout that a transaction may ask for."),
    _ms("transactional.id.expiration.ms", 604_800_000, "How long an unused transactional id is remembered."),
    _ms("producer.id.expiration.ms", 86_400_000, "How long a silent idempotent producer is remembered."),
    _count(
        "producer.ids.max",
        100_000,
        "Idempotent producers that a node remembers, of all its partitions together; those that have not "
        "written for longest are forgotten, in the partitions that have the most.",
        at_least(1),
    ),
    ConfigDefinition(
        "transaction.partition.verification.enable",
        ConfigType.BOOLEAN,
        "true",
        "Whether a transaction's first write to a partition is checked with its coordinator.",
        fixed=_ALWAYS_VERIFIED,
    ),
)
GROUP_SETTINGS = (*CLASSIC, *CONSUMER, *SHARE, *QUEUES, *OFFSETS, *TRANSACTIONS)
