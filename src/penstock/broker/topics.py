"""Topics as clients manage them: create, delete, add partitions, reassign, elect leaders.

Every use case turns a request into commands for the controller and calls back with one
result per item, in the order of the items. What changes logs (`create`, `add_partitions`,
`delete`) calls back when this node's logs are created or removed, or at the timeout: the metadata
is committed by then, and the logs follow.

`TopicService.auto_create` is for clients that ask for a topic which does not exist: those who ask
while it is being created share one command. The internal topics are created the same way when
they are first needed, with the configuration that their owners need. How fast clients may create topics
that way is limited (see `creation_rate`), except for internal ones.

`reassign` and `elect` call back when the controller has decided: a reassignment then takes as long as
the new replicas need to catch up, and the metadata shows how far it is.

Left out: quotas on how fast topics may be created by CreateTopics.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Generic, TypeAlias, TypeVar
from uuid import UUID

from penstock.broker.cluster import Controller
from penstock.broker.creation_rate import CreationLimits, CreationRate
from penstock.broker.partitions import ReplicaManager
from penstock.core.metadata import (
    AUDIT_TOPIC,
    BY_DEFAULT,
    DELAYED_TOPIC,
    OFFSETS_TOPIC,
    QUEUES_TOPIC,
    TRANSACTIONS_TOPIC,
    AlteredPartition,
    Command,
    CreatedPartitions,
    CreatedTopic,
    CreatePartitions,
    CreateTopic,
    DeletedTopic,
    DeleteTopic,
    ElectLeader,
    MetadataImage,
    ReassignPartition,
    ReplicaAssignment,
    Reply,
    broker_setting,
    is_internal,
)
from penstock.core.metadata.configs import NO_CONFIGS
from penstock.core.metadata.internal_topics import MESSAGE_BYTES_MIN, required_settings
from penstock.core.model import MILLISECOND, ApiError, ErrorKind, Instant, NodeId, TopicId
from penstock.core.values import dataclass
from penstock.runtime import Callback, Runtime
from penstock.runtime.fair_queue import Account
from penstock.runtime.sliced_work import NODE_ACCOUNT, SlicedWork, Slices

# The settings that say how many partitions, how many replicas, and how large a segment is.
_SETTINGS = {
    OFFSETS_TOPIC: (
        "offsets.topic.num.partitions",
        "offsets.topic.replication.factor",
        "offsets.topic.segment.bytes",
    ),
    TRANSACTIONS_TOPIC: (
        "transaction.state.log.num.partitions",
        "transaction.state.log.replication.factor",
        None,
    ),
    # Queues belong to groups, and their topic is set up as that of the groups' positions.
    QUEUES_TOPIC: (
        "offsets.topic.num.partitions",
        "offsets.topic.replication.factor",
        "offsets.topic.segment.bytes",
    ),
}
# Few, because what is due at once in one of them is published in one transaction; some, for several nodes.
DELAYED_PARTITIONS = 4
# Entries of audit logs are kept for so long at most, unless somebody says otherwise.
AUDIT_PARTITIONS = 1
AUDIT_RETENTION = (("retention.ms", str(7 * 86_400_000)), ("retention.bytes", str(1 << 30)))
R = TypeVar("R")
TIMED_OUT = ApiError(
    ErrorKind.TIMED_OUT, "the controller has not decided in time; the change may still take effect"
)
# What the controller is asked to decide in one go.
COMMANDS_PER_SLICE = 50
SLICE_NS = MILLISECOND
# Kafka's clients send their own; this is for other callers.
TIMEOUT_MS = 30_000
Created: TypeAlias = Callable[[list[CreatedTopic | ApiError]], None]
Deleted: TypeAlias = Callable[[list[DeletedTopic | ApiError]], None]
Grown: TypeAlias = Callable[[list[CreatedPartitions | ApiError]], None]
Changed: TypeAlias = Callable[[list[AlteredPartition | ApiError]], None]
QueuedCommand: TypeAlias = tuple[Command, Callable[[Reply], None]]
CreatedOne: TypeAlias = Callable[[CreatedTopic | ApiError], None]
TOO_FAST = ApiError(ErrorKind.TOPIC_CREATION_LIMITED, "too many topics are being created; try again later")
_DUPLICATE = ApiError(ErrorKind.INVALID_REQUEST, "the request names this topic more than once")


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 leaves a number to the cluster's defaults."""

    name: str
    partitions: int = BY_DEFAULT
    replication_factor: int = BY_DEFAULT
    assignments: tuple[ReplicaAssignment, ...] = ()
    configs: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """How many partitions a topic gets in total, and where the new ones go (None: anywhere)."""

    name: str
    count: int
    assignments: tuple[tuple[NodeId, ...], ...] | None = None


