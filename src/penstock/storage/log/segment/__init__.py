"""One segment: a file of record batches back to back, and the way into it.

A segment is named by its base offset. The last one of a log grows, the others are
sealed and change only by being deleted, cut by a truncation or replaced by compaction.

    descriptor  format, key and tier: where encryption and tiering will attach
    walk        reading batch headers one after another, without their records
    reader      the file for reading, opened at need
    segment     append, locate an offset, find batch boundaries, search by time

Left out: preallocation, and reading ahead. The kernel does both well for a file that
only grows.
"""

from penstock.storage.log.segment.descriptor import PLAIN, SegmentDescriptor, Tier
from penstock.storage.log.segment.reader import SegmentReader
from penstock.storage.log.segment.segment import OFFSET_DELTA_MAX, UNKNOWN_MS, Segment
from penstock.storage.log.segment.walk import Checked, Placed, checked_batches, headers

__all__ = [
    "Segment",
    "OFFSET_DELTA_MAX",
    "UNKNOWN_MS",
    "SegmentReader",
    "SegmentDescriptor",
    "Tier",
    "PLAIN",
    "headers",
    "checked_batches",
    "Placed",
    "Checked",
]
