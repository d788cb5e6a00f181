"""Decoded records as Arrow columns, built column by column and level by level."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import accumulate, chain
from operator import attrgetter
from typing import Any

import pyarrow as pa

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - for times without an offset, which are UTC
# The years 1 to 9999: what Spark and Python can both show.
_MICROSECONDS_MIN, _MICROSECONDS_MAX = -62_135_596_800_000_000, 253_402_300_799_999_999
Cells = Sequence[Any]
Fields = Callable[[pa.StructType], Sequence[Callable[[Any], Any]]]
BUILD_ERRORS: tuple[type[Exception], ...] = (pa.ArrowException, ValueError, TypeError, OverflowError)


def by_position(kind: pa.StructType) -> list[Callable[[Any], Any]]:
    """How the fields of our own structs are got at."""
    return [attrgetter(f"f{number}") for number in range(kind.num_fields)]


def by_name(kind: pa.StructType) -> list[Callable[[Any], Any]]:
    """How the fields of dictionaries are got at."""
    return [_getter(field.name) for field in kind]


def _getter(name: str) -> Callable[[Any], Any]:
    return lambda record: record.get(name)


class ColumnBuilder:
    """Builds columns of any type; `fields` knows how records are taken apart."""

    def __init__(self, fields: Fields, unit_microseconds: int) -> None:
        self._fields = fields
        self._unit = unit_microseconds

    def build(self, cells: Cells, kind: pa.DataType) -> pa.Array:
        """One of BUILD_ERRORS if a cell does not fit."""
        if pa.types.is_struct(kind):
            return self._structs(cells, kind)
        if pa.types.is_map(kind):
            return self._maps(cells, kind)
        if pa.types.is_list(kind):
            return self._lists(cells, kind)
        if pa.types.is_timestamp(kind):
            return pa.array([self._microseconds(cell) for cell in cells], pa.int64()).cast(kind)
        return pa.array(cells, kind)

    def _structs(self, cells: Cells, kind: pa.StructType) -> pa.Array:
        there = [cell is not None for cell in cells]
        whole = all(there)
        children = [
            self.build(
                [get(cell) for cell in cells]
                if whole
                else [None if cell is None else get(cell) for cell in cells],
                field.type,
            )
            for get, field in zip(self._fields(kind), kind, strict=True)
        ]
        mask = None if whole else pa.array([not one for one in there])
        if not children:
            return pa.array([{} if one else None for one in there], kind)
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)

    def _lists(self, cells: Cells, kind: pa.ListType) -> pa.Array:
        members = self.build(list(chain.from_iterable(cell for cell in cells if cell)), kind.value_type)
        return pa.ListArray.from_arrays(_offsets(cells), members, type=kind)

    def _maps(self, cells: Cells, kind: pa.MapType) -> pa.Array:
        filled = [cell for cell in cells if cell]
        keys = pa.array(list(chain.from_iterable(filled)), kind.key_type)
        items = self.build(list(chain.from_iterable(cell.values() for cell in filled)), kind.item_type)
        return pa.MapArray.from_arrays(_offsets(cells), keys, items, type=kind)

    def _microseconds(self, cell: float | datetime | None) -> int | None:
        if cell is None:
            return None
        if isinstance(cell, datetime):
            since = cell - (_NAIVE_EPOCH if cell.tzinfo is None else _EPOCH)
            return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
        count = cell * self._unit if isinstance(cell, int) else round(cell * self._unit)
        if not _MICROSECONDS_MIN <= count <= _MICROSECONDS_MAX:
            raise ValueError(f"{cell} is no time in the years 1 to 9999")
        return count


def _offsets(cells: Cells) -> pa.Array:
    """Where each cell's members start; a null offset is a null cell."""
    ends = list(accumulate((len(cell) if cell else 0 for cell in cells), initial=0))
    starts: list[int | None] = [
        None if cell is None else start for cell, start in zip(cells, ends, strict=False)
    ]
    return pa.array([*starts, ends[-1]], pa.int32())
