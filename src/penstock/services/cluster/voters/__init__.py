"""The members of the metadata quorum, as operators see and change them.

    QuorumDesk (every node) ── describe, add_voter, remove_voter ──► whoever leads ──► Raft

Any node can be asked; one that does not lead carries the question to the leader. A node becomes a
voter in two steps, as a learner first, and the answer comes when it has its vote. A voter that is
removed stays a learner if it is a broker, for brokers need the metadata.

Left out: more than one change at a time, which Raft does not allow.
"""

from penstock.services.cluster.control.messages import MemberStatus, QuorumStatus
from penstock.services.cluster.voters.changing import Changing
from penstock.services.cluster.voters.desk import QuorumDesk

__all__ = ["QuorumDesk", "Changing", "QuorumStatus", "MemberStatus"]
