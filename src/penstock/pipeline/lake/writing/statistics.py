"""What a parquet file says of its columns, as the statistics by which readers of a Delta table skip files."""

import datetime as dt
import json
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow.parquet as pq

# Delta's own bounds: statistics of so many columns, and so many characters of a text.
COLUMNS_MAX = 32
TEXT_MAX = 32
_HIGHEST = "\U0010ffff"


def file_statistics(metadata: "pq.FileMetaData") -> str:
    """The `stats` of an add action: rows, and per top-level column least, greatest and number of nulls."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for index in range(min(metadata.num_columns, COLUMNS_MAX)):
        name = metadata.schema.column(index).path
        if "." in name:
            # Inside a struct, list or map: the leaf's nulls are not the column's.
            continue
        statistics = [metadata.row_group(group).column(index).statistics for group in _groups(metadata)]
        if not statistics or any(each is None or not each.has_null_count for each in statistics):
            continue
        nulls[name] = sum(each.null_count for each in statistics)
        bounds = _bounds(statistics)
        if bounds is not None:
            least[name], greatest[name] = bounds
    return json.dumps(
        {
            "numRecords": metadata.num_rows,
            "minValues": least,
            "maxValues": greatest,
            "nullCount": nulls,
        }
    )


def _groups(metadata: "pq.FileMetaData") -> range:
    return range(metadata.num_row_groups)


def _bounds(statistics: list["pq.Statistics"]) -> tuple[Any, Any] | None:
    """Least and greatest as JSON, widened where JSON is coarser; None where readers could be misled."""
    # A row group of nulls alone has no bounds and says nothing against those of the others.
    known = [each for each in statistics if each.has_min_max]
    if not known or any(not each.has_min_max and each.num_values for each in statistics):
        return None
    low, high = min(each.min for each in known), max(each.max for each in known)
    match low:
        case bool() | bytes():
            return None
        case int():
            return low, high
        case float():
            return (low, high) if math.isfinite(low) and math.isfinite(high) else None
        case str():
            return low[:TEXT_MAX], high if len(high) <= TEXT_MAX else high[:TEXT_MAX] + _HIGHEST
        case dt.datetime():
            return _milliseconds(low, up=False), _milliseconds(high, up=True)
        case dt.date():
            return low.isoformat(), high.isoformat()
        case _:
            # A decimal would go through a binary fraction in most readers.
            return None


def _milliseconds(moment: dt.datetime, *, up: bool) -> str:
    excess = moment.microsecond % 1000
    if excess:
        moment += dt.timedelta(microseconds=1000 - excess if up else -excess)
    text = moment.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return f"{text}Z" if moment.tzinfo is not None else text
