"""Settings of `Producer` and `Consumer`, by the names that people know from Kafka.

A setting is given by its own name in a mapping (`{"linger.ms": 5}`) or as a keyword, with
underscores for dots (`linger_ms=5`); with both, the keyword counts. Names of the Java client that
librdkafka spells differently are translated. A name that nobody knows is refused with the nearest
one, and so is a producer's setting for a consumer: librdkafka would only log it, and ignore it.

Left out: whether a value is valid, which librdkafka decides; callbacks other than `error_cb`,
`stats_cb`, `throttle_cb` and `oauth_cb`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, TypedDict

from penstock.client.endpoint import DEFAULT_BOOTSTRAP
from penstock.client.errors import InvalidProperty

Role = Literal["producer", "consumer"]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SHARED = _names(
    """
    allow.auto.create.topics api.version.fallback.ms api.version.request api.version.request.timeout.ms
    bootstrap.servers broker.address.family broker.address.ttl broker.version.fallback client.dns.lookup
    client.id client.rack connections.max.idle.ms debug enable.metrics.push
    enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification error_cb https.ca.location
    https.ca.pem internal.termination.signal log.connection.close log_level
    max.in.flight max.in.flight.requests.per.connection message.copy.max.bytes message.max.bytes
    metadata.broker.list metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms
    metadata.recovery.strategy oauth_cb plugin.library.paths receive.message.max.bytes
    reconnect.backoff.max.ms reconnect.backoff.ms retry.backoff.max.ms retry.backoff.ms
    sasl.kerberos.keytab sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
    sasl.kerberos.principal sasl.kerberos.service.name sasl.mechanism sasl.mechanisms
    sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
    sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
    sasl.oauthbearer.assertion.jwt.template.file sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.private.key.pem
    sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
    sasl.oauthbearer.client.id sasl.oauthbearer.client.secret sasl.oauthbearer.config
    sasl.oauthbearer.extensions sasl.oauthbearer.grant.type
    sasl.oauthbearer.metadata.authentication.type sasl.oauthbearer.method sasl.oauthbearer.scope
    sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url sasl.password sasl.username
    security.protocol socket.connection.setup.timeout.ms socket.keepalive.enable socket.max.fails
    socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms
    ssl.ca.certificate.stores ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem
    ssl.cipher.suites ssl.crl.location ssl.curves.list ssl.endpoint.identification.algorithm
    ssl.engine.id ssl.engine.location ssl.key.location ssl.key.password ssl.key.pem
    ssl.keystore.location ssl.keystore.password ssl.providers ssl.sigalgs.list statistics.interval.ms
    stats_cb test.mock.num.brokers throttle_cb topic.blacklist topic.metadata.propagation.max.ms
    topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms
    topic.metadata.refresh.sparse
    """
)
_OF_ROLE: Mapping[Role, frozenset[str]] = {
    "producer": _names(
        """
        acks batch.num.messages batch.size compression.codec compression.level compression.type
        delivery.timeout.ms enable.gapless.guarantee enable.idempotence linger.ms message.send.max.retries
        message.timeout.ms partitioner queue.buffering.backpressure.threshold queue.buffering.max.kbytes
        queue.buffering.max.messages queue.buffering.max.ms queuing.strategy request.required.acks
        request.timeout.ms retries sticky.partitioning.linger.ms transaction.timeout.ms transactional.id
        """
    ),
    "consumer": _names(
        """
        auto.commit.interval.ms auto.offset.reset check.crcs coordinator.query.interval.ms
        enable.auto.commit enable.partition.eof fetch.error.backoff.ms fetch.max.bytes
        fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms fetch.wait.max.ms group.id
        group.instance.id group.protocol group.protocol.type group.remote.assignor heartbeat.interval.ms
        isolation.level max.partition.fetch.bytes max.poll.interval.ms partition.assignment.strategy
        queued.max.messages.kbytes queued.min.messages session.timeout.ms
        """
    ),
}
# What this client does itself, in milliseconds or records, with the default.
_OWN: Mapping[Role, Mapping[str, int]] = {
    "producer": {"max.block.ms": 60_000},
    "consumer": {"max.poll.records": 500, "default.api.timeout.ms": 60_000},
}
_ASSIGNORS = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
_INSTEAD = {
    "key.serializer": "key_serializer=",
    "value.serializer": "value_serializer=",
    "key.deserializer": "key_deserializer=",
    "value.deserializer": "value_deserializer=",
    "partitioner.class": "partitioner=",
    "enable.auto.offset.store": "enable_auto_commit=, which commits what has been processed",
    "delivery.report.only.error": "the future that send() returns",
    "metric.reporters": "metrics=",
}


class ClientSettings(TypedDict, total=False):
    """What most programs set, for either kind of client; every other name is taken at run time."""

    bootstrap_servers: str | Sequence[str]
    client_id: str
    client_rack: str
    security_protocol: str
    sasl_mechanism: str
    sasl_username: str
    sasl_password: str
    ssl_ca_location: str
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    socket_timeout_ms: int
    metadata_max_age_ms: int
    statistics_interval_ms: int
    allow_auto_create_topics: bool


class ProducerSettings(ClientSettings, total=False):
    """What most producers set."""

    acks: str | int
    enable_idempotence: bool
    linger_ms: float
    batch_size: int
    batch_num_messages: int
    compression_type: str
    compression_level: int
    retries: int
    delivery_timeout_ms: int
    request_timeout_ms: int
    max_in_flight_requests_per_connection: int
    max_request_size: int
    buffer_memory: int
    queue_buffering_max_messages: int
    max_block_ms: int
    transactional_id: str
    transaction_timeout_ms: int


class ConsumerSettings(ClientSettings, total=False):
    """What most consumers set."""

    group_id: str
    group_instance_id: str
    group_protocol: str
    group_remote_assignor: str
    auto_offset_reset: str
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    isolation_level: str
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    max_poll_records: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    partition_assignment_strategy: str
    default_api_timeout_ms: int


@dataclass(frozen=True, slots=True)
class Properties:
    """What librdkafka is given, and what this client does itself (`own`)."""

    librdkafka: dict[str, Any]
    own: dict[str, int]

    @property
    def bootstrap(self) -> str:
        return str(self.librdkafka["bootstrap.servers"])

    def shared(self) -> dict[str, Any]:
        """What a client of the other kind takes as well: addresses, security, times."""
        return {name: value for name, value in self.librdkafka.items() if name in _SHARED}


def read_properties(
    role: Role, properties: Mapping[str, Any] | None, keywords: Mapping[str, Any]
) -> Properties:
    """Both spellings as one, with our defaults; InvalidProperty names the first that cannot be."""
    given = _read(role, properties or {}, str) | _read(role, keywords, _dotted)
    own = {
        name: _whole(name, given.pop(name)) if name in given else default
        for name, default in _OWN[role].items()
    }
    return Properties(_with_defaults(role, given), own)


def _read(role: Role, source: Mapping[str, Any], spelling: Callable[[str], str]) -> dict[str, Any]:
    read: dict[str, Any] = {}
    for written, value in source.items():
        if value is None:
            continue
        name, value = _translated(role, spelling(written), value)
        if name in read:
            raise InvalidProperty(f"{name} is given twice, by two of its names")
        read[name] = value
    return read


def _with_defaults(role: Role, given: dict[str, Any]) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": given.pop("metadata.broker.list", DEFAULT_BOOTSTRAP),
        "client.id": "penstock",
        "broker.address.family": "any",
        "allow.auto.create.topics": True,
    }
    if role == "consumer":
        return {**settings, **given, "enable.auto.offset.store": False}
    acks = given.pop("request.required.acks", given.pop("acks", "all"))
    # Idempotence needs the acknowledgement of all; whoever asks for fewer does without it.
    strong = str(acks) in ("all", "-1")
    defaults = {"acks": acks, "enable.idempotence": strong, "partitioner": "murmur2_random", "linger.ms": 5}
    if "queue.buffering.max.ms" in given:
        del defaults["linger.ms"]
    return {**settings, **defaults, **given}


def _dotted(keyword: str) -> str:
    return keyword if keyword.endswith("_cb") or keyword == "log_level" else keyword.replace("_", ".")


def _translated(role: Role, name: str, value: Any) -> tuple[str, Any]:
    if name in _INSTEAD:
        raise InvalidProperty(f"{name} is no setting here: use {_INSTEAD[name]}")
    if isinstance(value, list | tuple):
        value = ",".join(str(part) for part in value)
    if name == "partition.assignment.strategy":
        strategies = [part.strip().rpartition(".")[2] for part in str(value).split(",")]
        return name, ",".join(_ASSIGNORS.get(part, part) for part in strategies)
    java: dict[str, tuple[str, Callable[[Any], Any]]] = {
        "buffer.memory": ("queue.buffering.max.kbytes", lambda size: max(1, _whole(name, size) // 1024)),
        "max.request.size": ("message.max.bytes", _same),
        "fetch.max.wait.ms": ("fetch.wait.max.ms", _same),
        "send.buffer.bytes": ("socket.send.buffer.bytes", _same),
        "receive.buffer.bytes": ("socket.receive.buffer.bytes", _same),
        "socket.connection.setup.timeout.max.ms": ("socket.connection.setup.timeout.ms", _same),
    }
    if role == "consumer":
        java["request.timeout.ms"] = ("socket.timeout.ms", _same)
    if name in java:
        name, convert = java[name]
        value = convert(value)
    _check_name(role, name)
    return name, value


def _check_name(role: Role, name: str) -> None:
    known = _SHARED | _OF_ROLE[role] | _OWN[role].keys()
    if name in known:
        return
    other: Role = "consumer" if role == "producer" else "producer"
    if name in _OF_ROLE[other] or name in _OWN[other]:
        raise InvalidProperty(f"{name} is a setting of a {other}, and this is a {role}")
    near = get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    raise InvalidProperty(f"there is no setting {name}" + (f": is it {near[0]}?" if near else ""))


def _whole(name: str, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise InvalidProperty(f"{name} is a whole number, not {value!r}") from None


def _same(value: Any) -> Any:
    return value
