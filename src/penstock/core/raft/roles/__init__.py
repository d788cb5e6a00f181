"""The roles of a member, one module each.

A role sees only messages of the present term: the door (`penstock.core.raft.raft`) has
compared terms before. Nothing passes from role to role but the ledger, and a snapshot
that is half received.

Left out: the leader, which has a package of its own.
"""

from penstock.core.raft.roles.candidate import Candidate
from penstock.core.raft.roles.follower import Follower
from penstock.core.raft.roles.receiving import Receiving
from penstock.core.raft.roles.role import Role, ToCandidate, ToFollower, ToLeader, Transition
from penstock.core.raft.roles.voting import vote

__all__ = [
    "Role",
    "Follower",
    "Candidate",
    "Receiving",
    "ToFollower",
    "ToCandidate",
    "ToLeader",
    "Transition",
    "vote",
]
