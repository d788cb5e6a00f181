"""The raft log, snapshots and hard state of a node, in `meta/raft/`.

The log is a partition log with one record per entry: offset = index - 1, and the leader epoch of a
batch is the term of its entry; so is its base sequence, which the CRC covers, unlike the leader epoch.
Entries since the newest snapshot, and some before it for members that lag a little, are kept in memory,
so nothing is read from disk to send them.

A snapshot is one file:

    meta/raft/00000000000000012000.snapshot      everything up to and including entry 12,000

    0 index 8 │ 8 term 8 │ 16 members' length 4 │ members … │ facts (see `raft_codec`)     little endian

inside the frame that every small file has. Entry 0 stands for the bootstrap of the quorum. Two
snapshots are kept: if the newer one is damaged, the older one and the log behind it are used.

In an encrypted directory (ADR 0020) that whole frame is in an envelope, in a frame of another kind, and the
batches of the log are sealed, so that topic settings and credentials of users do not stand on disk in clear.
What is sent to other members is in clear.

The hard state (term, vote and doubt) is synced before a vote is sent.

    meta/raft/ballot      "7 2 0c9c…"      term 7, a vote for node 2 with its directory
                          "7 2 0c9c… 6"    the same, and the log may lack what was acknowledged up to term 6

One file, not two: a ballot that is gone is missed, a file that says only that something is wrong
would not be.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from itertools import groupby
from threading import Lock
from uuid import UUID

from penstock.broker.cluster.raft_codec import (
    decode_configuration,
    decode_content,
    decode_facts,
    encode_configuration,
    encode_content,
    encode_facts,
    facts_end,
)
from penstock.core.metadata import EMPTY_IMAGE, Fact, MetadataImage, replay
from penstock.core.model import CorruptionError, LeaderEpoch, NodeId, Offset, Timestamp
from penstock.core.raft import (
    Configuration,
    ConfigurationAt,
    Entry,
    HardState,
    Index,
    Member,
    SnapshotMeta,
    Term,
)
from penstock.core.records import Record, check_batches, read_header, read_records, write_batch
from penstock.observability import log as events
from penstock.storage.commit import Done
from penstock.storage.data_directory import RecordFileDamaged, read_record, write_record
from penstock.storage.disk import Disk, NoSuchFile
from penstock.storage.log import PartitionLog
from penstock.storage.log.file_names import TEMPORARY
from penstock.storage.log.files import FileKind, frame, read_file, replace_durably, unframe
from penstock.storage.sealing import BrokenEnvelope, KeyVault
from penstock.storage.sealing.vault import master_key_of

READ_BYTES = 1 << 20
# In batches of versions that did not store the term a second time.
NO_TERM = -1


class EntriesMissing(CorruptionError):
    """What lies at `offset` is not the entry that was written there: another one, or one of another term."""

    def __init__(self, offset: Offset, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset


DIRECTORY = "meta/raft"
SUFFIX = ".snapshot"
# A snapshot that does not open is kept under this name: perhaps it is the key that is wrong.
UNOPENED = ".unopened"
KEPT = 2
_HEAD = struct.Struct("<qqI")
_NAME = "ballot"
_NOBODY = "-"
# Where versions before the ballot had a fourth field stored the doubt.
_DOUBT = "doubt"
# Made by an operator who gives up what the log of a stopped node has lost.
ACCEPT_LOSS = f"{DIRECTORY}/accept-loss"


class RaftStorage:
    """The machine's view of its log (a `LogView`), and its writer."""

    def __init__(self, log: PartitionLog, meta: SnapshotMeta, end: Offset, lag_max: int) -> None:
        self.log = log
        self.snapshot = meta
        self._lag_max = lag_max
        self._snapshot_end = end
        self._entries: list[Entry] = list(read_entries(log))
        self.first = Index(log.start + 1)
        self.end = self._end_of_facts()
        # How its snapshots are encrypted, if they are.
        self.seal: SnapshotSeal | None = None

    @property
    def last(self) -> Index:
        return Index(self.first + len(self._entries) - 1)

    def _end_of_facts(self) -> Offset:
        """How many facts there are up to the end of the log."""
        for entry in reversed(self._entries):
            if entry.index <= self.snapshot.index:
                break
            if isinstance(entry.content, bytes):
                return facts_end(entry.content)
        return self._snapshot_end

    def term_at(self, index: Index) -> Term | None:
        if index == self.snapshot.index:
            return self.snapshot.term
        if self.first <= index <= self.last:
            return self._entries[index - self.first].term
        return None

    def at(self, index: Index) -> Entry:
        return self._entries[index - self.first]

    def entries(self, start: Index, bytes_max: int) -> Sequence[Entry]:
        taken: list[Entry] = []
        size_bytes = 0
        for position in range(start - self.first, len(self._entries)):
            entry = self._entries[position]
            size_bytes += entry.size_bytes
            if taken and size_bytes > bytes_max:
                break
            taken.append(entry)
        return taken

    def configurations(self) -> tuple[ConfigurationAt, ...]:
        return tuple(
            ConfigurationAt(entry.index, entry.content)
            for entry in self._entries
            if isinstance(entry.content, Configuration)
        )

    def append(self, entries: Sequence[Entry], now: Timestamp) -> None:
        """Write entries to the page cache. If the disk is full, some or none of them are written."""
        assert entries[0].index == self.last + 1
        for term, entries_of_term in groupby(entries, key=lambda entry: entry.term):
            run = list(entries_of_term)
            batches = [write_batch([_record(entry, now)], base_sequence=term) for entry in run]
            headers = [read_header(batch) for batch in batches]
            self.log.append(bytearray().join(batches), headers, LeaderEpoch(term), now)
            # Term by term, for the disk may be full in between: memory keeps what the log has.
            self._entries += run
        assert int(self.log.end) == self.last
        self.end = self._end_of_facts()

    def encode(self, start: Offset, end: Offset, now: Timestamp) -> bytes:
        """The batches between two offsets once more; they must be in memory."""
        found = self._entries[start + 1 - self.first : end + 1 - self.first]
        assert len(found) == end - start
        return b"".join(
            write_batch(
                [_record(entry, now)],
                base_offset=entry.index - 1,
                leader_epoch=entry.term,
                base_sequence=entry.term,
            )
            for entry in found
        )

    def sync(self, done: Done) -> None:
        self.log.sync(done)

    def truncate(self, start: Index) -> None:
        """Drop entries from `start` on. Blocks until that is durable."""
        self.log.truncate_to(Offset(start - 1))
        del self._entries[start - self.first :]
        self.end = self._end_of_facts()

    def compact(self, meta: SnapshotMeta, end: Offset) -> None:
        """A snapshot is durable: drop what it covers, once a whole segment can go. Blocks then."""
        former, self.snapshot, self._snapshot_end = self.snapshot.index, meta, end
        drop = meta.index + 1 - self._lag_max - self.first
        if drop > 0:
            del self._entries[:drop]
            self.first = Index(self.first + drop)
        segments = self.log.segments()
        # The newer of the two snapshots may turn out damaged: keep the log back to the older one.
        if len(segments) > 1 and segments[1].base_offset <= former:
            self.log.delete_records(Offset(former))

    def restart(self, meta: SnapshotMeta, end: Offset) -> None:
        """A snapshot from a leader is durable: drop the whole log. Blocks."""
        self.log.truncate_fully(Offset(meta.index))
        self._entries.clear()
        self.first = Index(meta.index + 1)
        self.snapshot, self._snapshot_end, self.end = meta, end, end


