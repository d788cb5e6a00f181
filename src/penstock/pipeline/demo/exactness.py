"""Tables and topics against the generator's own account: by count and by content."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import starmap
from pathlib import Path
from typing import Any, NamedTuple

from penstock.client import ConsumerOptions, Endpoint, TopicAdmin, TopicConsumer
from penstock.pipeline.generator import Account, content_hash, read_points, rollups
from penstock.pipeline.generator.account import bytes_hash, point_hash
from penstock.pipeline.metrics.letters import ORIGIN_OFFSET, ORIGIN_PARTITION, ORIGIN_TOPIC

NUMBERS = ("count", "sum", "min", "max", "p50", "p95", "p99")
# Sums are made in another order than ours.
RELATIVE_ERROR = 1e-9
READ_RECORDS = 10_000
WindowKey = tuple[int, str, tuple[tuple[str, str], ...], int]
Windows = dict[WindowKey, tuple[float, ...]]


class Check(NamedTuple):
    """One judgement: what there should be, what there is, and how often it is there again."""

    name: str
    expected: int
    found: int
    is_exact: bool
    repeats: int = 0


@dataclass(frozen=True, slots=True)
class Places:
    """Where the pipeline's outputs are."""

    endpoint: Endpoint
    raw_table: str
    rollup_table: str
    rollup_topic: str
    dead_letter_topic: str
    windows_ms: tuple[int, ...]


def check_all(places: Places, account: Account, points: Path) -> Iterator[Check]:
    """One check after the other, so that somebody can watch."""
    yield check_raw(places.raw_table, account)
    expected = expected_windows(points, places.windows_ms, account.closing_ms or 0)
    yield compare("rollup table", expected, _windows(table_windows(places.rollup_table)))
    yield compare("rollup topic", expected, _windows(topic_windows(places.endpoint, places.rollup_topic)))
    yield check_dead_letters(places.endpoint, places.dead_letter_topic, account)


def check_raw(table: str, account: Account) -> Check:
    """Every valid point once; the hash does not depend on the order, and a repeat would change it."""
    rows = 0
    hashes: list[int] = []
    for batch in _table_batches(table, ["name", "value", "labels", "timestamp", "client"]):
        rows += batch.num_rows
        hashes.append(sum(starmap(point_hash, _points(batch))))
    is_exact = rows == account.points and content_hash(hashes) == account.points_hash
    return Check("raw table", account.points, rows, is_exact)


def _points(batch: Any) -> Iterator[tuple[str, float, dict[str, str], int, str]]:
    """The rows as arguments of `point_hash`; times as numbers, since a datetime costs more than the hash."""
    import pyarrow as pa

    moments = batch.column("timestamp").cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    labels = batch.column("labels").to_pylist(maps_as_pydicts="strict")
    name, value, client = (batch.column(one).to_pylist() for one in ("name", "value", "client"))
    return zip(name, value, labels, moments.to_pylist(), client, strict=True)


def check_dead_letters(endpoint: Endpoint, topic: str, account: Account) -> Check:
    """Every malformed value once, after repeats are told by where a record came from."""
    letters: dict[tuple[bytes | None, ...], bytes | None] = {}
    records = 0
    for record in _records(endpoint, topic):
        headers = dict(record.headers)
        origin = tuple(headers.get(name) for name in (ORIGIN_TOPIC, ORIGIN_PARTITION, ORIGIN_OFFSET))
        letters[origin] = record.value
        records += 1
    found = content_hash(bytes_hash(value) for value in letters.values())
    is_exact = len(letters) == account.malformed and found == account.malformed_hash
    return Check("dead letters", account.malformed, len(letters), is_exact, records - len(letters))


def expected_windows(points: Path, windows_ms: Iterable[int], end_ms: int) -> Windows:
    """The rollups worked out from the generator's points, without Spark and without the pipeline."""
    every = list(read_points(points))
    return {
        (window_ms // 1_000, one.name, one.labels, one.start_ms): (
            *(one.records, one.total, one.least, one.most),
            *(one.p50, one.p95, one.p99),
        )
        for window_ms in windows_ms
        for one in rollups(every, window_ms, end_ms)
    }


def compare(name: str, expected: Windows, found: tuple[Windows, int]) -> Check:
    """The same windows with the same numbers."""
    windows, rows = found
    is_exact = windows.keys() == expected.keys() and all(
        math.isclose(one, other, rel_tol=RELATIVE_ERROR, abs_tol=0.0)
        for key, numbers in expected.items()
        for one, other in zip(numbers, windows[key], strict=True)
    )
    if name.endswith("table"):
        is_exact = is_exact and rows == len(windows)
    return Check(name, len(expected), len(windows), is_exact, rows - len(windows))


def table_windows(table: str) -> Iterator[dict[str, Any]]:
    """The rows of the rollup table, in the form of the topic's values."""
    columns = ["window_seconds", "name", "labels", "window_start", *NUMBERS]
    for batch in _table_batches(table, columns):
        for row in batch.to_pylist(maps_as_pydicts="strict"):
            yield row | {"window_start": _milliseconds(row["window_start"])}


def topic_windows(endpoint: Endpoint, topic: str) -> Iterator[dict[str, Any]]:
    """The values of the rollup topic."""
    import msgspec

    for record in _records(endpoint, topic):
        yield msgspec.json.decode(record.value or b"{}")


def _windows(rows: Iterable[dict[str, Any]]) -> tuple[Windows, int]:
    windows: Windows = {}
    count = 0
    for row in rows:
        labels = tuple(sorted(row["labels"].items()))
        key = (row["window_seconds"], row["name"], labels, row["window_start"])
        windows[key] = tuple(row[name] for name in NUMBERS)
        count += 1
    return windows, count


def _table_batches(table: str, columns: list[str]) -> Iterator[Any]:
    from deltalake import DeltaTable

    # A pipeline that had nothing to write made no table.
    if DeltaTable.is_deltatable(table):
        yield from DeltaTable(table).to_pyarrow_dataset().to_batches(columns=columns)


def _records(endpoint: Endpoint, topic: str) -> Iterator[Any]:
    if topic not in {one.name for one in TopicAdmin(endpoint).list()}:
        return  # likewise
    with TopicConsumer(endpoint, topic, ConsumerOptions(batch_records=READ_RECORDS)) as reader:
        for batch in reader.batches():
            yield from batch


def _milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000)
