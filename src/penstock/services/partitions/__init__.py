"""The partitions this node leads: appending, what is acknowledged, and who waits for what.

    append ──► log end                      everything the leader has written
                  │  sync round
                  ▼
               high watermark               what producers are told, and consumers may read

With one replica the high watermark is the leader's own synced position; with fsync mode
`interval` or `none` it is the log end, since that is what those modes promise. Producers
wait for it (`Partition.when_acknowledged`), long polls watch it (`Partition.watch`).

Left out: followers and in-sync replicas, which will move the same high watermark.
"""

from penstock.services.partitions.housekeeping import HousekeepingOptions
from penstock.services.partitions.partition import Fsync, Partition, PartitionStopped, SyncPolicy, Watcher
from penstock.services.partitions.registry import LogStore, Partitions, PartitionsOptions

__all__ = [
    "Partition",
    "Partitions",
    "PartitionsOptions",
    "LogStore",
    "PartitionStopped",
    "Fsync",
    "SyncPolicy",
    "Watcher",
    "HousekeepingOptions",
]
