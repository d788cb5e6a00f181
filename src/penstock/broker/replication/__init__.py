"""Replication: keeps followers' logs equal to their leader's, and proposes ISR changes to the controller.

    follower                                     leader
       │ fetch: position, last epoch, synced ─────►│  ReplicaFetchServer: is it a prefix of our log?
       │                                           │  (nothing new: the fetch waits, up to 500 ms)
       │◄──── response: batches, high watermark ───│
       │ append, start a sync                      │
       │ fetch: new position, old synced ─────────►│  continues during the sync
       │ progress: synced ────────────────────────►│  high watermark = min(synced of the ISR)
                                                   │  IsrManager: who joins, who leaves ──► controller

    replication    the service: routes frames, one fetcher per leader node
    fetcher        the follower's side
    fetch_server   the leader's side
    segment_refill damaged ranges, fetched from any replica that has them
    isr_manager    proposes ISR changes for partitions led here
    protocol       the frames
    options        options and metrics

* **Sessions.** A follower has one `ReplicaFetcher` per leader node, for all partitions that it leads.
  Fetches form a session: each names only partitions that have moved, each response only those with news.
* **Positions.** A position counts only when follower and leader agree on the leader epoch and the epoch
  of its last record reaches that far in the leader's log. A leader whose metadata is older lets the fetch
  wait; a follower whose metadata is older gets an error, and waits for newer metadata.
* **Lost frames.** Frames may be lost, duplicated or late. Session numbers and sequences only grow;
  responses name the position they are for; whoever misses something starts a new session.
* **Truncation.** A follower truncates its log where the leader's epochs say, or restarts at the leader's
  log start if its position is no longer in the leader's log. Both end the session, since frames with the
  old positions may still arrive.
* **Damage.** A follower checks every batch that it gets. If one is damaged it reports that, and the leader
  checks its log; a replica whose log is damaged resigns (`broker.partitions`) and fetches it again.

The rules for the high watermark and the ISR are in `core.replica.isr`; partitions and their roles
belong to `broker.partitions`.

Left out: replicas that follow another follower; compression between nodes; more than one link per pair
of nodes.
"""

from penstock.broker.replication.options import ReplicationMetrics, ReplicationOptions, Submit
from penstock.broker.replication.replication import ReplicationService

__all__ = ["ReplicationService", "ReplicationOptions", "ReplicationMetrics", "Submit"]
