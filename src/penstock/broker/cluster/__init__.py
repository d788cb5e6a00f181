"""The cluster's metadata on this node: the quorum that keeps it, the controller, membership.

    submit(command) ── decide ── pending facts ── propose ──► quorum ── committed ──┐
                         ▲          (one append per turn)                            │
                 speculative image                              committed image ◄────┤
                                                        subscribers (partitions, …) ◄┤
                              replies whose log end is committed, in order ◄─────────┘

`Quorum` is the port: it keeps facts in order and says when they are committed. `RaftQuorum`
implements it for any number of nodes, one included; the `Controller` cannot tell how many there are.
It decides on a speculative image, to which facts are applied at once, and releases every reply
(errors too) only when the log end that the decision saw is committed. Brokers act on the committed
image alone.

    member               puts the parts together, from bootstrap to controlled shutdown
    bootstrap            a blank node bootstraps a quorum with others, or joins an existing one
    controller           decides commands, keeps the committed image
    live_brokers_barrier  waits until what is committed counts on every live broker
    controller_tasks     what the leading controller does periodically
    command_forwarding   carries commands to the leading controller; read-index barrier
    broker_lifecycle     registration, heartbeats, fencing, controlled shutdown
    quorum               the port between the controller and the metadata log
    quorum_admin         the quorum as operators see and change it
    raft_host            Raft on the runtime port: steps, effects, recovery
    raft_storage         log, snapshots and hard state in <data-dir>/meta/raft/
    raft_recovery        what a start finds of them: damage, losses, a lost hard state
    raft_snapshots       taking, sending and installing snapshots off the loop
    raft_log_repair      a log that rots while its member runs, written anew from memory
    raft_codec           messages and log entries as bytes
    peers                links to the other nodes
    rpc                  requests between nodes
    node_addresses       where the other nodes are

Every node is a member of the quorum: controllers vote, the others are learners. So each has the
committed image and knows the leader. A node starts in this order: catch up with the metadata,
register a new broker epoch (which gives the broker's partitions new leader epochs), open the logs,
get unfenced.

Left out: controllers' addresses in the metadata (those without a broker send theirs to every node
they reach); authentication between nodes.
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
from penstock.broker.cluster.rpc import PeerRpc, QuorumMemberStatus, QuorumStatus, Voter

__all__ = [
    "Controller",
    "ClusterMember",
    "ClusterOptions",
    "QuorumAdmin",
    "PeerRpc",
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
