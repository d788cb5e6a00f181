"""The metadata quorum of several controllers: Raft, hosted on the runtime port and the storage layer.

    Controller ── propose ──► RaftQuorum ──► RaftHost ── step ──► core.raft.Raft
         ▲                        ▲              │ effects, in order
         │                        │              ├── promises      meta/raft/ballot, synced before a vote
         │                        │              ├── store         meta/raft/log, one record per entry
         │                        │              ├── links         frames to the other members (codec)
         └─ facts, leadership ────┴── news ──────┴── snapshotting  meta/raft/<index>.snapshot, off the loop

One proposal is one entry, so its facts
count together or not at all; every entry carries the number of facts up to it, because offsets
of the port count facts while Raft counts entries.

A directory is new, or holds a log that was founded once: the founding members are written down
with it, and whatever a later start says of founders is not looked at. A directory that has
belonged to a cluster and has no log any more is refused.

Left out: who the founders are, and where members listen (both are the cluster's business);
authentication of peers beyond the handshake.
"""

from penstock.services.cluster.raft.hosting import RaftSetup
from penstock.services.cluster.raft.quorum import Outcome, QuorumWatcher, RaftQuorum

__all__ = ["RaftQuorum", "QuorumWatcher", "RaftSetup", "Outcome"]
