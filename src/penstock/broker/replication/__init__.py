"""Keeping followers' logs equal to their leader's, and telling the controller who is in sync.

    follower                                     leader
       │ fetch: position, last epoch, synced ─────►│  Serving: is it a prefix of our log? count it
       │                                           │  (nothing new: the fetch waits, up to 500 ms)
       │◄────── answer: batches, high watermark ───│
       │ append, start a sync                      │
       │ fetch: new position, old synced ─────────►│  goes on during the sync
       │ progress: synced ────────────────────────►│  high watermark = min(synced of the ISR)
                                                   │  Proposing: who joins, who leaves ──► controller

* **Fetching.** A follower has one `Fetcher` per leader node, for all partitions that it leads. Fetches
  form a session: each names only partitions that have moved, each answer only those with news.
* **Truth.** A position counts only when it was judged in the follower's and the leader's common epoch:
  the epoch of its last record must reach that far in the leader's log. A leader that is not there yet
  (its metadata is older) lets the fetch wait; a follower that is behind is told, and waits for its own.
* **Doubt.** Frames may be lost, doubled or late. Sessions and sequences only grow; answers name the position
  that they answer; whoever misses something begins a new session. No frame is ever needed twice.
* **Going back.** A follower cuts its log where the leader's epochs say, or begins anew at the leader's log
  start if its position is in the leader's log no more. Both end the session, since frames with the old
  positions may be on their way.

* **Damage.** A follower checks every batch that it gets. If one is damaged it says so, and the leader
  checks its log; a replica whose log is damaged resigns (`services.partitions`), and fetches it anew.

The rules for the high watermark and the ISR are in `core.replica.InSync`; partitions and their roles
belong to `services.partitions`.

Left out: fetching from followers; compression between nodes; more than one link per pair of nodes.
"""

from penstock.broker.replication.options import ReplicationMetrics, ReplicationOptions, Submit
from penstock.broker.replication.replication import ReplicationService

__all__ = ["ReplicationService", "ReplicationOptions", "ReplicationMetrics", "Submit"]
