"""Settings of brokers about the node itself: identity, listeners, limits, replication."""

from penstock.core.metadata.configs.checks import at_least, list_of
from penstock.core.metadata.configs.definition import (
    INT32_MAX,
    ConfigDefinition,
    ConfigType,
    Update,
)

BOOLEAN, STRING, INT, LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
LIST, PASSWORD = ConfigType.LIST, ConfigType.PASSWORD


def _about(name: str, kind: ConfigType, default: str | None, about: str) -> ConfigDefinition:
    """A setting that is shown; the node's own configuration file is where it is changed."""
    return ConfigDefinition(name, kind, default, about)


def _number(name: str, default: int, about: str, lowest: int = 1) -> ConfigDefinition:
    return ConfigDefinition(name, INT, str(default), about, at_least(lowest))


def _fixed(name: str, kind: ConfigType, default: str | None, about: str, reason: str) -> ConfigDefinition:
    return ConfigDefinition(name, kind, default, about, fixed=reason)


_OPEN = "nobody is asked who they are so far"
_ONE_LOOP = "a node has one event loop"
_NO_LIMIT = "connections are not counted so far"

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
    _about("log.dir", STRING, None, "Directory that holds the logs."),
    _about("log.dirs", STRING, None, "Directories that hold the logs; a node has one."),
    _about("controller.quorum.voters", LIST, "", "Voters of the metadata quorum, as id@host:port."),
    _about("controller.listener.names", LIST, "PEER", "Listeners of the metadata quorum."),
)

NETWORK = (
    _about("listeners", LIST, None, "Where the node listens."),
    _about("advertised.listeners", LIST, None, "Where clients are told to connect."),
    _about("listener.security.protocol.map", LIST, None, "Which listener speaks which security protocol."),
    _about("inter.broker.listener.name", STRING, "PEER", "Listener over which brokers talk to each other."),
    _fixed("num.network.threads", INT, "1", "Event loops that serve connections; a node has one.", _ONE_LOOP),
    _fixed("num.io.threads", INT, "1", "Threads that serve requests; a node has one.", _ONE_LOOP),
    _number("socket.request.max.bytes", 100 << 20, "Largest request that is read."),
    _fixed("max.connections", INT, str(INT32_MAX), "Connections that a node accepts.", _NO_LIMIT),
    _fixed(
        "max.connections.per.ip", INT, str(INT32_MAX), "Connections that one address may open.", _NO_LIMIT
    ),
    ConfigDefinition(
        "connections.max.idle.ms", LONG, "600000", "Silence after which a connection is closed.", at_least(1)
    ),
    _number("max.incremental.fetch.session.cache.slots", 1_000, "Fetch sessions that are remembered.", 0),
    _number("fetch.max.bytes", 55 << 20, "Most that one fetch returns.", 1_024),
)

REPLICATION = (
    ConfigDefinition(
        "replica.lag.time.max.ms", LONG, "30000", "Lag after which a replica leaves the ISR.", at_least(1)
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
        "How often preferred leadership is looked at.",
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
        update=Update.CLUSTER_WIDE,
    ),
    _number("broker.session.timeout.ms", 2_000, "Silence after which a broker is fenced."),
    _number("broker.heartbeat.interval.ms", 500, "How often a broker reports to the controller."),
    _fixed(
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
        "Whether the broker leads only what nobody else can, and gets no new replicas.",
        update=Update.PER_BROKER,
    ),
    _fixed(
        "remote.log.storage.system.enable",
        BOOLEAN,
        "false",
        "Whether the node has remote storage for old segments.",
        "there is none so far",
    ),
)

SECURITY = (
    _fixed(
        "authorizer.class.name", STRING, "", "What decides who may do what; empty allows everything.", _OPEN
    ),
    _fixed("super.users", STRING, None, "Principals that may do everything.", _OPEN),
    _fixed("sasl.enabled.mechanisms", LIST, "", "Ways to log in that are offered.", _OPEN),
    ConfigDefinition(
        "sasl.kerberos.min.time.before.relogin",
        LONG,
        "60000",
        "Time between two logins with Kerberos, which this node does not offer; taken as Kafka takes it.",
        update=Update.PER_BROKER,
    ),
    ConfigDefinition(
        "ssl.client.auth",
        STRING,
        "none",
        "Whether clients must show a certificate.",
        update=Update.PER_BROKER,
        fixed=_OPEN,
    ),
    _fixed("ssl.keystore.location", STRING, None, "File with the node's certificate and key.", _OPEN),
    _fixed("ssl.keystore.password", PASSWORD, None, "Password of that file.", _OPEN),
    _fixed("ssl.key.password", PASSWORD, None, "Password of the private key.", _OPEN),
    _fixed("ssl.truststore.location", STRING, None, "File with the certificates that are trusted.", _OPEN),
    _fixed("ssl.truststore.password", PASSWORD, None, "Password of that file.", _OPEN),
)

NODE_SETTINGS = (*IDENTITY, *NETWORK, *REPLICATION, *SECURITY)
