"""Compaction: of every key, only the latest record stays.

    cleaned ───────────────┬ dirty ─────────────┬ not yet ─────────────┐
    one record per key     │ read into a map    │ too young, undecided,│
                           │ key → last offset  │ or still growing     │
    └── rewritten without what the map knows to be outdated ──┘

What holds:

* Offsets and their order never change; readers meet gaps. A batch keeps its range of offsets.
* The active segment, and whatever is not below the last stable offset and in a segment that a
  checkpoint vouches for, is left alone.
* A tombstone (a key without a value) stays until `delete.retention.ms` after the first time
  that compaction has met it, so that readers on their way can see it. The batch says until when.
* Records of aborted transactions go, and do not count as anybody's latest. Markers stay.
* The last batch of every producer stays, empty if need be, for its sequence; so does the last one of
  every segment, so that each file shows by itself where it ends.
* Records without a key, from a time when the topic was not compacted, go.

It takes three steps. `plan` says on the loop what there is to do. `cleaning` does it elsewhere, in a
process of its own, and writes new files beside the old ones, of which readers notice nothing. `swap`
puts them in place, on the loop again: a checkpoint, some renames, and a sync. What a power cut leaves
of that, `recovery.swaps` finishes.

The map holds digests, so its size depends on the number of keys alone. It takes whole segments until
it is full, and the next compaction goes on behind them.

Neighbours that fit into one segment become one, under the name of the first. When nothing is dirty
and the first tombstones have expired, compaction goes through the log all the same; after a restart
they get their whole time once more, since nobody remembers.

Left out: removing markers whose transaction is gone, and merging segments with aborted transactions.
The map takes at least one segment, however many keys that has.
"""

from penstock.storage.log.compaction.cleaning import clean, cleaner_for
from penstock.storage.log.compaction.plan import cleanable, plan
from penstock.storage.log.compaction.swap import Compaction
from penstock.storage.log.compaction.values import (
    Cleaned,
    CleaningFailed,
    Compacted,
    CompactionOrder,
    CompactionRules,
    Uncleanable,
)

__all__ = [
    "Compaction",
    "CompactionOrder",
    "CompactionRules",
    "Compacted",
    "Cleaned",
    "Uncleanable",
    "CleaningFailed",
    "plan",
    "cleanable",
    "clean",
    "cleaner_for",
]
