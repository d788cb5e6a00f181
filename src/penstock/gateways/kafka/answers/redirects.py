"""Where a client that came to the wrong node should go instead (KIP-951).

It saves the client a round of Metadata, which is most of what a failover costs it.
"""

from typing import NamedTuple

from penstock.core.model import NodeId, Refused, Why
from penstock.gateways.kafka.addresses import NamedBroker, named_broker
from penstock.gateways.kafka.call import Call

_MOVED = (Why.NOT_LEADER, Why.FENCED_LEADER_EPOCH)


class Leader(NamedTuple):
    """Who leads a partition, and in which epoch."""

    node_id: NodeId
    epoch: int


class Redirects:
    """The new leaders that one answer names, and the nodes to find them at."""

    __slots__ = ("_call", "nodes")

    def __init__(self, call: Call) -> None:
        self._call = call
        self.nodes: dict[NodeId, NamedBroker] = {}

    def leader_of(self, topic: str, index: int, refused: Refused) -> Leader | None:
        """The leader to name along with a refusal, if it is another node, and one that can be named."""
        backend = self._call.backend
        state = backend.controller.image.partition(topic, index) if refused.why in _MOVED else None
        if state is None or state.leader == backend.node.node_id:
            return None
        if state.leader not in self.nodes:
            named = named_broker(self._call, state.leader)
            if named is None:
                return None
            self.nodes[state.leader] = named
        return Leader(state.leader, state.leader_epoch)
