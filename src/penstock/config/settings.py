"""The shape of `penstock.yaml`: one class per section, one described field per key."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from penstock.config.addresses import (
    NODE_ID_MAX,
    AddressOrAuto,
    ListenAddress,
    ListenerSetting,
    Protocol,
    VoterAddress,
)

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
KIBIBYTE = 1 << 10
MEBIBYTE = 1 << 20
GIBIBYTE = 1 << 30


class ConfigSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of the configuration: immutable, and closed to keys it does not know."""


Role = Literal["broker", "controller"]
PEER_DEFAULT = ListenAddress("127.0.0.1", 7000)


class NodeSettings(ConfigSection, frozen=True):
    """Who this node is."""

    id: Annotated[
        int,
        Meta(
            ge=0,
            le=NODE_ID_MAX,
            description="Number of this node, unique in the cluster. The name of a machine or a pod that "
            "ends with a number means that number: `node-1` is 1.",
        ),
    ] = 1
    data_dir: Annotated[
        str, Meta(min_length=1, description="Directory that holds everything the node keeps.")
    ] = "./penstock-data"
    roles: Annotated[
        tuple[Role, ...],
        Meta(
            min_length=1,
            description="What the node does: serve clients, take part in the metadata quorum, or both.",
        ),
    ] = ("broker", "controller")
    rack: Annotated[
        str,
        Meta(
            max_length=255,
            description="What the node shares its fate with, such as a rack or a zone: replicas of a "
            "partition are spread over racks, and consumers with the same `client.rack` read from the "
            "replica there. Empty is none.",
        ),
    ] = ""
    kafka_settings: Annotated[
        tuple[str, ...],
        Meta(
            description="Broker settings that have no key here, under Kafka's names, each as `name=value`; "
            "the same on every node. Values that were set while the cluster ran come first."
        ),
    ] = ()


class ListenSettings(ConfigSection, frozen=True):
    """Where the node listens; `:8080` means every interface, port 0 any free port."""

    kafka: Annotated[
        ListenAddress,
        Meta(description="Kafka protocol; the listener is called as `listen.protocol` says."),
    ] = ListenAddress("127.0.0.1", 9092)
    protocol: Annotated[
        Protocol,
        Meta(
            description="How clients of `listen.kafka` are protected: SSL is TLS, SASL is a login; the same "
            "on every node."
        ),
    ] = "PLAINTEXT"
    advertised: Annotated[
        AddressOrAuto,
        Meta(
            description="How clients of `listen.kafka` are told to reach this node; `auto` is the "
            "address they connected to, port 0 the port listened on."
        ),
    ] = "auto"
    listeners: Annotated[
        tuple[ListenerSetting, ...],
        Meta(
            description="More Kafka listeners, each with `name`, `protocol`, `bind` and `advertised`. "
            "Clients are sent back to the listener they came from."
        ),
    ] = ()
    http: Annotated[ListenAddress, Meta(description="REST, WebSocket and console.")] = ListenAddress(
        "127.0.0.1", 8080
    )
    grpc: Annotated[ListenAddress, Meta(description="gRPC.")] = ListenAddress("127.0.0.1", 9000)
    metrics: Annotated[ListenAddress, Meta(description="Prometheus metrics.")] = ListenAddress(
        "127.0.0.1", 9090
    )
    peer: Annotated[
        AddressOrAuto,
        Meta(
            description="Other nodes: replication and Raft. `auto` is this node's address in "
            f"`cluster.voters`, else {PEER_DEFAULT}; without voters nobody listens."
        ),
    ] = "auto"
    in_flight_bytes_max: Annotated[
        int,
        Meta(
            ge=2 << 20,
            le=INT64_MAX,
            description="Memory for requests that are not complete and answers that clients have not read, "
            "over all connections, half for each; while it is used up, no more requests are read.",
        ),
    ] = 512 << 20

    @property
    def kafka_listeners(self) -> tuple[ListenerSetting, ...]:
        """Every Kafka listener: that of `listen.kafka` first."""
        return (ListenerSetting(self.protocol, self.protocol, self.kafka, self.advertised), *self.listeners)


