"""Small clusters for tests: a machine, and the host's rule in one function."""

from uuid import UUID

from penstock.core.metadata import (
    SUPPORTED_FEATURES,
    BootstrapCluster,
    Broker,
    BrokerEndpoint,
    Command,
    ControllerConfig,
    FenceBroker,
    MetadataMachine,
    Partition,
    RegisterBroker,
    Reply,
    UnfenceBroker,
)
from penstock.core.model import ApiError, BrokerEpoch, Instant, NodeId

CLUSTER = "cluster-1"


def directory(node_id: int) -> UUID:
    return UUID(int=1_000 + node_id)


def registration(
    node_id: int, *, previous_epoch: int = -1, synced: bool = True, fenced: bool = False
) -> RegisterBroker:
    return RegisterBroker(
        CLUSTER,
        NodeId(node_id),
        directory(node_id),
        (BrokerEndpoint("PLAINTEXT", "127.0.0.1", 9092 + node_id),),
        features=SUPPORTED_FEATURES,
        previous_epoch=BrokerEpoch(previous_epoch),
        synced=synced,
        fenced=fenced,
    )


def cluster(brokers: int = 1, around: ControllerConfig | None = None) -> MetadataMachine:
    """A formed cluster with live brokers 1 to `brokers`."""
    machine = MetadataMachine(around=around or ControllerConfig())
    perform(machine, BootstrapCluster(CLUSTER))
    for node_id in range(1, brokers + 1):
        perform(machine, registration(node_id))
    return machine


def perform(machine: MetadataMachine, command: Command) -> Reply:
    """Decide, apply what was decided, and return the reply; an error leaves no facts."""
    decision = machine.decide(command, Instant(0))
    assert not (isinstance(decision.reply, ApiError) and decision.facts)
    machine.replay(decision.facts)
    return decision.reply


def broker_of(machine: MetadataMachine, node_id: int) -> Broker:
    broker = machine.image.broker(node_id)
    assert broker is not None
    return broker


def partition_of(machine: MetadataMachine, topic: str, index: int = 0) -> Partition:
    partition = machine.image.partition(topic, index)
    assert partition is not None
    return partition


def fence(machine: MetadataMachine, node_id: int) -> Reply:
    return perform(machine, FenceBroker(NodeId(node_id), broker_of(machine, node_id).epoch))


def unfence(machine: MetadataMachine, node_id: int) -> Reply:
    return perform(machine, UnfenceBroker(NodeId(node_id), broker_of(machine, node_id).epoch))
