"""Syncing files without stopping the loop, and without waiting for its GIL.

A thread that syncs has to take the GIL back when the kernel is done, and a busy loop makes
it wait for that: rounds took 18 to 21 ms at the 99th percentile. A second process does not
wait. It is a bare interpreter (10 MB, of which 4 MB are its own) that is given each file's
descriptor once and then told which ones to sync:

    loop ── keep 7 (descriptor) ──►  helper      one SOCK_SEQPACKET pair, so that
         ── sync round 3: 7 9 12 ─►              messages have edges and the end
         ◄─ round 3: nothing failed              of either process shows as EOF
         ── drop 7 ──────────────►

The helper answers messages in order, syncs the files of one message on several threads,
and ends when its parent does. It has a process group of its own, so that a Ctrl-C does not
take durability away from a node that is shutting down in order.

If the helper dies, every sync that was underway and every later one fails: nobody can know
what reached the disk. The owner is told, and a node without its helper is over.

That way costs four switches between processes, as much CPU as a small sync itself. A lone writer's
round is therefore ended on the loop, by `LoopSync`, as long as that is quick and nobody else waits.

`InlineSync` is for tests and small tools: it blocks.

Left out: restarting the helper (the failed rounds would stop their partitions anyway), and
syncfs.
"""

from penstock.runtime.sync_helper.helper import HelperDied, SyncHelper
from penstock.runtime.sync_helper.inline import InlineSync, LoopSync, SyncFailed

__all__ = ["SyncHelper", "LoopSync", "HelperDied", "SyncFailed", "InlineSync"]