class ClusterSettings(ConfigSection, frozen=True):
    """Who belongs together."""

    voters: Annotated[
        tuple[VoterAddress, ...],
        Meta(
            description="Nodes that found a cluster and vote on its metadata, each as `id@host:port` "
            "with its peer address; the same list on every node. A node that has joined keeps to the "
            "members it knows. Empty is a cluster of this node alone."
        ),
    ] = ()
    report_grace_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=INT32_MAX,
            description="How long a partition without a leader waits for the reports of eligible replicas "
            "that are down, from the first report on. After that, one that restarted and noticed no loss "
            "may lead, and what another one has beyond its end is lost. The controller's value counts.",
        ),
    ] = 5_000
    session_timeout_ms: Annotated[
        int,
        Meta(
            ge=1_000,
            le=600_000,
            description="Silence after which this broker is fenced and others lead its partitions; cut off "
            "from the controller, it answers clients for no longer. The broker registers it when it starts.",
        ),
    ] = 2_000
    heartbeat_interval_ms: Annotated[
        int,
        Meta(
            ge=10,
            le=300_000,
            description="How often this broker reports to the controller; half of "
            "`cluster.session_timeout_ms` at most.",
        ),
    ] = 500


class FsyncSettings(ConfigSection, frozen=True):
    """When written bytes are forced to the disk."""

    mode: Annotated[
        Literal["every", "interval", "none"],
        Meta(
            description="`every` acknowledges only what is on disk (group commit); `interval` syncs in the "
            "background; `none` leaves it to the operating system."
        ),
    ] = "every"
    interval_ms: Annotated[
        int,
        Meta(
            ge=10, le=INT32_MAX, description="How often mode `interval` syncs, and so how much it may lose."
        ),
    ] = 1_000


class StorageSettings(ConfigSection, frozen=True):
    """How logs are kept on disk."""

    segment_bytes: Annotated[
        int, Meta(ge=KIBIBYTE, le=INT32_MAX, description="Size at which a log starts a new segment file.")
    ] = GIBIBYTE
    index_interval_bytes: Annotated[
        int, Meta(ge=1, le=MEBIBYTE, description="Log bytes between two entries of the offset index.")
    ] = 4_096
    time_index_interval_ms: Annotated[
        int, Meta(ge=0, le=INT32_MAX, description="Least time between two entries of the time index.")
    ] = 1_000
    retention_check_ms: Annotated[
        int,
        Meta(
            ge=100, le=INT32_MAX, description="How often logs are looked at for what is too old or too much."
        ),
    ] = 300_000
    compaction_interval_ms: Annotated[
        int, Meta(ge=100, le=INT32_MAX, description="How often logs are looked at for compaction.")
    ] = 15_000
    scrub_bytes_per_second: Annotated[
        int,
        Meta(
            ge=0,
            le=INT64_MAX,
            description="How fast segments are verified in the background; 0 switches that off.",
        ),
    ] = 2 * MEBIBYTE
    scrub_interval_ms: Annotated[
        int, Meta(ge=100, le=INT64_MAX, description="How often every segment is verified.")
    ] = 604_800_000
    checkpoint_interval_ms: Annotated[
        int,
        Meta(
            ge=1_000,
            le=3_600_000,
            description="How old the checkpoint of a log becomes that is written to: a start after a crash "
            "reads what was written since. Until a log has one, its file stays open.",
        ),
    ] = 10_000
    disk_free_bytes_min: Annotated[
        int,
        Meta(
            ge=0,
            le=INT64_MAX,
            description="With less free space than this, the disk counts as full: `/ready` says so.",
        ),
    ] = 16 * MEBIBYTE
    fsync: FsyncSettings = FsyncSettings()


