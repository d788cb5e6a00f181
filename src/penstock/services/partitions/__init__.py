"""The logs of this node: the partitions it leads, those it follows, and who waits for what.

    Partitions ── image ──► Replica: a log, for as long as the node keeps it
                               ├── Partition   this node leads, in one leader epoch
                               ├── Followed    another one leads, in one leader epoch
                               └── nothing     nobody leads

A log outlives roles. A new leader epoch is a new role: the old one is stopped, so that
producers, watchers and coordinators that hold it see that its time is over.

    append ──► log end                      everything the leader has written
                  │  sync round
                  ▼
               synced here                  what acks=1 is told
                  │  the slowest of the in-sync replicas
                  ▼
               high watermark               what acks=all is told, and consumers may read

With one replica the last two are the same; with fsync mode `interval` or `none`, synced means
appended, since that is what those modes promise. Producers wait for it
(`Partition.when_acknowledged`, `when_synced`), long polls watch it (`Partition.watch`),
followers' fetches watch the log end (`watch_end`).

Left out: copying from the leader and proposing in-sync replicas, which `services.replication`
does; verifying old segments in the background.
"""

from penstock.services.partitions.followed import Followed
from penstock.services.partitions.partition import Partition, Term, Watcher
from penstock.services.partitions.registry import Partitions
from penstock.services.partitions.replica import PartitionStopped, Replica
from penstock.services.partitions.settings import PartitionsOptions
from penstock.services.partitions.syncing import Fsync, SyncPolicy
from penstock.services.partitions.upkeep import HousekeepingOptions, LogStore

__all__ = [
    "Partitions",
    "PartitionsOptions",
    "Replica",
    "Partition",
    "Term",
    "Followed",
    "LogStore",
    "PartitionStopped",
    "Fsync",
    "SyncPolicy",
    "Watcher",
    "HousekeepingOptions",
]
