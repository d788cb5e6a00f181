"""Which replicas are in sync, and what is synced on all of them: the leader's view."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from penstock.core.model import BrokerEpoch, Instant, NodeId, Offset

UNKNOWN_EPOCH = BrokerEpoch(-1)
# Below every offset: a follower that has not fetched in this leader epoch.
UNKNOWN_OFFSET = Offset(-1)
# Whether a broker may join an ISR in this broker epoch, as far as the metadata says.
MayJoin: TypeAlias = Callable[[NodeId, BrokerEpoch], bool]


def anyone(_node: NodeId, _epoch: BrokerEpoch) -> bool:
    """Where no metadata says who may join: the controller has the last word anyway."""
    return True


class FollowerState:
    """Positions of one follower, and when it had last caught up.

        log end   │ 100      140      180      220
        fetches   │  ▲ a      ▲ b      ▲ c      ▲ d
        synced    │  80       95       120      150
                     mark 100 at a              100 is reached: caught up as of a;
                                                the next mark is 220 at d

    Caught up means that what was there some time ago is synced now, since under load no follower
    is ever at the very end. The mark stays until it is reached. To move it with every fetch
    would do for fetch positions, but a sync lasts longer than a fetch, and a follower that is
    one sync behind would never reach a mark that runs ahead of it.
    """

    __slots__ = ("_mark", "_marked_at", "broker_epoch", "caught_up_at", "fetched", "refused", "synced")

    def __init__(self, caught_up_at: Instant | None) -> None:
        self.broker_epoch = UNKNOWN_EPOCH
        self.fetched = UNKNOWN_OFFSET
        self.synced = UNKNOWN_OFFSET
        self.caught_up_at = caught_up_at
        # The controller rejected it from the ISR, and it has not fetched since.
        self.refused = False
        self._mark: Offset | None = None
        self._marked_at = Instant(0)

    def moved(self, fetched: Offset, synced: Offset, log_end: Offset, now: Instant) -> None:
        """Note that it has fetched, or reported what it has synced."""
        self.fetched = fetched
        # It cannot have synced more than it has.
        self.synced = min(synced, fetched)
        self.refused = False
        if self.synced >= log_end:
            self.caught_up_at = now
            self._mark = None
        elif self._mark is None or self.synced >= self._mark:
            if self._mark is not None:
                self.caught_up_at = self._marked_at
            self._mark = log_end
            self._marked_at = now

    def is_in_time(self, log_end: Offset, now: Instant, lag_max_ns: int) -> bool:
        """Whether it has nothing left to fetch, or had lately."""
        if self.synced >= log_end or log_end == 0:
            # It has everything: silence is no lag. Nor is it if there was never anything to have: its log
            # may be one of thousands that are still to be made.
            self.caught_up_at = now
        return self.caught_up_at is not None and now - self.caught_up_at <= lag_max_ns


class CommittedPartitionState(NamedTuple):
    """What the committed metadata says of a partition; `minimum` is min.insync.replicas."""

    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    partition_epoch: int
    minimum: int


class ProposedIsrMember(NamedTuple):
    """A replica that shall be in the ISR, in the broker epoch in which it was found in sync.

    The epoch is -1 for the leader itself, and for members of the committed ISR that have not
    fetched yet. The proposer puts in what the metadata says: a member that restarts and may
    have lost something is taken out of the ISR by the controller, and then the proposal falls
    with its partition epoch.
    """

    node_id: NodeId
    broker_epoch: BrokerEpoch


class IsrTracker:
    """The in-sync replicas of one partition, during one leader epoch.

    The high watermark is the smallest synced position of all replicas that may be in the ISR:
    those that the committed metadata names, and those that this leader has proposed to add. A
    proposal may have been accepted although its response was lost, and then an election may
    choose the new member. So an addition counts as soon as it is proposed, a removal only once
    it is committed:

        committed {1,2}   proposed {1,2,3}   →  min over 1, 2, 3
        committed {1,2}   proposed {1}       →  min over 1, 2

    Every proposal names the partition epoch it is based on, and at most one per epoch can be
    accepted: all of them are settled as soon as metadata of a newer epoch is committed.
    """

    __slots__ = (
        "_asked",
        "_counting",
        "_followers",
        "_is_held",
        "_lag_max_ns",
        "_may_advance",
        "_state",
        "_synced",
        "_unsettled",
        "epoch_start",
        "high_watermark",
        "me",
    )

    def __init__(  # noqa: PLR0913, PLR0917  (one more than the rule: what a leader begins with)
        self,
        me: NodeId,
        state: CommittedPartitionState,
        epoch_start: Offset,
        synced: Offset,
        high_watermark: Offset,
        now: Instant,
        lag_max_ns: int,
        *,
        is_held: bool = False,
    ) -> None:
        self.me = me
        # A former leader may not have heard of this epoch yet: nothing is committed meanwhile.
        self._is_held = is_held
        self._state = state
        self.epoch_start = epoch_start
        self.high_watermark = high_watermark
        self._synced = synced
        self._lag_max_ns = lag_max_ns
        self._followers: dict[NodeId, FollowerState] = {}
        # The proposal in flight, and the additions of earlier ones whose result is unknown.
        self._asked: tuple[NodeId, ...] | None = None
        self._unsettled: dict[NodeId, None] | None = None
        # The followers that the high watermark waits for, and whether it may move at all.
        self._counting: tuple[FollowerState, ...] = ()
        self._may_advance = False
        self._meet_followers(now)
        self._recount()

    @property
    def assignment(self) -> CommittedPartitionState:
        """What was committed last."""
        return self._state

    @property
    def is_alone(self) -> bool:
        """Whether no other broker has a replica, or shall have one."""
        return len(self._state.replicas) == 1

    @property
    def counting(self) -> tuple[NodeId, ...]:
        """Every replica that may be in the ISR: the high watermark waits for them."""
        counting: dict[NodeId, None] = dict.fromkeys(self._state.isr)
        counting.update(dict.fromkeys(self._asked or ()))
        counting.update(self._unsettled or {})
        return tuple(counting)

    @property
    def has_min_isr(self) -> bool:
        """Whether enough replicas are in sync to take a write that all of them shall keep."""
        state = self._state
        return len(state.isr) >= min(state.minimum, len(state.replicas))

    @property
    def is_established(self) -> bool:
        """Whether the high watermark covers what earlier leaders may have acknowledged."""
        return self.high_watermark >= self.epoch_start

    def follower(self, node: NodeId) -> FollowerState | None:
        return self._followers.get(node)

    def advance_own(self, synced: Offset) -> bool:
        """Note how far the leader's own log is synced; returns whether the high watermark moved."""
        self._synced = synced
        return self._advance()

    def follower_fetched(
        self,
        node: NodeId,
        broker_epoch: BrokerEpoch,
        fetched: Offset,
        synced: Offset,
        log_end: Offset,
        now: Instant,
    ) -> bool:
        """Note that a follower has our log up to `fetched`, and on disk up to `synced`.

        A position that goes back is accepted: it can only stop the high watermark, not move it.
        """
        follower = self._followers.get(node)
        if follower is None or broker_epoch < follower.broker_epoch:
            # Not a replica, or a request from before its restart.
            return False
        if broker_epoch != follower.broker_epoch:
            if follower.broker_epoch != UNKNOWN_EPOCH:
                # It has restarted, and may have less than it had.
                follower = self._followers[node] = FollowerState(now if node in self._state.isr else None)
                self._recount()
            follower.broker_epoch = broker_epoch
        follower.moved(fetched, synced, log_end, now)
        return self._advance()

    def end_hold(self) -> bool:
        """Nobody else leads any more; returns whether the high watermark moved."""
        self._is_held = False
        return self._recount()

    def grew(self, base_offset: Offset, now: Instant) -> None:
        """Start the lag time of followers that had all there was before this offset was appended.

        Followers report only when they have moved. Without this, one that had nothing to fetch
        for long would be late as soon as there is something.
        """
        for follower in self._followers.values():
            if follower.synced >= base_offset or base_offset == 0:
                follower.caught_up_at = now

    def assignment_changed(self, state: CommittedPartitionState, now: Instant) -> bool:
        """Take over committed metadata of this leader epoch; returns whether the high watermark moved."""
        if state.partition_epoch < self._state.partition_epoch:
            return False
        if state.partition_epoch > self._state.partition_epoch:
            # Whatever was proposed before is in it, or can no longer be accepted.
            self._asked = None
            self._unsettled = None
        self._state = state
        self._meet_followers(now)
        return self._recount()

    def proposal(
        self, log_end: Offset, now: Instant, may_join: MayJoin = anyone
    ) -> tuple[ProposedIsrMember, ...] | None:
        """The ISR to propose now, if there is a reason to; it counts as proposed from here on."""
        if self._asked is not None:
            return None
        state = self._state
        members = tuple(node for node in state.replicas if self._belongs(node, log_end, now, may_join))
        # One may come while another goes: then the numbers are equal, but the names are not.
        same = len(members) == len(state.isr) and all(node in state.isr for node in members)
        if same and self._unsettled is None:
            return None
        self._asked = members
        self._recount()
        return tuple(ProposedIsrMember(node, self._epoch_of(node)) for node in members)

    def proposal_ended(self, *, accepted: bool | None) -> bool:
        """Note that the proposal was accepted, rejected, or (None) has an unknown result.

        Only for the proposal in flight: once newer metadata is committed, there is none. An
        accepted one goes on counting until its metadata is committed here. One whose result is
        unknown counts as well, and is followed by another: whichever is accepted settles both.
        Returns whether the high watermark moved.
        """
        if self._asked is None or accepted:
            return False
        asked, self._asked = self._asked, None
        added = [node for node in asked if node not in self._state.isr]
        if accepted is None:
            self._unsettled = {**(self._unsettled or {}), **dict.fromkeys(added)}
        else:
            for node in added:
                self._followers[node].refused = True
        return self._recount()

    def next_deadline(self) -> Instant | None:
        """When to call `proposal`, even if no follower reports anything."""
        if self._asked is not None:
            return None
        earliest: int | None = None
        for node in self._state.isr:
            follower = self._followers.get(node)
            if follower is not None and follower.caught_up_at is not None:
                # Up to and including this instant it is in time.
                late_at = follower.caught_up_at + self._lag_max_ns + 1
                earliest = late_at if earliest is None else min(earliest, late_at)
        return None if earliest is None else Instant(earliest)

    def _belongs(self, node: NodeId, log_end: Offset, now: Instant, may_join: MayJoin) -> bool:
        if node == self.me:
            return True
        follower = self._followers[node]
        in_time = follower.is_in_time(log_end, now, self._lag_max_ns)
        if node in self._state.isr:
            return in_time
        # Past the high watermark, since every member must have all below it; past the start of
        # our epoch, since only then has it fetched from us (KIP-207 waits for the same).
        threshold = max(self.high_watermark, self.epoch_start)
        known = follower.broker_epoch != UNKNOWN_EPOCH and not follower.refused
        if not (in_time and known and follower.synced >= threshold):
            return False
        # Otherwise the controller would refuse, and thousands of partitions would propose again and again
        # while one broker starts.
        return may_join(node, follower.broker_epoch)

    def _epoch_of(self, node: NodeId) -> BrokerEpoch:
        return UNKNOWN_EPOCH if node == self.me else self._followers[node].broker_epoch

    def _meet_followers(self, now: Instant) -> None:
        """Have an entry for every replica; a member of the ISR gets time to fetch."""
        known, self._followers = self._followers, {}
        for node in self._state.replicas:
            if node != self.me:
                follower = known.get(node) or FollowerState(None)
                if node in self._state.isr and follower.caught_up_at is None:
                    follower.caught_up_at = now
                self._followers[node] = follower

    def _recount(self) -> bool:
        """Compute anew which followers the high watermark waits for."""
        self._counting = tuple(self._states_of(self.counting))
        # With fewer, the controller keeps replicas eligible that have left the ISR (KIP-966):
        # they hold all that is below the high watermark only as long as it stands still.
        self._may_advance = self.has_min_isr and not self._is_held
        return self._advance()

    def _states_of(self, nodes: Iterable[NodeId]) -> Iterable[FollowerState]:
        for node in nodes:
            if node != self.me:
                # A member of the ISR that is no replica any more does not fetch.
                yield self._followers.get(node) or FollowerState(None)

    def _advance(self) -> bool:
        safe = self._synced
        for follower in self._counting:
            if follower.synced < safe:
                safe = follower.synced
        if safe <= self.high_watermark or not self._may_advance:
            return False
        self.high_watermark = safe
        return True