class TopicSettings(ConfigSection, frozen=True):
    """What a new topic gets when nothing else is said."""

    auto_create: Annotated[bool, Meta(description="Create a topic when a client first asks for it.")] = True
    partitions: Annotated[int, Meta(ge=1, le=100_000, description="Partitions of a new topic.")] = 6
    replication_factor: Annotated[
        Annotated[int, Meta(ge=1, le=32_767)] | Literal["auto"],
        Meta(description="Copies of each partition; `auto` is the smaller of 3 and the number of brokers."),
    ] = "auto"
    retention_hours: Annotated[
        int,
        Meta(ge=-1, le=INT32_MAX, description="Age at which records may be deleted; -1 keeps them for ever."),
    ] = 168
    retention_bytes: Annotated[
        int,
        Meta(
            ge=-1, le=INT64_MAX, description="Size of a partition above which its oldest go; -1 has no limit."
        ),
    ] = -1
    message_bytes_max: Annotated[
        int, Meta(ge=100, le=16 * MEBIBYTE, description="Largest batch of records that is accepted.")
    ] = (1 << 20) + 12


class DeliverySettings(ConfigSection, frozen=True):
    """How the queue view hands out records."""

    visibility_timeout_ms: Annotated[
        int,
        Meta(ge=1, le=43_200_000, description="How long a received record stays leased to its consumer."),
    ] = 30_000
    retries_max: Annotated[
        int, Meta(ge=0, le=99, description="Deliveries after the first before a record is given up.")
    ] = 3
    dead_letter: Annotated[bool, Meta(description="Move given-up records to a dead-letter topic.")] = True


class GroupSettings(ConfigSection, frozen=True):
    """How consumer groups are looked after."""

    session_timeout_ms: Annotated[
        int, Meta(ge=100, le=INT32_MAX, description="Silence after which a member counts as gone.")
    ] = 30_000
    session_timeout_ms_min: Annotated[
        int,
        Meta(ge=100, le=INT32_MAX, description="Shortest session timeout that a classic member may ask for."),
    ] = 6_000
    session_timeout_ms_max: Annotated[
        int,
        Meta(ge=100, le=INT32_MAX, description="Longest session timeout that a classic member may ask for."),
    ] = 1_800_000
    heartbeat_interval_ms: Annotated[
        int,
        Meta(ge=10, le=INT32_MAX, description="Heartbeat interval that the broker tells KIP-848 members."),
    ] = 500
    heartbeat_interval_ms_min: Annotated[
        int, Meta(ge=10, le=INT32_MAX, description="Lower bound of a group's own heartbeat interval.")
    ] = 100
    initial_rebalance_delay_ms: Annotated[
        int,
        Meta(
            ge=0, le=INT32_MAX, description="Wait for further members before a new group's first assignment."
        ),
    ] = 100
    migration_policy: Annotated[
        Literal["bidirectional", "upgrade", "downgrade", "disabled"],
        Meta(
            description="Whether groups with members may move between the classic and the KIP-848 protocol."
        ),
    ] = "bidirectional"
    offsets_partitions: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            description="Partitions of `__consumer_offsets`, read when it is made; they never change.",
        ),
    ] = 50
    poll_records_max: Annotated[
        int,
        Meta(
            ge=1,
            le=INT32_MAX,
            description="Most records that one poll of our client returns, and one over REST or gRPC that "
            "does not say how many (10,000 at most).",
        ),
    ] = 500


