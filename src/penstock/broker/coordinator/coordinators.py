"""The coordinators of one internal topic: those that this node leads, and where the others are.

Kafka's rule says which partition coordinates a key (a group id, a transactional id), so that its
tools find the records where they expect them: Java's hash of the key, made positive, modulo the
number of partitions.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol

from penstock.broker.coordinator.log_replay import LogReplay
from penstock.broker.coordinator.runtime import (
    C,
    Coordinator,
    CoordinatorContext,
    CoordinatorOptions,
    CoordinatorSpec,
    CoordinatorState,
    F,
    M,
)
from penstock.broker.lease import BrokerLease
from penstock.broker.partitions import LeaderPartition
from penstock.core.metadata import NO_LEADER, CreatedTopic, MetadataImage, Topic
from penstock.core.model import ApiError, ErrorKind, NodeId
from penstock.observability import log as events
from penstock.runtime import Runtime

_BITS = 0xFFFF_FFFF
_SIGN = 0x8000_0000
NO_TOPIC = ApiError(
    ErrorKind.COORDINATOR_NOT_AVAILABLE, "the coordinators' topic is being created; try again"
)
NO_LOG_YET = ApiError(ErrorKind.COORDINATOR_LOADING, "the coordinator's log is being opened")
NOT_HERE = ApiError(ErrorKind.NOT_COORDINATOR)
# Group ids and transactional ids have at most 8,000 characters; the key of a queue names its topic besides.
KEY_CHARS_MAX = 8_100
KEY_TOO_LONG = ApiError(ErrorKind.INVALID_REQUEST, f"an id has at most {KEY_CHARS_MAX} characters")
# The partitions of longer keys are not remembered: a client would choose what that takes.
REMEMBERED_CHARS_MAX = 256


class LedPartitions(Protocol):
    """The partitions that this node leads, and until when it may answer for them."""

    @property
    def lease(self) -> BrokerLease: ...

    def find(self, topic: str, index: int) -> LeaderPartition | None: ...

    def on_logs_ready(self, done: Callable[[], None]) -> None: ...


class InternalTopicCreator(Protocol):
    """Creates an internal topic unless it exists; `done` is called when it is usable here, or failed."""

    def auto_create(self, name: str, done: Callable[[CreatedTopic | ApiError], None]) -> None: ...


def java_hash(text: str) -> int:
    """`String.hashCode`: over UTF-16 code units, in 32 bits with a sign."""
    units = text.encode("utf-16-be", "surrogatepass")
    hashed = 0
    for at in range(0, len(units), 2):
        hashed = (hashed * 31 + (units[at] << 8 | units[at + 1])) & _BITS
    return hashed - (_BITS + 1) if hashed & _SIGN else hashed


def partition_of(key: str, partitions: int) -> int:
    """The partition that coordinates the key; it is asked for with every heartbeat."""
    if len(key) > REMEMBERED_CHARS_MAX:
        return _partition_of(key, partitions)
    return _remembered_partition_of(key, partitions)


def _partition_of(key: str, partitions: int) -> int:
    hashed = java_hash(key)
    # The smallest integer has no positive counterpart in Java: it counts as 0 there.
    return 0 if hashed == -_SIGN else abs(hashed) % partitions


_remembered_partition_of = functools.lru_cache(maxsize=4096)(_partition_of)


class _Replies:
    """Gathers what several coordinators reply; an error while one of them loads."""

    __slots__ = ("_done", "_refused", "_replies", "_waiting")

    def __init__(self, coordinators: int, done: Callable[[list[Any] | ApiError], None]) -> None:
        self._done = done
        self._replies: list[Any] = []
        self._refused: ApiError | None = None
        # One for the end, so that nothing is done before all were asked.
        self._waiting = coordinators + 1

    def take(self, reply: Any) -> None:
        if not isinstance(reply, ApiError):
            self._replies.append(reply)
        elif reply.kind is not ErrorKind.NOT_COORDINATOR:
            # One that was given up meanwhile is listed by another node.
            self._refused = reply
        self.end()

    def end(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._done(self._refused or self._replies)


class Coordinators(Generic[M, C, F]):
    """Takes over and gives up coordinators as the metadata says, and finds the one of a key.

    Call `on_metadata` after `ReplicaManager.on_metadata`.
    """

    def __init__(
        self,
        node_id: NodeId,
        runtime: Runtime,
        partitions: LedPartitions,
        topics: InternalTopicCreator,
        spec: CoordinatorSpec[M, C, F],
        options: CoordinatorOptions | None = None,
    ) -> None:
        self._node_id = node_id
        self._timers = runtime.timers
        self._partitions = partitions
        self._topics = topics
        self._topic_name = spec.topic
        replay = LogReplay(runtime)
        self._context = CoordinatorContext(
            spec, runtime, replay, partitions.lease, options or CoordinatorOptions()
        )
        self._led: dict[int, Coordinator[M, C, F]] = {}
        self._topic: Topic | None = None
        self._count = 0
        self._waiting: list[Callable[[ApiError | None], None]] = []
        self._creating = False
        self._stopped = False

    def find(self, key: str) -> Coordinator[M, C, F] | ApiError:
        """The key's coordinator, if it is on this node."""
        if self._topic is None:
            self._create_topic()
            return NO_TOPIC
        if len(key) <= REMEMBERED_CHARS_MAX:
            index = _remembered_partition_of(key, self._count)
        elif len(key) <= KEY_CHARS_MAX:
            index = _partition_of(key, self._count)
        else:
            return KEY_TOO_LONG
        coordinator = self._led.get(index)
        return self.at(index) if coordinator is None else coordinator

    def at(self, index: int) -> Coordinator[M, C, F] | ApiError:
        """The coordinator of a partition, if it is on this node."""
        if self._topic is None or not 0 <= index < self._count:
            return NO_TOPIC
        coordinator = self._led.get(index)
        if coordinator is not None:
            return coordinator
        ours = self._topic.partitions[index].leader == self._node_id
        return NO_LOG_YET if ours else NOT_HERE

    def locate(self, key: str, done: Callable[[NodeId | ApiError], None]) -> None:
        """Find the node that coordinates the key; the topic is created on the first call."""
        if len(key) > KEY_CHARS_MAX:
            done(KEY_TOO_LONG)
            return

        def created(error: ApiError | None) -> None:
            done(error or self.leader_at(partition_of(key, self._count)))

        self.when_created(created)

    def when_created(self, done: Callable[[ApiError | None], None]) -> None:
        """Have the topic; it is created on the first call."""
        if self._topic is not None and not self._creating:
            done(None)
            return
        self._waiting.append(done)
        self._create_topic()

    @property
    def count(self) -> int:
        """How many partitions the topic has; none before it is created."""
        return self._count

    def ask_each(
        self,
        command: Callable[[Callable[[Any], None]], C],
        done: Callable[[list[Any] | ApiError], None],
    ) -> None:
        """Ask every coordinator of this node, each in a turn of the loop of its own: it looks at all it has.

        `command` makes the command for a callback; `done` gets all replies, perhaps at once.
        """
        coordinators = list(self._led.values())
        replies = _Replies(len(coordinators), done)
        unasked = iter(coordinators)

        def ask_next() -> None:
            coordinator = next(unasked, None)
            if coordinator is None:
                replies.end()
            else:
                coordinator.submit(command(replies.take))
                self._timers.soon(ask_next)

        ask_next()

    def on_metadata(self, image: MetadataImage) -> None:
        """Take over and give up coordinators as the cluster's metadata says."""
        topic = image.topic(self._topic_name)
        closed = any(each.state is CoordinatorState.CLOSED for each in self._led.values())
        if topic is not self._topic or closed:
            self._topic = topic
            self._count = 0 if topic is None else len(topic.partitions)
            self._take_over()
            # Logs that are still being created come later.
            self._timers.soon(lambda: self._partitions.on_logs_ready(self._take_over))

    def on_leadership_change(self) -> None:
        """The node leads other partitions than before: a log may be created long after its topic."""
        if not self._stopped:
            self._take_over()

    def stop(self) -> None:
        """Give up every coordinator: commands that wait get NOT_COORDINATOR."""
        self._stopped = True
        led, self._led = self._led, {}
        for coordinator in led.values():
            coordinator.close("the node is stopping", is_stopping=True)

    def __iter__(self) -> Iterator[Coordinator[M, C, F]]:
        return iter(list(self._led.values()))

    def leader_at(self, index: int) -> NodeId | ApiError:
        """The node that coordinates the partition."""
        if self._topic is None or not 0 <= index < self._count:
            return NO_TOPIC
        leader = self._topic.partitions[index].leader
        return NO_TOPIC if leader == NO_LEADER else leader

    def _create_topic(self) -> None:
        if not self._creating:
            self._creating = True
            self._topics.auto_create(self._topic_name, self._topic_created)

    def _topic_created(self, reply: CreatedTopic | ApiError) -> None:
        self._creating = False
        self._take_over()
        error = NO_TOPIC
        if isinstance(reply, ApiError):
            error = ApiError(ErrorKind.COORDINATOR_NOT_AVAILABLE, reply.detail or reply.kind.value)
            events.warning("coordinator.no_topic", topic=self._topic_name, reason=error.detail)
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done(error if self._topic is None else None)

    def _take_over(self) -> None:
        """Have a coordinator for every partition of the topic that this node leads, and no other."""
        wanted = dict(self._partitions_led())
        for index, coordinator in list(self._led.items()):
            closed = coordinator.state is CoordinatorState.CLOSED
            if closed or wanted.get(index) is not coordinator.partition:
                del self._led[index]
                coordinator.close("this node does not lead the partition")
        for index, partition in wanted.items():
            if index not in self._led:
                self._led[index] = coordinator = Coordinator(partition, self._context)
                coordinator.start()

    def _partitions_led(self) -> Iterator[tuple[int, LeaderPartition]]:
        for state in self._topic.partitions if self._topic is not None else ():
            if state.leader == self._node_id:
                partition = self._partitions.find(self._topic_name, state.index)
                if partition is not None and partition.stopped is None:
                    yield state.index, partition
