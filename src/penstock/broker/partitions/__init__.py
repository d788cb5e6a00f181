"""The logs of this node: the partitions it leads, those it follows, and who waits for what.

    leader_partition     a partition this node leads: appends, acknowledgements, high watermark
    follower_partition   a partition this node follows: what the leader sent, and truncation
    replica_manager      every log of this node and its role, kept in step with the metadata
    log_manager          creates, opens and removes log directories
    log_maintenance      checkpoints, background syncs and retention, by timers
    log_cleaner          compacts the dirtiest log first, in a worker
    log_scrubber         verifies every segment in the background
    quarantine           what was taken out of logs: how much it is, and its removal
    segment_verifier     verifies what readers ask for in a thread, and makes damage known
    replica_reports      what the logs hold and what they lost, said before anyone is elected
    replica_repair       damaged replicas resign and are filled again by their leader

    ReplicaManager ── image ──► Replica: a log, for as long as the node keeps it
                                   ├── LeaderPartition     this node leads, in one leader epoch
                                   ├── FollowerPartition   another node leads, in one leader epoch
                                   └── None                the partition has no leader

A log outlives roles. A new leader epoch is a new role: the old one is stopped, so that
producers, watchers and coordinators that hold it see that it is over.

    append ──► log end                      everything the leader has written
                  │  sync round
                  ▼
               synced here                  acks=1 is acknowledged
                  │  the slowest of the in-sync replicas
                  ▼
               high watermark               acks=all is acknowledged, and consumers may read

With one replica the last two are the same; with fsync mode `interval` or `none`, synced means
appended, since those modes guarantee no more. Producers wait for it
(`LeaderPartition.when_acknowledged`, `when_synced`), long polls watch it (`LeaderPartition.watch`),
followers' fetches watch the log end (`watch_end`).

Left out: copying from the leader and proposing in-sync replicas, which `broker.replication`
does.
"""

from penstock.broker.partitions.follower_partition import FollowerPartition
from penstock.broker.partitions.leader_partition import (
    FsyncMode,
    LeaderPartition,
    Leadership,
    PartitionStopped,
    PartitionWatcher,
    Replica,
    ReplicaRole,
    SyncPolicy,
    Watcher,
)
from penstock.broker.partitions.log_maintenance import LogMaintenanceOptions
from penstock.broker.partitions.log_manager import LogStore
from penstock.broker.partitions.quarantine import QuarantineSize
from penstock.broker.partitions.replica_manager import ReplicaManager, ReplicaManagerOptions
from penstock.broker.partitions.segment_verifier import SegmentVerifier, VerificationResult

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
    "PartitionWatcher",
    "ReplicaRole",
    "Watcher",
    "LogMaintenanceOptions",
    "QuarantineSize",
    "SegmentVerifier",
    "VerificationResult",
]
