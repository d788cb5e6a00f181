"""The addresses of nodes as a client gets them: always for the listener that it connected to.

    this node      by the listener's advertised address or, if that is not set, by the
                   address that the client connected to
    other nodes    by the address they registered for the listener of the same name

A node without such a listener is left out.

A leader whose process ended a moment ago is not named, though the controller has not fenced it yet: a
client that hears of none asks again soon, and one that is sent to a dead leader waits there (librdkafka
for a second, the Java Admin client of Kafka 3.9 until its call times out). For two seconds it stays
in the list of brokers, also when it is fenced: librdkafka that is told of another leader, and that the
former one's broker is gone, in the same response, forgets both and asks again a second later. One that
stopped in an orderly way has led nothing any more.
"""

from collections.abc import Iterable
from typing import NamedTuple

from penstock.core.metadata import NO_LEADER, Broker, Partition, Topic
from penstock.core.model import NodeId
from penstock.core.protocol import ErrorCode
from penstock.runtime import Address
from penstock.server.kafka.request import Request


class BrokerAddress(NamedTuple):
    """A broker, and where this client reaches it."""

    node_id: NodeId
    host: str
    port: int
    rack: str | None
    fenced: bool


def address_of(call: Request, broker: Broker) -> Address | None:
    """Where this client reaches a broker; None if it cannot."""
    node, name = call.backend.node, call.session.listener
    if broker.node_id == node.node_id:
        own = node.listener(name)
        return Address(*call.local) if own is None else own.address_for(call.local)
    listener = broker.listener(name)
    return None if listener is None else Address(listener.host, listener.port)


def named_brokers(call: Request, *, fenced: bool = False) -> list[BrokerAddress]:
    """The brokers that this client can reach, in the order of their ids; live ones, or all."""
    brokers = call.backend.controller.image.each_broker()
    named = (_named(call, broker) for broker in brokers if fenced or not broker.fenced)
    return [broker for broker in named if broker is not None]


def named_broker(call: Request, node_id: NodeId) -> BrokerAddress | None:
    """One live broker, if this client can reach it."""
    broker = call.backend.controller.image.broker(node_id)
    return None if broker is None or broker.fenced else _named(call, broker)


def _named(call: Request, broker: Broker) -> BrokerAddress | None:
    address = address_of(call, broker)
    if address is None:
        return None
    return BrokerAddress(broker.node_id, address.host, address.port, broker.rack, broker.fenced)


def controller_id(call: Request) -> int:
    """The controller for admin clients: any broker would do, since commands are forwarded.

    One is named also in an election, as Kafka does: librdkafka that hears of none waits for minutes.
    """
    controller, own = call.backend.controller, call.backend.node.node_id
    image = controller.image
    leader = own if controller.is_leading else controller.leader
    others = (broker.node_id for broker in image.each_broker())
    # A controller that is no broker has no listener for clients.
    ended = call.backend.peers.just_ended()
    live = (
        each
        for each in (leader, own, *others)
        if each is not None and each not in ended and image.is_live(each)
    )
    return next(live, NO_LEADER)


class PartitionAvailability(NamedTuple):
    """The error code, leader and offline replicas of a partition, as one client sees them."""

    code: ErrorCode
    leader: int
    offline: tuple[NodeId, ...]

    @property
    def is_healthy(self) -> bool:
        return self.code is ErrorCode.NONE and not self.offline


class ListenerView:
    """The cluster as the clients of one listener can reach it."""

    def __init__(self, call: Request) -> None:
        self._ended = call.backend.peers.just_ended()
        self._image = image = call.backend.controller.image
        known = named_brokers(call, fenced=bool(self._ended))
        self.live = frozenset(broker.node_id for broker in known if not broker.fenced)
        self.brokers = [
            broker
            for broker in known
            if not broker.fenced or (broker.node_id in self._ended and not image.is_leaving(broker.node_id))
        ]
        self._partitions = call.backend.partitions
        self._own = call.backend.node.node_id

    def standing(self, topic: str, partition: Partition) -> PartitionAvailability:
        """The availability of a partition for these clients."""
        offline = self.missing(partition.replicas)
        leader = partition.leader
        if leader not in self.live:
            offline = self._with_own(topic, partition, offline)
            unnamed = leader != NO_LEADER and self._image.is_live(leader)
            code = ErrorCode.LISTENER_NOT_FOUND if unnamed else ErrorCode.LEADER_NOT_AVAILABLE
            return PartitionAvailability(code, NO_LEADER, offline)
        if leader in self._ended:
            return PartitionAvailability(ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER, offline)
        if leader == self._own and self._partitions.find(topic, partition.index) is None:
            # Its log is still being created, or cannot be used: nothing could be written to it.
            offline = self._with_own(topic, partition, offline)
            return PartitionAvailability(ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER, offline)
        return PartitionAvailability(ErrorCode.NONE, leader, offline)

    def _with_own(self, topic: str, partition: Partition, offline: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
        """The replicas that are offline, and this node's if its log cannot be used."""
        if self._partitions.offline_reason(topic, partition.index) is None or self._own in offline:
            return offline
        return (*offline, self._own)

    def lost_a_leader(self, topic: Topic) -> bool:
        """Whether the process of a partition's leader has just ended."""
        ended = self._ended
        return bool(ended) and any(partition.leader in ended for partition in topic.partitions)

    def missing(self, replicas: Iterable[NodeId]) -> tuple[NodeId, ...]:
        """The replicas that cannot be reached now."""
        return tuple(node_id for node_id in replicas if node_id not in self.live)
