"""Where a follower's log leaves its leader's (KIP-101, KIP-279, KIP-595).

    leader    epochs  1: 0─────40   2: 40────90   4: 90────120
    follower          1: 0─────40   2: 40──────95                last epoch 2, position 95
                                               └ epoch 2 ended at 90: cut back to there

A follower at position p whose last record is of epoch e has a prefix of the leader's log if the
leader's epoch e reaches p: two logs that agree on one (offset, epoch) agree on all before it.
"""

from typing import NamedTuple

from penstock.core.model import LeaderEpoch, Offset
from penstock.core.replica.epochs import NO_EPOCH, EpochHistory


class Parting(NamedTuple):
    """The leader's largest epoch that is not above the follower's last one, and where it ended."""

    epoch: LeaderEpoch
    end: Offset


def parting_of(
    leader: EpochHistory, leader_end: Offset, position: Offset, last_epoch: LeaderEpoch
) -> Parting | None:
    """What to tell a follower whose log is not a beginning of ours; None if it is."""
    if last_epoch == NO_EPOCH:
        return None
    ended = leader.end_offset_for(last_epoch, leader_end)
    if ended is None:
        # Records of an epoch that the leader has not heard of cannot be in its log.
        return Parting(leader.latest, leader_end)
    if ended.epoch != last_epoch or ended.start < position:
        return Parting(ended.epoch, ended.start)
    return None


def cut_for(follower: EpochHistory, log_end: Offset, parting: Parting) -> Offset:
    """Where a follower cuts its log that was told this.

    If it has never had that epoch, then what it has behind its own largest epoch below
    is not in the leader's log; the next answer tells how to go on from there.
    """
    own = follower.end_offset_for(parting.epoch, log_end)
    if own is None:
        return min(parting.end, log_end)
    return min(own.start, parting.end, log_end) if own.epoch == parting.epoch else min(own.start, log_end)
