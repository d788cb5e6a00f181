"""Which part of a log may be compacted, and whether that is worth its while."""

from typing import NamedTuple

from penstock.core.model import Offset, Timestamp
from penstock.core.records import HEADER_BYTES, CorruptBatch, read_header
from penstock.core.replica import ProducerStateManager
from penstock.storage.log import reading
from penstock.storage.log.compaction.values import NEVER_MS, CompactionOrder, CompactionRules, Source
from penstock.storage.log.segment import UNKNOWN_MS, Segment
from penstock.storage.log.state import LogState

# Nothing is dirty, but there is something to do.
LEAST_URGENT = 1e-6


class Cleanable(NamedTuple):
    """The segments that may be rewritten, the first `clean` of them not for the first time.

    `overdue`: a record has waited for too long; `expired`: tombstones have stayed for long enough.
    """

    segments: tuple[Segment, ...]
    clean: int
    overdue: bool
    expired: bool = False

    @property
    def dirty_ratio(self) -> float:
        """Which part of the bytes compaction has not seen yet."""
        total = sum(segment.size_bytes for segment in self.segments)
        dirty = sum(segment.size_bytes for segment in self.segments[self.clean :])
        return dirty / total if total else 0.0

    def is_due(self, rules: CompactionRules) -> bool:
        ratio = self.dirty_ratio
        return ratio > rules.min_dirty_ratio or (self.overdue and ratio > 0) or self.expired

    def urgency(self, rules: CompactionRules) -> float:
        """The dirty ratio if compaction is due, however little of it there is; or else 0."""
        return max(self.dirty_ratio, LEAST_URGENT) if self.is_due(rules) else 0.0


NOTHING = Cleanable((), 0, overdue=False)


def cleanable(state: LogState, rules: CompactionRules, now: Timestamp) -> Cleanable:
    """What could be compacted now; nothing while the last compaction is not wholly behind us."""
    if state.stopped is not None or any(row.swapping for row in state.checkpoint.sealed):
        return NOTHING
    found: list[Segment] = []
    clean, in_clean_part = 0, True
    for index in range(len(state.segments) - 1):
        segment = state.segments[index]
        in_clean_part = in_clean_part and segment.cleaned
        if not _is_settled(state, index) or not (in_clean_part or _is_old_enough(segment, rules, now)):
            break
        found.append(segment)
        clean += in_clean_part
    overdue = clean < len(found) and _is_overdue(found[clean], rules, now)
    expired = any(_has_expired(segment, rules, now) for segment in found[:clean])
    return Cleanable(tuple(found), clean, overdue, expired)


def plan(state: LogState, rules: CompactionRules, now: Timestamp, token: str) -> CompactionOrder | None:
    """The order for a worker, if a compaction is due."""
    found = cleanable(state, rules, now)
    if not found.is_due(rules):
        return None
    sources = tuple(
        Source(
            segment.base_offset,
            state.segments.end_of(index, state.end),
            segment.size_bytes,
            segment.gapless,
            is_mergeable=not segment.index.aborted,
        )
        for index, segment in enumerate(found.segments)
    )
    aborted = reading.aborted_between(state, sources[0].base_offset, sources[-1].end_offset)
    return CompactionOrder(
        state.directory,
        sources,
        found.clean,
        tuple(aborted),
        _ends_of(state.producers),
        now,
        rules,
        state.options,
        token,
    )


def _is_settled(state: LogState, index: int) -> bool:
    """Whether a segment is whole and durable, and everything in it decided for good."""
    end = state.segments.end_of(index, state.end)
    stable = state.producers.transactions.last_stable_offset(state.high_watermark)
    return (
        end <= min(stable, state.high_watermark, state.checkpoint.segment)
        and state.segments[index].base_offset not in state.damage
    )


def _is_old_enough(segment: Segment, rules: CompactionRules, now: Timestamp) -> bool:
    return rules.min_lag_ms <= 0 or segment.index.max_timestamp <= now - rules.min_lag_ms


def _has_expired(segment: Segment, rules: CompactionRules, now: Timestamp) -> bool:
    """Whether there are tombstones that nobody needs any more."""
    if segment.tombstones_until == UNKNOWN_MS:
        # Those that are there, if any, were given as much time at most.
        segment.tombstones_until = now + rules.delete_retention_ms
    return segment.tombstones_until is not None and segment.tombstones_until < now


def _is_overdue(segment: Segment, rules: CompactionRules, now: Timestamp) -> bool:
    """Whether its first record has waited for too long."""
    if rules.max_lag_ms >= NEVER_MS or not segment.size_bytes:
        return False
    try:
        header = read_header(segment.file.pread(0, HEADER_BYTES))
    except CorruptBatch:
        return False  # a scrub or a reader will say so
    return 0 <= header.max_timestamp < now - rules.max_lag_ms


def _ends_of(producers: ProducerStateManager) -> frozenset[int]:
    """Where the last batch of every producer ends: its sequence must be found again in the log."""
    return frozenset(
        int(Offset(producer.batches[-1].last_offset)) for _, producer in producers if producer.batches
    )