def _record(entry: Entry, now: Timestamp) -> Record:
    return Record(0, now, None, encode_content(entry.content), ())


def read_entries(log: PartitionLog) -> Iterator[Entry]:
    """Every entry of the log; EntriesMissing where one does not follow. Blocks on the disk."""
    start = expected = log.start
    while start < log.end:
        content = memoryview(log.read(start, READ_BYTES).to_bytes())
        position = 0
        for header in check_batches(content):
            end = position + header.size_bytes
            for record in read_records(content[position:end]):
                if record.offset >= start:
                    if record.offset != expected:
                        # The offset of a batch is not covered by its CRC.
                        raise EntriesMissing(expected, f"entry {record.offset + 1} follows entry {expected}")
                    term = Term(log.epochs.epoch_at(expected))
                    if header.base_sequence not in (NO_TERM, term):
                        # Nor is its leader epoch, by which the log knows the term.
                        wrong = f"entry {expected + 1} is of term {header.base_sequence}, not {term}"
                        raise EntriesMissing(expected, wrong)
                    expected = Offset(expected + 1)
                    assert record.value is not None, "an entry is a record's value"
                    yield Entry(Index(record.offset + 1), term, decode_content(bytes(record.value)))
            position, start = end, Offset(header.next_offset)


@dataclass(frozen=True, slots=True)
class MetadataSnapshot:
    """An image, and how many facts led to it (`end`) and describe it (`facts`)."""

    meta: SnapshotMeta
    end: Offset
    facts: int
    image: MetadataImage


def encode_snapshot(meta: SnapshotMeta, end: Offset, facts: Iterable[Fact]) -> bytes:
    members = encode_configuration(meta.configuration)
    head = _HEAD.pack(meta.index, meta.term, len(members))
    return frame(FileKind.METADATA, b"".join((head, members, encode_facts(end, facts))))


