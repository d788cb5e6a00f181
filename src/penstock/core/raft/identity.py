"""Who a member is, and what it has promised."""

from typing import NamedTuple, NewType
from uuid import UUID

from penstock.core.model import NodeId

Term = NewType("Term", int)
# The first entry of a log has index 1; index 0 is the state before it.
Index = NewType("Index", int)
# Chosen by whoever asks; comes back with the answer.
Ticket = NewType("Ticket", int)


class Member(NamedTuple):
    """A node and the directory that holds its promises.

    A node that lost its directory comes back as somebody else: what the old one promised
    is gone with it, and votes in its name could elect two leaders.
    """

    node_id: NodeId
    directory_id: UUID


class Ballot(NamedTuple):
    """The latest term this member has heard of, and for whom it voted in it."""

    term: Term
    voted_for: Member | None


BLANK_BALLOT = Ballot(Term(0), None)
