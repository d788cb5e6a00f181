"""Groups: of many members, that never settle, with huge metadata, with patterns that take long to match."""

import itertools
import uuid

from benchmarks.attacks.attack import Attacker, AttackTable
from penstock.client.connection import BrokerConnection
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.core.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.core.protocol.messages.list_groups import ListGroupsRequest
from penstock.core.protocol.messages.queue_receive import QueueReceiveRequest, QueueReceiveRequestTopic
from penstock.core.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

groups = AttackTable("groups")


def _join(group: str, member: str, metadata: bytes) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=metadata),),
    )


def _member_id(attacker: Attacker, connection: BrokerConnection, group: str, metadata: bytes) -> str | None:
    """A first JoinGroup only gives an id; the second one is parked."""
    given = attacker.ask(connection, _join(group, "", metadata))
    if given.error_code not in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
        attacker.counts[ErrorCode(given.error_code).name] += 1
        return None
    return str(given.member_id)


@groups.attack("many-members", processes=2)
def many_members(attacker: Attacker) -> None:
    """Thousands of members join one classic group, 200 connections at a time, and are gone again."""
    opened: list[BrokerConnection] = []

    def step(asking: BrokerConnection) -> None:
        member = _member_id(attacker, asking, "crowd", b"\x00" * 100)
        if member is None:
            attacker.pause()
            return
        joining = attacker.connect()
        joining.send(_join("crowd", member, b"\x00" * 100))
        attacker.counts["members"] += 1
        opened.append(joining)
        if len(opened) > 200:
            opened.pop(0).close()

    attacker.insist(step)
    for one in opened:
        one.close()


@groups.attack("huge-metadata")
def huge_metadata(attacker: Attacker) -> None:
    """JoinGroup with 900 KB of metadata, each of another group."""
    numbers = itertools.count()
    metadata = b"\x00" * 900_000

    def step(connection: BrokerConnection) -> None:
        group = f"huge-{attacker.number}-{next(numbers)}"
        member = _member_id(attacker, connection, group, metadata)
        if member is not None:
            joining = attacker.connect()
            joining.send(_join(group, member, metadata))
            joining.close()

    attacker.insist(step)


def _subscribed(attacker: Attacker) -> None:
    attacker.create_topic("subscribed", partitions=50)


@groups.attack("many-groups", prepare=_subscribed)
def many_groups(attacker: Attacker) -> None:
    """A KIP-848 member for each of many groups, and a list of all groups now and then."""
    numbers = itertools.count()

    def step(connection: BrokerConnection) -> None:
        number = next(numbers)
        request = ConsumerGroupHeartbeatRequest(
            group_id=f"many-{attacker.number}-{number}",
            member_id=str(uuid.uuid4()),
            member_epoch=0,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=("subscribed",),
            topic_partitions=(),
        )
        attacker.ask(connection, request)
        if number % 500 == 499:
            attacker.ask(connection, ListGroupsRequest())

    attacker.insist(step)


def _stormy(attacker: Attacker) -> None:
    attacker.create_topic("stormy", partitions=200)


@groups.attack("rebalance-storm", prepare=_stormy)
def rebalance_storm(attacker: Attacker) -> None:
    """KIP-848 members that join and leave one group on a topic of 200 partitions."""

    def step(connection: BrokerConnection) -> None:
        member = str(uuid.uuid4())
        for epoch in (0, -1):
            request = ConsumerGroupHeartbeatRequest(
                group_id="storm",
                member_id=member,
                member_epoch=epoch,
                rebalance_timeout_ms=10_000,
                subscribed_topic_names=("stormy",) if epoch == 0 else None,
                topic_partitions=() if epoch == 0 else None,
            )
            # Every third member stays until its session is over.
            if epoch == 0 or attacker.counts["requests"] % 3:
                attacker.ask(connection, request)

    attacker.insist(step)


def _names_of_a(attacker: Attacker) -> None:
    for number in range(50):
        attacker.create_topic("a" * 60 + str(number))


@groups.attack("regex-subscriptions", prepare=_names_of_a)
def regex_subscriptions(attacker: Attacker) -> None:
    """KIP-848 members whose patterns backtrack for ever in engines that do."""
    patterns = itertools.cycle(
        ("(a+)+$", "(a|aa)+$", "(.*a){20}", "a{1,30}" * 10, "[" * 50, "(" * 200 + ")" * 200)
    )

    def step(connection: BrokerConnection) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=f"regex-{attacker.counts['requests'] % 100}",
            member_id=str(uuid.uuid4()),
            member_epoch=0,
            rebalance_timeout_ms=10_000,
            subscribed_topic_regex=next(patterns),
            topic_partitions=(),
        )
        answer = attacker.ask(connection, request)
        if answer.error_code:
            attacker.counts[ErrorCode(answer.error_code).name] += 1

    attacker.insist(step)


def _shared(attacker: Attacker) -> None:
    attacker.create_topic("shared", partitions=6)


@groups.attack("share-groups", prepare=_shared)
def share_groups(attacker: Attacker) -> None:
    """Members of share groups, each in a group of its own, that never fetch."""
    numbers = itertools.count()

    def step(connection: BrokerConnection) -> None:
        request = ShareGroupHeartbeatRequest(
            group_id=f"share-{attacker.number}-{next(numbers)}",
            member_id=str(uuid.uuid4()),
            member_epoch=0,
            subscribed_topic_names=("shared",),
        )
        attacker.ask(connection, request)

    attacker.insist(step)


@groups.attack("share-group-names")
def share_group_names(attacker: Attacker) -> None:
    """Members of ever new share groups that subscribe to 10,000 topics which do not exist."""
    numbers = itertools.count()
    names = tuple(f"nothing-{number:08d}" for number in range(10_000))

    def step(connection: BrokerConnection) -> None:
        request = ShareGroupHeartbeatRequest(
            group_id=f"names-{attacker.number}-{next(numbers)}",
            member_id=str(uuid.uuid4()),
            member_epoch=0,
            subscribed_topic_names=names,
        )
        if attacker.ask(connection, request).error_code:
            attacker.counts["refused"] += 1
            attacker.pause()

    attacker.insist(step)


def _wide(attacker: Attacker) -> None:
    attacker.create_topic("wide", partitions=200)


@groups.attack("queues-of-new-groups", prepare=_wide)
def queues_of_new_groups(attacker: Attacker) -> None:
    """QueueReceive by ever new groups, on an empty topic with 200 partitions."""
    numbers = itertools.count()

    def step(connection: BrokerConnection) -> None:
        request = QueueReceiveRequest(
            group_id=f"wide-{attacker.number}-{next(numbers)}".ljust(200, "x"),
            consumer="consumer",
            topics=(QueueReceiveRequestTopic(topic="wide"),),
            wait_ms=0,
        )
        if attacker.ask(connection, request).error_code:
            attacker.counts["refused"] += 1
            attacker.pause()

    attacker.insist(step)


def _queued(attacker: Attacker) -> None:
    attacker.create_topic("queued", partitions=50)


@groups.attack("queue-flood", prepare=_queued)
def queue_flood(attacker: Attacker) -> None:
    """QueueReceive by ever new consumers of ever new groups, on a topic with 50 partitions."""
    numbers = itertools.count()

    def step(connection: BrokerConnection) -> None:
        number = next(numbers)
        request = QueueReceiveRequest(
            group_id=f"queue-{number % 1_000}",
            consumer=f"consumer-{number}",
            topics=(QueueReceiveRequestTopic(topic="queued"),),
            wait_ms=0,
        )
        attacker.ask(connection, request)

    attacker.insist(step)
