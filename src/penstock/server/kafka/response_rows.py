"""Parts of responses that several handlers share: rows, authorized operations, topics of Metadata.

A topic's Metadata row is built once and cached while the topic, the brokers and its logs stay as
they are: images share what did not change between them, so an unchanged topic is the same object
in the next image too.

Left out: error codes (`errors`) and addresses (`node_addresses`), which every handler needs.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from penstock.broker.cluster import Controller
from penstock.broker.coordinator.group_metrics import ClientKey
from penstock.core.groups import PartitionSet, rows
from penstock.core.metadata import MetadataImage, Partition, Topic
from penstock.core.model import ApiError, ErrorKind, NodeId, TopicId
from penstock.core.protocol import ErrorCode, Steps
from penstock.core.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from penstock.security import AclOperation, Resource, ResourceType
from penstock.server.kafka.errors import code_of, message_of
from penstock.server.kafka.node_addresses import ListenerView, PartitionAvailability
from penstock.server.kafka.request import Request

Row = TypeVar("Row")
H = TypeVar("H", bound=Hashable)
# The value when the client did not ask for it.
NOT_ASKED = -(2**31)
CLUSTER = Resource(ResourceType.CLUSTER, "kafka-cluster")
# The position of each operation's bit: the number that access control lists give it.
_BITS = {
    AclOperation.READ: 3,
    AclOperation.WRITE: 4,
    AclOperation.CREATE: 5,
    AclOperation.DELETE: 6,
    AclOperation.ALTER: 7,
    AclOperation.DESCRIBE: 8,
    AclOperation.CLUSTER_ACTION: 9,
    AclOperation.DESCRIBE_CONFIGS: 10,
    AclOperation.ALTER_CONFIGS: 11,
    AclOperation.IDEMPOTENT_WRITE: 12,
}
# What can be done to each kind of resource.
_POSSIBLE = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
}
R = TypeVar("R")
# A member's fields must fit into responses of every version, and into the coordinator's records.
NAME_CHARS_MAX = 1_000
# Up to this version unreachable replicas are left out, and only the first error is reported.
FILTERED_UNTIL = 0
LISTENER_ERRORS_SINCE = 6
# Names that are only compared take a fraction of a microsecond each.
KEYS_PER_STEP = 16
# Most topics have a row that was made before.
TOPICS_PER_STEP = 4
# How many rows of deleted topics may pile up.
SPARE_ROWS = 100


def collected(rows: Iterable[Row]) -> Steps[tuple[Row, ...]]:
    """All rows, each made in a step of its own."""
    found: list[Row] = []
    for row in rows:
        found.append(row)
        yield
    return tuple(found)


def unique(keys: Iterable[H]) -> Steps[dict[H, None]]:
    """Each once, in the order in which they first occur: what is asked for twice is done once."""
    seen: dict[H, None] = {}
    for count, key in enumerate(keys):
        seen[key] = None
        if count % KEYS_PER_STEP == 0:
            yield
    return seen


def by_topic(rows: Iterable[tuple[str, Row]]) -> list[tuple[str, tuple[Row, ...]]]:
    """The rows of each topic, topics in the order in which they first occur."""
    topics: dict[str, list[Row]] = {}
    for name, row in rows:
        topics.setdefault(name, []).append(row)
    return [(name, tuple(parts)) for name, parts in topics.items()]


def by_topic_in_steps(rows: Iterable[tuple[str, Row]]) -> Steps[list[tuple[str, tuple[Row, ...]]]]:
    """The same for any number of rows, each made in a step of its own."""
    topics: dict[str, list[Row]] = {}
    for name, row in rows:
        topics.setdefault(name, []).append(row)
        yield
    found: list[tuple[str, tuple[Row, ...]]] = []
    for name, parts in topics.items():
        found.append((name, tuple(parts)))
        yield
    return found


def may_see_topics(
    call: Request, members: Iterable[tuple[tuple[str, ...], tuple[PartitionSet, ...]]]
) -> Steps[bool]:
    """Whether the caller may describe all that these members subscribe to, and all that they have.

    The two differ: a pattern names no topic, and a member gives up what it has only with its next heartbeat.
    """
    topic_name = call.backend.controller.image.topic_name
    # Most members are about the same topics.
    seen: set[str] = set()
    for subscribed, assignments in members:
        assigned = [topic_name(topic_id) for partitions in assignments for topic_id, _ in rows(partitions)]
        for name in (*subscribed, *filter(None, assigned)):
            if name in seen:
                continue
            if not call.permits(AclOperation.DESCRIBE, topic_resource(name)):
                return False
            seen.add(name)
            yield
        yield
    return True


def error_fields(outcome: object) -> tuple[ErrorCode, str | None]:
    """The error code of an outcome, and the message if it failed."""
    return (
        (code_of(outcome), message_of(outcome)) if isinstance(outcome, ApiError) else (ErrorCode.NONE, None)
    )


def shared_code(outcomes: Sequence[object]) -> tuple[ErrorCode, str | None]:
    """The code of the whole response: NOT_CONTROLLER, if everything failed for that reason.

    Clients look up the controller and retry if they find it there, not in the rows.
    """
    if outcomes and all(_is_leaderless(outcome) for outcome in outcomes):
        return error_fields(outcomes[0])
    return ErrorCode.NONE, None


def _is_leaderless(outcome: object) -> bool:
    return isinstance(outcome, ApiError) and outcome.kind is ErrorKind.NOT_CONTROLLER


def repeated(keys: Iterable[H]) -> Steps[frozenset[H]]:
    """Those that occur more than once."""
    seen: dict[H, bool] = {}
    for count, key in enumerate(keys):
        seen[key] = key in seen
        if count % KEYS_PER_STEP == 0:
            yield
    return frozenset([key for key, is_again in seen.items() if is_again])


def topic_resource(name: str) -> Resource:
    return Resource(ResourceType.TOPIC, name)


def authorized_operations(call: Request, resource: Resource) -> int:
    """Everything that the caller may do to a resource."""
    bits = 0
    for operation in _POSSIBLE[resource.kind]:
        if call.permits(operation, resource):
            bits |= 1 << _BITS[operation]
    return bits


def may_create(call: Request, name: str) -> bool:
    """Whether the caller may create the topic: because of it, or because they may create any."""
    operation, topic = AclOperation.CREATE, topic_resource(name)
    allowed = call.permits(operation, CLUSTER) or call.permits(operation, topic)
    return call.decide(operation, topic, allowed=allowed)


def group_resource(group_id: str) -> Resource:
    return Resource(ResourceType.GROUP, group_id)


def may(call: Request, operation: AclOperation, group_id: str) -> bool:
    return call.authorize(operation, Resource(ResourceType.GROUP, group_id))


def may_use_id(call: Request, operation: AclOperation, transactional_id: str) -> bool:
    return call.authorize(operation, Resource(ResourceType.TRANSACTIONAL_ID, transactional_id))


def code_in(reply: object) -> ErrorCode:
    """The error that a reply stands for, if it does."""
    return code_of(reply) if isinstance(reply, ApiError) else ErrorCode.NONE


def reader_of(call: Request) -> ClientKey:
    """Who is calling, in the form that a group keeps of its members."""
    # An address as Java shows it, and Kafka's tools with it.
    return ClientKey(call.session.client_id[:NAME_CHARS_MAX], f"/{call.session.host}")


class ResponseRows(Generic[R]):
    """The rows of a response, filled in any order, and sent when the last one is there."""

    __slots__ = ("_left", "_rows", "_send")

    def __init__(self, count: int, send: Callable[[tuple[R, ...]], None]) -> None:
        self._rows: list[R | None] = [None] * count
        self._send = send
        # One for the caller, so that nothing is sent before every row was requested.
        self._left = count + 1

    def put(self, index: int, row: R) -> None:
        self._rows[index] = row
        self.end()

    def end(self) -> None:
        """One row less to wait for."""
        self._left -= 1
        if not self._left:
            # Rows are never empty.
            self._send(tuple(filter(None, self._rows)))


class _Kept(NamedTuple):
    """A row without errors, and what it was built from."""

    topic: Topic
    live: frozenset[NodeId]
    row: MetadataResponseTopic


class _Cache:
    """The rows of one node's topics, and the list of all topics."""

    def __init__(self) -> None:
        self.rows: dict[TopicId, _Kept] = {}
        self._listed: tuple[MetadataImage | None, list[Topic]] = (None, [])

    def topics(self, image: MetadataImage) -> list[Topic]:
        """Every topic in the order of names."""
        listed, topics = self._listed
        if listed is None or listed.topics is not image.topics:
            topics = list(image.each_topic())
            self._listed = (image, topics)
        return topics

    def keep(self, kept: _Kept, image: MetadataImage) -> None:
        self.rows[kept.topic.id] = kept
        if len(self.rows) > 2 * len(image.topics) + SPARE_ROWS:
            self.rows = {known: row for known, row in self.rows.items() if known in image.topics}


