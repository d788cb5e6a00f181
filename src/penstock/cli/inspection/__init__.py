"""Looking into partition directories without touching them, for operators.

    directory   which files there are, and what the small ones say
    survey      one pass over the batch headers of each segment: counts, offsets, times
    verify      one pass over every byte: CRCs, records, offsets, indexes, checkpoint

Nothing is opened for writing and no lock is taken, so both can be run beside a broker; they
then speak of the log as it was when they started. What is found is told apart by what it
means: *damage* is something the log was trusted with and cannot give back, a *tail* is the
unfinished end of an interrupted write, which the next start cuts off, and what is
*rebuildable* costs time and no data.

Left out: repair. A replica repairs itself from its leader; a single node quarantines what is
damaged when it starts.
"""

from penstock.cli.inspection.directory import PartitionFiles, partitions_below, read_partition
from penstock.cli.inspection.survey import SegmentSurvey, survey
from penstock.cli.inspection.verify import Finding, Meaning, verify

__all__ = [
    "PartitionFiles",
    "partitions_below",
    "read_partition",
    "SegmentSurvey",
    "survey",
    "Finding",
    "Meaning",
    "verify",
]
