"""Every group that this node coordinates."""

from collections.abc import Callable, Iterator
from typing import Protocol
from uuid import UUID

from penstock.core.groups import (
    Command,
    Fact,
    ForgetTopic,
    GroupImage,
    ListedGroup,
    ListedGroups,
    ListGroups,
    OffsetCommitted,
    OffsetDeleted,
    Reply,
)
from penstock.core.metadata import NO_LEADER, OFFSETS_TOPIC, CreatedTopic, MetadataImage, Topic
from penstock.core.model import NodeId, Offset, Refused, TopicName, TopicPartition, Why
from penstock.observability import log as events
from penstock.runtime import Runtime
from penstock.services.groups.consumption import Consumption, Reader
from penstock.services.groups.host import CoordinatorHost, HostParts, Phase
from penstock.services.groups.lag import FindLog, Lag, LagReader
from penstock.services.groups.loading import Loading
from penstock.services.groups.metrics import GroupMetrics
from penstock.services.groups.options import GroupsOptions
from penstock.services.groups.placement import partition_of
from penstock.services.groups.ticket import Ticket
from penstock.services.groups.witness import Witness
from penstock.services.partitions import Partition

NO_COORDINATOR = Refused(Why.COORDINATOR_NOT_AVAILABLE, "the offsets topic is being made")
NOT_YET = Refused(Why.COORDINATOR_LOADING, "the coordinator's log is being opened")
# Records have room for 32,767 bytes, whatever the characters.
GROUP_ID_CHARS_MAX = 8_000
TOO_LONG = Refused(Why.INVALID_GROUP, f"a group id has at most {GROUP_ID_CHARS_MAX} characters")
ELSEWHERE = Refused(Why.NOT_COORDINATOR)


class Leads(FindLog, Protocol):
    """The partitions that this node leads, and all its logs."""

    def find(self, topic: str, index: int) -> Partition | None: ...

    def when_settled(self, done: Callable[[], None]) -> None: ...


class TopicMaker(Protocol):
    """Makes an internal topic unless it exists; `done` hears when it is usable here, or why not."""

    def auto_create(self, name: str, done: Callable[[CreatedTopic | Refused], None]) -> None: ...


