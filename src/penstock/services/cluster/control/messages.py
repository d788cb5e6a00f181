"""The questions and answers between nodes. A new field goes to the end of its message and has a default."""

import enum
from typing import NamedTuple, TypeAlias
from uuid import UUID

from msgspec import Struct

from penstock.core.model import BrokerEpoch, LeaderEpoch, NodeId, Offset, Timestamp, Why
from penstock.core.raft import Configuration
from penstock.runtime import Address


class Voter(NamedTuple):
    """A founding member of the metadata quorum, and where its peers find it."""

    node_id: NodeId
    address: Address

    def __str__(self) -> str:
        return f"{self.node_id}@{self.address}"


class Introduction(Struct, frozen=True):
    """Here I am, there I listen, and so I was started: who are you.

    `known` are the voters that the asker has reached, with their directories.
    """

    address: Address | None
    voters: tuple[Voter, ...] = ()
    known: dict[NodeId, UUID] = {}


class Standing(Struct, frozen=True):
    """Who I am: blank, or a member of a quorum. `founding` are its members, if they never changed."""

    is_member: bool
    cluster_id: UUID | None
    founding: Configuration | None
    voters: tuple[Voter, ...] = ()
    known: dict[NodeId, UUID] = {}


class Join(Struct, frozen=True):
    """Let the asker have the log; with `wants_vote` as a voter, once it has caught up."""

    wants_vote: bool


class Admittance(enum.Enum):
    """What came of the wish to join."""

    LEARNER = "learner"
    VOTER = "voter"
    LATER = "later"
    REFUSED = "refused"


class Admitted(Struct, frozen=True):
    """How far the newcomer is; it asks again until it is where it wants to be."""

    how: Admittance
    detail: str = ""


class Elsewhere(Struct, frozen=True):
    """I do not lead, and have done nothing. `leader` does, as far as I know."""

    leader: NodeId | None
    address: Address | None


class Submit(Struct, frozen=True):
    """Decide this command: its name, and its content in MessagePack."""

    name: str
    content: bytes


class Submitted(Struct, frozen=True):
    """The reply; it counts for whoever has seen every fact below `end`."""

    name: str
    content: bytes
    end: Offset


class BrokerHeartbeat(Struct, frozen=True):
    """A broker lives. `committed` is how much metadata it has seen."""

    node_id: NodeId
    epoch: BrokerEpoch
    committed: Offset


class Presence(enum.Enum):
    """How the cluster sees a broker."""

    LIVE = "live"
    FENCED = "fenced"
    STALE = "stale"


class BrokerSeen(Struct, frozen=True):
    """The answer to a heartbeat."""

    presence: Presence
    # The epoch that counts now, if the broker's own is stale.
    epoch: BrokerEpoch | None = None


class ReadEnd(Struct, frozen=True):
    """Ask up to where one must have come to see everything that was acknowledged so far."""


class Readable(Struct, frozen=True):
    """Up to here."""

    end: Offset


class MemberStatus(Struct, frozen=True):
    """One voter or learner: where its log ends, when it was heard, and when it last had everything."""

    node_id: NodeId
    directory_id: UUID
    log_end: Offset
    heard_at: Timestamp | None
    caught_up_at: Timestamp | None
    address: Address | None


class QuorumStatus(Struct, frozen=True):
    """How the quorum stands, as its leader sees it. Offsets count entries of the metadata log."""

    leader: NodeId
    epoch: LeaderEpoch
    high_watermark: Offset
    voters: tuple[MemberStatus, ...]
    learners: tuple[MemberStatus, ...]


class AskQuorum(Struct, frozen=True):
    """Ask how the quorum stands; a `QuorumStatus` answers."""


class AddVoter(Struct, frozen=True):
    """Let a node vote."""

    node_id: NodeId
    directory_id: UUID
    address: Address | None


class RemoveVoter(Struct, frozen=True):
    """Take a node's vote away."""

    node_id: NodeId
    directory_id: UUID


class VoterChanged(Struct, frozen=True):
    """It is so, or why it is not."""

    why: Why | None = None
    detail: str = ""


Question: TypeAlias = (
    Introduction | Join | Submit | BrokerHeartbeat | ReadEnd | AskQuorum | AddVoter | RemoveVoter
)
Answer: TypeAlias = (
    Standing | Admitted | Elsewhere | Submitted | BrokerSeen | Readable | QuorumStatus | VoterChanged
)
Message: TypeAlias = Question | Answer
# The place in this list is the number on the wire: append only.
MESSAGES: tuple[type[Message], ...] = (
    Introduction,
    Standing,
    Join,
    Admitted,
    Elsewhere,
    Submit,
    Submitted,
    BrokerHeartbeat,
    BrokerSeen,
    ReadEnd,
    Readable,
    AskQuorum,
    QuorumStatus,
    AddVoter,
    RemoveVoter,
    VoterChanged,
)
