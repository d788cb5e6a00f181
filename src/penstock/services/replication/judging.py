"""Whether a follower's log is the beginning of its leader's (KIP-101, KIP-279, KIP-595).

    leader    epochs  1: 0─────40   2: 40────90   4: 90────120
    follower          1: 0─────40   2: 40──────95                last epoch 2, position 95
                                               └ epoch 2 ended at 90: cut back to there

A follower at position p whose last record is of epoch e has a prefix of the leader's log if the
leader's epoch e reaches p: two logs that agree on one (offset, epoch) agree on all before it.
"""

from penstock.core.model import LeaderEpoch, Offset
from penstock.core.replica import EpochHistory
from penstock.services.replication.codec import Status
from penstock.storage.log import PartitionLog

NO_EPOCH = -1


def judge(log: PartitionLog, position: int, last_epoch: int) -> tuple[Status, int, int] | None:
    """What the follower has to do first, if it cannot go on from where it is."""
    if position < log.start:
        return Status.OUT_OF_RANGE, NO_EPOCH, log.end
    if last_epoch != NO_EPOCH:
        ended = log.end_offset_for(LeaderEpoch(last_epoch))
        if ended is None:
            # Records of an epoch that this leader has not heard of cannot be in its log.
            latest = log.epochs.latest
            return Status.DIVERGED, latest, log.end
        if ended.epoch != last_epoch or ended.start < position:
            return Status.DIVERGED, ended.epoch, ended.start
    if position > log.end:
        return Status.OUT_OF_RANGE, NO_EPOCH, log.end
    return None


def last_epoch_of(log: PartitionLog) -> int:
    """The epoch of the last record; -1 if nothing is known of it."""
    return log.epochs.epoch_at(Offset(log.end - 1))


def cut_for(epochs: EpochHistory, log_end: Offset, epoch: int, end: int) -> Offset:
    """Where a follower cuts its log when the leader's `epoch`, or the one below it, ended at `end`.

    If this log has never had that epoch, then what it has behind its own largest epoch below
    is in no log of the leader's; the next answer tells how to go on from there.
    """
    own = epochs.end_offset_for(LeaderEpoch(epoch), log_end)
    if own is None:
        return min(Offset(end), log_end)
    return min(own.start, Offset(end), log_end) if own.epoch == epoch else min(own.start, log_end)