def internal_topic(name: str, image: MetadataImage, static: Mapping[str, str]) -> NewTopic | None:
    """An internal topic with the configuration that its owner needs; None for other names."""
    configs: list[tuple[str, str | None]] = list(required_settings(name).items())
    if name == DELAYED_TOPIC:
        factor = _number(image, "offsets.topic.replication.factor", static)
        configs.append(("max.message.bytes", str(MESSAGE_BYTES_MIN[name])))
        return NewTopic(name, DELAYED_PARTITIONS, factor, (), tuple(configs))
    if name == AUDIT_TOPIC:
        factor = _number(image, "offsets.topic.replication.factor", static)
        return NewTopic(name, AUDIT_PARTITIONS, factor, (), (*configs, *AUDIT_RETENTION))
    settings = _SETTINGS.get(name)
    if settings is None:
        return None
    partitions, replicas, segment = settings
    if segment is not None:
        configs.append(("segment.bytes", str(_number(image, segment, static))))
    return NewTopic(
        name, _number(image, partitions, static), _number(image, replicas, static), (), tuple(configs)
    )


def _number(image: MetadataImage, key: str, static: Mapping[str, str]) -> int:
    value = broker_setting(image, key, static=static)
    assert isinstance(value, int), key
    return value


class ReplyCollector(Generic[R]):
    """Collects one reply per item and hands them over together, once.

    When all are there and one of them changed something, `settle` calls back when the change
    has taken effect. At the deadline, items without a reply get TIMED_OUT.
    """

    def __init__(
        self,
        runtime: Runtime,
        kind: type[R],
        count: int,
        done: Callable[[list[R | ApiError]], None],
        timeout_ms: int = TIMEOUT_MS,
        settle: Callable[[Callback], None] | None = None,
    ) -> None:
        self._runtime = runtime
        self._kind = kind
        self._missing = count
        self._done: Callable[[list[R | ApiError]], None] | None = done
        self._settle = settle
        self._responses: list[R | ApiError] = [TIMED_OUT] * count
        deadline = Instant(runtime.clock.now() + max(timeout_ms, 0) * MILLISECOND)
        self._timer = runtime.timers.at(deadline, self._finish)
        if count == 0:
            runtime.timers.soon(self._finish)

    def slot(self, index: int) -> Callable[[Reply], None]:
        """A callback that takes the reply to one item."""

        def fill(reply: Reply) -> None:
            assert isinstance(reply, ApiError | self._kind), f"{reply} is not a reply to this command"
            self._responses[index] = reply
            self._missing -= 1
            if self._missing == 0:
                self._complete()

        return fill

    def refuse(self, index: int, error: ApiError) -> None:
        """Set the error of an item that does not become a command."""
        fill = self.slot(index)
        self._runtime.timers.soon(lambda: fill(error))

    def _complete(self) -> None:
        changed = any(not isinstance(reply, ApiError) for reply in self._responses)
        if self._settle is not None and changed:
            self._settle(self._finish)
        else:
            self._finish()

    def _finish(self) -> None:
        done, self._done = self._done, None
        if done is not None:
            self._timer.cancel()
            done(list(self._responses))


