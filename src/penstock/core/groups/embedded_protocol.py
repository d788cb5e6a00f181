"""What consumers of classic groups tell each other inside JoinGroup and SyncGroup.

The coordinator reads and writes it only for classic members of consumer groups, and when a group
changes its type:

    subscription   version int16 | topics | user data | owned partitions (1) | generation (2) | rack (3)
    assignment     version int16 | partitions | user data

A newer version has more fields at the end, which are passed over. Members may send anything, so
everything is checked against the bytes that remain, and what cannot be read is None.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")
OWNED_SINCE, GENERATION_SINCE, RACK_SINCE = 1, 2, 3
VERSION_MAX = 3
NamedPartitions: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]


class EmbeddedSubscription(NamedTuple):
    """What a member wants, and has."""

    version: int
    topics: tuple[str, ...]
    owned: NamedPartitions = ()
    rack_id: str | None = None


class _Malformed(Exception):
    """The bytes end too early, or a length makes no sense."""


class _Reader:
    """Reads fields from bytes that nobody has checked."""

    def __init__(self, source: bytes) -> None:
        self._source = source
        self._at = 0

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def text(self) -> str | None:
        length = self.int16()
        if length < 0:
            return None
        try:
            return self._take(length).decode()
        except UnicodeDecodeError:
            raise _Malformed from None

    def skip_bytes(self) -> None:
        self._take(max(self.int32(), 0))

    def texts(self) -> tuple[str, ...]:
        return tuple([self.text() or "" for _ in range(self.length(_INT16.size))])

    def partitions(self) -> NamedPartitions:
        found = []
        for _ in range(self.length(_INT16.size + _INT32.size)):
            name = self.text() or ""
            found.append((name, tuple([self.int32() for _ in range(self.length(_INT32.size))])))
        return tuple(found)

    def length(self, item_bytes: int) -> int:
        """A count of items that can be there at all."""
        count = self.int32()
        if not 0 <= count <= (len(self._source) - self._at) // item_bytes:
            raise _Malformed
        return count

    def _number(self, kind: struct.Struct) -> int:
        (number,) = kind.unpack(self._take(kind.size))
        return int(number)

    def _take(self, size: int) -> bytes:
        taken = self._source[self._at : self._at + size]
        if len(taken) < size:
            raise _Malformed
        self._at += size
        return taken


def read_subscription(metadata: bytes) -> EmbeddedSubscription | None:
    """A member's metadata in JoinGroup."""
    reader = _Reader(metadata)
    try:
        version, topics = reader.int16(), reader.texts()
        if version < 0:
            return None
        reader.skip_bytes()
        owned = reader.partitions() if version >= OWNED_SINCE else ()
        if version >= GENERATION_SINCE:
            reader.int32()
        rack_id = reader.text() if version >= RACK_SINCE else None
    except _Malformed:
        return None
    return EmbeddedSubscription(min(version, VERSION_MAX), topics, owned, rack_id or None)


def read_assignment(assignment: bytes) -> NamedPartitions | None:
    """A member's assignment in SyncGroup; none at all is an assignment of nothing."""
    if not assignment:
        return ()
    reader = _Reader(assignment)
    try:
        return None if reader.int16() < 0 else reader.partitions()
    except _Malformed:
        return None


def write_assignment(version: int, partitions: Iterable[tuple[str, Iterable[int]]]) -> bytes:
    """An assignment in the version that the member's subscription has."""
    named = [(name.encode(), tuple(indexes)) for name, indexes in partitions]
    parts = [_INT16.pack(version), _INT32.pack(len(named))]
    for name, indexes in named:
        parts += (_INT16.pack(len(name)), name, _INT32.pack(len(indexes)), *map(_INT32.pack, indexes))
    # No user data.
    return b"".join((*parts, _INT32.pack(-1)))
