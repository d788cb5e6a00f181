"""Nodes introduce themselves to whom they reach."""

from collections.abc import Callable

from penstock.core.model import NodeId
from penstock.runtime import Address, NodeIdentity
from penstock.services.cluster.control.addresses import AddressBook
from penstock.services.cluster.control.desk import ControlDesk, Respond
from penstock.services.cluster.control.messages import Answer, Introduction, Standing
from penstock.services.peering import LaxWatcher, Peer, PeerHub

ANSWER_MS = 1_000


class Reception(LaxWatcher):
    """Says where we listen to everyone we reach, takes note of where others do, and tells who we are.

    `standing` says who that is now: it changes when a blank node becomes a member.
    """

    def __init__(
        self,
        desk: ControlDesk,
        hub: PeerHub,
        book: AddressBook,
        address: Address | None,
        standing: Callable[[], Standing],
    ) -> None:
        self._desk = desk
        self._book = book
        self._address = address
        self._standing = standing
        desk.serve(Introduction, self._introduced)
        hub.watch(self)

    def reached(self, node: NodeId, _identity: NodeIdentity) -> None:
        self._desk.ask(node, Introduction(self._address), ANSWER_MS, _ignore)

    def _introduced(self, peer: Peer, question: Introduction, respond: Respond) -> None:
        self._book.introduced(peer.node_id, peer.directory_id, question.address)
        respond(self._standing())


def _ignore(_: Answer | None) -> None:
    """It was for their information."""