class CommandQueue:
    """Submits commands to the controller, a few in each turn of the loop: deciding them takes time.

    Those of one caller keep their order. Usually there are few, and they are submitted at once; the rest is
    long work of the client that asked for it.
    """

    def __init__(self, runtime: Runtime, controller: Controller, work: SlicedWork | None = None) -> None:
        self._clock = runtime.clock
        self._controller = controller
        # Its length is what waits: one that has nothing to do is no other one.
        self._work = SlicedWork(runtime.clock.now, runtime.timers.soon) if work is None else work

    def submit(self, commands: Iterator[QueuedCommand], account: Account = NODE_ACCOUNT) -> None:
        """Submit all of them, each with the callback for its reply."""
        slices = self._slices(commands)
        if next(slices, self) is not self:
            self._work.run(slices, account)

    def _slices(self, commands: Iterator[QueuedCommand]) -> Slices:
        clock, left = self._clock, COMMANDS_PER_SLICE
        end_ns = clock.now() + SLICE_NS
        for command in commands:
            self._controller.submit(*command)
            left -= 1
            if not left or clock.now() >= end_ns:
                yield
                left, end_ns = COMMANDS_PER_SLICE, clock.now() + SLICE_NS


def duplicates(names: Sequence[str]) -> frozenset[str]:
    """The names that occur more than once."""
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
    return frozenset(name for name, count in seen.items() if count > 1)