class RestSettings(ConfigSection, frozen=True):
    """REST and WebSocket at `listen.http`, served by a process of their own."""

    enabled: Annotated[
        bool,
        Meta(
            description="Start the process that serves REST, WebSocket and gRPC; without it, "
            "`listen.http` has health, readiness and metrics only."
        ),
    ] = True
    default_topic: Annotated[
        str,
        Meta(
            max_length=249,
            description="Topic of `/produce` and `/consume` where a request names none; empty is none.",
        ),
    ] = ""
    body_bytes_max: Annotated[
        int, Meta(ge=KIBIBYTE, le=GIBIBYTE, description="Largest body of a request that is not streamed.")
    ] = 10 * MEBIBYTE
    head_bytes_max: Annotated[
        int, Meta(ge=KIBIBYTE, le=MEBIBYTE, description="Largest head of a request: its URL and headers.")
    ] = 32 * KIBIBYTE
    connections_max: Annotated[
        int, Meta(ge=1, le=1_000_000, description="Connections at a time; more are turned away with 503.")
    ] = 5_000
    address_connections_max: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="Connections of one address (of IPv6, a /64) at a time, WebSockets among them; more "
            "are turned away with 503. It has as large a part of requests under way, WebSockets and callers. "
            "Behind a proxy, all clients have its address.",
        ),
    ] = 2_500
    requests_max: Annotated[
        int, Meta(ge=1, le=1_000_000, description="Requests under way at a time; more get 503.")
    ] = 2_000
    in_flight_bytes_max: Annotated[
        int,
        Meta(
            ge=MEBIBYTE,
            le=INT64_MAX,
            description="Memory for bodies of requests under way and for responses that clients have not "
            "read, over REST, WebSocket and gRPC; while it is used up, requests get 503 or "
            "RESOURCE_EXHAUSTED.",
        ),
    ] = 256 * MEBIBYTE
    body_timeout_ms: Annotated[
        int,
        Meta(
            ge=100,
            le=INT32_MAX,
            description="How long a client may take to send a request, or a part of a stream.",
        ),
    ] = 30_000
    response_timeout_ms: Annotated[
        int,
        Meta(ge=100, le=INT32_MAX, description="How long a client may leave a response unread."),
    ] = 30_000
    hung_timeout_ms: Annotated[
        int,
        Meta(
            ge=500,
            le=INT32_MAX,
            description="How long the process may give no sign of life before it is ended and started again.",
        ),
    ] = 15_000
    nice: Annotated[
        int,
        Meta(
            ge=0,
            le=19,
            description="How much the process lets the Kafka port go first where processor time is short "
            "(nice(1)); 0 is not at all.",
        ),
    ] = 10


class ClientDefaults(ConfigSection, frozen=True):
    """What our own client and commands do when nothing else is said."""

    acks: Annotated[
        Literal["all", "leader", "none", "1", "0"],
        Meta(
            description="Who must have a record before it counts as sent: in-sync replicas, leader (or `1`), "
            "nobody (`none` or `0`)."
        ),
    ] = "all"
    batch_bytes: Annotated[int, Meta(ge=0, le=INT32_MAX, description="Size at which a batch is sent.")] = (
        16_384
    )
    linger_ms: Annotated[
        int, Meta(ge=0, le=INT32_MAX, description="How long a batch waits for more records.")
    ] = 5


class TlsSettings(ConfigSection, frozen=True):
    """Certificates of this node, for listeners with SSL or SASL_SSL; they are read again when they change."""

    certificate: Annotated[
        str, Meta(description="PEM file with the node's certificate and the chain behind it.")
    ] = ""
    key: Annotated[str, Meta(description="PEM file with its private key, which nobody else may read.")] = ""
    authority: Annotated[
        str, Meta(description="PEM file with the authorities that clients' certificates are checked with.")
    ] = ""
    client_auth: Annotated[
        Literal["none", "want", "need"],
        Meta(description="Whether clients are asked for a certificate, and turned away without one."),
    ] = "none"
    version_min: Annotated[
        Literal["1.2", "1.3"], Meta(description="The oldest version of TLS that is spoken.")
    ] = "1.2"
    principal_rules: Annotated[
        tuple[str, ...],
        Meta(
            description="Who the owner of a certificate is, by its subject: `DEFAULT`, or "
            "`RULE:pattern/replacement/`, with `L` or `U` behind it for lower or upper case; the first that "
            "fits counts. `DEFAULT` is the whole subject."
        ),
    ] = ("DEFAULT",)
    node_rules: Annotated[
        tuple[str, ...],
        Meta(
            description="Which node a certificate is of, by its subject, if it does not have the URI "
            "`penstock:node:ID` among its names: `RULE:pattern/replacement/`, as in `principal_rules`. What "
            "comes out must be the node's id."
        ),
    ] = ()


