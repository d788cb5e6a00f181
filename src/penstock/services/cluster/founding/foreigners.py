"""Nodes of another cluster where our own should be."""

from collections.abc import Sequence

from penstock.core.model import NodeId
from penstock.core.raft import Member
from penstock.observability import log as events
from penstock.runtime import CloseReason, NodeIdentity
from penstock.services.cluster.control.messages import Voter
from penstock.services.cluster.founding.outcomes import NotFounded
from penstock.services.peering import LaxWatcher, PeerHub


class Foreigners(LaxWatcher):
    """Notices when the voters that a member was started with do not know it.

    One that turns us away is worth a warning. If it is most of them, and we have not seen
    anybody else lead since the start, then this is the wrong data directory or the wrong cluster.
    """

    def __init__(self, hub: PeerHub, me: Member, voters: Sequence[Voter]) -> None:
        self._me = me
        self._others = {voter.node_id: voter for voter in voters}
        self._rejecting: dict[NodeId, None] = {}
        self._is_settled = False
        hub.watch(self)

    def reached(self, node: NodeId, _identity: NodeIdentity) -> None:
        self._rejecting.pop(node, None)

    def leader_changed(self, leader: Member | None) -> None:
        # A node that founded a cluster alone leads it, whatever others belong to.
        self._is_settled = self._is_settled or (leader is not None and leader != self._me)

    def lost(self, node: NodeId, ending: CloseReason) -> None:
        if ending is not CloseReason.REJECTED:
            return
        voter = self._others.get(node)
        if voter is None or node in self._rejecting:
            return
        events.warning("cluster.turned_away", voter=node, address=str(voter.address))
        self._rejecting[node] = None
        if not self._is_settled and len(self._rejecting) * 2 > len(self._others) - 1:
            raise NotFounded(
                f"voter {node} at {voter.address} belongs to another cluster than this data directory"
            )