def decode_snapshot(
    content: bytes, check: Callable[[Sequence[Fact], Offset], None] | None = None
) -> MetadataSnapshot:
    """The snapshot, or CorruptionError; `check` sees its facts before they are applied."""
    meta, rest = _decode_head(content)
    facts = decode_facts(rest)
    if check is not None:
        check(facts, facts_end(rest))
    return MetadataSnapshot(meta, facts_end(rest), len(facts), replay(EMPTY_IMAGE, facts))


def _decode_head(content: bytes) -> tuple[SnapshotMeta, bytes]:
    """What a snapshot covers, and its facts; the checksum of the whole is verified."""
    payload = unframe(FileKind.METADATA, content)
    if len(payload) < _HEAD.size:
        raise CorruptionError("a metadata snapshot is too short for its header")
    index, term, length = _HEAD.unpack_from(payload)
    start = _HEAD.size + length
    members = decode_configuration(payload[_HEAD.size : start])
    return SnapshotMeta(Index(index), Term(term), members), bytes(payload[start:])


class SnapshotSeal:
    """How the snapshots of a data directory are encrypted."""

    def __init__(self, vault: KeyVault, directory_id: UUID) -> None:
        self.vault = vault
        self._directory_id = directory_id
        # Threads that replace files: one at a time, so that none brings back what another has removed.
        self.lock = Lock()

    def close(self, index: Index, content: bytes) -> bytes:
        return frame(FileKind.SEALED_METADATA, self.vault.close_envelope(content, self._purpose(index)))

    def open(self, index: Index, content: bytes) -> bytes:
        """Raises CorruptionError, also for a snapshot in clear, or KeyUnavailable."""
        return self.vault.open_envelope(_envelope(content), self._purpose(index))

    def _purpose(self, index: Index) -> bytes:
        return b"penstock metadata snapshot %d of %s" % (index, self._directory_id.bytes)


def _envelope(content: bytes) -> bytes:
    # The frame's CRC tells damage from a key that is not there: the key's name is not encrypted.
    return bytes(unframe(FileKind.SEALED_METADATA, content))


def write_snapshot(disk: Disk, index: Index, content: bytes, seal: SnapshotSeal | None = None) -> None:
    """Make a snapshot durable, and remove all but the two newest. Blocks."""
    with nullcontext() if seal is None else seal.lock:
        stored = content if seal is None else seal.close(index, content)
        replace_durably(disk, DIRECTORY, _name(index), stored)
        for old in _list(disk)[:-KEPT]:
            disk.remove(f"{DIRECTORY}/{_name(old)}")


def _read(disk: Disk, index: Index, seal: SnapshotSeal | None) -> bytes | None:
    """The frame in a snapshot's file; None if there is no file."""
    content = read_file(disk, f"{DIRECTORY}/{_name(index)}")
    return content if content is None or seal is None else seal.open(index, content)


def read_snapshot(disk: Disk, meta: SnapshotMeta, seal: SnapshotSeal | None = None) -> bytes:
    """A snapshot as it is sent, or CorruptionError: nobody else gets to see damage. Blocks."""
    path = f"{DIRECTORY}/{_name(meta.index)}"
    content = _read(disk, meta.index, seal)
    if content is None:
        raise CorruptionError(f"{path} is missing")
    if _decode_head(content)[0] != meta:
        raise CorruptionError(f"{path} holds another snapshot")
    return content


def drop_damaged_snapshots(disk: Disk, newest: Index, seal: SnapshotSeal | None = None) -> list[str]:
    """Remove older snapshots that nobody could fall back on; returns their names. Blocks."""
    dropped = []
    for index in _list(disk):
        try:
            content = _read(disk, index, seal) if index < newest else None
            if content is not None:
                _decode_head(content)
        except CorruptionError as damage:
            _drop(disk, index, damage)
            dropped.append(_name(index))
    return dropped


def remove_snapshot(disk: Disk, index: Index) -> None:
    """Remove a damaged snapshot. Blocks."""
    with suppress(NoSuchFile):
        disk.remove(f"{DIRECTORY}/{_name(index)}")


def _drop(disk: Disk, index: Index, damage: CorruptionError) -> None:
    path = f"{DIRECTORY}/{_name(index)}"
    if isinstance(damage, BrokenEnvelope):
        disk.rename(path, path + UNOPENED)
    else:
        disk.remove(path)