_CACHES: WeakKeyDictionary[Controller, _Cache] = WeakKeyDictionary()


class TopicRows:
    """Builds the rows of topics for one response."""

    def __init__(self, call: Request, reach: ListenerView, *, with_operations: bool) -> None:
        self._call = call
        self._reach = reach
        self._with_operations = with_operations
        controller = call.backend.controller
        found = _CACHES.get(controller)
        if found is None:
            found = _CACHES[controller] = _Cache()
        self._cache = found

    def everything(self) -> Steps[tuple[MetadataResponseTopic, ...]]:
        """Every topic that the caller may describe."""
        call = self._call
        rows: list[MetadataResponseTopic] = []
        for count, topic in enumerate(self._cache.topics(call.backend.controller.image)):
            if call.permits(AclOperation.DESCRIBE, topic_resource(topic.name)):
                row = yield from self.row(topic)
                rows.append(row)
            if count % TOPICS_PER_STEP == 0:
                yield
        return tuple(rows)

    def row(self, topic: Topic) -> Steps[MetadataResponseTopic]:
        kept = self._cache.rows.get(topic.id)
        reach = self._reach
        if (
            kept is not None
            and kept.topic is topic
            and kept.live == reach.live
            and not reach.lost_a_leader(topic)
        ):
            row = kept.row
        else:
            row = yield from self._make(topic)
        if self._with_operations:
            operations = authorized_operations(self._call, topic_resource(topic.name))
            row = msgspec.structs.replace(row, topic_authorized_operations=operations)  # type: ignore[type-var]
        return row

    def _make(self, topic: Topic) -> Steps[MetadataResponseTopic]:
        reach, version = self._reach, self._call.version
        partitions: list[MetadataResponsePartition] = []
        is_healthy = True
        for partition in topic.partitions:
            standing = reach.standing(topic.name, partition)
            is_healthy = is_healthy and standing.is_healthy
            partitions.append(_row(partition, standing, version))
            yield
        row = MetadataResponseTopic(
            error_code=ErrorCode.NONE,
            name=topic.name,
            topic_id=topic.id,
            is_internal=topic.internal,
            partitions=tuple(partitions),
        )
        if is_healthy:
            self._cache.keep(_Kept(topic, self._reach.live, row), self._call.backend.controller.image)
        return row


def _row(partition: Partition, standing: PartitionAvailability, version: int) -> MetadataResponsePartition:
    code, leader, offline = standing
    replicas, isr = partition.replicas, partition.isr
    if version <= FILTERED_UNTIL and offline:
        replicas = tuple(node_id for node_id in replicas if node_id not in offline)
        isr = tuple(node_id for node_id in isr if node_id not in offline)
        code = ErrorCode.REPLICA_NOT_AVAILABLE if code is ErrorCode.NONE else code
    if version < LISTENER_ERRORS_SINCE and code is ErrorCode.LISTENER_NOT_FOUND:
        code = ErrorCode.LEADER_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=code,
        partition_index=partition.index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=offline,
    )
