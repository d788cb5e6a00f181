"""Which changes of members are possible now."""

from penstock.core.raft.configuration import AddLearner, Change, PromoteLearner
from penstock.core.raft.effects import Obstacle
from penstock.core.raft.identity import Index
from penstock.core.raft.leading.replication import Replication
from penstock.core.raft.ledger import Ledger


def obstacle_to_any(ledger: Ledger, term_start: Index) -> Obstacle | None:
    """What keeps the leader from changing members at all.

    Without an entry of its own term committed, two leaders could each take one step
    from the same configuration in different directions, to two that share no majority.
    """
    if ledger.commit < term_start:
        return Obstacle.TERM_NOT_ESTABLISHED
    if ledger.commit < ledger.configuration_index:
        return Obstacle.CHANGE_UNDERWAY
    return None


def obstacle_to(ledger: Ledger, change: Change, replication: Replication) -> Obstacle | None:
    """What speaks against this change; None: nothing."""
    configuration, member = ledger.configuration, change.member
    if isinstance(change, AddLearner):
        return Obstacle.ALREADY_MEMBER if member in configuration.members else None
    if isinstance(change, PromoteLearner):
        return _obstacle_to_promotion(ledger, change, replication)
    if member not in configuration.members:
        return Obstacle.NOT_A_MEMBER
    return Obstacle.LAST_VOTER if configuration.voters == (member,) else None


def _obstacle_to_promotion(
    ledger: Ledger, change: PromoteLearner, replication: Replication
) -> Obstacle | None:
    configuration, member = ledger.configuration, change.member
    if member not in configuration.learners:
        return Obstacle.NOT_A_LEARNER
    if any(voter.node_id == member.node_id for voter in configuration.voters):
        return Obstacle.NODE_ID_TAKEN
    peer = replication.of(member)
    options = ledger.options
    # A voter that is far behind or gone would only make majorities harder to reach.
    if (
        peer is None
        or peer.match + options.promotion_lag_max < ledger.commit
        or ledger.now - peer.heard_at >= options.election_ns
    ):
        return Obstacle.NOT_CAUGHT_UP
    return None
