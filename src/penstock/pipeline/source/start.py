"""Where a query without a checkpoint starts.

"The end of the log" is another place each time it is looked for. A query that starts there, reads,
and fails before Spark has its first batch in the books would start anew at a later end and never
see what came in between. The start is therefore written down under the query's group, if it has
one, and found there again; without a group the first batch is left empty, so that there is
nothing in it to lose.
"""

from typing import NamedTuple

from penstock.pipeline.errors import DataLost
from penstock.pipeline.source.group import GroupCommits
from penstock.pipeline.source.look import Outlook
from penstock.pipeline.source.offsets import Offsets, Partition
from penstock.pipeline.source.options import SourceOptions
from penstock.pipeline.source.positions import Resolved, resolve


class Start(NamedTuple):
    """The first offsets; `momentary` if they would be others a moment later."""

    offsets: Offsets
    momentary: bool


def first_offsets(options: SourceOptions, outlook: Outlook, group: GroupCommits | None) -> Start:
    """What `startingOffsets` and its kin mean now; for "latest", where the group stopped before."""
    partitions, topic_ids = outlook.partitions()
    resolved = resolve(options.starting, partitions, outlook.catalogue)
    if group is None:
        return Start(Offsets(resolved.positions, topic_ids), bool(resolved.momentary))
    group.refuse_members()
    positions = _resumed(resolved, group.committed(), outlook, fail=options.fail_on_data_loss)
    group.commit(positions)
    return Start(Offsets(positions, topic_ids), bool(resolved.momentary))


def _resumed(
    resolved: Resolved, committed: dict[Partition, int], outlook: Outlook, *, fail: bool
) -> dict[Partition, int]:
    known = {one: committed[one] for one in resolved.momentary if one in committed}
    positions = dict(resolved.positions)
    for one, earliest in outlook.catalogue.earliest(known).items():
        offset = known[one]
        if fail and offset < earliest:
            raise DataLost(*one, offset, earliest)
        # Beyond the end: a group that read an older topic of this name.
        positions[one] = min(max(offset, earliest), positions[one])
    return positions
