"""From two sets of offsets to the spans between them, and from spans to tasks."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from penstock.pipeline.errors import DataLost, PartitionGone, PipelineError, TopicRecreated
from penstock.pipeline.reading import Span
from penstock.pipeline.source.offsets import Offsets, Partition


class Between(NamedTuple):
    """What lies between two offsets, and what should have lain there but does not."""

    spans: list[Span]
    losses: list[PipelineError]


def between(start: Offsets, end: Offsets, earliest: Mapping[Partition, int]) -> Between:
    """The spans from `start` to `end` that the log still has; `earliest` is where it begins.

    A partition that `start` does not know is new, and read from its beginning. So is one whose topic
    was created anew: what it holds now was never read, whatever the offsets say.
    """
    found = Between([], [])
    for one, stop in sorted(end.positions.items()):
        known = start.positions.get(one)
        if one not in earliest:
            if known is None or known < stop:
                found.losses.append(PartitionGone(*one, known or 0))
            continue
        begin = earliest[one]
        if known is not None and (end.differs_from(start, one[0]) or stop < known):
            found.losses.append(TopicRecreated(*one, known, stop))
        elif known is not None and known < begin and known < stop:
            found.losses.append(DataLost(*one, known, begin))
        elif known is not None:
            begin = known
        if begin < stop:
            found.spans.append(Span(*one, begin, stop))
    return found


def divide(spans: Sequence[Span], min_partitions: int | None, max_records: int | None) -> list[Span]:
    """One span per task: `min_partitions` at least, if there are records enough, none above `max_records`."""
    if max_records is not None:
        spans = [part for span in spans for part in _cut(span, -(-(span.end - span.start) // max_records))]
    if min_partitions is None or len(spans) >= min_partitions:
        return list(spans)
    total = sum(span.end - span.start for span in spans)
    shares = _shares([span.end - span.start for span in spans], total, min_partitions)
    return [part for span, share in zip(spans, shares, strict=True) for part in _cut(span, share)]


def _shares(sizes: Sequence[int], total: int, wanted: int) -> list[int]:
    """How many tasks each span gets: by its size, one at least, and `wanted` in all if there are records."""
    shares = [max(1, size * wanted // total) for size in sizes]
    by_size = sorted(range(len(sizes)), key=lambda index: -sizes[index] / shares[index])
    while sum(shares) < min(wanted, total):
        for index in by_size:
            if shares[index] < sizes[index] and sum(shares) < wanted:
                shares[index] += 1
    return shares


def _cut(span: Span, parts: int) -> Iterable[Span]:
    size = span.end - span.start
    marks = [span.start + size * part // parts for part in range(parts + 1)]
    return (span._replace(start=start, end=end) for start, end in pairwise(marks) if start < end)
