"""When written bytes become durable, and who is told.

    request a ─┐
    request b ─┤ round 1 ──────────┐
    request c ──── waits ──┐       done a, b
    request d ──── waits ──┤ round 2 ──────────┐
                           │                   done c, d

`GroupCommit` is the one place of a node where syncs start. While one round runs, every
request joins the next, so that a sync is shared by all who waited and is never counted for
bytes that were written after it began. A sync that fails fails the requests of its round for
that file (for all of its files, if the runtime cannot tell), and the file is never called
durable again: the kernel has dropped the pages it could not write, and the next sync would
succeed without them.

Who waits for a round, and who does not (`fsync.mode`), is decided by whoever appends: see
`services/partitions`.

Left out: syncfs, which is faster for many files but only right on a filesystem of our own.
"""

from penstock.storage.commit.group import CommitCounters, GroupCommit, Syncs, SyncTarget

__all__ = [
    "GroupCommit",
    "CommitCounters",
    "Syncs",
    "SyncTarget",
]
