"""The streaming side: from where, up to where, in which tasks."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from penstock.pipeline.errors import PartitionGone, PipelineError, TopicRecreated
from penstock.pipeline.source.admission import Hesitation, admitted, backlog
from penstock.pipeline.source.group import GroupCommits
from penstock.pipeline.source.look import Look, Outlook
from penstock.pipeline.source.offsets import Offsets, Partition, read_offsets
from penstock.pipeline.source.options import SourceOptions
from penstock.pipeline.source.planning import Between, between, divide
from penstock.pipeline.source.start import Start, first_offsets
from penstock.pipeline.source.tasks import SpanTask, TaskReading
from penstock.runtime.loop import MachineClock

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)


class TopicStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the batches of one query, in a process of its own beside the driver; reads in tasks elsewhere.

    Whatever is learned is kept for this run only: Spark's checkpoint is the memory.
    """

    def __init__(self, options: SourceOptions, reading: TaskReading, outlook: Outlook | None = None) -> None:
        self._options = options
        self._reading = reading
        # Made when Spark asks the first question; a task, to which this object travels, asks none.
        self._outlook = outlook
        self._group: GroupCommits | None = None
        self._start: Start | None = None
        self._first_planned = False
        self._target: Mapping[Partition, int] | None = None
        self._latest: Offsets | None = None
        self._clock = MachineClock()
        self._hesitation = Hesitation(options.min_offsets, options.max_trigger_delay_ms, self._clock.now())

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint starts; asked more than once, and answered the same."""
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

    def prepareForTriggerAvailableNow(self) -> None:
        """What is there now is all that this run reads."""
        self._target = self._looking().look(Offsets({})).latest

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch; `start` itself, unchanged, if there is nothing to read."""
        known = read_offsets(start)
        if self._is_momentary_start(known) and not self._first_planned:
            # Spark logs where a batch ends, not where the first one starts: had it records in it, and
            # were the query to fail now, nobody could tell later which they were. So it has none.
            self._latest = known
            return start
        look = self._look(known)
        self._check_group()
        begin = self._begin(known, look)
        available = {one: self._bounded(one, end) for one, end in look.latest.items()}
        records = backlog(begin, available)
        if records == 0 or self._waits(records, limit):
            return start
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return Offsets(admitted(begin, available, most), look.topic_ids).as_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """How far the topics reached when they were last looked at."""
        return Offsets(self._latest.positions).as_json() if self._latest else None

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
        return [SpanTask(span) for span in spans]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """In a task."""
        return self._reading.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Everything before `end` is done: one batch late, and not at all for the last one of a run."""
        group = self._committing()
        if group is not None:
            group.commit(read_offsets(end).positions)

    def _look(self, start: Offsets) -> Look:
        look = self._looking().look(start)
        self._latest = Offsets(look.latest, look.topic_ids)
        gone = sorted(set(start.positions) - set(look.latest))
        self._report([PartitionGone(*one, start.positions[one]) for one in gone])
        return look

    def _planned(self, start: Offsets, end: Offsets) -> Between:
        """The spans of a batch; none of a topic that was created anew after the batch was planned.

        An earlier run may have planned it, and in the new topic the same offsets are other records.
        """
        catalogue = self._looking().catalogue
        found = between(start, end, catalogue.earliest(end.positions))
        if not found.spans or not self._options.topic_ids:
            return found
        shapes = catalogue.topics(end.topic_ids)
        now = Offsets({}, {topic: shape.topic_id for topic, shape in shapes.items() if shape.topic_id})
        stale = [span for span in found.spans if now.differs_from(end, span.topic)]
        ends = catalogue.latest((span.topic, span.partition) for span in stale)
        for span in stale:
            one = (span.topic, span.partition)
            found.losses.append(TopicRecreated(*one, span.start, ends.get(one, 0)))
        return found._replace(spans=[span for span in found.spans if span not in stale])

    def _begin(self, start: Offsets, look: Look) -> dict[Partition, int]:
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

    def _is_momentary_start(self, offsets: Offsets) -> bool:
        return self._start is not None and self._start.momentary and offsets == self._start.offsets

    def _report(self, losses: Sequence[PipelineError]) -> None:
        for loss in losses:
            if self._options.fail_on_data_loss:
                raise loss
            _log.warning("%s", loss)

    def _looking(self) -> Outlook:
        if self._outlook is None:
            self._outlook = Outlook(self._options)
        return self._outlook

    def _check_group(self) -> None:
        """Once per run, and after the first look: that one waits for a broker that is away."""
        if self._group is None and (group := self._committing()) is not None:
            group.refuse_members()

    def _committing(self) -> GroupCommits | None:
        if self._group is None and self._options.group is not None:
            self._group = GroupCommits(self._options.settings, self._options.group)
        return self._group
