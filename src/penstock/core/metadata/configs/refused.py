"""The settings of Kafka 4 that are refused, each with the reason that a client is told.

A setting of Kafka is either in one of the tables beside this one, where it has an effect or a fixed value,
or here. Nothing is accepted and ignored: whoever sets one of these is told why it would do nothing.
"""

from collections.abc import Iterator, Mapping

from penstock.core.metadata.image import ConfigResourceType

_ASSIGNED_AT_ONCE = "a change of a group is assigned at once, by the loop that serves it"
_CLASSES = "a node loads no Java classes"
_COMPACTION = "compaction works in bounded memory, and gives way to requests"
_COORDINATORS = "coordinators run on the event loop, and write with the group commit of their log"
_JVM_METRICS = "metrics are exported for Prometheus, under listen.metrics"
_LOG_DIRS = "a node has one data directory"
_NO_DELEGATION_TOKENS = "there are no delegation tokens"
_NO_KERBEROS = "there is no login with Kerberos"
_NODE_SECURITY = "logins and TLS are set up by security.* and listen.* in the configuration of the node"
_QUOTA_WINDOWS = "a quota is a bucket that fills at its rate: it has no windows"
_NO_SHARE_STATE_TOPIC = "what share groups have consumed is kept as queues are: see __queue_state"
_ONE_SHARE_ASSIGNOR = "share groups are assigned at once, by the assignor simple"
_SHARE_LIMITS = "the group's own setting is taken as it is"
_NO_STREAMS_GROUPS = "there are no streams groups: Kafka Streams runs as a consumer group"
_NO_TIERS = "there is no remote storage so far"
_ONE_LOOP = "a node has one event loop, and helpers whose number it chooses itself"
_PAGES = "a page of DescribeTopicPartitions has 2,000 partitions at most"
_PURGATORY = "a request that waits is dropped when it ends: there is no purgatory to clean"
_QUORUM = "the metadata quorum has timeouts and a log of its own"
_REPLICATION = "followers fetch with a protocol of their own, which asks again as soon as it has an answer"
_SOCKETS = "the operating system sizes the buffers of sockets"
_THROTTLED = "leader.replication.throttled.rate limits what replicas get that are not in sync"
_TRANSACTION_TASKS = "the transaction coordinator acts when a deadline passes, not at intervals"

