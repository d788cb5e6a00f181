"""Clients that change the metadata: topics come and go, grow, and are configured."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.broker.partitions import FsyncMode
from penstock.core.metadata import ConfigOperation
from penstock.core.protocol import ErrorCode, Message
from penstock.core.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsRequestTopic,
)
from penstock.core.protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
)
from penstock.core.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsRequestTopic
from penstock.core.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
)
from penstock.core.protocol.schema import ZERO_UUID
from penstock.core.queues import QueueSettings
from penstock.sim.checkers.metadata import RegisterChange
from penstock.sim.cluster.clients.client import ClusterNodes, SimulatedClient, VersionPolicy
from penstock.sim.cluster.clients.connection import RequestLost
from penstock.sim.cluster.node import FLUSH, MINIMUM, SETTING, Register, RegisterKind
from penstock.sim.cluster.options import (
    JOBS,
    PRIVATE,
    REDRIVEN,
    RETURNS,
    TOPIC,
    TRANSFERS,
    QueueGroup,
    SimulatedClusterOptions,
)

TIMEOUT_MS = 1_000
PARTITIONS_MAX = 4
MINIMUM_USUAL = 2
# One at a time changes the topic that all clients work with.
FIRST_ADMIN = "admin-0"
TOPIC_RESOURCE, GROUP_RESOURCE = 2, 32
DELETE_IDS_SINCE = 6
# Nobody knows what became of it.
UNCERTAIN = (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.KAFKA_STORAGE_ERROR)


@dataclass(frozen=True, slots=True)
class MetadataChange:
    """What a register shall be, how to ask for it, and the error that says that it is so already."""

    register: Hashable
    value: bool | int | str | bytes | float | None
    # The request in a version, and its one row in a response.
    kind: type[Message]
    request: Callable[[int], Message]
    row: Callable[[Any], Any]
    already: ErrorCode | None


class MetadataClient(SimulatedClient):
    """Asks any node for changes, for each until it is done or fails for good."""

    def __init__(self, nodes: ClusterNodes, host: str, policy: VersionPolicy | None = None) -> None:
        super().__init__(nodes, host, policy)
        self._stopped = False

    def stop(self) -> None:
        self._stopped = True

    def _wish(self, wish: MetadataChange, then: Callable[[], None]) -> None:
        change = self.journal.metadata.changing(wish.register, wish.value)
        node_id = self.any_node()
        node = self.nodes.node(node_id)
        # Of the image of the node that acknowledges, when it does.
        versions: list[int] = []

        def answered(reply: object) -> None:
            if self._is_over(wish, change, reply, versions):
                then()
            elif not self._stopped:
                self.after_ms(self.backoff_ms(), self._wish, wish, then)

        version = self.versions.of(wish.kind)
        request = wish.request(version)
        self.ask(node_id, request, version, answered, lambda _: versions.append(node.metadata_version()))

    def _is_over(
        self, wish: MetadataChange, change: RegisterChange, reply: object, versions: list[int]
    ) -> bool:
        if reply is RequestLost.LOST:
            return False
        code, metadata = wish.row(reply).error_code, self.journal.metadata
        if code in (ErrorCode.NONE, wish.already):
            metadata.done(change, versions[0])
            return True
        if code in UNCERTAIN:
            return False
        metadata.refused(change)
        return self._gives_up(wish, ErrorCode(code))

    def _gives_up(self, wish: MetadataChange, _code: ErrorCode) -> bool:
        """Whether a change that was refused is not asked for again."""
        raise NotImplementedError


class SimulatedAdmin(MetadataClient):
    """Creates topics and deletes them, and changes one that stays."""

    def __init__(self, nodes: ClusterNodes, host: str, options: SimulatedClusterOptions) -> None:
        super().__init__(nodes, host)
        # A topic that is never deleted: it is configured, and grows.
        self._settled = f"{host}-settled"
        self._partitions = 0
        self._replicas = options.replicas
        self._pace_ms = options.pace_ms * 2
        self._has_fsync_changes = options.fsync is not FsyncMode.EVERY
        self._topics: list[str] = []
        self._made = 0

    def start(self) -> None:
        self._wish(_creation(self._settled, 1, self._replicas), self._begun)

    def _begun(self) -> None:
        self._partitions = 1
        self._rest()

    def _rest(self) -> None:
        if not self._stopped:
            self.after_ms(self._pace_ms * 2 * self.luck.random(), self._step)

    def _step(self) -> None:
        luck = self.luck.random()
        if luck < 0.35 or not self._topics:
            self._made += 1
            name = f"{self.host}-{self._made}"
            self._topics.append(name)
            self._wish(_creation(name, 1, self._replicas), self._rest)
        elif luck < 0.6:
            name = self._topics.pop(self.luck.randrange(len(self._topics)))
            self._wish(_deletion(name), self._rest)
        elif luck < 0.65 and self._partitions < PARTITIONS_MAX:
            self._partitions += 1
            self._wish(_growth(self._settled, self._partitions), self._rest)
        elif luck < 0.7 and self._replicas > MINIMUM_USUAL and self.host == FIRST_ADMIN:
            # For a while writes need all replicas.
            self._wish(_minimum(self._replicas), self._lower)
        elif luck < 0.8 and self._has_fsync_changes and self.host == FIRST_ADMIN:
            self._wish(_flush(self.luck.choice((1, 5, 1_000_000))), self._rest)
        else:
            self._wish(_setting(self._settled, self.luck.randint(10_000, 1_000_000)), self._rest)

    def _lower(self) -> None:
        self.after_ms(self._pace_ms, self._wish, _minimum(MINIMUM_USUAL), self._rest)

    def _gives_up(self, wish: MetadataChange, _code: ErrorCode) -> bool:
        # Too few brokers are there, or the topic is gone because a creation failed.
        assert isinstance(wish.register, Register)
        return wish.register.topic not in (self._settled, TOPIC)


class TopicCreation(SimulatedClient):
    """The first client of a cluster: asks until the topics are there that all others work with."""

    def __init__(self, nodes: ClusterNodes, options: SimulatedClusterOptions) -> None:
        super().__init__(nodes, "creator")
        # In front of their topic: whoever knows that knows them.
        self._wishes = [_group_settings(group) for group in options.queue_groups]
        self._wishes += [_creation(TOPIC, options.partitions, options.replicas, options.topic_configs)]
        if options.has_transactions:
            configs = {"min.insync.replicas": options.topic_configs["min.insync.replicas"]}
            self._wishes.append(_creation(TRANSFERS, options.partitions, options.replicas, configs))
        if options.queue_consumers:
            configs = {"min.insync.replicas": options.topic_configs["min.insync.replicas"]}
            # Nodes' clocks may be hours behind.
            configs["message.timestamp.after.max.ms"] = str(2**62)
            self._wishes.append(_creation(JOBS, options.partitions, options.replicas, configs))
        if options.queue_redrivers:
            configs = {"min.insync.replicas": options.topic_configs["min.insync.replicas"]}
            # Whoever moves dead letters gives them the time of its own clock.
            configs["message.timestamp.after.max.ms"] = str(2**62)
            self._wishes.append(_creation(REDRIVEN, options.partitions, options.replicas, configs))
        if options.access_users:
            configs = {"min.insync.replicas": options.topic_configs["min.insync.replicas"]}
            self._wishes.append(_creation(PRIVATE, options.partitions, options.replicas, configs))
        if options.consumer_members:
            self._wishes.append(_creation(RETURNS, options.partitions, options.replicas))

    @property
    def finished(self) -> bool:
        return not self._wishes

    def start(self) -> None:
        version = self.versions.of(self._wishes[0].kind)
        self.ask(self.any_node(), self._wishes[0].request(version), version, self._created)

    def _created(self, reply: object) -> None:
        is_lost = reply is RequestLost.LOST
        code = ErrorCode.REQUEST_TIMED_OUT if is_lost else self._wishes[0].row(reply).error_code
        if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            del self._wishes[0]
            if self._wishes:
                self.start()
        else:
            self.after_ms(self.backoff_ms(), self.start)


def _creation(
    name: str, partitions: int, replicas: int, settings: Mapping[str, str] | None = None
) -> MetadataChange:
    configs = tuple(
        CreateTopicsRequestConfig(name=key, value=value) for key, value in (settings or {}).items()
    )
    topic = CreateTopicsRequestTopic(
        name=name, num_partitions=partitions, replication_factor=replicas, assignments=(), configs=configs
    )
    return MetadataChange(
        Register(RegisterKind.EXISTS, name),
        True,
        CreateTopicsRequest,
        lambda _: CreateTopicsRequest(topics=(topic,), timeout_ms=TIMEOUT_MS),
        lambda response: response.topics[0],
        ErrorCode.TOPIC_ALREADY_EXISTS,
    )


def _deletion(name: str) -> MetadataChange:
    def request(version: int) -> DeleteTopicsRequest:
        if version < DELETE_IDS_SINCE:
            return DeleteTopicsRequest(topic_names=(name,), timeout_ms=TIMEOUT_MS)
        topic = DeleteTopicsRequestTopic(name=name, topic_id=ZERO_UUID)
        return DeleteTopicsRequest(topics=(topic,), timeout_ms=TIMEOUT_MS)

    return MetadataChange(
        Register(RegisterKind.EXISTS, name),
        False,
        DeleteTopicsRequest,
        request,
        lambda response: response.responses[0],
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )


def _growth(name: str, count: int) -> MetadataChange:
    topic = CreatePartitionsRequestTopic(name=name, count=count, assignments=None)
    return MetadataChange(
        Register(RegisterKind.PARTITIONS, name),
        count,
        CreatePartitionsRequest,
        lambda _: CreatePartitionsRequest(topics=(topic,), timeout_ms=TIMEOUT_MS, validate_only=False),
        lambda response: response.results[0],
        ErrorCode.INVALID_PARTITIONS,
    )


def _setting(name: str, value: int) -> MetadataChange:
    return _config(Register(RegisterKind.SETTING, name), SETTING, value)


def _minimum(value: int) -> MetadataChange:
    return _config(Register(RegisterKind.MINIMUM, TOPIC), MINIMUM, value)


def _flush(records: int) -> MetadataChange:
    """Sync after so many records: after one, producers wait for it."""
    return _config(Register(RegisterKind.FLUSH, TOPIC), FLUSH, records)


def _group_settings(group: QueueGroup) -> MetadataChange:
    settings = group.settings
    values = {
        "queue.key.ordered": str(settings.is_key_ordered).lower(),
        "queue.retries.max": str(settings.deliveries_max - 1),
        "queue.backoff.ms": str(settings.backoff_ms),
        "queue.backoff.max.ms": str(settings.backoff_ms_max),
    }
    if settings.lease_ms != QueueSettings().lease_ms:
        values["queue.visibility.timeout.ms"] = str(settings.lease_ms)
    configs = tuple(
        IncrementalAlterConfigsRequestConfig(
            name=name, config_operation=ConfigOperation.SET.value, value=value
        )
        for name, value in values.items()
    )
    resource = IncrementalAlterConfigsRequestResource(
        resource_type=GROUP_RESOURCE, resource_name=group.name, configs=configs
    )
    return MetadataChange(
        Register(RegisterKind.SETTING, group.name),
        str(settings),
        IncrementalAlterConfigsRequest,
        lambda _: IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False),
        lambda response: response.responses[0],
        None,
    )


def _config(register: Register, setting: str, value: int) -> MetadataChange:
    config = IncrementalAlterConfigsRequestConfig(
        name=setting, config_operation=ConfigOperation.SET.value, value=str(value)
    )
    resource = IncrementalAlterConfigsRequestResource(
        resource_type=TOPIC_RESOURCE, resource_name=register.topic, configs=(config,)
    )
    return MetadataChange(
        register,
        str(value),
        IncrementalAlterConfigsRequest,
        lambda _: IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False),
        lambda response: response.responses[0],
        None,
    )
