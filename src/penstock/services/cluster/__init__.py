"""The cluster's metadata on this node: the quorum that keeps it, the controller, membership.

    submit(command) ── decide ── pending facts ── propose ──► quorum ── committed ──┐
                         ▲          (one append per turn)                            │
                 speculative image                              committed image ◄────┤
                                                        subscribers (partitions, …) ◄┤
                              replies whose log end is committed, in order ◄─────────┘

`Quorum` is the port: whoever implements it keeps facts in order and says when they are
committed. `raft.RaftQuorum` does it for any number of nodes, one included. `SoloQuorum` came before
it, for one node alone, where committed means synced on this disk; Raft takes its files over. The
`Controller` cannot tell how many nodes there are. It decides on a speculative image, to
which facts are applied at once, and releases every reply (refusals too) only when the log
end that the decision saw is committed. Brokers act on the committed image alone.

    <data-dir>/meta/raft/                 log, snapshots and ballot of `raft`; see there
    <data-dir>/meta/metadata/             the log of `SoloQuorum`: a partition log, one record per fact
    <data-dir>/meta/<offset>.snapshot     its image below that offset, as facts
    <data-dir>/meta/ballot                the term of its last leadership

`Membership` makes this node a broker: it forms the cluster if there is none, registers a
new broker epoch (which gives its partitions new leader epochs) and unfences it.

Left out: sessions of other brokers; commands of nodes that do not lead; handing over leadership
before a stop.
"""

from penstock.services.cluster.control.messages import Voter
from penstock.services.cluster.controller import Controller
from penstock.services.cluster.ids import new_cluster_id, parse_cluster_id, show_cluster_id
from penstock.services.cluster.member import ClusterMember
from penstock.services.cluster.membership import Forming, Membership, NotAdmitted, Registration
from penstock.services.cluster.options import ClusterOptions
from penstock.services.cluster.quorum import NotLeading, Quorum, QuorumEvents, QuorumFailed
from penstock.services.cluster.sessions import SessionOptions
from penstock.services.cluster.solo import MetadataLost, QuorumOptions, QuorumStore, SoloQuorum
from penstock.services.cluster.voters import MemberStatus, QuorumDesk, QuorumStatus

__all__ = [
    "Controller",
    "ClusterMember",
    "ClusterOptions",
    "QuorumDesk",
    "QuorumStatus",
    "MemberStatus",
    "SessionOptions",
    "Voter",
    "Forming",
    "Membership",
    "Registration",
    "NotAdmitted",
    "Quorum",
    "QuorumEvents",
    "QuorumFailed",
    "NotLeading",
    "SoloQuorum",
    "QuorumStore",
    "QuorumOptions",
    "MetadataLost",
    "new_cluster_id",
    "show_cluster_id",
    "parse_cluster_id",
]
