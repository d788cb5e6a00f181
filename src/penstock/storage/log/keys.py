"""The keys of an open log: sealing what is appended, and bringing the key table to disk before it is needed.

    logs/orders/0/keys     the key table, in an envelope under a master key (see `storage.sealing`)

Nothing is ever written under a key that the table on disk does not know for these offsets:

* **A new segment** takes the spare key, which is on disk already. The table that says so, with another
  spare, follows without anybody waiting. If a segment is full before that has happened, the next one goes
  on with the same key.
* **Truncation** writes the table first: offsets from the cut on are under another key, and those that are
  about to go may be under the old one.
* **Rewriting** (compaction, resealing) writes the table first: the offsets may be under another key as well.
  When the files are in place, the table follows without anybody waiting.
* **Encryption is switched** by the spare, too: that of a log that is to be plain stands for no key. The
  switch waits for the table, and begins a segment.

Data keys of what was copied to the quarantine stay in the table for as long as there is anything in it at a
start: otherwise a cut would make its own copy unreadable.

What a power cut leaves undecided is decided by a start (`settle`): it looks which key the first batch of a
range is under, and writes the table again. Where that batch cannot be read, both keys stay allowed.

On a node with keys every log has a table, also one that is not to be sealed: it says that all is plain. Once
that is so of all logs (see `storage.data_directory`), one without a table is not opened: what stands in it
may be anybody's.

Left out: a log whose table is lost or broken does not open, and whose master key is missing does not either;
an operator brings them back, or the other replicas fill the partition.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from penstock.core.model import CorruptionError, Offset, StorageError
from penstock.core.records import HEADER_BYTES, PREFIX_BYTES, BatchHeader, read_header
from penstock.core.records.batch import SEALED
from penstock.storage.disk import Buffer, Disk, DiskFull
from penstock.storage.log.durability import Done, Durability
from penstock.storage.log.file_names import KEYS, TEMPORARY
from penstock.storage.log.files import read_file, replace_durably
from penstock.storage.log.segment import Segment
from penstock.storage.log.segments import Segments
from penstock.storage.sealing import (
    PLAIN_ID,
    BrokenEnvelope,
    DataKey,
    KeyCandidate,
    KeyRow,
    KeyTable,
    KeyUnavailable,
    LogVault,
    seal_batch,
)
from penstock.storage.sealing.key_table import decode_table, encode_table
from penstock.storage.sealing.sealed_batch import KEY_ID_BYTES, NONCE_BYTES, sealed_header
from penstock.storage.sealing.vault import master_key_of

_UNKNOWN_KEY = b""
OFFSET_MAX = 2**63 - 1


class SealedBatches(NamedTuple):
    """Batches as they go to disk, and their headers."""

    content: bytes
    headers: Sequence[BatchHeader]


class KeyOfRewrite(NamedTuple):
    """Which offsets are rewritten, and under which key; without one they are plain then."""

    start: Offset
    end: Offset
    key: DataKey | None


class LogKeys:
    """The key table of one open log. Threads get `table`, which never changes; the rest is for the loop."""

    __slots__ = (
        "_directory",
        "_disk",
        "_durability",
        "_is_putting",
        "_is_settled",
        "_version",
        "is_on",
        "master_key",
        "table",
        "vault",
    )

    def __init__(  # noqa: PLR0913 - the parts of a log, and what is known
        self,
        disk: Disk,
        directory: str,
        vault: LogVault,
        durability: Durability,
        table: KeyTable,
        master_key: str = "",
        *,
        is_on: bool,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._durability = durability
        self.vault = vault
        self.table = table
        # That of the table on disk; empty if there is none.
        self.master_key = master_key
        # Whether the table on disk is this one, so that its spare may be used.
        self._is_settled = bool(master_key)
        self._is_putting = False
        self._version = 0
        # Whether what is appended should be sealed.
        self.is_on = is_on

    def sealed(self, batches: Buffer, headers: Sequence[BatchHeader]) -> SealedBatches:
        """Plain batches, which have their offsets, as they go to disk."""
        key = self.table.current
        if key is None:
            return SealedBatches(bytes(batches), headers)
        context, random = self.vault.context, self.vault.vault.random
        view, parts, position = memoryview(batches), list[bytes](), 0
        for header in headers:
            end = position + PREFIX_BYTES + header[1]
            parts.append(seal_batch(view[position:end], key, context, random(NONCE_BYTES)))
            position = end
        return SealedBatches(b"".join(parts), [sealed_header(header) for header in headers])

    def take_spare(self, segments: Segments, offset: Offset) -> None:
        """What is appended from here on, where a segment begins, is under the spare key, if it is on disk."""
        table = self.table
        if not self._is_settled:
            # It is on its way, or there was no room for it.
            if not self._is_putting:
                with suppress(DiskFull):
                    self.put()
            return
        if table.spare is None or table.spare == table.rows[-1].key_id:
            return
        rows = (*table.cut(offset), KeyRow(offset, table.spare))
        self._change(segments, rows, table.candidates, spare=self._new_spare())
        with suppress(DiskFull):
            self.put()

    def prepare_spare(self, done: Done) -> None:
        """Have a spare on disk that is a key if this log is to be sealed, and none if it is not."""
        table = self.table
        is_key = table.spare is not None and table.spare != PLAIN_ID
        if table.spare is None or is_key is not self.is_on:
            spare = self._new_spare()
            self.table = _with_spare(table, spare)
            self.put(done)
        elif self._is_settled:
            done(None)
        else:
            self.put(done)

    def renew_spare(self, done: Done) -> bytes:
        """Have a spare on disk that was never there before; returns its id. Raises DiskFull."""
        table, spare = self.table, self._new_spare()
        self.table = _with_spare(table, spare)
        self.put(done)
        return _id_of(spare)

    def begin_cut(self, segments: Segments, end: Offset, log_end: Offset) -> None:
        """What is written from `end` on is under another key; what is there still opens. Blocks."""
        table, key = self.table, self._new_spare()
        rows = (*table.cut(end), KeyRow(end, _id_of(key)))
        candidates = [
            KeyCandidate(max(start, end), stop, key_id)
            for start, stop, key_id in _ranges(table.rows, log_end)
            if stop > end
        ]
        self._store_changed(segments, rows, [*table.candidates, *candidates], key)

    def begin_restart(self, start: Offset, log_end: Offset) -> None:
        """The log is about to be empty, and to go on at `start`. Blocks."""
        table, key = self.table, self._new_spare()
        former = [KeyCandidate(*part) for part in _ranges(table.rows, log_end)]
        self._store_changed(None, (KeyRow(start, _id_of(key)),), [*table.candidates, *former], key)

    def end_cut(self, end: Offset) -> None:
        """What was behind `end` is gone, durably."""
        table = self.table
        kept = tuple(one._replace(end=min(one.end, end)) for one in table.candidates if one.start < end)
        self.table = KeyTable(table.context, table.rows, table.keys, table.spare, kept, table.kept)
        with suppress(DiskFull):
            self.put()

    def begin_rewrite(self, segments: Segments, start: Offset, end: Offset) -> "KeyOfRewrite":
        """The key for files that will take the place of those with these offsets. Blocks."""
        table, key = self.table, self._new_spare()
        candidate = KeyCandidate(start, end, _id_of(key))
        self._store_changed(segments, table.rows, [*table.candidates, candidate], key)
        return KeyOfRewrite(start, end, key)

    def end_rewrite(
        self, segments: Segments, rewrite: "KeyOfRewrite", replaced: Iterable[tuple[Offset, Offset]] = ()
    ) -> None:
        """Files under this key are in place for these ranges of offsets, and no others will be."""
        table, key_id = self.table, _id_of(rewrite.key)
        kept = list(table.candidates)
        for one in table.candidates:
            if one.start == rewrite.start and one.key_id == key_id:
                kept.remove(one)
                break
        rows, keys = table.rows, _with(table, rewrite.key)
        for start, end in replaced:
            rows = KeyTable(table.context, rows, keys).replaced(start, end, key_id)
        self._change(segments, rows, kept, spare=_UNCHANGED, keys=keys)
        with suppress(DiskFull):
            self.put()

    def renew(self, segments: Segments, offset: Offset) -> None:
        """What is appended from this offset on is under a key that was never used. Blocks."""
        key = self._new_spare()
        rows = (*self.table.cut(offset), KeyRow(offset, _id_of(key)))
        self._store_changed(segments, rows, self.table.candidates, key)

    def keep(self, start: Offset, end: Offset) -> None:
        """What is copied from these offsets stays readable; durable with the next change of the table."""
        table = self.table
        kept = _joined(table.kept, table.ids_in_use(start, end))
        self.table = KeyTable(table.context, table.rows, table.keys, table.spare, table.candidates, kept)

    def settle(
        self, segments: Segments, end: Offset, *, is_new: bool = False, has_copies: bool = False
    ) -> bool:
        """Decide what a power cut has left open, after the log was recovered. Blocks if something changes.

        Returns whether what is appended is under another key now, so that a segment should begin. The keys of
        copies go if there is none in the quarantine any more.
        """
        former = self.table
        self.table = table = self._decided(segments, end)
        is_unclear = self._find_spare(segments, end)
        rows, candidates, spare = self.table.rows, self.table.candidates, self.table.spare
        # Rows behind the end are those of batches that were lost: whatever comes there is something else.
        was_longer = rows[-1].start > end
        if was_longer:
            rows = tuple(row for row in rows if row.start <= end) or (KeyRow(0, PLAIN_ID),)
        is_renewed = was_longer or is_unclear or (rows[-1].key_id != PLAIN_ID) is not self.is_on
        keys = dict(table.keys)
        if is_renewed:
            key = self._new_spare()
            keys = _with(table, key)
            rows = (*(row for row in rows if row.start < end), KeyRow(end, _id_of(key)))
        if spare is None or is_unclear or (spare != PLAIN_ID) is not self.is_on:
            other = self._new_spare()
            spare = _id_of(other)
            keys |= {} if other is None else {spare: other}
        kept = tuple(one for one in candidates if one.end > segments[0].base_offset)
        # What is behind the end was copied, or may have been before the power went.
        copies = _joined(table.kept, former.ids_in_use(end, OFFSET_MAX)) if has_copies else ()
        self.table = KeyTable(table.context, _without_old(rows, segments), keys, spare, kept, copies)
        if is_new or not self.table.says_same(former):
            self.store()
        return is_renewed

    def is_mixed(self, start: Offset) -> bool:
        """Whether a segment that begins there would have plain batches and sealed ones if it went on."""
        return (self.table.id_at(start) == PLAIN_ID) is not (self.table.rows[-1].key_id == PLAIN_ID)

    def _find_spare(self, segments: Segments, end: Offset) -> bool:
        """Look for segments that began under the spare; returns whether that remains unclear."""
        table, is_unclear = self.table, False
        rows, candidates, spare = table.rows, list(table.candidates), table.spare
        if spare is None or spare == rows[-1].key_id:
            return False
        for segment in segments:
            if segment.base_offset < rows[-1].start or not segment.size_bytes:
                continue
            found = _first_key(segment, segment.base_offset)
            if found == spare:
                rows = (*table.cut(segment.base_offset), KeyRow(segment.base_offset, spare))
                self.table = KeyTable(table.context, rows, table.keys, None, tuple(candidates), table.kept)
                return is_unclear
            if found == _UNKNOWN_KEY:
                candidates.append(KeyCandidate(segment.base_offset, end, spare))
                is_unclear = True
        self.table = KeyTable(table.context, rows, table.keys, spare, tuple(candidates), table.kept)
        return is_unclear

    def _decided(self, segments: Segments, end: Offset) -> KeyTable:
        """The table after every candidate was taken for what it is; those where that is unclear stay.

        A file is under one key, and of several that were to be replaced some may have been.
        """
        table, left = self.table, list[KeyCandidate]()
        for one in table.candidates:
            for start, stop, found in _keys_between(segments, one.start, min(one.end, end), end):
                if found == _UNKNOWN_KEY:
                    left.append(KeyCandidate(start, stop, one.key_id))
                elif found == one.key_id:
                    rows = table.replaced(start, stop, one.key_id)
                    table = KeyTable(
                        table.context, rows, table.keys, table.spare, table.candidates, table.kept
                    )
        return KeyTable(table.context, table.rows, table.keys, table.spare, tuple(left), table.kept)

    def put(self, done: Done | None = None) -> None:
        """Bring the table to disk without blocking. Raises DiskFull if there is no room."""
        self._version += 1
        self._is_settled = self._is_putting = False
        content, master_key = self._envelope()
        temporary = f"{self._directory}/{KEYS}.{self._version}{TEMPORARY}"
        file = self._disk.open(temporary, create=True)
        try:
            file.append(content)
        except StorageError:
            file.close()
            raise
        self._is_putting = True
        written = partial(self._written, self._version, temporary, master_key, done)
        self._durability.request_file(file, written, close=True)

    def _written(
        self, version: int, temporary: str, master_key: str, done: Done | None, error: StorageError | None
    ) -> None:
        """The bytes are on the device: they get their name, unless there is a later table, or no log."""
        is_current = error is None and version == self._version and self._durability.stopped is None
        try:
            if is_current:
                self._disk.rename(temporary, f"{self._directory}/{KEYS}")
            else:
                self._disk.remove(temporary)
        except StorageError as failed:
            error = error or failed
        named = partial(self._named, version, master_key, done)
        if is_current and error is None:
            self._durability.request_names(named)
        else:
            named(error or (None if is_current else StorageError("a later key table took its place")))

    def _named(self, version: int, master_key: str, done: Done | None, error: StorageError | None) -> None:
        if version == self._version:
            self._is_putting = False
            if error is None:
                self._is_settled, self.master_key = True, master_key
        if done is not None:
            done(error)

    def store(self) -> None:
        """Bring the table to disk. Blocks."""
        self._version += 1
        self._is_settled = self._is_putting = False
        content, master_key = self._envelope()
        try:
            replace_durably(self._disk, self._directory, KEYS, content)
        except DiskFull:
            raise
        except StorageError as failed:
            # It is unknown which of the two is there.
            self._durability.stop(failed)
            raise
        self._is_settled, self.master_key = True, master_key

    def check(self, content: bytes) -> None:
        """Raise CorruptionError unless this is a key table of this log, as it may be on disk."""
        opened_table(self.vault, content)

    def _envelope(self) -> tuple[bytes, str]:
        content = self.vault.vault.close_envelope(encode_table(self.table), self.vault.context)
        return content, master_key_of(content)

    def _new_spare(self) -> DataKey | None:
        return self.vault.vault.new_key() if self.is_on else None

    def _store_changed(
        self,
        segments: Segments | None,
        rows: tuple[KeyRow, ...],
        candidates: Sequence[KeyCandidate],
        key: DataKey | None,
    ) -> None:
        """Bring another table to disk, and use it; if that is not possible, nothing has changed."""
        before = self.table
        self._change(segments, rows, candidates, spare=_UNCHANGED, keys=_with(before, key))
        try:
            self.store()
        except StorageError:
            self.table = before
            raise

    def _change(
        self,
        segments: Segments | None,
        rows: tuple[KeyRow, ...],
        candidates: Sequence[KeyCandidate],
        *,
        spare: "DataKey | _Unchanged | None",
        keys: dict[bytes, DataKey] | None = None,
    ) -> None:
        table = self.table
        found = dict(table.keys) if keys is None else keys
        spare_id = table.spare
        if not isinstance(spare, _Unchanged):
            spare_id = _id_of(spare)
            if spare is not None:
                found = {**found, spare_id: spare}
        if segments is not None:
            rows = _without_old(rows, segments)
        self.table = KeyTable(table.context, rows, found, spare_id, tuple(candidates), table.kept)


class _Unchanged:
    """The spare stays."""


_UNCHANGED = _Unchanged()


def open_keys(
    disk: Disk, directory: str, vault: LogVault | None, durability: Durability, *, is_on: bool
) -> LogKeys | None:
    """The keys of a log that was created before; None if it has none.

    Raises KeyUnavailable if a master key is missing, and BrokenEnvelope if the table is broken.
    """
    content = read_file(disk, f"{directory}/{KEYS}")
    if content is None:
        return None
    if vault is None:
        raise KeyUnavailable(f"the log {directory} is encrypted, and this node has no master keys")
    try:
        table = opened_table(vault, content)
    except KeyUnavailable as missing:
        raise KeyUnavailable(f"the keys of the log {directory} cannot be read: {missing}") from None
    except BrokenEnvelope as broken:
        raise BrokenEnvelope(f"the key table of the log {directory} is broken: {broken}") from None
    return LogKeys(disk, directory, vault, durability, table, master_key_of(content), is_on=is_on)


def new_keys(
    disk: Disk,
    directory: str,
    vault: LogVault,
    durability: Durability,
    rows: tuple[KeyRow, ...],
    *,
    is_on: bool,
) -> LogKeys:
    """Keys for a log that has none; nothing is on disk yet."""
    table = KeyTable(vault.context, rows, {})
    return LogKeys(disk, directory, vault, durability, table, is_on=is_on)


def check_never_keyed(vault: LogVault | None, directory: str) -> None:
    """Raise BrokenEnvelope if every log has a key table by now: this one has lost its own."""
    if vault is not None and vault.vault.has_all_tables:
        raise BrokenEnvelope(f"the key table of the log {directory} is missing, and every log here has one")


def check_never_sealed(segments: Segments, directory: str) -> None:
    """Raise BrokenEnvelope if a log without a key table has had one."""
    for segment in segments:
        if segment.size_bytes and _first_key(segment, segment.base_offset) not in (
            PLAIN_ID,
            _UNKNOWN_KEY,
            None,
        ):
            raise BrokenEnvelope(f"the log {directory} is encrypted, and its key table is missing")


def opened_table(vault: LogVault, content: bytes) -> KeyTable:
    """The key table in an envelope; raises KeyUnavailable and BrokenEnvelope."""
    return decode_table(vault.vault.open_envelope(content, vault.context), vault.context)


def _id_of(key: DataKey | None) -> bytes:
    return PLAIN_ID if key is None else key.key_id


def _joined(kept: tuple[bytes, ...], others: Iterable[bytes]) -> tuple[bytes, ...]:
    return tuple(dict.fromkeys((*kept, *others)))


def _with_spare(table: KeyTable, spare: DataKey | None) -> KeyTable:
    keys, spare_id = _with(table, spare), _id_of(spare)
    return KeyTable(table.context, table.rows, keys, spare_id, table.candidates, table.kept)


def _with(table: KeyTable, key: DataKey | None) -> dict[bytes, DataKey]:
    return dict(table.keys) if key is None else {**table.keys, key.key_id: key}


def _ranges(rows: Sequence[KeyRow], end: Offset) -> list[tuple[int, int, bytes]]:
    """Start, end and key of every row of a log that ends at `end`."""
    stops = [*(row.start for row in rows[1:]), end]
    return [(row.start, stop, row.key_id) for row, stop in zip(rows, stops, strict=True) if row.start < stop]


def _without_old(rows: tuple[KeyRow, ...], segments: Segments) -> tuple[KeyRow, ...]:
    """The rows without those that no file has offsets of any more."""
    first = segments[0].base_offset if len(segments) else 0
    later = [index for index, row in enumerate(rows) if row.start <= first]
    return rows[later[-1] :] if later else rows


def _keys_between(
    segments: Segments, start: int, end: int, log_end: Offset
) -> Iterator[tuple[int, int, bytes | None]]:
    """The parts of the segments between two offsets, and the key of the first batch of each part.

    None if there is no batch, and empty if it cannot be read.
    """
    for index in range(segments.index_of(start), len(segments)):
        segment = segments[index]
        first = max(start, segment.base_offset)
        stop = min(end, segments.end_of(index, log_end))
        if first < stop:
            yield first, stop, _first_key(segment, Offset(first), Offset(stop))


def _first_key(segment: Segment, start: Offset, end: Offset | None = None) -> bytes | None:
    """The key of the first batch from `start` on; None if there is none, and empty if it cannot be read."""
    try:
        position = 0 if start <= segment.base_offset else segment.locate(start)
        if position is None or position >= segment.size_bytes:
            return None
        content = segment.file.pread(position, HEADER_BYTES + KEY_ID_BYTES)
        header = read_header(content)
    except (CorruptionError, StorageError):
        return _UNKNOWN_KEY
    if end is not None and header.base_offset >= end:
        return None
    return content[HEADER_BYTES:] if header.attributes & SEALED else PLAIN_ID
