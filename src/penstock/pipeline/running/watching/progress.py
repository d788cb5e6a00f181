"""What Spark says about a batch, as values: rows, rates, lag, watermark, what was dropped."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Positions = Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class Progress:
    """One batch of one query."""

    query: str
    query_id: str
    batch: int
    rows: int = 0
    rows_per_second: float = 0.0
    batch_seconds: float = 0.0
    watermark: str | None = None
    rows_dropped_late: int = 0
    duplicates_dropped: int = 0
    lag_records: int | None = None
    # Of the topics that are read: the offset after the last record that the batch covers.
    positions: Positions = field(default_factory=dict)


def parse_progress(text: str) -> Progress:
    """Read the JSON of Spark's StreamingQueryProgress."""
    said = json.loads(text)
    sources = said.get("sources") or []
    operators = said.get("stateOperators") or []
    return Progress(
        query=str(said.get("name") or said["id"]),
        query_id=str(said["id"]),
        batch=int(said["batchId"]),
        rows=int(said.get("numInputRows") or 0),
        rows_per_second=float(said.get("processedRowsPerSecond") or 0.0),
        batch_seconds=float((said.get("durationMs") or {}).get("triggerExecution") or 0) / 1_000,
        watermark=(said.get("eventTime") or {}).get("watermark"),
        rows_dropped_late=sum(int(one.get("numRowsDroppedByWatermark") or 0) for one in operators),
        duplicates_dropped=sum(_duplicates(one) for one in operators),
        lag_records=_lag(sources),
        positions={
            one: offset for source in sources for one, offset in positions_in(source.get("endOffset"))
        },
    )


def positions_in(offset: Any) -> Iterator[tuple[tuple[str, int], int]]:
    """The partitions in an offset of the form `{"topic": {"0": 12}}`; nothing from any other form."""
    if not isinstance(offset, dict):
        return
    for topic, partitions in offset.items():
        if not isinstance(partitions, dict):
            continue
        for partition, position in partitions.items():
            if str(partition).isdecimal() and isinstance(position, int):
                yield (str(topic), int(partition)), position


def _lag(sources: list[dict[str, Any]]) -> int | None:
    """How many records there were that the batch did not cover; unknown where no source says."""
    behind = None
    for source in sources:
        latest = dict(positions_in(source.get("latestOffset")))
        if not latest:
            continue
        done = dict(positions_in(source.get("endOffset")))
        # Spark notes where the source ends before it plans the batch, which may reach further.
        left = sum(max(0, end - done.get(one, end)) for one, end in latest.items())
        behind = left if behind is None else behind + left
    return behind


def _duplicates(operator: dict[str, Any]) -> int:
    return int((operator.get("customMetrics") or {}).get("numDroppedDuplicateRows") or 0)
