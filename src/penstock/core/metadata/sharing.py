"""A map and a sequence that are never changed, only replaced by near copies.

Both copy a small part of themselves on every write and share the rest with the version
before. An image built of them can be kept, compared or handed out for the price of a
reference, and writing one topic among fifty thousand copies a few hundred references.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Generic, TypeVar, overload

Key = TypeVar("Key")
Value = TypeVar("Value")
Item_co = TypeVar("Item_co", covariant=True)

SHARDS = 256
CHUNK = 64


class Table(Generic[Key, Value]):
    """A map split over a fixed number of dictionaries; a write copies one of them.

    Which shard a key falls into may differ between processes (string hashes are salted),
    so nothing is ever listed in that order: listings are sorted by key.
    """

    __slots__ = ("_shards", "_size")

    def __init__(self) -> None:
        empty: dict[Key, Value] = {}
        self._shards: list[dict[Key, Value]] = [empty] * SHARDS
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __contains__(self, key: Key) -> bool:
        return key in self._shards[hash(key) % SHARDS]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and self._size == other._size and self._union() == other._union()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Table({dict(self.items())!r})"

    def get(self, key: Key) -> Value | None:
        return self._shards[hash(key) % SHARDS].get(key)

    def put(self, key: Key, value: Value) -> "Table[Key, Value]":
        """A table that holds `value` under `key` as well."""
        number = hash(key) % SHARDS
        shard = self._shards[number].copy()
        shard[key] = value
        return self._with_shard(number, shard)

    def drop(self, key: Key) -> "Table[Key, Value]":
        """A table without `key`; this very table if it has no such key."""
        if key not in self:
            return self
        number = hash(key) % SHARDS
        shard = self._shards[number].copy()
        del shard[key]
        return self._with_shard(number, shard)

    def keys(self) -> list[Key]:
        return sorted(chain.from_iterable(self._shards), key=_as_is)

    def items(self) -> list[tuple[Key, Value]]:
        return sorted(chain.from_iterable(map(dict.items, self._shards)), key=_first)

    def values(self) -> list[Value]:
        """The values in the order of their keys."""
        return [value for _, value in self.items()]

    def keys_missing_in(self, other: "Table[Key, Value]") -> list[Key]:
        """What is here and not there; costs little if one table was made from the other."""
        pairs = zip(self._shards, other._shards, strict=True)
        missing = (key for ours, theirs in pairs if ours is not theirs for key in ours if key not in theirs)
        return sorted(missing, key=_as_is)

    def keys_changed_since(self, before: "Table[Key, Value]") -> list[Key]:
        """What is new here or has been replaced; costs little if one table was made from the other."""
        pairs = zip(self._shards, before._shards, strict=True)
        moved = ((ours, theirs) for ours, theirs in pairs if ours is not theirs)
        changed = (key for ours, theirs in moved for key in ours if ours[key] is not theirs.get(key))
        return sorted(changed, key=_as_is)

    def _with_shard(self, number: int, shard: dict[Key, Value]) -> "Table[Key, Value]":
        table: Table[Key, Value] = Table.__new__(Table)
        table._shards = self._shards.copy()
        table._shards[number] = shard
        table._size = self._size + len(shard) - len(self._shards[number])
        return table

    def _union(self) -> dict[Key, Value]:
        return dict(chain.from_iterable(map(dict.items, self._shards)))


class Series(Sequence[Item_co]):
    """A sequence in chunks; appending or replacing copies one chunk and the list of chunks."""

    __slots__ = ("_chunks", "_size")

    def __init__(self, items: Iterable[Item_co] = ()) -> None:
        everything = tuple(items)
        self._size = len(everything)
        self._chunks = tuple(everything[at : at + CHUNK] for at in range(0, self._size, CHUNK))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Item_co]:
        return chain.from_iterable(self._chunks)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Series) and self._chunks == other._chunks

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Series({list(self)!r})"

    @overload
    def __getitem__(self, index: int) -> Item_co: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Item_co]: ...

    def __getitem__(self, index: int | slice) -> Item_co | Sequence[Item_co]:
        if isinstance(index, slice):
            return tuple(self)[index]
        if index < 0:
            index += self._size
        if not 0 <= index < self._size:
            raise IndexError(index)
        return self._chunks[index // CHUNK][index % CHUNK]

    def appended(self, item: Any) -> "Series[Item_co]":
        """A series with one more item at its end."""
        if self._size % CHUNK:
            return self._of((*self._chunks[:-1], (*self._chunks[-1], item)), self._size + 1)
        return self._of((*self._chunks, (item,)), self._size + 1)

    def replaced(self, index: int, item: Any) -> "Series[Item_co]":
        """A series with another item at `index`."""
        number, place = divmod(index, CHUNK)
        old = self._chunks[number]
        chunk = (*old[:place], item, *old[place + 1 :])
        return self._of((*self._chunks[:number], chunk, *self._chunks[number + 1 :]), self._size)

    def _of(self, chunks: tuple[tuple[Item_co, ...], ...], size: int) -> "Series[Item_co]":
        series: Series[Item_co] = Series.__new__(Series)
        series._chunks = chunks
        series._size = size
        return series


def _as_is(key: Any) -> Any:
    return key


def _first(pair: tuple[Any, Any]) -> Any:
    return pair[0]
