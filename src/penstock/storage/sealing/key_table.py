"""The keys of one log, and which offsets are under which: what is needed to unseal its batches.

    rows        │ 0: plain │ 1200: key a │ 5000: key b ─────────────►  log end
    spare                                  key c                    on disk before its first use
    kept                                   key e                    of copies in the quarantine
    candidates    1200..5000: key d                                 files that take their place now

A batch opens only under the key of the row that its offset is in, and a plain batch counts only in a row
that is plain: otherwise anybody who can write to the disk could put a plain one there. Two exceptions leave
room for what a power cut may undo: from the last row on, the spare key is as good as the row's; and while
rewritten files take the place of a segment's, both the old key and the candidate are. Keys that are kept open
what was copied to the quarantine, and nothing in the log.

A table never changes, so threads and other processes use the one that they were given.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from penstock.core.records import BatchHeader, CorruptBatch, read_header
from penstock.core.records.batch import SEALED
from penstock.storage.disk import Buffer
from penstock.storage.sealing.sealed_batch import (
    KEY_ID_BYTES,
    SECRET_BYTES,
    BrokenSeal,
    DataKey,
    key_id_of,
    unseal_batch,
)
from penstock.storage.sealing.vault import BrokenEnvelope

# Stands for no key: batches are plain.
PLAIN_ID = bytes(KEY_ID_BYTES)
# The second one is written only where keys are kept.
_VERSION, _WITH_KEPT = 1, 2
_HEAD = struct.Struct("<HIII")
_ROW = struct.Struct(f"<q{KEY_ID_BYTES}s")
_CANDIDATE = struct.Struct(f"<qq{KEY_ID_BYTES}s")
_KEY = struct.Struct(f"<{KEY_ID_BYTES}s{SECRET_BYTES}s")
_COUNT = struct.Struct("<I")


class KeyRow(NamedTuple):
    """From `start` on, up to the next row, batches are under this key."""

    start: int
    key_id: bytes


class KeyCandidate(NamedTuple):
    """These offsets may be under this key as well, while files are being replaced."""

    start: int
    end: int
    key_id: bytes


class KeyTable:
    """Which offsets of a log are under which key. Immutable."""

    __slots__ = ("_starts", "candidates", "context", "is_plain", "kept", "keys", "rows", "spare")

    def __init__(
        self,
        context: bytes,
        rows: tuple[KeyRow, ...],
        keys: Mapping[bytes, DataKey],
        spare: bytes | None = None,
        candidates: tuple[KeyCandidate, ...] = (),
        kept: tuple[bytes, ...] = (),
    ) -> None:
        assert rows
        self.context = context
        self.rows = rows
        self.spare = spare
        self.candidates = candidates
        self.kept = kept
        used = {row.key_id for row in rows} | {one.key_id for one in candidates} | {spare, *kept}
        self.keys = {key_id: key for key_id, key in keys.items() if key_id in used}
        self._starts = [row.start for row in rows]
        # Nothing that is on disk is sealed.
        self.is_plain = not candidates and all(row.key_id == PLAIN_ID for row in rows)

    def __reduce__(self) -> tuple[type["KeyTable"], tuple[object, ...]]:
        return KeyTable, (self.context, self.rows, self.keys, self.spare, self.candidates, self.kept)

    @property
    def current(self) -> DataKey | None:
        """The key of what is appended; None if that stays plain."""
        return self.keys.get(self.rows[-1].key_id)

    def id_at(self, offset: int) -> bytes:
        """The key of the row that an offset is in."""
        return self.rows[max(0, bisect_right(self._starts, offset) - 1)].key_id

    def says_same(self, other: "KeyTable") -> bool:
        """Whether the other table says the same about every offset."""
        mine, others = (
            (table.rows, table.candidates, table.spare, table.keys.keys(), table.kept)
            for table in (self, other)
        )
        return mine == others

    def ids_between(self, start: int, end: int) -> list[bytes]:
        """The keys of the rows that have some of these offsets."""
        inside = [row.key_id for row in self.rows if start < row.start < end]
        return [self.id_at(start), *inside]

    def ids_in_use(self, start: int, end: int) -> list[bytes]:
        """Every key that a batch at one of these offsets may be under."""
        found = dict.fromkeys(self.ids_between(start, end))
        found |= {one.key_id: None for one in self.candidates if one.start < end and start < one.end}
        if self.spare is not None and end > self._starts[-1]:
            found[self.spare] = None
        return [key_id for key_id in found if key_id != PLAIN_ID]

    def is_allowed(self, offset: int, key_id: bytes) -> bool:
        """Whether a batch at this offset may be under this key."""
        if self.id_at(offset) == key_id or (key_id == self.spare and offset >= self._starts[-1]):
            return True
        return any(one.start <= offset < one.end and one.key_id == key_id for one in self.candidates)

    def unseal_one(self, batch: Buffer, header: BatchHeader) -> Buffer:
        """One whole batch as it was before it was sealed; the same one if it is plain and may be.

        Raises BrokenSeal.
        """
        offset = header.base_offset
        if not header.attributes & SEALED:
            if not self.is_allowed(offset, PLAIN_ID):
                raise BrokenSeal(f"the batch at offset {offset} is not sealed, and should be")
            return batch
        key_id = key_id_of(batch)
        key = self.keys.get(key_id)
        if key is None or not self.is_allowed(offset, key_id):
            raise BrokenSeal(
                f"the batch at offset {offset} is under the key {key_id.hex()}, not that of its segment"
            )
        return unseal_batch(batch, key, self.context)

    def unseal_copy(self, batch: Buffer, header: BatchHeader) -> Buffer:
        """A batch from the quarantine, whatever the log has at its offset now. Raises BrokenSeal."""
        if not header.attributes & SEALED:
            return batch
        key_id = key_id_of(batch)
        key = self.keys.get(key_id)
        if key is None:
            raise BrokenSeal(f"the key {key_id.hex()} of the batch at offset {header.base_offset} is gone")
        return unseal_batch(batch, key, self.context)

    def unseal(self, content: Buffer) -> bytes:
        """Whole batches back to back, as they were before they were sealed; raises CorruptBatch."""
        return b"".join(self.unseal_each(content))

    def unseal_each(self, content: Buffer) -> Iterator[Buffer]:
        """The same batch by batch."""
        view, position = memoryview(content), 0
        while position < len(view):
            header = read_header(view, position)
            end = position + header.size_bytes
            yield self.unseal_one(view[position:end], header)
            position = end

    def is_good(self, batch: Buffer) -> bool:
        """Whether this whole batch opens."""
        try:
            self.check(batch)
        except CorruptBatch:
            return False
        return True

    def check(self, batch: Buffer) -> None:
        """Raise BrokenSeal unless this whole batch opens."""
        self.unseal_one(batch, read_header(batch))

    def replaced(self, start: int, end: int, key_id: bytes) -> tuple[KeyRow, ...]:
        """The rows with those between two offsets under another key."""
        before = [row for row in self.rows if row.start < start]
        after = [row for row in self.rows if row.start > end]
        return tuple(_merged([*before, KeyRow(start, key_id), KeyRow(end, self.id_at(end)), *after]))

    def cut(self, end: int) -> tuple[KeyRow, ...]:
        """The rows of what lies in front of an offset; those that begin there are gone."""
        return tuple(row for row in self.rows if row.start < end)


def _merged(rows: list[KeyRow]) -> Iterator[KeyRow]:
    """Rows without those that say what the one before says."""
    last = None
    for row in rows:
        if row.key_id != last:
            yield row
        last = row.key_id


def encode_table(table: KeyTable) -> bytes:
    """The table in clear: this is what a master key encrypts."""
    spare = table.spare if table.spare is not None else b""
    return b"".join(
        (
            _HEAD.pack(
                _WITH_KEPT if table.kept else _VERSION,
                len(table.rows),
                len(table.candidates),
                len(table.keys),
            ),
            bytes([len(spare)]),
            spare,
            *(_ROW.pack(*row) for row in table.rows),
            *(_CANDIDATE.pack(*one) for one in table.candidates),
            *(_KEY.pack(key.key_id, key.secret) for key in table.keys.values()),
            *((_COUNT.pack(len(table.kept)), *table.kept) if table.kept else ()),
        )
    )


def decode_table(content: bytes, context: bytes) -> KeyTable:
    """What `encode_table` wrote; raises BrokenEnvelope, which nobody but a later version can cause."""
    try:
        version, rows, candidates, keys = _HEAD.unpack_from(content)
        if version not in (_VERSION, _WITH_KEPT) or not rows:
            raise BrokenEnvelope(f"version {version} of the keys is not known here")
        position = _HEAD.size
        spare = content[position + 1 : position + 1 + content[position]] or None
        position += 1 + content[position]
        found = [_ROW.unpack_from(content, position + index * _ROW.size) for index in range(rows)]
        position += rows * _ROW.size
        others = [
            _CANDIDATE.unpack_from(content, position + index * _CANDIDATE.size) for index in range(candidates)
        ]
        position += candidates * _CANDIDATE.size
        secrets = [_KEY.unpack_from(content, position + index * _KEY.size) for index in range(keys)]
        position += keys * _KEY.size
        kept = _decode_ids(content, position) if version == _WITH_KEPT else ()
    except (struct.error, IndexError):
        raise BrokenEnvelope("the keys end early") from None
    return KeyTable(
        context,
        tuple(KeyRow(*row) for row in found),
        {key_id: DataKey(key_id, secret) for key_id, secret in secrets},
        spare,
        tuple(KeyCandidate(*one) for one in others),
        kept,
    )


def _decode_ids(content: bytes, position: int) -> tuple[bytes, ...]:
    (count,) = _COUNT.unpack_from(content, position)
    ids = content[position + _COUNT.size :]
    if len(ids) < count * KEY_ID_BYTES:
        raise BrokenEnvelope("the keys end early")
    return tuple(ids[at : at + KEY_ID_BYTES] for at in range(0, count * KEY_ID_BYTES, KEY_ID_BYTES))
