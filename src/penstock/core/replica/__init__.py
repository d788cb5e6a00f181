"""What a replica knows of its log beyond the bytes: epochs, producers, transactions.

Three machines without I/O, each fed from batch headers and rebuilt by replaying them:

* `EpochHistory` says at which offset each leader epoch began. A follower that comes
  back asks where its last epoch ended and cuts off what lies behind (KIP-101, KIP-279).
* `ProducerStates` remembers the last five batches of every idempotent producer.
  `check` judges a batch and changes nothing; `update` records one that was appended.
  The two are apart so that a leader can decide first, and a follower or a restart can
  apply without deciding.
* `Transactions` knows which transactions are open, hence up to where a read_committed
  consumer may read (the last stable offset), and which ones were aborted.

`encode_snapshot` and `decode_snapshot` turn the last two into bytes and back; where and
when these bytes are stored is the log's affair.

Left out: the in-sync replicas, the high watermark and elections come with the cluster.
"""

from penstock.core.replica.epochs import EpochHistory, EpochStart
from penstock.core.replica.producers import Producer, ProducerStates, SeenBatch
from penstock.core.replica.snapshots import decode_snapshot, encode_snapshot
from penstock.core.replica.transactions import AbortedTransaction, Transactions
from penstock.core.replica.verdicts import ACCEPTED, Accepted, Duplicate, Rejected, Verdict

__all__ = [
    "EpochHistory",
    "EpochStart",
    "ProducerStates",
    "Producer",
    "SeenBatch",
    "Verdict",
    "ACCEPTED",
    "Accepted",
    "Duplicate",
    "Rejected",
    "Transactions",
    "AbortedTransaction",
    "encode_snapshot",
    "decode_snapshot",
]