class Groups:
    """Brings commands to the coordinator of their group, and knows where that is.

    `follow` must hear of an image after `Partitions.follow` has.
    """

    def __init__(
        self,
        node_id: NodeId,
        runtime: Runtime,
        partitions: Leads,
        topics: TopicMaker,
        options: GroupsOptions | None = None,
        metrics: GroupMetrics | None = None,
    ) -> None:
        options = options or GroupsOptions()
        self.metrics = metrics or GroupMetrics()
        self._node_id = node_id
        self._timers = runtime.timers
        self._entropy = runtime.entropy
        self._partitions = partitions
        self._topics = topics
        self.consumption = Consumption(self.metrics)
        self._lags = LagReader(partitions, runtime.clock)
        self._parts = HostParts(
            runtime.clock,
            runtime.timers,
            Loading(runtime.timers, runtime.spawn),
            Witness(self.metrics, self._lags, self.consumption),
            options.machine,
            self._stale_positions,
            options.renewal_records_min,
            options.commit_timeout_ms,
        )
        self._hosts: dict[int, CoordinatorHost] = {}
        self._image = MetadataImage()
        self._topic: Topic | None = None
        self._waiting: list[tuple[str, Callable[[NodeId | Refused], None]]] = []
        self._ensuring = False
        self._stopped = False

    def random_id(self) -> str:
        """The random part of a new member's id, in the form that Kafka gives it."""
        return str(UUID(bytes=self._entropy.bytes(16), version=4))

    def submit(self, command: Command) -> None:
        """Serve a command that names one group; its ticket hears of the reply, perhaps at once."""
        assert not isinstance(command, ListGroups | ForgetTopic), "these are not about one group"
        too_long = len(command.group_id) > GROUP_ID_CHARS_MAX
        host = TOO_LONG if too_long else self._host_of(command.group_id)
        if isinstance(host, Refused):
            ticket = command.ticket
            assert isinstance(ticket, Ticket)
            ticket.done(host)
        else:
            host.submit(command)

    def list_groups(
        self, states: tuple[str, ...], types: tuple[str, ...], done: Callable[[ListedGroups | Refused], None]
    ) -> None:
        """The groups of every coordinator on this node, by id; refused while one of them loads."""
        hosts = list(self._hosts.values())
        listing = _Listing(len(hosts), done)
        for host in hosts:
            host.submit(ListGroups(ticket=Ticket(listing.add), states=states, types=types))
        listing.end()

    def locate(self, group_id: str, done: Callable[[NodeId | Refused], None]) -> None:
        """The node that coordinates the group; the offsets topic is made when it is first asked for."""
        if self._topic is not None and not self._ensuring:
            done(self._leader_of(self._topic, group_id))
            return
        self._waiting.append((group_id, done))
        self._ensure_topic()

    def looked_up(self, reader: Reader, partition: TopicPartition, offset: Offset) -> None:
        """A client was told where a partition begins, ends, or was at some time."""
        self.consumption.looked_up(reader, partition, offset)

    def lag(self, group_id: str) -> list[Lag] | Refused:
        """How far the group is behind, in records and seconds, wherever it has a position."""
        host = self._host_of(group_id)
        if isinstance(host, Refused):
            return host
        if host.phase.value is not None:
            return Refused(host.phase.value)
        return self._lags.of_group(host.image, group_id)

    def follow(self, image: MetadataImage) -> None:
        """Take over and give up coordinators as the cluster's metadata says."""
        before, self._image = self._image, image
        topic = image.topic(OFFSETS_TOPIC)
        if topic is not self._topic or any(host.phase is Phase.DROPPED for host in self._hosts.values()):
            self._topic = topic
            self._take_over_soon()
        for topic_id in before.topics.keys_missing_in(image.topics):
            gone = before.topic_by_id(topic_id)
            assert gone is not None
            self._forget_topic(gone.name)

    def roles_changed(self) -> None:
        """The node leads other partitions than before: a log may have been made long after its topic."""
        if not self._stopped:
            self._take_over()

    def stop(self) -> None:
        """Give up every coordinator: whoever waits is told to look for another."""
        self._stopped = True
        hosts, self._hosts = self._hosts, {}
        for host in hosts.values():
            host.drop("the node stops")

    def __iter__(self) -> Iterator[CoordinatorHost]:
        return iter(list(self._hosts.values()))

    def _host_of(self, group_id: str) -> CoordinatorHost | Refused:
        if self._topic is None:
            self._ensure_topic()
            return NO_COORDINATOR
        index = partition_of(group_id, len(self._topic.partitions))
        host = self._hosts.get(index)
        if host is not None:
            return host
        ours = self._topic.partitions[index].leader == self._node_id
        return NOT_YET if ours else ELSEWHERE

    def _leader_of(self, topic: Topic, group_id: str) -> NodeId | Refused:
        leader = topic.partitions[partition_of(group_id, len(topic.partitions))].leader
        return NO_COORDINATOR if leader == NO_LEADER else leader

    def _ensure_topic(self) -> None:
        if not self._ensuring:
            self._ensuring = True
            self._topics.auto_create(OFFSETS_TOPIC, self._ensured)

    def _ensured(self, reply: CreatedTopic | Refused) -> None:
        self._ensuring = False
        self._take_over()
        refused = NO_COORDINATOR
        if isinstance(reply, Refused):
            refused = Refused(Why.COORDINATOR_NOT_AVAILABLE, reply.detail or reply.why.value)
            events.warning("groups.no_offsets_topic", reason=refused.detail)
        waiting, self._waiting = self._waiting, []
        for group_id, done in waiting:
            done(refused if self._topic is None else self._leader_of(self._topic, group_id))

    def _take_over_soon(self) -> None:
        self._take_over()
        # Logs that are still being made come later.
        self._timers.soon(lambda: self._partitions.when_settled(self._take_over))

    def _take_over(self) -> None:
        """Have a host for every partition of the offsets topic that this node leads, and no other."""
        wanted = dict(self._led())
        for index, host in list(self._hosts.items()):
            partition = wanted.get(index)
            if partition is not host.partition or host.phase is Phase.DROPPED:
                del self._hosts[index]
                host.drop("this node does not lead the partition")
        for index, partition in wanted.items():
            if index not in self._hosts:
                self._hosts[index] = host = CoordinatorHost(partition, self._parts)
                host.start()

    def _led(self) -> Iterator[tuple[int, Partition]]:
        for wanted in self._topic.partitions if self._topic is not None else ():
            if wanted.leader == self._node_id:
                partition = self._partitions.find(OFFSETS_TOPIC, wanted.index)
                if partition is not None and partition.stopped is None:
                    yield wanted.index, partition

    def _forget_topic(self, topic: TopicName) -> None:
        for host in self:
            host.submit(ForgetTopic(ticket=Ticket(_nobody_asked), topic=topic))

    def _stale_positions(self, image: GroupImage) -> list[Fact]:
        """Positions in topics that were deleted while nobody, or another node, kept these groups."""
        return [
            OffsetDeleted(group_id, position.partition)
            for group_id, offsets in image.offsets.items()
            for position in offsets.values()
            if not self._is_current(position)
        ]

    def _is_current(self, position: OffsetCommitted) -> bool:
        topic_id = self._image.topic_id(position.partition.topic)
        return topic_id is not None and position.topic_id in (None, topic_id)


class _Listing:
    """Gathers the groups of several coordinators."""

    __slots__ = ("_done", "_groups", "_refused", "_waiting")

    def __init__(self, coordinators: int, done: Callable[[ListedGroups | Refused], None]) -> None:
        self._done = done
        self._groups: list[ListedGroup] = []
        self._refused: Refused | None = None
        self._waiting = coordinators + 1

    def add(self, reply: Reply) -> None:
        if isinstance(reply, ListedGroups):
            self._groups += reply.groups
        elif isinstance(reply, Refused) and reply.why is not Why.NOT_COORDINATOR:
            # One that was given up meanwhile is another node's to list.
            self._refused = reply
        self.end()

    def end(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._done(self._refused or ListedGroups(tuple(sorted(self._groups, key=_group_id))))


def _group_id(group: ListedGroup) -> str:
    return group.group_id


def _nobody_asked(_: Reply) -> None:
    """The metadata changed; there is nobody to tell."""