def load_newest(disk: Disk, seal: SnapshotSeal | None = None) -> MetadataSnapshot | None:
    """The newest readable snapshot; unreadable ones are removed. Blocks.

    Raises KeyUnavailable if it is only a key that is missing.
    """
    for name in disk.listdir(DIRECTORY):
        if name.endswith(SUFFIX + TEMPORARY):
            disk.remove(f"{DIRECTORY}/{name}")
    for index in reversed(_list(disk)):
        path = f"{DIRECTORY}/{_name(index)}"
        try:
            return decode_snapshot(_read(disk, index, seal) or b"")
        except CorruptionError as damage:
            events.warning("metadata.snapshot_damaged", name=path, reason=str(damage))
            _drop(disk, index, damage)
    return None


def seal_plain_snapshots(disk: Disk, seal: SnapshotSeal) -> int:
    """Encrypt the snapshots of a directory that was in clear so far; returns how many. Blocks."""
    count = 0
    for index in _list(disk):
        content = read_file(disk, f"{DIRECTORY}/{_name(index)}") or b""
        with suppress(CorruptionError):
            # One that is encrypted or damaged is not one in clear.
            if _decode_head(content)[0].index == index:
                replace_durably(disk, DIRECTORY, _name(index), seal.close(index, content))
                count += 1
    return count


def rewrap_snapshots(disk: Disk, seal: SnapshotSeal) -> int:
    """Encrypt snapshots under the current master key that are under another; returns how many. Blocks.

    One that does not open stays as it is: the scrub finds it.
    """
    count = 0
    with seal.lock:
        # One that is being written under the former key is there by now.
        present = _list(disk)
    for index in present:
        with seal.lock, suppress(CorruptionError):
            content = read_file(disk, f"{DIRECTORY}/{_name(index)}")
            if content is not None and master_key_of(_envelope(content)) != seal.vault.keys.current:
                plain = seal.open(index, content)
                replace_durably(disk, DIRECTORY, _name(index), seal.close(index, plain))
                count += 1
    return count


def snapshot_keys(disk: Disk) -> list[str]:
    """The master keys that encrypted snapshots are under, one for each. Blocks."""
    found = []
    for index in _list(disk):
        with suppress(CorruptionError):
            found.append(master_key_of(_envelope(read_file(disk, f"{DIRECTORY}/{_name(index)}") or b"")))
    return found


def _list(disk: Disk) -> list[Index]:
    names = [name.removesuffix(SUFFIX) for name in disk.listdir(DIRECTORY) if name.endswith(SUFFIX)]
    return [Index(int(name)) for name in names if name.isascii() and name.isdigit()]


def _name(index: Index) -> str:
    return f"{index:020d}{SUFFIX}"


def read_hard_state(disk: Disk) -> HardState | None:
    """The stored term and vote; None if there is none yet. Blocks."""
    try:
        text = read_record(disk, DIRECTORY, _NAME)
        if text is None:
            return None
        term, node, directory, *doubt = text.split(" ")
        voted_for = None if node == _NOBODY else Member(NodeId(int(node)), UUID(directory))
        if not doubt:
            return HardState(Term(int(term)), voted_for)
        (last_term,) = doubt
        return HardState(Term(int(term)), voted_for, Term(int(last_term)))
    except (RecordFileDamaged, ValueError) as broken:
        # A guess could be a second vote in the same term.
        raise CorruptionError(f"{DIRECTORY}/{_NAME} cannot be read: {broken}") from None


def check_hard_state(disk: Disk) -> None:
    """Raise CorruptionError if there is no hard state that can be read. Blocks."""
    if read_hard_state(disk) is None:
        raise CorruptionError(f"{DIRECTORY}/{_NAME} is missing")


def write_hard_state(disk: Disk, ballot: HardState) -> None:
    """Store term, vote and doubt; they survive a power cut when this returns. Blocks."""
    member = ballot.voted_for
    vote = f"{_NOBODY} {_NOBODY}" if member is None else f"{member.node_id} {member.directory_id}"
    doubt = "" if ballot.doubt is None else f" {ballot.doubt}"
    write_record(disk, DIRECTORY, _NAME, f"{ballot.term} {vote}{doubt}")


def adopt_doubt_file(disk: Disk, hard_state: HardState) -> HardState:
    """Take over the doubt that an earlier version has stored in a file of its own. Blocks."""
    try:
        text = read_record(disk, DIRECTORY, _DOUBT)
        doubt = None if text is None else Term(int(text))
    except (RecordFileDamaged, ValueError):
        doubt = hard_state.term
    if doubt is None:
        return hard_state
    # This start may have found a later one.
    adopted = hard_state._replace(doubt=max(doubt, hard_state.doubt or doubt))
    write_hard_state(disk, adopted)
    disk.remove(f"{DIRECTORY}/{_DOUBT}")
    disk.sync_directory(DIRECTORY)
    return adopted
