"""The cluster's metadata on this node: the quorum that keeps it, the controller, membership.

    submit(command) ── decide ── pending facts ── propose ──► quorum ── committed ──┐
                         ▲          (one append per turn)                            │
                 speculative image                              committed image ◄────┤
                                                        subscribers (partitions, …) ◄┤
                              replies whose log end is committed, in order ◄─────────┘

`Quorum` is the port: whoever implements it keeps facts in order and says when they are
committed. `raft.RaftQuorum` does it for any number of nodes, one included; the `Controller`
cannot tell how many there are. It decides on a speculative image, to which facts are applied at
once, and releases every reply (refusals too) only when the log end that the decision saw is
committed. Brokers act on the committed image alone.

    <data-dir>/meta/raft/                 log, snapshots and ballot of `raft`; see there

`ClusterMember` puts the parts together, from the first contact to the farewell:

    founding/   a blank node founds a quorum with others, or joins the one there is
    control/    questions between nodes; commands are carried to whoever leads (`Forwarding`)
    sessions/   brokers heartbeat, are fenced when they are gone, and leave in order
    voters/     the quorum as operators see and change it
    duties/     what whoever leads does unasked

Every node is a member of the quorum: controllers vote, the others have the log without a vote. So
each has the committed image and knows who leads. A start goes: catch up with the metadata, register
a new broker epoch (which gives the broker's partitions new leader epochs), let the logs be opened,
be unfenced.

Left out: controllers' addresses in the metadata (those without a broker say where they are to
everyone they reach); authentication between nodes.
"""

from penstock.broker.cluster.broker_lifecycle import (
    BrokerRegistrar,
    BrokerRegistration,
    BrokerSessionOptions,
    ClusterFormation,
    RegistrationRejected,
    new_cluster_id,
    parse_cluster_id,
    show_cluster_id,
)
from penstock.broker.cluster.controller import Controller
from penstock.broker.cluster.member import ClusterMember, ClusterOptions
from penstock.broker.cluster.quorum import (
    MetadataLost,
    NotQuorumLeader,
    Quorum,
    QuorumEvents,
    QuorumFailed,
    QuorumOptions,
    QuorumStore,
)
from penstock.broker.cluster.quorum_admin import QuorumAdmin
from penstock.broker.cluster.rpc import QuorumMemberStatus, QuorumStatus, Voter

__all__ = [
    "Controller",
    "ClusterMember",
    "ClusterOptions",
    "QuorumAdmin",
    "QuorumStatus",
    "QuorumMemberStatus",
    "BrokerSessionOptions",
    "Voter",
    "ClusterFormation",
    "BrokerRegistrar",
    "BrokerRegistration",
    "RegistrationRejected",
    "Quorum",
    "QuorumEvents",
    "QuorumFailed",
    "NotQuorumLeader",
    "QuorumStore",
    "QuorumOptions",
    "MetadataLost",
    "new_cluster_id",
    "show_cluster_id",
    "parse_cluster_id",
]
