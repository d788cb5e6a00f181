"""How the quorum stands, as its leader sees it."""

from uuid import UUID

from penstock.core.model import MILLISECOND, Instant, LeaderEpoch, NodeId, Offset, Timestamp
from penstock.core.raft import Member
from penstock.runtime import Clock
from penstock.services.cluster.control.addresses import AddressBook
from penstock.services.cluster.control.messages import MemberStatus, QuorumStatus
from penstock.services.cluster.raft import RaftQuorum


def describe(quorum: RaftQuorum, clock: Clock, book: AddressBook) -> QuorumStatus:
    """What the leader knows; moments are those of its own wall clock."""
    raft, now, wall = quorum.raft, clock.now(), clock.wall()

    def moment(instant: Instant | None) -> Timestamp | None:
        return None if instant is None else Timestamp(wall - (now - instant) // MILLISECOND)

    def status(member: Member) -> MemberStatus:
        address = book.address_of(member.node_id)
        peer = raft.followers.get(member)
        if peer is None:
            return MemberStatus(*_named(member), Offset(raft.last), wall, wall, address)
        heard, caught_up = moment(peer.heard_at), moment(peer.caught_up_at)
        return MemberStatus(*_named(member), Offset(peer.match), heard, caught_up, address)

    members = raft.configuration
    return QuorumStatus(
        quorum.me.node_id,
        LeaderEpoch(raft.term),
        Offset(raft.commit),
        tuple(status(voter) for voter in members.voters),
        tuple(status(learner) for learner in members.learners),
    )


def _named(member: Member) -> tuple[NodeId, UUID]:
    return member.node_id, member.directory_id
