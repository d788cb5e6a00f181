"""The leader of a term: replication, commit, reads, changes of members, handing over.

    Leader ── Replication ── Progress (one per other member: PROBE, STREAM or SNAPSHOT)
       ├── Reads        which heartbeat round proves that they are fresh
       ├── changes      which change of members is possible now
       └── Handover     who takes over

Left out: a joint configuration, so members change one at a time; leases for reads, which
would trust clocks.
"""

from penstock.core.raft.leading.leader import Leader
from penstock.core.raft.leading.progress import Pace, Progress
from penstock.core.raft.leading.replication import Replication

__all__ = ["Leader", "Replication", "Progress", "Pace"]
