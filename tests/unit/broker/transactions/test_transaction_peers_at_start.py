"""Requests about transactions that reach a node before its services do."""

from collections.abc import Callable
from typing import Any, cast

from penstock.broker.cluster import PeerRpc
from penstock.broker.cluster.rpc import AskPartitions, AskPartitionsReply, WriteMarkers, WriteMarkersReply
from penstock.broker.transactions.markers import TransactionMarker
from penstock.broker.transactions.peers import TransactionPeers
from penstock.core.model import ErrorKind, NodeId, PartitionIndex, TopicName, TopicPartition

ORDERS = TopicPartition(TopicName("orders"), PartitionIndex(0))


class Handlers:
    """The side of `PeerRpc` that takes handlers."""

    def __init__(self) -> None:
        self.handlers: dict[type[Any], Callable[[Any, Any, Callable[[Any], None]], None]] = {}

    def serve(self, kind: type[Any], handler: Callable[[Any, Any, Callable[[Any], None]], None]) -> None:
        self.handlers[kind] = handler

    def ask(self, question: object) -> list[Any]:
        replies: list[Any] = []
        self.handlers[type(question)](None, question, replies.append)
        return replies


def test_a_node_that_is_about_to_start_refuses_at_once() -> None:
    rpc = Handlers()
    TransactionPeers(cast("PeerRpc", rpc), NodeId(1))

    (written,) = rpc.ask(WriteMarkers((TransactionMarker(7, 0, 1, True, 2, (ORDERS,)),)))
    (asked,) = rpc.ask(AskPartitions("t", 7, 0, (ORDERS,), False))

    assert isinstance(written, WriteMarkersReply)
    assert [[error and error.kind for error in row] for row in written.results] == [[ErrorKind.NOT_LEADER]]
    assert isinstance(asked, AskPartitionsReply)
    assert [error and error.kind for error in asked.results] == [ErrorKind.COORDINATOR_NOT_AVAILABLE]
