"""What a leader remembers of its followers between their fetches.

A session belongs to one node. It begins with a fetch that names every partition and goes on with
fetches that name those whose position changed. `number` and `sequence` only grow, so that a frame
that was late or came twice is known as such; a gap means that one was lost, and the session has to
begin anew.
"""

from collections.abc import Callable

from penstock.core.model import Instant, NodeId
from penstock.runtime import Timer
from penstock.services.partitions import Partition
from penstock.services.peering import Peer
from penstock.services.replication.codec import AnswerRow, Fetch, FetchRow, Status

# Follows on no sequence: what comes next has to begin a session.
ENDED = -2
NEVER_TOLD = -1


class Row:
    """One partition that a follower fetches."""

    __slots__ = (
        "_more",
        "is_at_end",
        "is_warming",
        "key",
        "last_epoch",
        "leader_epoch",
        "partition",
        "position",
        "synced",
        "told_start",
        "told_watermark",
        "verdict",
    )

    def __init__(self, key: bytes, more: Callable[["Row"], None]) -> None:
        self.key = key
        self._more = more
        self.leader_epoch = self.position = self.last_epoch = self.synced = -1
        # None while this node does not lead it in the follower's epoch: then it waits.
        self.partition: Partition | None = None
        # What is wrong with the position; followers at such positions have nothing in common with us.
        self.verdict: tuple[Status, int, int] | None = None
        self.told_watermark = self.told_start = NEVER_TOLD
        # Whether there was nothing to fetch, the last time we looked.
        self.is_at_end = False
        self.is_warming = False

    def say(self, said: FetchRow) -> None:
        """The follower says where it is."""
        _, self.leader_epoch, self.position, self.last_epoch, self.synced = said

    def attach(self, partition: Partition | None) -> None:
        """Listen to this partition, and to no other."""
        if partition is self.partition:
            return
        if self.partition is not None:
            self.partition.unwatch_end(self.woken)
        self.partition = partition
        self.told_watermark = self.told_start = NEVER_TOLD
        if partition is not None:
            partition.watch_end(self.woken)

    def woken(self) -> None:
        """There is more in the log."""
        self._more(self)

    @property
    def has_news(self) -> bool:
        """Whether high watermark or log start are not what the follower was told."""
        partition = self.partition
        return partition is not None and (
            partition.insync.high_watermark != self.told_watermark or partition.log.start != self.told_start
        )

    def answered(self, status: Status, epoch: int = -1, end: int = -1) -> AnswerRow:
        """What to tell the follower."""
        partition = self.partition
        if partition is None:
            return AnswerRow(self.key, status, self.leader_epoch, self.position, 0, 0, epoch, end)
        watermark, start = partition.insync.high_watermark, partition.log.start
        return AnswerRow(self.key, status, self.leader_epoch, self.position, watermark, start, epoch, end)

    def told(self, row: AnswerRow) -> None:
        """The follower was sent this."""
        if self.partition is not None:
            self.told_watermark, self.told_start = row.high_watermark, row.log_start


class Session:
    """One follower node."""

    __slots__ = (
        "broker_epoch",
        "deadline",
        "heard_at",
        "is_waking",
        "news_at",
        "node",
        "number",
        "outside",
        "outside_at",
        "pending",
        "progress_number",
        "ready",
        "rows",
        "sequence",
        "timer",
        "turned_away",
        "unsettled",
    )

    def __init__(self, node: NodeId, first: Fetch) -> None:
        self.node = node
        self.broker_epoch = first.broker_epoch
        self.number = first.session
        self.sequence = first.sequence - 1
        self.progress_number = -1
        self.rows: dict[bytes, Row] = {}
        # Those that may have something to tell, the longest-waiting first.
        self.ready: dict[Row, None] = {}
        # Those whose follower does not know yet that all it has is below the high watermark.
        self.unsettled: dict[Row, None] = {}
        # Those whose follower is not in the ISR: any fetch may change that, also one that does not name them.
        self.outside: dict[Row, None] = {}
        # The fetch that waits for an answer, if there is one.
        self.pending: Peer | None = None
        self.deadline = self.heard_at = self.news_at = self.outside_at = Instant(0)
        # How often in a row its link did not take the answer.
        self.turned_away = 0
        self.timer: Timer | None = None
        self.is_waking = False

    def is_older_than(self, broker_epoch: int, number: int) -> bool:
        return (self.broker_epoch, self.number) < (broker_epoch, number)

    def forget(self, key: bytes) -> None:
        row = self.rows.pop(key, None)
        if row is not None:
            row.attach(None)
            self.ready.pop(row, None)
            self.unsettled.pop(row, None)
            self.outside.pop(row, None)

    def end(self) -> None:
        """Nothing follows on this. Its number is kept, so that it does not rise from a late frame."""
        for key in list(self.rows):
            self.forget(key)
        self.pending = None
        self.sequence = ENDED
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
