"""Finds the partition that a request names, or the error if it is not served here.

A client at the wrong node gets the new leader with the error (KIP-951), which saves it a Metadata
request: most of what a failover costs it.
"""

from typing import NamedTuple

from penstock.broker.partitions import LeaderPartition
from penstock.core.metadata import NO_LEADER
from penstock.core.model import ApiError, ErrorKind, NodeId
from penstock.security import AclOperation, Resource, ResourceType
from penstock.server.kafka.node_addresses import BrokerAddress, named_broker
from penstock.server.kafka.request import Request

UNKNOWN = ApiError(ErrorKind.UNKNOWN_TOPIC)
NOT_HERE = ApiError(ErrorKind.NOT_LEADER)
NOT_ALLOWED = ApiError(ErrorKind.NOT_AUTHORIZED)
_MOVED = (ErrorKind.NOT_LEADER, ErrorKind.FENCED_LEADER_EPOCH)


def partition_of(
    call: Request, topic: str, index: int, operation: AclOperation
) -> LeaderPartition | ApiError:
    """The partition, if this node leads it and the caller may do this to it."""
    if call.authorizer is not None and not call.authorize(operation, Resource(ResourceType.TOPIC, topic)):
        return NOT_ALLOWED
    backend = call.backend
    partition = backend.partitions.led_by_name.get((topic, index))
    if partition is not None:
        return partition
    state = backend.controller.image.partition(topic, index)
    if state is None:
        return UNKNOWN
    reason = None
    if state.leader in (backend.node.node_id, NO_LEADER):
        reason = backend.partitions.offline_reason(topic, index)
    # Otherwise led elsewhere, or its log is still being created: the client retries.
    return NOT_HERE if reason is None else ApiError(ErrorKind.STORAGE_FAILED, f"{topic}/{index}: {reason}")


class PartitionLeader(NamedTuple):
    """Who leads a partition, and in which epoch."""

    node_id: NodeId
    epoch: int


class LeaderHints:
    """The new leaders that one response names, and their addresses."""

    __slots__ = ("_call", "nodes")

    def __init__(self, call: Request) -> None:
        self._call = call
        self.nodes: dict[NodeId, BrokerAddress] = {}

    def leader_of(self, topic: str, index: int, error: ApiError) -> PartitionLeader | None:
        """The leader to send with an error, if it is another node that this client can reach."""
        backend = self._call.backend
        state = backend.controller.image.partition(topic, index) if error.kind in _MOVED else None
        if state is None or state.leader == backend.node.node_id:
            return None
        if state.leader not in self.nodes:
            named = named_broker(self._call, state.leader)
            if named is None:
                return None
            self.nodes[state.leader] = named
        return PartitionLeader(state.leader, state.leader_epoch)
