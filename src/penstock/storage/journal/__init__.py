"""The commit journal: one file to sync, however many logs were written.

A sync round used to sync the file of every partition that was written since the last one. Now small
appends are written twice: to their log, in the page cache, and as part of one *frame* to the journal,
which is a file of fixed size that was filled with zeros before, so that a sync of it writes a few
pages and no metadata.

    append ──► log's file (page cache)                     synced when a checkpoint is taken
           └─► LogJournal.batches ──► frame n ──► sync ──► acknowledged

    meta/journal/
        state                  which run this is, and the oldest file that is needed
        000000000003.journal   frames, one per round
        000000000004.journal   …
        next.spare             the file that comes next

* A **frame** holds what one round makes durable, entries of several logs. Frames are numbered; frame
  n + 1 is written only after the sync of frame n has ended.
* **Large appends** skip the journal: their file is synced in the same round, and an entry in the next
  frame says how far the log is durable.
* The **position** in a log's checkpoint is the last frame that the checkpoint covers. What the journal
  says up to there is ignored for that log: so a truncation, which takes a checkpoint, needs no entry,
  and neither does a log that is removed and made again.
* A journal file is **free** once every log that it names has a checkpoint behind it.
* At a **start** the journal is read before the logs. A log that ends early is continued from it, and a
  log that ends before what was durable has lost something and says so.
* When the journal **fails**, it is not written again in this run, and rounds sync the logs' own files.

The modules: `codec` is the format, `recovery` reads a journal at a start, `journal` writes it, `metrics`
are what operators see of it.

Left out: compression, and journaling for logs that nobody waits for (`fsync.mode` interval and none).
"""

from penstock.storage.journal.codec import EntryKind, JournalRun, LogKey
from penstock.storage.journal.journal import (
    NO_POSITION,
    CommitJournal,
    FrameBuilder,
    JournalFile,
    JournalOptions,
    JournalPlace,
    JournalPosition,
    LogJournal,
)
from penstock.storage.journal.recovery import NOTHING_JOURNALED, DamagedFrames, JournaledLog, JournalRange

__all__ = [
    "CommitJournal",
    "LogJournal",
    "FrameBuilder",
    "JournalOptions",
    "JournalPlace",
    "JournalPosition",
    "JournalRun",
    "NO_POSITION",
    "JournalFile",
    "EntryKind",
    "LogKey",
    "JournalRange",
    "JournaledLog",
    "NOTHING_JOURNALED",
    "DamagedFrames",
]
