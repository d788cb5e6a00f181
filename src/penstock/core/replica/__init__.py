"""What a replica knows of its log beyond the bytes: epochs, producers, transactions, followers.

Three machines without I/O are fed from batch headers and rebuilt by replaying them:

* `LeaderEpochHistory` (`leader_epochs`) says at which offset each leader epoch began. A follower
  that comes back learns where its last epoch ended and truncates there (`diverging_epoch`).
* `ProducerStateManager` (`producer_state`) remembers the last five batches of every idempotent
  producer. `check` checks a batch and changes nothing; `update` records one that was appended.
  The two are apart so that a leader can decide first, and a follower or a restart can
  apply without deciding.
* `OpenTransactions` (`transactions`) knows which transactions are open, hence up to where a
  read_committed consumer may read (the last stable offset), and which ones were aborted.

`encode_snapshot` and `decode_snapshot` turn the last two into bytes and back; the log decides
where and when these bytes are stored.

A fourth, `IsrTracker` (`isr`), exists on a leader only, for one leader epoch. It is fed with the
positions of followers and with committed metadata, and knows the high watermark and which
ISR to propose. In it, a follower has two positions: how far it has fetched and how far that is
synced to its disk. Only the second one counts:

    leader     fetched by all       ┌ log end
    ───────────────────┬────────────┤
    synced  1 ─────────┼────────┤   │     high watermark = min(1, 2, 3), while 1, 2 and 3
            2 ─────┤   │                  are in the ISR, or are proposed for it
            3 ─────────┼──┤

Left out: elections, which are the controller's; fetching, truncating and proposing, which
are in `broker.replication`.
"""

from penstock.core.replica.isr import (
    UNKNOWN_EPOCH,
    CommittedPartitionState,
    FollowerState,
    IsrTracker,
    MayJoin,
    ProposedIsrMember,
)
from penstock.core.replica.leader_epochs import (
    DivergingEpoch,
    EpochStart,
    LeaderEpochHistory,
    diverging_epoch,
    truncation_offset,
)
from penstock.core.replica.producer_state import (
    ACCEPTED,
    BatchAccepted,
    BatchMetadata,
    BatchVerdict,
    DuplicateBatch,
    DuplicateMarker,
    MarkerVerdict,
    ProducerState,
    ProducerStateManager,
    decode_snapshot,
    encode_snapshot,
)
from penstock.core.replica.transactions import AbortedTransaction, OpenTransactions

__all__ = [
    "LeaderEpochHistory",
    "MayJoin",
    "EpochStart",
    "DivergingEpoch",
    "diverging_epoch",
    "truncation_offset",
    "ProducerStateManager",
    "ProducerState",
    "BatchMetadata",
    "BatchVerdict",
    "ACCEPTED",
    "BatchAccepted",
    "DuplicateBatch",
    "MarkerVerdict",
    "DuplicateMarker",
    "OpenTransactions",
    "AbortedTransaction",
    "encode_snapshot",
    "decode_snapshot",
    "IsrTracker",
    "CommittedPartitionState",
    "ProposedIsrMember",
    "FollowerState",
    "UNKNOWN_EPOCH",
]
