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
(`LeaderPartition.when_acknowledged`, `when_synced`), long polls watch it (`LeaderPartition.watch`),
followers' fetches watch the log end (`watch_end`).

Left out: copying from the leader and proposing in-sync replicas, which `services.replication`
does; verifying old segments in the background.
"""

from penstock.broker.partitions.follower_partition import FollowerPartition
from penstock.broker.partitions.leader_partition import (
    FsyncMode,
    LeaderPartition,
    Leadership,
    PartitionStopped,
    Replica,
    SyncPolicy,
    Watcher,
)
from penstock.broker.partitions.log_maintenance import LogMaintenanceOptions
from penstock.broker.partitions.log_manager import LogStore
from penstock.broker.partitions.replica_manager import ReplicaManager, ReplicaManagerOptions

__all__ = [
    "ReplicaManager",
    "ReplicaManagerOptions",
    "Replica",
    "LeaderPartition",
    "Leadership",
    "FollowerPartition",
    "LogStore",
    "PartitionStopped",
    "FsyncMode",
    "SyncPolicy",
    "Watcher",
    "LogMaintenanceOptions",
]