class SaslSettings(ConfigSection, frozen=True):
    """How clients of listeners with SASL log in."""

    mechanisms: Annotated[
        tuple[Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER"], ...],
        Meta(min_length=1, description="Which mechanisms are offered."),
    ] = ("SCRAM-SHA-512", "SCRAM-SHA-256")
    reauthenticate_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=INT64_MAX,
            description="After how long a client has to log in again (`connections.max.reauth.ms`); "
            "0 is never.",
        ),
    ] = 0


class OAuthSettings(ConfigSection, frozen=True):
    """Which bearer tokens count, for OAUTHBEARER."""

    jwks: Annotated[
        str, Meta(description="The issuer's public keys: a JWKS file, or an http(s) address.")
    ] = ""
    issuer: Annotated[str, Meta(description="Who has signed them (`iss`); empty is anybody.")] = ""
    audience: Annotated[str, Meta(description="Whom they are for (`aud`); empty is anybody.")] = ""
    scope: Annotated[str, Meta(description="What they must allow (`scope`); empty is nothing.")] = ""
    user_claim: Annotated[str, Meta(min_length=1, description="The claim that names the user.")] = "sub"
    clock_skew_ms: Annotated[int, Meta(ge=0, le=3_600_000, description="By how much clocks may differ.")] = (
        30_000
    )
    refresh_ms: Annotated[
        int, Meta(ge=1_000, le=INT64_MAX, description="How often the keys are read again.")
    ] = 3_600_000


class AuditSettings(ConfigSection, frozen=True):
    """A record of logins, refusals and what administrators do; it works without `security.enabled`, too."""

    enabled: Annotated[bool, Meta(description="Write an audit log.")] = False
    directory: Annotated[
        str, Meta(description="Where its files are; empty is `audit` in the data directory.")
    ] = ""
    file_bytes_max: Annotated[
        int, Meta(ge=64 * 1024, le=INT64_MAX, description="Size at which a file is followed by the next.")
    ] = 64 * MEBIBYTE
    files_max: Annotated[
        int, Meta(ge=1, le=1_000, description="How many files are kept; the oldest is deleted first.")
    ] = 10
    topic: Annotated[bool, Meta(description="Write entries to the topic `__audit` as well.")] = False
    data: Annotated[
        bool,
        Meta(
            description="Count what clients read and write, too: one entry a minute for each client, "
            "operation and topic."
        ),
    ] = False


class EncryptionSettings(ConfigSection, frozen=True):
    """Encryption at rest: what is in the data directory is encrypted under master keys of a key service."""

    enabled: Annotated[
        bool,
        Meta(
            description="Encrypt metadata, and records unless a topic has `encryption.at.rest=false`. A "
            "directory that was encrypted cannot be used without its keys."
        ),
    ] = False
    service: Annotated[
        Literal["keyring", "environment", "command", "plugin"],
        Meta(
            description="Where master keys come from: a `keyring` file, a variable of the `environment`, "
            "what a `command` prints, or a `plugin` for a KMS."
        ),
    ] = "keyring"
    keyring: Annotated[
        str,
        Meta(
            description="The keyring: a file outside of the data directory that nobody else may read, made "
            "by `penstock keyring create`."
        ),
    ] = ""
    variable: Annotated[
        str, Meta(min_length=1, description="The environment variable that has master keys.")
    ] = "PENSTOCK_MASTER_KEYS"
    command: Annotated[
        tuple[str, ...],
        Meta(
            description="A program and its arguments, run without a shell, that prints master keys; "
            "`penstock config show` leaves the arguments out."
        ),
    ] = ()
    plugin: Annotated[
        str, Meta(description="The entry point, of the group `penstock.key_services`, of a plugin.")
    ] = ""
    plugin_options: Annotated[
        tuple[str, ...],
        Meta(
            description="What the plugin is given, as `name=value`; `penstock config show` leaves the "
            "values out."
        ),
    ] = ()
    timeout_ms: Annotated[
        int,
        Meta(ge=100, le=600_000, description="How long a command or a plugin may take."),
    ] = 10_000
    rotation_interval_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=INT64_MAX,
            description="How old the current master key becomes before the node has another one made, or "
            "asks a command or a plugin whether there is one; 0 is never.",
        ),
    ] = 0
    reseal_bytes_per_second: Annotated[
        int,
        Meta(
            ge=64 << 10,
            le=INT64_MAX,
            description="How fast `penstock key rotate --reseal` writes old segments again.",
        ),
    ] = 32 << 20


