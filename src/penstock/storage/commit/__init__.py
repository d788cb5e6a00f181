"""When written bytes become durable, and who is told.

    request a ─┐
    request b ─┤ round 1 ──────────┐
    request c ──── waits ──┐       done a, b
    request d ──── waits ──┤ round 2 ──────────┐
                           │                   done c, d

`GroupCommit` is the one place of a node where syncs start. While one round runs, every
request joins the next, so that a sync is shared by all who waited and is never counted for
bytes that were written after it began. A round that fails fails its own requests, and its
files are never called durable again: after a failed sync the kernel has dropped the pages
it could not write, and the next sync would succeed without them.

On top of it are the three modes a topic can choose: `EveryWrite` waits for the sync,
`Interval` syncs in the background, `Never` leaves it to the kernel.

Left out: syncfs, which is faster for many files but only right on a filesystem of our own;
and telling the files of a failed round apart, since the runtime's port does not.
"""

from penstock.storage.commit.group import CommitCounters, GroupCommit, Syncs, SyncTarget
from penstock.storage.commit.modes import After, CommitMode, EveryWrite, Interval, Never, Waiting

__all__ = [
    "GroupCommit",
    "CommitCounters",
    "Syncs",
    "SyncTarget",
    "CommitMode",
    "EveryWrite",
    "Interval",
    "Never",
    "After",
    "Waiting",
]