class TopicService:
    """The use cases for whole topics. `done` is never called inside the call that it was passed to."""

    def __init__(
        self,
        runtime: Runtime,
        controller: Controller,
        partitions: ReplicaManager,
        static: Mapping[str, str] = NO_CONFIGS,
        limits: CreationLimits | None = None,
        work: SlicedWork | None = None,
    ) -> None:
        self.creation_rate = CreationRate(limits or CreationLimits(), runtime.clock.now())
        self._runtime = runtime
        self._controller = controller
        self._partitions = partitions
        self._static = static
        self._creating: dict[str, list[CreatedOne]] = {}
        self._commands = CommandQueue(runtime, controller, work)

    def create(
        self,
        wanted: Sequence[NewTopic],
        done: Created,
        *,
        validate_only: bool = False,
        timeout_ms: int = TIMEOUT_MS,
        account: Account = NODE_ACCOUNT,
    ) -> None:
        """Create topics, each on its own; calls `done` when their logs exist."""
        names = [topic.name for topic in wanted]
        settle = None if validate_only else partial(self._partitions.on_topics_ready, names)
        gathering = ReplyCollector(self._runtime, CreatedTopic, len(wanted), done, timeout_ms, settle)
        twice = duplicates(names)

        def commands() -> Iterator[QueuedCommand]:
            for index, topic in enumerate(wanted):
                if topic.name in twice:
                    gathering.refuse(index, _DUPLICATE)
                else:
                    yield self._command(topic, validate_only), gathering.slot(index)

        self._commands.submit(commands(), account)

    def _command(self, topic: NewTopic, validate_only: bool) -> CreateTopic:
        return CreateTopic(
            topic.name,
            TopicId(UUID(bytes=self._runtime.entropy.bytes(16), version=4)),
            topic.partitions,
            topic.replication_factor,
            topic.assignments,
            topic.configs,
            validate_only,
        )

    def delete(
        self,
        doomed: Sequence[str | TopicId],
        done: Deleted,
        *,
        timeout_ms: int = TIMEOUT_MS,
        account: Account = NODE_ACCOUNT,
    ) -> None:
        """Delete topics by name or id; calls `done` when this node no longer serves them."""
        gathering = ReplyCollector(self._runtime, DeletedTopic, len(doomed), done, timeout_ms)
        commands = (
            (
                DeleteTopic(name=which) if isinstance(which, str) else DeleteTopic(topic_id=which),
                gathering.slot(index),
            )
            for index, which in enumerate(doomed)
        )
        self._commands.submit(commands, account)

    def add_partitions(
        self,
        wanted: Sequence[NewPartitions],
        done: Grown,
        *,
        validate_only: bool = False,
        timeout_ms: int = TIMEOUT_MS,
        account: Account = NODE_ACCOUNT,
    ) -> None:
        """Add partitions to topics; calls `done` when their logs exist."""
        names = [more.name for more in wanted]
        settle = None if validate_only else partial(self._partitions.on_topics_ready, names)
        gathering = ReplyCollector(self._runtime, CreatedPartitions, len(wanted), done, timeout_ms, settle)
        twice = duplicates(names)

        def commands() -> Iterator[QueuedCommand]:
            for index, more in enumerate(wanted):
                if more.name in twice:
                    gathering.refuse(index, _DUPLICATE)
                else:
                    command = CreatePartitions(more.name, more.count, more.assignments, validate_only)
                    yield command, gathering.slot(index)

        self._commands.submit(commands(), account)

    def reassign(
        self,
        wanted: Sequence[ReassignPartition],
        done: Changed,
        *,
        timeout_ms: int = TIMEOUT_MS,
        account: Account = NODE_ACCOUNT,
    ) -> None:
        """Start or cancel reassignments; calls `done` when that is decided, not when they end."""
        self._change(wanted, done, timeout_ms, account)

    def elect(
        self,
        wanted: Sequence[ElectLeader],
        done: Changed,
        *,
        timeout_ms: int = TIMEOUT_MS,
        account: Account = NODE_ACCOUNT,
    ) -> None:
        """Elect other leaders; calls `done` when that is decided."""
        self._change(wanted, done, timeout_ms, account)

    def _change(
        self,
        wanted: Sequence[ReassignPartition | ElectLeader],
        done: Changed,
        timeout_ms: int,
        account: Account,
    ) -> None:
        gathering = ReplyCollector(self._runtime, AlteredPartition, len(wanted), done, timeout_ms)
        commands = ((command, gathering.slot(index)) for index, command in enumerate(wanted))
        self._commands.submit(commands, account)

    def auto_create(
        self, name: str, done: CreatedOne, *, timeout_ms: int = TIMEOUT_MS, client: str = ""
    ) -> None:
        """Create a topic because a client asked for it; concurrent callers share result and timeout.

        Internal topics are always created, others if `auto.create.topics.enable` is set. A topic
        that exists already counts as created. A client that asks for too many is told to try again later.
        """
        waiting = self._creating.get(name)
        if waiting is not None:
            waiting.append(done)
            return
        allowed = broker_setting(self._controller.image, "auto.create.topics.enable", static=self._static)
        if not (allowed or is_internal(name)):
            error = ApiError(ErrorKind.UNKNOWN_TOPIC, f"there is no topic '{name}'")
            self._runtime.timers.soon(lambda: done(error))
            return
        if not is_internal(name) and not self.creation_rate.admit(client, self._runtime.clock.now()):
            self._runtime.timers.soon(lambda: done(TOO_FAST))
            return
        self._creating[name] = [done]
        self.create(
            [self._automatic(name)],
            lambda replies: self._created(name, replies[0]),
            timeout_ms=timeout_ms,
        )

    def _automatic(self, name: str) -> NewTopic:
        special = internal_topic(name, self._controller.image, self._static)
        return NewTopic(name) if special is None else special

    def _created(self, name: str, reply: CreatedTopic | ApiError) -> None:
        topic = self._controller.image.topic(name)
        if isinstance(reply, ApiError) and reply.kind is ErrorKind.TOPIC_EXISTS and topic is not None:
            # Another request created it first: the callers have what they wanted.
            reply = CreatedTopic(topic.name, topic.id, len(topic.partitions), topic.replication_factor)
        for done in self._creating.pop(name):
            done(reply)