class SecuritySettings(ConfigSection, frozen=True):
    """Who may do what."""

    enabled: Annotated[
        bool,
        Meta(
            description="Let access rules decide what clients may do; without a rule, only super users may "
            "do anything."
        ),
    ] = False
    super_users: Annotated[
        tuple[str, ...],
        Meta(description="Users who may do everything, such as `admin`."),
    ] = ()
    open_without_rules: Annotated[
        bool,
        Meta(
            description="Let everyone do everything to what no access rule names "
            "(`allow.everyone.if.no.acl.found`)."
        ),
    ] = False
    admin_user: Annotated[
        str,
        Meta(description="A first user: it gets the password of `admin_password_file` unless it has one."),
    ] = ""
    admin_password_file: Annotated[
        str, Meta(description="File with that password, which nobody else may read.")
    ] = ""
    peers: Annotated[
        Literal["auto", "tls", "mixed", "plain"],
        Meta(
            description="What nodes speak at `listen.peer`: `tls` is TLS in which each proves its node id "
            "with the certificate of `security.tls`, `plain` is neither encrypted nor proven, `mixed` is TLS "
            "with nodes that have it, to move a running cluster from `plain` to `tls`. `auto` is `tls` if "
            "security is enabled and `security.tls.authority` is set."
        ),
    ] = "auto"
    sasl: SaslSettings = SaslSettings()
    tls: TlsSettings = TlsSettings()
    oauth: OAuthSettings = OAuthSettings()
    audit: AuditSettings = AuditSettings()
    encryption: EncryptionSettings = EncryptionSettings()


class MetricsSettings(ConfigSection, frozen=True):
    """Whether figures are served."""

    enabled: Annotated[bool, Meta(description="Serve Prometheus metrics at `listen.metrics`.")] = True


class LoggingSettings(ConfigSection, frozen=True):
    """What the node says about itself."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="Least important events that are written."),
    ] = "info"
    format: Annotated[
        Literal["auto", "text", "json"],
        Meta(description="`auto` is text on a terminal and JSON lines elsewhere."),
    ] = "auto"


class Config(ConfigSection, frozen=True):
    """Everything that can be configured."""

    node: NodeSettings = NodeSettings()
    listen: ListenSettings = ListenSettings()
    cluster: ClusterSettings = ClusterSettings()
    storage: StorageSettings = StorageSettings()
    topics: TopicSettings = TopicSettings()
    delivery: DeliverySettings = DeliverySettings()
    groups: GroupSettings = GroupSettings()
    rest: RestSettings = RestSettings()
    client: ClientDefaults = ClientDefaults()
    security: SecuritySettings = SecuritySettings()
    metrics: MetricsSettings = MetricsSettings()
    logging: LoggingSettings = LoggingSettings()

    @property
    def peer(self) -> ListenAddress | None:
        """Where this node listens for its peers; None where it has none and nobody said so."""
        return peer_address(self.listen.peer, self.node.id, self.cluster.voters)


def peer_address(
    chosen: AddressOrAuto, node_id: int, voters: tuple[VoterAddress, ...]
) -> ListenAddress | None:
    """What `listen.peer` stands for."""
    if chosen != "auto":
        return chosen
    own = (voter.address for voter in voters if voter.node_id == node_id)
    return next(own, PEER_DEFAULT) if voters else None
