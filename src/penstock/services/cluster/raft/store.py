"""The raft log of a node: a partition log with one record per entry, and the entries in memory.

offset = index - 1; the leader epoch of a batch is the term of its entry. Entries since the
newest snapshot, and some before it for members that lag a little, are kept in memory: there
are never more of them than between two snapshots, and nothing is read from disk to send them.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

from penstock.core.model import LeaderEpoch, Offset, Timestamp
from penstock.core.raft import Configuration, ConfigurationAt, Entry, Index, SnapshotMeta, Term
from penstock.core.records import Record, check_batches, read_header, read_records, write_batch
from penstock.services.cluster.raft.codec import decode_content, encode_content, facts_end
from penstock.storage.commit import Done
from penstock.storage.log import PartitionLog

READ_BYTES = 1 << 20


class RaftStore:
    """What the machine sees of its log (a `LogView`), and how it is written."""

    def __init__(self, log: PartitionLog, meta: SnapshotMeta, end: Offset, lag_max: int) -> None:
        self.log = log
        self.snapshot = meta
        self._lag_max = lag_max
        self._snapshot_end = end
        self._entries: list[Entry] = list(_read(log))
        self.first = Index(log.start + 1)
        self.end = self._end_of_facts()

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
            batches = [write_batch([_record(entry, now)]) for entry in run]
            headers = [read_header(batch) for batch in batches]
            self.log.append(bytearray().join(batches), headers, LeaderEpoch(term), now)
            # Term by term, for the disk may be full in between: we have what the log has.
            self._entries += run
        assert int(self.log.end) == self.last
        self.end = self._end_of_facts()

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
        # The newer of the two snapshots may turn out damaged: the log goes back to the older one.
        if len(segments) > 1 and segments[1].base_offset <= former:
            self.log.delete_records(Offset(former))

    def restart(self, meta: SnapshotMeta, end: Offset) -> None:
        """A snapshot from a leader is durable: nothing of the log is needed. Blocks."""
        self.log.truncate_fully(Offset(meta.index))
        self._entries.clear()
        self.first = Index(meta.index + 1)
        self.snapshot, self._snapshot_end, self.end = meta, end, end


def _record(entry: Entry, now: Timestamp) -> Record:
    return Record(0, now, None, encode_content(entry.content), ())


def _read(log: PartitionLog) -> Iterator[Entry]:
    """Every entry of the log. Blocks on the disk."""
    start = log.start
    while start < log.end:
        content = memoryview(log.read(start, READ_BYTES).to_bytes())
        position = 0
        for header in check_batches(content):
            end = position + header.size_bytes
            for record in read_records(content[position:end]):
                if record.offset >= start:
                    assert record.value is not None, "an entry is a record's value"
                    term = Term(log.epochs.epoch_at(Offset(record.offset)))
                    yield Entry(Index(record.offset + 1), term, decode_content(bytes(record.value)))
            position, start = end, Offset(header.next_offset)
