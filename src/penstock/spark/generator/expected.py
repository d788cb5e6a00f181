"""What a pipeline should make of the points: rollups, worked out the plain way."""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Protocol

from penstock.spark.errors import PipelineError
from penstock.spark.generator.records import GeneratedPoint

BLOCK_ROWS = 131_072
Labels = tuple[tuple[str, str], ...]


class Point(NamedTuple):
    """A point as it is read back."""

    name: str
    value: float
    labels: tuple[tuple[str, str], ...]
    timestamp_ms: int
    client: str


class PointFile(Protocol):
    """Takes rows one by one and keeps them."""

    def add(self, row: GeneratedPoint) -> None: ...

    def __enter__(self) -> "PointFile": ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def open_points(path: Path) -> PointFile:
    """A new file for points; what was there is replaced."""
    return ParquetPoints(path) if path.suffix == ".parquet" else LinePoints(path)


class LinePoints:
    """The values of the records as they are, one on a line."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._lines: list[bytes] = []

    def add(self, row: GeneratedPoint) -> None:
        self._lines.append(row.content)
        if len(self._lines) >= BLOCK_ROWS:
            self._write()

    def __enter__(self) -> "LinePoints":
        return self

    def __exit__(self, *_: object) -> None:
        self._write()
        self._file.close()

    def _write(self) -> None:
        self._lines.append(b"")
        self._file.write(b"\n".join(self._lines))
        self._lines.clear()


class ParquetPoints:
    """Columns name, value, labels, timestamp and client; a tenth of the size."""

    def __init__(self, path: Path) -> None:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            raise PipelineError(
                f"{path}: Parquet needs pyarrow (pip install penstock[spark]); or use .ndjson"
            ) from None
        self._arrow: Any = pa
        self._schema = pa.schema(
            [
                ("name", pa.string()),
                ("value", pa.float64()),
                ("labels", pa.map_(pa.string(), pa.string())),
                ("timestamp", pa.int64()),
                ("client", pa.string()),
            ]
        )
        self._file = pq.ParquetWriter(path, self._schema, compression="zstd")
        self._rows: list[GeneratedPoint] = []

    def add(self, row: GeneratedPoint) -> None:
        self._rows.append(row)
        if len(self._rows) >= BLOCK_ROWS:
            self._write()

    def __enter__(self) -> "ParquetPoints":
        return self

    def __exit__(self, *_: object) -> None:
        self._write()
        self._file.close()

    def _write(self) -> None:
        rows, self._rows = self._rows, []
        # Each series is put into words once, and then referred to.
        every = {row.series.key: row.series for row in rows}
        places = {key: place for place, key in enumerate(every)}
        chosen = self._arrow.array([places[row.series.key] for row in rows], self._arrow.int32())
        columns: dict[str, tuple[list[Any], Any]] = {
            "name": ([series.shape.name for series in every.values()], chosen),
            "value": ([float(row.value) for row in rows], None),
            "labels": ([list(series.labels.items()) for series in every.values()], chosen),
            "timestamp": ([row.timestamp_ms for row in rows], None),
            "client": ([series.client for series in every.values()], chosen),
        }
        arrays = [self._column(field, *columns[field.name]) for field in self._schema]
        self._file.write_batch(self._arrow.record_batch(arrays, schema=self._schema))

    def _column(self, field: Any, cells: list[Any], chosen: Any | None) -> Any:
        column = self._arrow.array(cells, field.type)
        return column if chosen is None else column.take(chosen)


def read_points(path: Path) -> Iterator[Point]:
    """Read a file of points back, one after the other."""
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        for batch in pq.ParquetFile(path).iter_batches():
            for row in batch.to_pylist(maps_as_pydicts="strict"):
                yield _point(row)
        return
    with path.open("rb") as lines:
        for line in lines:
            yield _point(json.loads(line))


def _point(row: dict[str, Any]) -> Point:
    labels = tuple(sorted(row["labels"].items()))
    return Point(row["name"], float(row["value"]), labels, row["timestamp"], row["client"])


class ExpectedRollup(NamedTuple):
    """One series in one window [start, start + size)."""

    name: str
    labels: Labels
    client: str
    start_ms: int
    records: int
    total: float
    least: float
    most: float
    p50: float
    p95: float
    p99: float


def rollups(points: Iterable[Point], window_ms: int, end_ms: int | None = None) -> Iterator[ExpectedRollup]:
    """The rollups of all windows, or of those that ended by `end_ms`; in no particular order.

    `end_ms` leaves out the window of a closing record, which nothing ends.
    """
    values: dict[tuple[str, Labels, str, int], list[float]] = defaultdict(list)
    for point in points:
        start = point.timestamp_ms - point.timestamp_ms % window_ms
        if end_ms is None or start + window_ms <= end_ms:
            values[point.name, point.labels, point.client, start].append(point.value)
    for key, members in values.items():
        members.sort()
        yield ExpectedRollup(
            *key,
            len(members),
            math.fsum(members),
            members[0],
            members[-1],
            *(percentile(members, share) for share in (0.5, 0.95, 0.99)),
        )


def percentile(ordered: Sequence[float], share: float) -> float:
    """The exact percentile, between two members in proportion, as Spark's `percentile` has it."""
    place = (len(ordered) - 1) * share
    low = math.floor(place)
    high = math.ceil(place)
    if low == high:
        return ordered[low]
    return (high - place) * ordered[low] + (place - low) * ordered[high]
