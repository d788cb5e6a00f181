"""Which changes of members are possible now."""

from penstock.core.model import Refused, Why
from penstock.core.raft.configuration import AddLearner, Change, PromoteLearner
from penstock.core.raft.identity import Index
from penstock.core.raft.leading.replication import Replication
from penstock.core.raft.ledger import Ledger


def check_any_change(ledger: Ledger, term_start: Index) -> Refused | None:
    """What keeps the leader from changing members at all.

    Without an entry of its own term committed, two leaders could each take one step
    from the same configuration in different directions, to two that share no majority.
    """
    if ledger.commit < term_start:
        return Refused(Why.QUORUM_BUSY, "nothing of this term is committed yet")
    if ledger.commit < ledger.configuration_index:
        return Refused(Why.QUORUM_BUSY, "an earlier change of members is not committed yet")
    return None


def check_change(ledger: Ledger, change: Change, replication: Replication) -> Refused | None:
    """What speaks against this change; None: nothing."""
    configuration, member = ledger.configuration, change.member
    if isinstance(change, AddLearner):
        if member in configuration.members:
            return Refused(Why.DUPLICATE_VOTER, "is a member already")
        return None
    if isinstance(change, PromoteLearner):
        return _check_promotion(ledger, change, replication)
    if member not in configuration.members:
        return Refused(Why.VOTER_NOT_FOUND, "is no member")
    if configuration.voters == (member,):
        return Refused(Why.INVALID_REQUEST, "is the last voter")
    return None


def _check_promotion(ledger: Ledger, change: PromoteLearner, replication: Replication) -> Refused | None:
    configuration, member = ledger.configuration, change.member
    if member not in configuration.learners:
        return Refused(Why.VOTER_NOT_FOUND, "is no learner")
    if any(voter.node_id == member.node_id for voter in configuration.voters):
        return Refused(Why.DUPLICATE_VOTER, "another directory votes under this node id")
    peer = replication.of(member)
    options = ledger.options
    # A voter that is far behind or gone would only make majorities harder to reach.
    if (
        peer is None
        or peer.match + options.promotion_lag_max < ledger.commit
        or ledger.now - peer.heard_at >= options.election_ns
    ):
        return Refused(Why.QUORUM_BUSY, "learner has not caught up")
    return None
