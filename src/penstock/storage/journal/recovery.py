"""Reading the journal at a start: what it says about each log, and which of its frames are gone.

Frame n + 1 is written when frame n has been synced, so whatever follows a bad frame proves that the
frame was durable once and is damaged now. A bad frame that nothing follows is the write that a
crash interrupted, and nobody was told that it was durable.

    │ 7 │ 8 │ 9 !│                      torn: the journal ends with 8
    │ 7 │ 8 !│ 9 │                      8 is damaged, and nobody knows what it said about which log
    │ 7 │ 8 !│ seal                     8 is damaged: the seal was written when 8 was durable
    │ 7 │ 8 │ 9 │ 4 │ 5 │ …             4, 5 are left from a former use of the file

A damaged frame concerns the logs whose checkpoint is older than it, unless a later frame names them.

The seal is written at the end of a round that no other follows at once, and not synced. It is there when
only the process ended. Left out, because it cannot be known here: after a power cut within the half minute
that the kernel takes to write the seal, or if a crash interrupts the write of the next frame, a damaged last
frame looks like a torn one; so does damage that takes the last frames and the seal together, and leaves the
file as long as it was. Another replica's end tells it.
"""

from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

from penstock.core.model import CorruptionError, LeaderEpoch, Offset
from penstock.storage.journal.codec import (
    COUNT_MASK,
    ENTRY_BYTES,
    ENTRY_KINDS,
    FRAME_BYTES,
    HEADER_BYTES,
    EntryKind,
    FileHeader,
    FrameHeader,
    LogKey,
    decode_file_header,
    find_frame,
    is_whole,
    read_frame_header,
    unpack_entry,
)


class JournalRange(NamedTuple):
    """An entry of a log: the frame and file that it is in, what it says, where its batches are.

    `epoch` is the leader epoch of all of them, or -1.
    """

    sequence: int
    number: int
    kind: EntryKind
    start: Offset
    end: Offset
    epoch: LeaderEpoch
    position: int
    length: int


class DamagedFrames(NamedTuple):
    """Frames from `start` to just before `end` were durable and cannot be read."""

    start: int
    end: int
    reason: str


class JournaledLog(NamedTuple):
    """What the journal says about one log, after the frame that its checkpoint names.

    `ranges` follow one another, perhaps with holes; the last ends at or before `durable`. With
    `doubt`, more may have been durable. `marked` is the last entry about what is in the log's own files.
    """

    ranges: Sequence[JournalRange] = ()
    durable: Offset = Offset(0)
    doubt: str = ""
    marked: JournalRange | None = None


NOTHING_JOURNALED = JournaledLog()


