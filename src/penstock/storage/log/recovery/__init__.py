"""From what is on disk to a log that can be used, and back to a good log from a bad one.

    ┌ sealed segments ────────────┬ checkpointed segment ┬ tail ──────────┐
    │ sizes compared, not read    │ ends at least here ──┤ every byte read │
    └─────────────────────────────┴──────────────────────┴─────────────────┘
                                            recovery point ↑

Below the recovery point everything was synced: what is missing or broken there is
corruption. It is reported and refused to readers, and nothing is cut. Above it, a batch
that is torn or has a wrong CRC ends the log: it is cut there, and the report says where.
Unless the rest is plainly an unfinished write, it is kept aside, since good batches behind
a damaged one may be in it. After a clean stop the tail is empty and no batch is read at all.

    creating  an empty log, durable before it is used
    opening   compares the directory with the checkpoint and puts the parts together
    tail      reads what follows the recovery point
    aside     keeps what is cut off
    replay    producer state, epochs and indexes from headers
    report    what was found
    scrub     reads everything in small steps, later, to find damage that a start does not

Left out: repairing from another replica. That is the replica's work, after it has left the ISR.
"""

from penstock.storage.log.recovery.creating import create_log
from penstock.storage.log.recovery.opening import open_log
from penstock.storage.log.recovery.report import Cut, RecoveryReport

__all__ = ["create_log", "open_log", "RecoveryReport", "Cut"]
