"""How far one follower has come, in the eyes of its leader."""

from penstock.core.model import BrokerEpoch, Instant, Offset

UNKNOWN_EPOCH = BrokerEpoch(-1)
# Below every offset: a follower that has not been heard of in this leader epoch.
NOWHERE = Offset(-1)


class Follower:
    """Positions of one follower, and when it had last caught up.

        log end   │ 100      140      180      220
        fetches   │  ▲ a      ▲ b      ▲ c      ▲ d
        synced    │  80       95       120      150
                     mark 100 at a              100 is reached: caught up as of a;
                                                the next mark is 220 at d

    Caught up means that what was there some time ago is synced now, since under load nobody
    is ever at the very end. The mark stays until it is reached. To move it with every fetch
    would do for fetch positions, but a sync lasts longer than a fetch, and a follower that is
    one sync behind would never reach a mark that runs ahead of it.
    """

    __slots__ = ("_mark", "_marked_at", "broker_epoch", "caught_up_at", "fetched", "refused", "synced")

    def __init__(self, caught_up_at: Instant | None) -> None:
        self.broker_epoch = UNKNOWN_EPOCH
        self.fetched = NOWHERE
        self.synced = NOWHERE
        self.caught_up_at = caught_up_at
        # The controller would not have it in the ISR, and it has not fetched since.
        self.refused = False
        self._mark: Offset | None = None
        self._marked_at = Instant(0)

    def moved(self, fetched: Offset, synced: Offset, log_end: Offset, now: Instant) -> None:
        """It has fetched, or told what it has synced."""
        self.fetched = fetched
        # What it does not have it cannot have synced.
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
        if self.synced >= log_end:
            # Nothing has happened since: silence is no lag.
            self.caught_up_at = now
        return self.caught_up_at is not None and now - self.caught_up_at <= lag_max_ns