class JournalScan:
    """Everything that the files of a journal say."""

    def __init__(self) -> None:
        self.damage: list[DamagedFrames] = []
        # The sequence of the last frame, and by file which logs it names and in which frame last.
        self.last = 0
        self.named: dict[int, dict[LogKey, int]] = {}
        # The file of the last frame, where it is, and its bytes.
        self.last_frame: tuple[int, int, bytes] | None = None
        # The number of the file that follows according to the one before it.
        self.followed_by = 0
        self._last_place = (0, 0)
        self._logs: dict[LogKey, list[JournalRange]] = {}
        # Why the frames between the last one and the next one are missing, if they are.
        self._hole = ""

    def read(self, number: int, content: bytes) -> None:
        """Read one file; they come in order of their numbers. Raises CorruptionError."""
        self._last_place = (0, 0)
        try:
            self._read(number, content)
        finally:
            start, end = self._last_place
            if end:
                self.last_frame = (number, start, content[start:end])

    def _read(self, number: int, content: bytes) -> None:
        header = decode_file_header(content)
        # What came before the first frame of the oldest file was not needed any more.
        is_any = is_oldest = not (self.named or self._hole)
        named = self.named[number] = {}
        expected = self._expect(header, is_oldest=is_oldest)
        position = HEADER_BYTES
        while True:
            frame = read_frame_header(content, position, header.salt)
            if (
                frame is not None
                and (frame.sequence == expected or (is_any and frame.sequence > expected))
                and is_whole(content, position, frame)
            ):
                start = position + FRAME_BYTES
                stop = start + frame.length
                if self._is_seal(frame, content, start):
                    # All before it was durable, and nothing is behind it.
                    self._fill(frame.sequence)
                    self.last = frame.sequence - 1
                    break
                self._take(frame.sequence, number, content, (start, stop), named)
                self._last_place = (position, stop)
                position = stop
                expected = frame.sequence + 1
            else:
                later = find_frame(content, position, header.salt, expected + 1)
                if later is None:
                    break
                position = later
                found = read_frame_header(content, position, header.salt)
                assert found is not None
                self.miss("a damaged frame of the journal is followed by a good one")
                expected = found.sequence
                if not is_whole(content, position, found):
                    # It was begun, and that proves enough.
                    self._fill(expected)
                    self.last = expected - 1
            is_any = False
        if len(content) < header.size:
            self.miss("a file of the journal was cut")

    def _is_seal(self, frame: FrameHeader, content: bytes, start: int) -> bool:
        """Whether a frame is about no log; one at the end of a full file names the next file."""
        if frame.length == ENTRY_BYTES:
            kind, _, _, end, _, _ = unpack_entry(content, start)
            if kind == EntryKind.FOLLOWED:
                self.followed_by = max(self.followed_by, end)
                return True
        return frame.length == 0

    def _expect(self, header: FileHeader, *, is_oldest: bool) -> int:
        """The sequence that a file should begin with."""
        if header.base <= self.last + 1:
            return self.last + 1
        is_begun = is_oldest or header.base & COUNT_MASK == 1
        if not (header.previous == self.last if self.last else is_begun):
            self.miss("the last frames of a file are missing")
        return header.base

    @property
    def missed(self) -> str:
        """Why frames are missing behind those that were read so far; empty if none are known to be."""
        return self._hole

    def miss(self, reason: str) -> None:
        """Frames that were durable are missing behind those that were read so far."""
        self._hole = self._hole or reason

    def finish(self, end: int) -> None:
        """All files were read; new frames begin with the sequence `end`."""
        if self._hole:
            self._fill(end)

    def _fill(self, end: int) -> None:
        if self._hole:
            self.damage.append(DamagedFrames(self.last + 1, end, self._hole))
            self._hole = ""

    def _take(
        self, sequence: int, number: int, content: bytes, payload: tuple[int, int], named: dict[LogKey, int]
    ) -> None:
        """Take the entries of a frame: one loop, for a start may read hundreds of thousands."""
        if self._hole:
            self._fill(sequence)
        logs, unpack, kinds, make = self._logs, unpack_entry, ENTRY_KINDS, tuple.__new__
        position, end = payload
        while position < end:
            if position + ENTRY_BYTES > end:
                raise CorruptionError("a journal frame ends in the middle of an entry")
            kind, key, first, last, epoch, length = unpack(content, position)
            position += ENTRY_BYTES
            name = kinds.get(kind)
            if position + length > end or not 0 <= first <= last or name is None:
                raise CorruptionError("an entry of the journal does not fit its frame")
            found = logs.get(key)
            if found is None:
                found = logs[key] = []
            row = (sequence, number, name, first, last, epoch, position, length)
            found.append(make(JournalRange, row))
            named[key] = sequence
            position += length
        self.last = sequence

    def logs(self) -> Sequence[LogKey]:
        """Every log that the journal names."""
        return tuple(self._logs)

    def forget(self, key: LogKey, until: int | None = None) -> None:
        """The log was recovered, or is gone; or only if no frame behind `until` names it."""
        known = self._logs.get(key)
        if known and (until is None or known[-1].sequence <= until):
            del self._logs[key]

    def give_up(self, key: LogKey) -> None:
        """The files with the log's batches are used again: only its durable end stays known."""
        known = self._logs.get(key)
        if known:
            end = self.recover(key, 0).durable
            last = known[-1]
            self._logs[key] = [
                JournalRange(last.sequence, last.number, EntryKind.DURABLE, end, end, LeaderEpoch(-1), 0, 0)
            ]

    def recover(self, key: LogKey, after: int) -> JournaledLog:
        """What the frames behind the sequence `after` say about a log."""
        known = self._logs.get(key, ())
        ranges = list(known)
        if _are_successive(ranges, after):
            durable, last = ranges[-1].end, ranges[-1].sequence
            return JournaledLog(ranges, durable, self._unknown_after(last))
        ranges = []
        durable, last = Offset(0), after
        marked: JournalRange | None = None
        durable_kind = EntryKind.DURABLE
        # Without names for the fields, which cost more than the rest of this loop.
        for found in known:
            sequence, _, kind, start, end, _, _, _ = found
            if sequence <= after:
                continue
            last = sequence
            if kind is durable_kind:
                durable, marked = max(durable, end), found
                continue
            # A log that was cut goes on below where it ended.
            while ranges and ranges[-1][4] > start:
                ranges.pop()
            ranges.append(found)
            durable = end
        return JournaledLog(ranges, durable, self._unknown_after(last), marked)

    def has_outdated(self, key: LogKey, until: int, end: int) -> bool:
        """Whether a frame up to the sequence `until` has batches of the log behind `end`."""
        return any(found.sequence <= until and found.end > end for found in self._logs.get(key, ()))

    def _unknown_after(self, sequence: int) -> str:
        """Why frames behind this one cannot be read, if there are any."""
        unknown = [damage.reason for damage in self.damage if damage.end > sequence + 1]
        return unknown[0] if unknown else ""


_kind_of, _start_of, _end_of = itemgetter(2), itemgetter(3), itemgetter(4)


def _are_successive(ranges: list[JournalRange], after: int) -> bool:
    """Whether all of these are batches behind the frame `after`, each where the one before it ended.

    They are, for nearly every log of a node that was killed: then this saves a loop over all of them.
    """
    if not ranges or ranges[0].sequence <= after:
        return False
    if list(map(_kind_of, ranges)).count(EntryKind.BATCHES) != len(ranges):
        return False
    return list(map(_start_of, ranges))[1:] == list(map(_end_of, ranges))[:-1]
