"""Logs as files that need looking after, whatever the node is to them.

    Shelf          directories: making logs off the loop, opening, removing, what stops left behind
    Housekeeping   checkpoints, syncs behind, retention, by timers
    Compactor      the dirtiest log first, one at a time, by a worker
    Mending        damaged replicas resign, and are filled anew by their leader

Followers expire and compact by the same rules as leaders, each on its own: what is deleted
lies below the high watermark, which is the same for all of them sooner or later.

Left out: checking old segments for damage in the background; logs whose disk failed are not
opened again before the node starts again.
"""

from penstock.services.partitions.upkeep.compacting import Compactor
from penstock.services.partitions.upkeep.housekeeping import Housekeeping, HousekeepingOptions
from penstock.services.partitions.upkeep.mending import Mending, Submit
from penstock.services.partitions.upkeep.shelf import LogStore, Shelf

__all__ = ["Shelf", "LogStore", "Housekeeping", "HousekeepingOptions", "Compactor", "Mending", "Submit"]