_BROKER = {
    _ONE_LOOP: "background.threads num.recovery.threads.per.data.dir num.replica.alter.log.dirs.threads "
    "num.replica.fetchers log.cleaner.threads",
    _CLASSES: "alter.config.policy.class.name client.quota.callback.class config.providers "
    "create.topic.policy.class.name principal.builder.class security.providers "
    "sasl.client.callback.handler.class sasl.login.callback.handler.class sasl.login.class "
    "sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class "
    "sasl.server.callback.handler.class ssl.engine.factory.class",
    _QUOTA_WINDOWS: "alter.log.dirs.replication.quota.window.num "
    "alter.log.dirs.replication.quota.window.size.seconds controller.quota.window.num "
    "controller.quota.window.size.seconds quota.window.num quota.window.size.seconds "
    "replication.quota.window.num replication.quota.window.size.seconds",
    _THROTTLED: "follower.replication.throttled.rate",
    _LOG_DIRS: "cordoned.log.dirs log.dir.failure.timeout.ms metadata.log.dir "
    "replica.alter.log.dirs.io.max.bytes.per.second",
    _QUORUM: "controller.performance.always.log.threshold.ms controller.performance.sample.period.ms "
    "controller.quorum.append.linger.ms controller.quorum.auto.join.enable "
    "controller.quorum.bootstrap.servers controller.quorum.election.backoff.max.ms "
    "controller.quorum.election.timeout.ms controller.quorum.fetch.max.bytes "
    "controller.quorum.fetch.snapshot.max.bytes controller.quorum.fetch.timeout.ms "
    "controller.quorum.request.timeout.ms controller.quorum.retry.backoff.ms controller.socket.timeout.ms "
    "early.start.listeners initial.broker.registration.timeout.ms internal.metadata.delete.delay.millis "
    "internal.metadata.log.segment.bytes internal.metadata.max.batch.size.in.bytes "
    "metadata.log.max.record.bytes.between.snapshots metadata.log.max.snapshot.interval.ms "
    "metadata.log.segment.bytes metadata.log.segment.ms metadata.max.idle.interval.ms "
    "metadata.max.retention.bytes metadata.max.retention.ms server.max.startup.time.ms "
    "unclean.leader.election.interval.ms",
    "only what is finished is announced": "unstable.api.versions.enable unstable.feature.versions.enable",
    _PURGATORY: "delete.records.purgatory.purge.interval.requests fetch.purgatory.purge.interval.requests "
    "producer.purgatory.purge.interval.requests share.fetch.purgatory.purge.interval.requests",
    _JVM_METRICS: "kafka.metrics.polling.interval.secs kafka.metrics.reporters metric.reporters "
    "metrics.num.samples metrics.recording.level metrics.sample.window.ms",
    _COMPACTION: "log.cleaner.dedupe.buffer.size log.cleaner.io.buffer.load.factor "
    "log.cleaner.io.buffer.size log.cleaner.io.max.bytes.per.second",
    "logs are checkpointed every 64 MB or 10 s": "log.flush.offset.checkpoint.interval.ms "
    "log.flush.start.offset.checkpoint.interval.ms replica.high.watermark.checkpoint.interval.ms "
    "log.initial.task.delay.ms",
    "memory for requests is limited by listen.in_flight_bytes_max": "queued.max.request.bytes "
    "queued.max.requests",
    _PAGES: "max.request.partition.size.limit",
    _SOCKETS: "replica.socket.receive.buffer.bytes socket.listen.backlog.size socket.receive.buffer.bytes "
    "socket.send.buffer.bytes",
    _REPLICATION: "replica.fetch.backoff.ms replica.fetch.min.bytes replica.fetch.response.max.bytes "
    "replica.fetch.wait.max.ms replica.socket.timeout.ms request.timeout.ms "
    "socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms",
    _ASSIGNED_AT_ONCE: "group.consumer.assignment.interval.ms group.consumer.max.assignment.interval.ms "
    "group.consumer.min.assignment.interval.ms group.consumer.regex.refresh.interval.ms",
    _COORDINATORS: "group.coordinator.append.linger.ms group.coordinator.background.threads "
    "group.coordinator.cached.buffer.max.bytes group.coordinator.threads offsets.load.buffer.size "
    "offsets.topic.compression.codec transaction.state.log.load.buffer.size",
    _TRANSACTION_TASKS: "add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms "
    "producer.id.expiration.check.interval.ms transaction.abort.timed.out.transaction.cleanup.interval.ms "
    "transaction.remove.expired.transaction.cleanup.interval.ms",
    "the transaction topic has the segment size of other topics": "transaction.state.log.segment.bytes",
    "two-phase commit (KIP-939) is not available": "transaction.two.phase.commit.enable",
    _ONE_SHARE_ASSIGNOR: "group.share.assignment.interval.ms group.share.assignors "
    "group.share.max.assignment.interval.ms group.share.min.assignment.interval.ms",
    _SHARE_LIMITS: "group.share.max.delivery.count.limit group.share.max.partition.max.record.locks "
    "group.share.min.delivery.count.limit group.share.min.partition.max.record.locks",
    _NO_SHARE_STATE_TOPIC: "group.share.initialize.retry.interval.ms "
    "group.share.persister.class.name share.coordinator.append.linger.ms "
    "share.coordinator.cached.buffer.max.bytes share.coordinator.cold.partition.snapshot.interval.ms "
    "share.coordinator.load.buffer.size share.coordinator.snapshot.update.records.per.snapshot "
    "share.coordinator.state.topic.compression.codec share.coordinator.state.topic.min.isr "
    "share.coordinator.state.topic.num.partitions share.coordinator.state.topic.prune.interval.ms "
    "share.coordinator.state.topic.replication.factor share.coordinator.state.topic.segment.bytes "
    "share.coordinator.threads share.coordinator.write.timeout.ms",
    _NO_STREAMS_GROUPS: "group.streams.assignment.interval.ms group.streams.heartbeat.interval.ms "
    "group.streams.initial.rebalance.delay.ms group.streams.max.assignment.interval.ms "
    "group.streams.max.heartbeat.interval.ms group.streams.max.session.timeout.ms group.streams.max.size "
    "group.streams.max.standby.replicas group.streams.min.assignment.interval.ms "
    "group.streams.min.heartbeat.interval.ms group.streams.min.session.timeout.ms "
    "group.streams.num.standby.replicas group.streams.session.timeout.ms",
    _NO_TIERS: "follower.fetch.last.tiered.offset.enable remote.fetch.max.wait.ms "
    "remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes "
    "remote.log.index.file.cache.ttl.ms remote.log.manager.copier.thread.pool.size "
    "remote.log.manager.copy.max.bytes.per.second remote.log.manager.copy.quota.window.num "
    "remote.log.manager.copy.quota.window.size.seconds remote.log.manager.expiration.thread.pool.size "
    "remote.log.manager.fetch.max.bytes.per.second remote.log.manager.fetch.quota.window.num "
    "remote.log.manager.fetch.quota.window.size.seconds remote.log.manager.follower.thread.pool.size "
    "remote.log.manager.task.interval.ms remote.log.manager.task.retry.backoff.max.ms "
    "remote.log.manager.task.retry.backoff.ms remote.log.manager.task.retry.jitter "
    "remote.log.manager.thread.pool.size remote.log.metadata.custom.metadata.max.bytes "
    "remote.log.metadata.manager.class.name remote.log.metadata.manager.class.path "
    "remote.log.metadata.manager.impl.prefix remote.log.metadata.manager.listener.name "
    "remote.log.reader.max.pending.tasks remote.log.reader.threads remote.log.storage.manager.class.name "
    "remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix",
    _NO_DELEGATION_TOKENS: "delegation.token.expiry.check.interval.ms delegation.token.expiry.time.ms "
    "delegation.token.max.lifetime.ms delegation.token.secret.key",
    _NO_KERBEROS: "sasl.kerberos.kinit.cmd sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name "
    "sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor",
    _NODE_SECURITY: "connection.failed.authentication.delay.ms sasl.jaas.config "
    "sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds "
    "sasl.login.refresh.min.period.seconds "
    "sasl.login.refresh.window.factor sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms "
    "sasl.login.retry.backoff.ms sasl.mechanism.controller.protocol "
    "sasl.mechanism.inter.broker.protocol sasl.oauthbearer.assertion.algorithm "
    "sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds "
    "sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include "
    "sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub "
    "sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file "
    "sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file "
    "sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret "
    "sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience "
    "sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.refresh.ms "
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms "
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url "
    "sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name "
    "sasl.oauthbearer.token.endpoint.url sasl.server.max.receive.size security.inter.broker.protocol "
    "ssl.allow.dn.changes ssl.allow.san.changes ssl.cipher.suites ssl.enabled.protocols "
    "ssl.endpoint.identification.algorithm ssl.keymanager.algorithm ssl.keystore.certificate.chain "
    "ssl.keystore.key ssl.keystore.type ssl.principal.mapping.rules ssl.protocol ssl.provider "
    "ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.certificates "
    "ssl.truststore.type",
}
_TOPIC = {"segment.bytes takes every size that Kafka allows its tests only": "internal.segment.bytes"}
_GROUP = {
    _ASSIGNED_AT_ONCE: "consumer.assignment.interval.ms",
    _ONE_SHARE_ASSIGNOR: "share.assignment.interval.ms",
    "leases can always be renewed": "share.renew.acknowledge.enable",
    _NO_STREAMS_GROUPS: "streams.assignment.interval.ms streams.heartbeat.interval.ms "
    "streams.initial.rebalance.delay.ms streams.num.standby.replicas streams.session.timeout.ms",
}


def _each(reasons: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for reason, names in reasons.items():
        for name in names.split():
            yield name, reason


REFUSED_CONFIGS: Mapping[ConfigResourceType, Mapping[str, str]] = {
    ConfigResourceType.BROKER: dict(sorted(_each(_BROKER))),
    ConfigResourceType.TOPIC: dict(sorted(_each(_TOPIC))),
    ConfigResourceType.GROUP: dict(sorted(_each(_GROUP))),
    ConfigResourceType.CLIENT_METRICS: {},
}


def unknown_key(kind: ConfigResourceType, name: str) -> str:
    """Why a kind of resource does not have a key, as a sentence."""
    reason = REFUSED_CONFIGS[kind].get(name)
    if reason is None:
        return f"{kind.name.lower()} has no configuration key {name!r}"
    return f"{name} is not supported: {reason}"
