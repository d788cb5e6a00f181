"""Which leader epoch wrote which part of a log, and where a follower's log diverges from its leader's.

As KIP-101, KIP-279 and KIP-595 have it:

    leader    epochs  1: 0─────40   2: 40────90   4: 90────120
    follower          1: 0─────40   2: 40──────95                last epoch 2, position 95
                                               └ epoch 2 ended at 90: cut back to there

A follower at position p whose last record is of epoch e has a prefix of the leader's log if the
leader's epoch e reaches p: two logs that agree on one (offset, epoch) agree on all before it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from penstock.core.model import LeaderEpoch, Offset

NO_EPOCH = LeaderEpoch(-1)


class EpochStart(NamedTuple):
    """A leader epoch and the offset of its first record."""

    epoch: LeaderEpoch
    start: Offset


class LeaderEpochHistory:
    """The epochs of a log, both numbers growing from entry to entry."""

    __slots__ = ("_epochs", "_starts", "latest")

    def __init__(self, entries: Iterable[EpochStart] = ()) -> None:
        self._epochs: list[LeaderEpoch] = []
        self._starts: list[Offset] = []
        # The newest epoch, or -1 if there is none yet. Every append compares with it.
        self.latest = NO_EPOCH
        for entry in entries:
            self.assign(entry.epoch, entry.start)

    def __len__(self) -> int:
        return len(self._epochs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LeaderEpochHistory) and self.entries() == other.entries()

    __hash__ = None  # type: ignore[assignment]

    def entries(self) -> tuple[EpochStart, ...]:
        return tuple(map(EpochStart, self._epochs, self._starts))

    def assign(self, epoch: LeaderEpoch, start: Offset) -> bool:
        """Let `epoch` begin at `start`; returns whether that was new.

        Earlier entries that begin at or after `start` never wrote anything that is still
        in the log, so they are removed.
        """
        if epoch <= self.latest:
            return False
        self.truncate_to(start)
        self._epochs.append(epoch)
        self._starts.append(start)
        self.latest = epoch
        return True

    def truncate_to(self, end: Offset) -> bool:
        """Forget the epochs that begin at or after the new end of the log."""
        keep = bisect_left(self._starts, end)
        changed = keep < len(self._starts)
        del self._epochs[keep:], self._starts[keep:]
        self.latest = self._epochs[-1] if self._epochs else NO_EPOCH
        return changed

    def advance_to(self, start: Offset) -> bool:
        """Forget the epochs that end before the new start of the log."""
        drop = bisect_right(self._starts, start) - 1
        if drop <= 0:
            return False
        del self._epochs[:drop], self._starts[:drop]
        return True

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        """The epoch that wrote `offset`, or -1 if the history does not reach back so far."""
        index = bisect_right(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 else NO_EPOCH

    def end_offset_for(self, epoch: LeaderEpoch, log_end: Offset) -> EpochStart | None:
        """Where `epoch` ended: the largest epoch not above it, and the next epoch's start.

        This is what a leader responds to OffsetForLeaderEpoch. None means that this log does
        not know the epoch, so the follower must not truncate because of it.
        An epoch older than the whole history ended at or before its first entry.
        """
        if epoch < 0 or epoch > self.latest:
            return None
        if epoch == self.latest:
            return EpochStart(epoch, log_end)
        higher = bisect_right(self._epochs, epoch)
        floor = self._epochs[higher - 1] if higher > 0 else epoch
        return EpochStart(floor, self._starts[higher])


class DivergingEpoch(NamedTuple):
    """The leader's largest epoch that is not above the follower's last one, and where it ended."""

    epoch: LeaderEpoch
    end: Offset


def diverging_epoch(
    leader: LeaderEpochHistory, leader_end: Offset, position: Offset, last_epoch: LeaderEpoch
) -> DivergingEpoch | None:
    """The response to a follower whose log is not a prefix of ours; None if it is one."""
    if last_epoch == NO_EPOCH:
        return None
    ended = leader.end_offset_for(last_epoch, leader_end)
    if ended is None:
        # Records of an epoch that the leader does not know cannot be in its log.
        return DivergingEpoch(leader.latest, leader_end)
    if ended.epoch != last_epoch or ended.start < position:
        return DivergingEpoch(ended.epoch, ended.start)
    return None


def truncation_offset(follower: LeaderEpochHistory, log_end: Offset, parting: DivergingEpoch) -> Offset:
    """Where a follower truncates its log after this response.

    If it has never had that epoch, then what it has behind its own largest epoch below
    is not in the leader's log; the next response tells how to go on from there.
    """
    own = follower.end_offset_for(parting.epoch, log_end)
    if own is None:
        return min(parting.end, log_end)
    return min(own.start, parting.end, log_end) if own.epoch == parting.epoch else min(own.start, log_end)
