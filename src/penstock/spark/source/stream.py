"""The streaming side: from where, up to where, in which tasks.

A query without a checkpoint may start at the end of the log, which is another offset each time it is
asked for. A query that starts there, reads, and fails before Spark has recorded its first batch would
start anew at a later end and never see what was written in between. The start is therefore committed
under the query's group, if it has one, and found there again; without a group the first batch is left
empty, so that there is nothing in it to lose.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from math import ceil, floor
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from penstock.core.model import MILLISECOND, Instant
from penstock.runtime.loop import MachineClock
from penstock.spark.errors import DataLost, PartitionGone, PipelineError, TopicRecreated, in_one_line
from penstock.spark.orphan import end_with_parent
from penstock.spark.source.broker_offsets import BrokerOffsets, OffsetsSnapshot
from penstock.spark.source.group import GroupOffsetCommitter
from penstock.spark.source.offsets import Partition, SourceOffsets, read_offsets
from penstock.spark.source.options import ResolvedOffsets, SourceOptions, resolve
from penstock.spark.source.tasks import BatchRange, TaskReader, TopicInputPartition, between, divide

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)


class InitialOffsets(NamedTuple):
    """The first offsets; `momentary` if they would be others a moment later."""

    offsets: SourceOffsets
    momentary: bool


def first_offsets(
    options: SourceOptions, outlook: BrokerOffsets, group: GroupOffsetCommitter | None
) -> InitialOffsets:
    """What `startingOffsets` and its kin mean now; for "latest", where the group stopped before."""
    partitions, topic_ids = outlook.partitions()
    resolved = resolve(options.starting, partitions, outlook.catalogue)
    if group is None:
        return InitialOffsets(SourceOffsets(resolved.positions, topic_ids), bool(resolved.momentary))
    group.refuse_members()
    positions = _resumed(resolved, group.committed(), outlook, fail=options.fail_on_data_loss)
    group.commit(positions)
    return InitialOffsets(SourceOffsets(positions, topic_ids), bool(resolved.momentary))


def _resumed(
    resolved: ResolvedOffsets, committed: dict[Partition, int], outlook: BrokerOffsets, *, fail: bool
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


def backlog(start: Mapping[Partition, int], available: Mapping[Partition, int]) -> int:
    """How many offsets lie between."""
    return sum(max(0, end - start[one]) for one, end in available.items())


def limit_batch(
    start: Mapping[Partition, int], available: Mapping[Partition, int], most: int | None
) -> dict[Partition, int]:
    """The end of a batch of at most about `most` records, each partition by its share of the backlog.

    A share below one record is one record, so that no partition waits forever behind a large one:
    with more partitions than `most` the batch is that much larger.
    """
    total = backlog(start, available)
    if most is None or total <= most:
        return {one: max(end, start[one]) for one, end in available.items()}
    ends = {}
    for one, end in available.items():
        share = most * max(0, end - start[one]) / total
        ends[one] = start[one] + (ceil(share) if share < 1 else floor(share))
    return ends


class TriggerDelay:
    """Waits until `least` records are there, but no longer than `delay_ms` since the last batch."""

    def __init__(self, least: int | None, delay_ms: int, now: Instant) -> None:
        self._least = least
        self._delay_ms = delay_ms
        self._since = now

    def holds_back(self, records: int, now: Instant) -> bool:
        """Whether to wait for more; False starts the next delay."""
        if (
            self._least is not None
            and records < self._least
            and now - self._since < self._delay_ms * MILLISECOND
        ):
            return True
        self._since = now
        return False


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the batches of one query, in a process of its own beside the driver; reads in tasks elsewhere.

    Whatever is learned is kept for this run only: Spark's checkpoint is the memory.
    """

    def __init__(
        self, options: SourceOptions, reading: TaskReader, outlook: BrokerOffsets | None = None
    ) -> None:
        self._options = options
        self._reading = reading
        # Made at Spark's first call; a task, to which this object travels, needs none.
        self._broker_offsets = outlook
        self._group: GroupOffsetCommitter | None = None
        self._start: InitialOffsets | None = None
        self._first_planned = False
        self._target: Mapping[Partition, int] | None = None
        self._latest: SourceOffsets | None = None
        self._clock = MachineClock()
        self._hesitation = TriggerDelay(options.min_offsets, options.max_trigger_delay_ms, self._clock.now())

    @in_one_line
    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint starts; the same each time it is called."""
        end_with_parent()
        if self._start is None:
            self._start = first_offsets(self._options, self._looking(), self._committing())
        return self._start.offsets.as_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """What the options say; Spark hands it back to `latestOffset`, or not, as the trigger wants."""
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    @in_one_line
    def prepareForTriggerAvailableNow(self) -> None:
        """What is there now is all that this run reads."""
        self._target = self._looking().snapshot(SourceOffsets({})).latest

    @in_one_line
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch; `start` itself, unchanged, if there is nothing to read."""
        end_with_parent()
        known = read_offsets(start)
        if self._is_momentary_start(known) and not self._first_planned:
            # Spark logs where a batch ends, not where the first one starts: had it records in it, and
            # were the query to fail now, nobody could tell later which they were. So it has none.
            self._latest = known
            return start
        look = self._offsets_snapshot(known)
        self._check_group()
        begin = self._begin(known, look)
        available = {one: self._bounded(one, end) for one, end in look.latest.items()}
        records = backlog(begin, available)
        if records == 0 or self._waits(records, limit):
            return start
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return SourceOffsets(limit_batch(begin, available, most), look.topic_ids).as_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """How far the topics reached when they were last looked at."""
        return SourceOffsets(self._latest.positions).as_json() if self._latest else None

    @in_one_line
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch, which may be one that an earlier run has planned."""
        first, last = read_offsets(start), read_offsets(end)
        if self._is_momentary_start(first) and not self._first_planned:
            self._first_planned = True
            if any(last.positions.get(one, 0) < offset for one, offset in first.positions.items()):
                # An earlier run started here, and ended before its empty first batch was done.
                return []
        found = self._planned(first, last)
        self._report(found.losses)
        options = self._options
        spans = divide(found.spans, options.min_partitions, options.max_records_per_partition)
        return [TopicInputPartition(span) for span in spans]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """In a task."""
        return self._reading.read(partition)

    @in_one_line
    def commit(self, end: dict[str, Any]) -> None:
        """Everything before `end` is done: one batch late, and not at all for the last one of a run."""
        group = self._committing()
        if group is not None:
            group.commit(read_offsets(end).positions)

    def _offsets_snapshot(self, start: SourceOffsets) -> OffsetsSnapshot:
        look = self._looking().snapshot(start)
        self._latest = SourceOffsets(look.latest, look.topic_ids)
        gone = sorted(set(start.positions) - set(look.latest))
        self._report([PartitionGone(*one, start.positions[one]) for one in gone])
        return look

    def _planned(self, start: SourceOffsets, end: SourceOffsets) -> BatchRange:
        """The spans of a batch; none of a topic that was created anew after the batch was planned.

        An earlier run may have planned it, and in the new topic the same offsets are other records.
        """
        catalogue = self._looking().catalogue
        found = between(start, end, catalogue.earliest(end.positions))
        if not found.spans or not self._options.topic_ids:
            return found
        shapes = catalogue.topics(end.topic_ids)
        now = SourceOffsets({}, {topic: shape.topic_id for topic, shape in shapes.items() if shape.topic_id})
        stale = [span for span in found.spans if now.differs_from(end, span.topic)]
        ends = catalogue.latest((span.topic, span.partition) for span in stale)
        for span in stale:
            one = (span.topic, span.partition)
            found.losses.append(TopicRecreated(*one, span.start, ends.get(one, 0)))
        return found._replace(spans=[span for span in found.spans if span not in stale])

    def _begin(self, start: SourceOffsets, look: OffsetsSnapshot) -> dict[Partition, int]:
        """Where the next batch begins: at `start`, or where the log does if `start` is not in it."""
        assert self._latest is not None
        found = between(start, self._latest, look.earliest)
        self._report(found.losses)
        begins = {(span.topic, span.partition): span.start for span in found.spans}
        return {one: begins.get(one, end) for one, end in look.latest.items()}

    def _bounded(self, one: Partition, end: int) -> int:
        return end if self._target is None else min(end, self._target.get(one, 0))

    def _waits(self, records: int, limit: ReadLimit) -> bool:
        """A run that reads what is there does not wait for more of it."""
        if self._target is not None or isinstance(limit, ReadAllAvailable):
            return False
        return self._hesitation.holds_back(records, self._clock.now())

    def _is_momentary_start(self, offsets: SourceOffsets) -> bool:
        return self._start is not None and self._start.momentary and offsets == self._start.offsets

    def _report(self, losses: Sequence[PipelineError]) -> None:
        for loss in losses:
            if self._options.fail_on_data_loss:
                raise loss
            _log.warning("%s", loss)

    def _looking(self) -> BrokerOffsets:
        if self._broker_offsets is None:
            self._broker_offsets = BrokerOffsets(self._options)
        return self._broker_offsets

    def _check_group(self) -> None:
        """Once per run, and after the first look: that one waits for a broker that is away."""
        if self._group is None and (group := self._committing()) is not None:
            group.refuse_members()

    def _committing(self) -> GroupOffsetCommitter | None:
        if self._group is None and self._options.group is not None:
            self._group = GroupOffsetCommitter(self._options.settings, self._options.group)
        return self._group
