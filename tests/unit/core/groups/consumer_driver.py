"""Drives consumer groups (KIP-848) with members that do what the protocol asks of them."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from penstock.core.groups import (
    AssignableTopic,
    ConsumerGroupHeartbeat,
    ConsumerGroupOptions,
    ConsumerGroupTimeouts,
    ConsumerHeartbeatResult,
    DescribeConsumerGroup,
    DescribedConsumer,
    DescribedConsumerGroup,
    Fact,
    GroupOptions,
    GroupState,
    PartitionSet,
    ReloadTopics,
    TopicRights,
    digest_of,
)
from penstock.core.model import ApiError, ErrorKind, TopicId, TopicName, TopicPartition
from tests.unit.core.groups.group_driver import GROUP, Driver, ignore

SESSION_MS = 5_000
HEARTBEAT_MS = 250
REVOKE_MS = 20_000


def timeouts(_: str) -> ConsumerGroupTimeouts:
    return ConsumerGroupTimeouts(SESSION_MS, HEARTBEAT_MS)


CONSUMER_OPTIONS = GroupOptions(consumer=ConsumerGroupOptions(timeouts=timeouts))


class Topics:
    """The topics of a cluster, which a test changes as it likes."""

    def __init__(self, **partitions: int) -> None:
        self.made = 0
        self.topics: dict[str, AssignableTopic] = {}
        for name, count in partitions.items():
            self.put(name, count)

    def put(self, name: str, partitions: int, racks: tuple[tuple[str, ...], ...] = ()) -> AssignableTopic:
        old = self.topics.get(name)
        if old is None:
            self.made += 1
        topic_id = TopicId(UUID(int=self.made)) if old is None else old.id
        topic = AssignableTopic(
            topic_id, TopicName(name), partitions, racks, digest_of(topic_id, partitions, racks)
        )
        self.topics[name] = topic
        return topic

    def find(self, name: str) -> AssignableTopic | None:
        return self.topics.get(name)

    def lacks(self, partition: TopicPartition) -> bool:
        topic = self.topics.get(partition.topic)
        return topic is None or partition.partition >= topic.partitions

    def name_of(self, topic_id: TopicId) -> TopicName | None:
        return next((topic.name for topic in self.topics.values() if topic.id == topic_id), None)

    def names(self) -> list[TopicName]:
        return [TopicName(name) for name in sorted(self.topics)]


class Member:
    """A client: remembers its epoch and partitions, and gives up what it is not assigned any more."""

    def __init__(self, driver: "ConsumerDriver", member_id: str, **joined: Any) -> None:
        self.driver = driver
        self.member_id = member_id
        self.joined = joined
        self.instance_id: str | None = joined.get("instance_id")
        self.rights: TopicRights | None = joined.pop("rights", None)
        self.epoch = 0
        self.owned: PartitionSet = {}

    def join(self) -> ConsumerHeartbeatResult:
        reply = self.driver.beat(self.member_id, 0, owned={}, rights=self.rights, **self.joined)
        return self.take(reply)

    def beat(self, **fields: Any) -> ConsumerHeartbeatResult:
        fields = {"owned": self.owned, "instance_id": self.instance_id, "rights": self.rights, **fields}
        return self.take(self.driver.beat(self.member_id, self.epoch, **fields))

    def take(self, reply: Any) -> ConsumerHeartbeatResult:
        assert isinstance(reply, ConsumerHeartbeatResult), reply
        self.epoch = reply.epoch
        if reply.assignment is not None:
            self.owned = reply.assignment
        return reply

    def leave(self, epoch: int = -1) -> None:
        reply = self.driver.beat(self.member_id, epoch, instance_id=self.instance_id)
        assert isinstance(reply, ConsumerHeartbeatResult), reply
        self.owned = {}

    @property
    def partitions(self) -> list[tuple[str, int]]:
        names = [(self.driver.name_of(topic_id), indexes) for topic_id, indexes in self.owned.items()]
        return sorted((name, index) for name, indexes in names for index in indexes)


class ConsumerDriver(Driver):
    """A host whose groups have topics to read."""

    def __init__(
        self,
        options: GroupOptions = CONSUMER_OPTIONS,
        facts: Iterable[Fact] = (),
        now_ms: int = 0,
        topics: Any = None,
    ) -> None:
        self.cluster: Topics = Topics(t=4) if topics is None else topics
        super().__init__(options, facts, now_ms, self.cluster)

    def beat(self, member_id: str, epoch: int, **fields: Any) -> Any:
        return self.ask(self.command(member_id, epoch, **fields))

    def command(self, member_id: str, epoch: int, **fields: Any) -> ConsumerGroupHeartbeat:
        given: dict[str, Any] = {"on_reply": ignore, "group_id": GROUP, "client_id": "c"}
        if epoch == 0:
            given |= {"topics": ("t",), "rebalance_timeout_ms": REVOKE_MS, "owned": {}}
        return ConsumerGroupHeartbeat(**(given | fields), member_id=member_id, epoch=epoch)

    def refused(self, member_id: str, epoch: int, **fields: Any) -> ErrorKind:
        reply = self.beat(member_id, epoch, **fields)
        assert isinstance(reply, ApiError), reply
        return reply.kind

    def member(self, member_id: str, **joined: Any) -> Member:
        """A member that has joined."""
        member = Member(self, member_id, **joined)
        member.join()
        return member

    def reconcile(self, *members: Member) -> None:
        """Let the members send heartbeats until the group is stable."""
        for _ in range(10):
            for member in members:
                member.beat()
                self.check_exclusive(*members)
            if self.described().state is GroupState.STABLE:
                return
        raise AssertionError(f"the group does not settle: {self.described()}")

    def check_exclusive(self, *members: Member) -> None:
        """No partition has two readers."""
        everything = [partition for member in members for partition in member.partitions]
        assert len(everything) == len(set(everything)), everything

    def expire_once(self) -> None:
        """One turn of what is due."""
        self._take(self.coordinator.expire(self.now))

    def change_topic(self, name: str, partitions: int) -> None:
        self.cluster.put(name, partitions)
        self.ask(ReloadTopics(on_reply=ignore, topics=(TopicName(name),)))

    def described(self) -> DescribedConsumerGroup:
        reply = self.ask(DescribeConsumerGroup(on_reply=ignore, group_id=GROUP))
        assert isinstance(reply, DescribedConsumerGroup), reply
        return reply

    def described_member(self, member_id: str) -> DescribedConsumer:
        return next(each for each in self.described().members if each.member_id == member_id)

    def name_of(self, topic_id: TopicId) -> str:
        return self.cluster.name_of(topic_id) or str(topic_id)
