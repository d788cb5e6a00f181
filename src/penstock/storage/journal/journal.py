"""The journal of a node while it runs: frames, files, and which of them are still needed.

    number   3 full ──► 4 full ──► 5 active ──► 6 spare
             needed     needed     frame │ frame │ seal: the next one goes here
             │ 4 follows │ 5 follows

What is durable has to be missed when it is gone, also at the very end. So behind the last frame, once it is
durable, stands a seal (`seal`), and a file that another follows says so when that one has a durable frame.

A file is free when every log that it names has a durable checkpoint behind what the file holds for
it, or was synced itself and its end written again (`relieve`). Files are freed from the front, and
used again at the back under a new number. The next file is made ready off the loop while the active
one is being filled.

The state file says which file is the oldest that is needed, before an older one is used again: a
file that is missing behind it is a loss, one before it is not. And because a log that is in no file any more
could be taken away and an older copy put in its place, another small file says before that which frame the
last checkpoint of each log covers: one with an older checkpoint is such a copy.
"""

import errno as errnos
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from functools import partial
from typing import NamedTuple, Protocol

from penstock.core.model import CorruptionError, Offset, PartitionIndex, StorageError, TopicId
from penstock.core.values import dataclass
from penstock.observability import log as events
from penstock.storage.disk import Disk, DiskFailed, File, NoSuchFile
from penstock.storage.journal.codec import (
    BATCH_PREFIX_BYTES,
    BATCHES,
    COUNT_BITS,
    COUNT_MASK,
    ENTRY_BYTES,
    FOLLOWED_BYTES,
    HEADER_BYTES,
    FileHeader,
    JournalRun,
    JournalState,
    LogKey,
    common_epoch,
    decode_checkpoints,
    decode_state,
    encode_checkpoints,
    encode_file_header,
    encode_frame,
    encode_state,
    log_key,
    pack_durable,
    pack_entry,
    pack_followed,
    read_batch_prefix,
)
from penstock.storage.journal.metrics import JournalMetrics
from penstock.storage.journal.recovery import JournaledLog, JournalRange, JournalScan

DIRECTORY = "meta/journal"
STATE = "state"
CHECKPOINTS = "checkpoints"
SUFFIX = ".journal"
SPARE = ".spare"
TEMPORARY = ".tmp"
# What a file is called that has no number yet: made off the loop, or on it when that comes too late.
NEXT, INLINE = "next", "inline"
ZEROS = bytes(1 << 20)
# How many logs are synced after one round, when too many files are full.
SYNCS_PER_ROUND = 8
# A log that the disk fails to open so often, seconds apart, does not keep the journal's files any longer.
FAILED_OPENS_MAX = 5


class Spawn(Protocol):
    """Does work off the loop, then calls back on it."""

    def __call__(
        self,
        work: Callable[[], "JournalFile"],
        done: Callable[["JournalFile"], None],
        failed: Callable[[Exception], None],
        /,
    ) -> object: ...


@dataclass(frozen=True, slots=True)
class JournalPlace:
    """Where the journal is. `salts` returns random numbers of 32 bits.

    Files are made ready by `spawn` on `side_disk`, a view of the same directory; without them, when
    they are needed, inside of the call.
    """

    disk: Disk
    side_disk: Disk
    salts: Callable[[], int]
    spawn: Spawn | None = None
    # A nanosecond clock.
    ticks: Callable[[], int] = int


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """Sizes of the journal.

    The first file is small, so that nodes start quickly. `entry_bytes_max` is what one log may put
    into one frame: more is synced in its own file. Logs are synced to free a file when more than
    `full_files_max` are full.
    """

    first_bytes: int = 1 << 20
    file_bytes: int = 16 << 20
    entry_bytes_max: int = 32 << 10
    full_files_max: int = 2


class JournalPosition(NamedTuple):
    """A place in a journal: everything in frames up to this one. Other journals have other ids."""

    journal_id: int = 0
    sequence: int = 0


NO_POSITION = JournalPosition()


class CarriedEnd(NamedTuple):
    """A log's durable end that is written again: frames up to `sequence` are not needed for it then."""

    end: Offset
    sequence: int


class LogJournal:
    """What one log has appended since the last round, and what the journal holds of it.

    Its fields are used directly where every append passes.
    """

    __slots__ = (
        "batches",
        "end",
        "epochs",
        "is_on",
        "journal",
        "key",
        "lost_end",
        "may_open_later",
        "reach",
        "room",
        "room_max",
        "start",
        "sync_file",
    )

    def __init__(self, journal: "CommitJournal", key: LogKey) -> None:
        self.journal = journal
        self.key = key
        # Whether appends are to be kept for the journal: only if somebody waits until they are durable.
        self.is_on = True
        self.batches: list[bytes] = []
        self.room = self.room_max = journal.options.entry_bytes_max
        # Where the log ended before the first of the batches, and where they end.
        self.start = self.end = Offset(0)
        # The end of what is in frames.
        self.reach = Offset(0)
        # Where the log ended before it lost something.
        self.lost_end = Offset(0)
        # Whether it could not be opened for a reason that may pass.
        self.may_open_later = False
        # Syncs the log's own file, then calls back; returns whether it can.
        self.sync_file: Callable[[Callable[[StorageError | None], None]], bool] | None = None
        # Returns the latest leader epoch of the log.
        self.epochs: Callable[[], int] | None = None

    def drop(self) -> None:
        """Forget what was appended: the log's own file is synced instead, or it was cut."""
        self.batches.clear()
        self.room = self.room_max

    def resume(self, start: Offset, end: Offset, batches: bytes) -> None:
        """A former process appended these batches, which no frame holds: they count as appended now."""
        if self.is_on:
            self.batches, self.start, self.end = [batches], start, end
            self.room = self.room_max - len(batches)

    def take(self, frame: "FrameBuilder", end: Offset, synced: Offset) -> bool:
        """Put what was appended into the frame; returns whether all below `end` is durable with it.

        It is not if anything is neither synced nor in a frame, or does not fit.
        """
        batches, reach = self.batches, self.reach
        if synced > reach:
            reach = synced
        if not batches:
            return reach >= end
        size = self.room_max - self.room
        if self.start > reach or size + ENTRY_BYTES > frame.room:
            self.drop()
            return False
        frame.room -= size + ENTRY_BYTES
        key, parts, first = self.key, frame.parts, batches[0]
        frame.keys.append(key)
        length, epoch = read_batch_prefix(first)
        if len(batches) > 1 or BATCH_PREFIX_BYTES + length != len(first):
            epoch = common_epoch(batches)
        parts.append(pack_entry(BATCHES, key, self.start, self.end, epoch, size))
        parts += batches
        batches.clear()
        self.room, self.reach = self.room_max, self.end
        return True

    def switch(self, *, is_on: bool) -> None:
        """Keep what is appended from now on for the journal, or do not."""
        if is_on != self.is_on:
            self.drop()
            self.is_on = is_on and self.journal.failure is None

    def mark(self, synced: Offset) -> None:
        """The log's own files are durable up to here, which the journal does not know yet."""
        if self.journal.failure is None:
            self.journal.marks[self] = synced

    def cut(self, end: Offset) -> None:
        """The log was cut, durably, and its checkpoint says so."""
        self.drop()
        self.reach, self.lost_end = end, Offset(0)
        self.journal.was_cut(self)

    @property
    def position(self) -> JournalPosition:
        """What a checkpoint of the log covers that is taken now."""
        return JournalPosition(self.journal.journal_id, self.journal.sequence)

    def checkpointed(self, position: JournalPosition) -> None:
        """A checkpoint that covers frames up to this one, and names it, is durable."""
        self.journal.checkpointed(self.key, position, stored=position)

    def covered(self, position: JournalPosition) -> None:
        """The last checkpoint covers frames up to this one, although it names an earlier one."""
        self.journal.checkpointed(self.key, position)

    def is_old_copy(self, checkpoint: JournalPosition) -> bool:
        """Whether the log has had a later checkpoint than the one it was found with."""
        return self.journal.is_old_copy(self.key, checkpoint)

    def checkpoint_failed(self) -> None:
        """A checkpoint came to nothing: the journal may ask for another one."""
        self.journal.ask_again(self.key)

    def recover(self, checkpoint: JournalPosition, directory: str) -> JournaledLog:
        """What the journal found at its start about this log, behind the checkpoint in its directory."""
        return self.journal.recover(self.key, checkpoint, directory)

    def has_outdated(self, checkpoint: JournalPosition, end: Offset) -> bool:
        """Whether the journal has batches behind `end` that were cut off before the checkpoint."""
        return self.journal.has_outdated(self.key, checkpoint, end)

    def restored(self, records: int) -> None:
        """So many offsets were taken from the journal."""
        self.journal.metrics.restored_records.count += records

    def read(self, found: JournalRange) -> bytes:
        """The batches of a range. Blocks."""
        return self.journal.read(found)

    def not_opened(self, *, is_full: bool) -> None:
        """The disk failed: what the journal has of it is kept for the next tries, or until there is room."""
        self.may_open_later = self.journal.count_failed_open(self.key) <= FAILED_OPENS_MAX or is_full

    def opened(self, end: Offset, lost_end: Offset, *, is_checkpointed: bool = True) -> None:
        """The log was recovered and all below `end` is durable; below `lost_end`, it lost something.

        Without a checkpoint, what the journal has about the log is still needed.
        """
        self.reach, self.lost_end = end, lost_end
        self.is_on = self.journal.failure is None
        self.journal.withdraw(self.key)
        if is_checkpointed:
            self.journal.opened(self.key, is_whole=end >= lost_end)


class FrameBuilder:
    """The entries of the next frame, the logs they are about, and how many bytes there is room for."""

    __slots__ = ("keys", "parts", "room")

    def __init__(self) -> None:
        self.keys: list[LogKey] = []
        self.parts: list[bytes] = []
        self.room = 0

    def add_durable(self, key: LogKey, end: Offset, epoch: int = -1) -> None:
        self.keys.append(key)
        self.parts.append(pack_durable(key, end, epoch))


class JournalFile:
    """One file of the journal; `needed_by` says which logs it names, and in which frame last."""

    __slots__ = ("begun_ns", "last", "needed_by", "number", "position", "salt", "size", "writer")

    def __init__(self, number: int, size: int, salt: int = 0, writer: File | None = None) -> None:
        self.number = number
        self.size = size
        self.salt = salt
        # Of the active file, the next one and the one before only.
        self.writer = writer
        self.position = HEADER_BYTES
        # The sequence of the last frame, if it is full, and when its first one was written.
        self.last = self.begun_ns = 0
        self.needed_by: dict[LogKey, int] = {}


class JournalNames:
    """The names of the journal's files, as something that can be synced."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.path = DIRECTORY

    def fileno(self) -> int:
        return self._disk.directory_fileno(DIRECTORY)

    def sync(self) -> None:
        self._disk.sync_directory(DIRECTORY)


def path_of(number: int) -> str:
    return f"{DIRECTORY}/{number:012d}{SUFFIX}"


class CommitJournal:
    """One journal for all logs of a node. All calls come from the loop.

    Once it has failed it is never written again: nobody knows what of it is durable.
    """

    def __init__(
        self, place: JournalPlace, options: JournalOptions, state: JournalState, scan: JournalScan
    ) -> None:
        self._disk = place.disk
        self._names = JournalNames(place.disk)
        self._side_disk = place.side_disk
        self._spawn = place.spawn
        self._salts = place.salts
        self._ticks = place.ticks
        self.metrics = JournalMetrics()
        self.metrics.files.read(lambda: len(self._full) + 1)
        self.metrics.size_bytes.read(lambda: sum(file.size for file in (*self._full, self._active)))
        self.metrics.oldest_seconds.read(self._age_of_oldest)
        self.options = options
        self._state = state
        self._scan = scan
        self.journal_id = state.journal_id
        # That of the journal whose files these were until its state was lost, if it is known.
        self._former_id = 0
        # The sequence of the last frame that was begun.
        self.sequence = state.run << COUNT_BITS
        self.failure: StorageError | None = None
        # Logs whose own files were synced since the last frame, and up to where.
        self.marks: dict[LogJournal, Offset] = {}
        self._logs: dict[LogKey, LogJournal] = {}
        self._failed_opens: dict[LogKey, int] = {}
        self._checkpointed: dict[LogKey, int] = {}
        # By log the frame that its last checkpoint names, as this run made it durable, or a former one.
        self._stored: dict[LogKey, int] = {}
        # Those that were found, and where: a killed process may have left their names to the page cache.
        self._found: dict[LogKey, tuple[int, str]] = {}
        self._full: list[JournalFile] = []
        self._free: list[JournalFile] = []
        self._active: JournalFile
        self._spare: JournalFile | None = None
        self._is_preparing = self._is_recycling = False
        # Logs that `relieve` has chosen; durable ends that the next frame is to hold, and that the last
        # one held.
        self._asked: dict[LogKey, None] = {}
        self._carried: dict[LogKey, CarriedEnd] = {}
        self._written_again: dict[LogKey, CarriedEnd] = {}
        # Whether every log of the node was opened that can be: see `logs_opened`.
        self._are_logs_open = False
        # The file before the active one, and whether the end of it says that another follows.
        self._former: JournalFile | None = None
        self._is_former_marked = False
        # The frame behind which the seal stands.
        self._sealed = 0
        self._frame = FrameBuilder()
        # The file that was last read from, since a log's ranges often are in the same one.
        self._reader: File | None = None
        # So that a frame fits into any file.
        self._frame_bytes_max = options.file_bytes // 4
        # Whether more files are full than should be.
        self.is_crowded = False

    @classmethod
    def open(
        cls,
        place: JournalPlace,
        options: JournalOptions | None = None,
        *,
        expected: bool = False,
        noted: JournalRun | None = None,
    ) -> "CommitJournal":
        """Read what is there, before any log is opened, and begin a new run. Blocks.

        With `expected`, a journal that is missing is a loss. So is one that does not know of the run that
        was `noted` elsewhere: it is an older copy, or another node's.
        """
        disk, salts = place.disk, place.salts
        disk.make_directory(DIRECTORY)
        disk.sync_directory("meta")
        scan = JournalScan()
        former, found = _read_state(disk, scan, expected=expected), _numbers(disk)
        is_other = former is not None and noted is not None and former.journal_id != noted.journal_id
        if former is not None and noted is not None and not _knows(former, noted):
            # Another id keeps the logs in doubt until each has a new checkpoint, whenever this start ends.
            former = None
            scan.miss("the journal is an older copy, or another node's: it does not know of the last run")
        # Without the state nobody knows how many files there were.
        is_lost = scan.missed
        former_id = 0
        if former is None:
            if noted is not None and not is_other:
                former_id = noted.journal_id
            # Checkpoints name another journal, so that every log is in doubt.
            journal_id = salts() << 32 | salts() | 1
            former = JournalState(journal_id, 0, min(found, default=1), max(found, default=0), not found)
        number = max([former.first, former.oldest - 1, *found]) + 1
        if former.closed:
            former = former._replace(oldest=number)
        else:
            _read_files(disk, former, scan)
        if is_lost:
            scan.miss(is_lost)
        # Positions in the former journal are before all in this one.
        run = max(former.run, 0 if noted is None else noted.run, scan.last >> COUNT_BITS) + 1
        scan.finish((run << COUNT_BITS) + 1)
        state = former._replace(run=run, first=number, closed=False)
        journal = cls(place, options or JournalOptions(), state, scan)
        journal._stored = _read_checkpoints(disk, state.journal_id)
        journal._former_id = former_id
        journal._begin(number)
        for damage in scan.damage:
            events.error("journal.damaged", start=damage.start, end=damage.end, reason=damage.reason)
        return journal

    def _begin(self, number: int) -> None:
        disk = self._disk
        for name in disk.listdir(DIRECTORY):
            if name.endswith((SPARE, TEMPORARY)):
                disk.remove(f"{DIRECTORY}/{name}")
        if self._scan.last_frame is not None:
            _write_again(disk, *self._scan.last_frame)
        # The file before the state: a state that names it says that it was there.
        size, previous = self.options.first_bytes, self._scan.last
        active = self._active = _make(disk, self._salts(), self.sequence, size, INLINE, previous)
        assert active.writer is not None
        disk.rename(active.writer.path, path_of(number))
        active.number, active.begun_ns = number, self._ticks()
        disk.sync_directory(DIRECTORY)
        _write_state(disk, self._state)
        for found in _numbers(disk):
            if found < self._state.oldest:
                disk.remove(path_of(found))
            elif found < number:
                file = JournalFile(found, disk.size(path_of(found)))
                file.needed_by = self._scan.named.get(found, {})
                file.begun_ns = active.begun_ns
                self._full.append(file)
        self._reclaim()
        self._prepare()

    @property
    def run(self) -> JournalRun:
        """Which journal this is, and how often it was begun."""
        return JournalRun(self._state.journal_id, self._state.run)

    @property
    def damage(self) -> str:
        """Why the journal cannot say all that it should; empty if it can."""
        return self._scan.damage[0].reason if self._scan.damage else ""

    def of(self, topic_id: TopicId, partition: PartitionIndex) -> LogJournal:
        """The part of the journal that is about one log."""
        key = log_key(topic_id, partition)
        log = self._logs[key] = LogJournal(self, key)
        return log

    def position(self) -> JournalPosition:
        """What the checkpoint of a log that is made now covers: nothing so far was about it."""
        return JournalPosition(self.journal_id, self.sequence)

    def begin_frame(self) -> FrameBuilder | None:
        """The next frame with what is waiting for it; None if the journal has failed."""
        if self.failure is not None:
            return None
        frame = self._frame
        frame.keys, frame.parts, frame.room = [], [], self._frame_bytes_max
        if self._carried or self._written_again:
            self._carry(frame)
        if self.marks:
            for log, synced in self.marks.items():
                if synced > log.reach:
                    log.reach = synced
                    frame.add_durable(log.key, synced, -1 if log.epochs is None else log.epochs())
            self.metrics.marks.count += len(self.marks)
            self.marks.clear()
        return frame

    def _carry(self, frame: FrameBuilder) -> None:
        """Write durable ends again, so that older frames about these logs are not needed."""
        for key, carried in self._written_again.items():
            # The frame is durable now, for the next one begins.
            if self._open_log(key) is None:
                self._scan.give_up(key)
            self._release(key, carried.sequence)
            self._asked.pop(key, None)
        self._written_again, self._carried = self._carried, {}
        for key, carried in self._written_again.items():
            frame.add_durable(key, carried.end)

    def write(self, frame: FrameBuilder) -> tuple[File | JournalNames, ...]:
        """Write the frame; returns what has to be synced before anything in it is durable.

        Only when the sync of the frame before has ended. Raises StorageError, after which the
        journal has failed.
        """
        self.sequence += 1
        active = self._active
        content = encode_frame(self.sequence, frame.parts, active.salt)
        targets: tuple[File | JournalNames, ...] = ()
        try:
            if active.position + len(content) + FOLLOWED_BYTES > active.size:
                active = self._rotate(len(content))
                content = encode_frame(self.sequence, frame.parts, active.salt)
                # The name of the file becomes durable with its first frame.
                targets = (self._names,)
            elif self._former is not None and not self._is_former_marked:
                # And only then the end of the one before may say that it is there.
                self._mark_former(self._former)
                if self._former.writer is not None and not self._is_former_free():
                    targets = (self._former.writer,)
                self._is_former_marked = True
            writer = active.writer
            assert writer is not None
            writer.pwrite(active.position, content)
        except StorageError as error:
            self.fail(error)
            raise
        active.position += len(content)
        active.needed_by.update(dict.fromkeys(frame.keys, self.sequence))
        self.metrics.frames.count += 1
        self.metrics.written_bytes.count += len(content)
        return (writer, *targets)

    def seal(self) -> None:
        """The last frame is durable: write something behind it that proves it. It need not be durable itself.

        The next frame goes to the same place. Called when none is about to be written.
        """
        active = self._active
        if self._sealed == self.sequence or active.position == HEADER_BYTES or self.failure is not None:
            return
        self._sealed = self.sequence
        # It is a proof, and nothing depends on it. A device that fails is noticed by the next frame.
        with suppress(StorageError):
            assert active.writer is not None
            active.writer.pwrite(active.position, encode_frame(self.sequence + 1, (), active.salt))
            if self._former is not None and not self._is_former_marked:
                self._mark_former(self._former)

    def _mark_former(self, former: JournalFile) -> None:
        """Write at the end of a full file that another follows, unless it is being used again."""
        if not self._is_former_free():
            assert former.writer is not None
            follows = encode_frame(former.last + 1, (pack_followed(former.number + 1),), former.salt)
            former.writer.pwrite(former.position, follows)

    def _is_former_free(self) -> bool:
        return all(file is not self._former for file in self._full)

    def _age_of_oldest(self) -> float:
        oldest = (self._full or [self._active])[0]
        return (self._ticks() - oldest.begun_ns) / 1e9

    def fail(self, error: StorageError) -> None:
        """Never write the journal again in this run: logs sync their own files from now on."""
        if self.failure is None:
            self.failure = error
            self.metrics.failures.count += 1
            self.marks.clear()
            events.error("journal.failed", error=error, sequence=self.sequence)

    def _rotate(self, length: int) -> JournalFile:
        """Go on in the next file."""
        full, spare, self._spare = self._active, self._spare, None
        number, size = full.number + 1, max(self.options.first_bytes, length + HEADER_BYTES + FOLLOWED_BYTES)
        # The first file of a run with frames says what was found when the run began, though an empty one did.
        is_first = self.sequence & COUNT_MASK == 1
        if is_first or spare is None or spare.size < size:
            # None is ready, or it is not as it must be: make one here, which blocks.
            previous = self._scan.last if is_first else 0
            base = self.sequence - 1
            self._spare, spare = spare, _make(self._disk, self._salts(), base, size, INLINE, previous)
        assert spare.writer is not None
        assert full.writer is not None
        self._disk.rename(spare.writer.path, path_of(number))
        spare.number, spare.begun_ns = number, self._ticks()
        self._active = spare
        if self._former is not None and self._former.writer is not None:
            self._former.writer.close()
        full.last = self.sequence - 1
        self._former, self._is_former_marked = full, False
        self._full.append(full)
        self._reclaim()
        self._prepare()
        return spare

    def checkpointed(
        self, key: LogKey, position: JournalPosition, *, stored: JournalPosition = NO_POSITION
    ) -> None:
        """A checkpoint of a log is durable that covers the frames up to this position, and names `stored`."""
        if position.journal_id != self.journal_id:
            return
        self._asked.pop(key, None)
        self._checkpointed[key] = position.sequence
        if stored != NO_POSITION:
            self._stored[key] = stored.sequence
            self._found.pop(key, None)
        # A log that was opened without a checkpoint has one now.
        self._scan.forget(key, position.sequence)
        if self._full:
            self._release(key, position.sequence)

    def was_cut(self, log: LogJournal) -> None:
        """What is still to be written about a log's end is not true any more."""
        self.marks.pop(log, None)
        self._carried.pop(log.key, None)
        self._asked.pop(log.key, None)

    def removed(self, topic_id: TopicId, partition: PartitionIndex) -> None:
        """The log is gone for good."""
        key = log_key(topic_id, partition)
        log = self._logs.pop(key, None)
        if log is not None:
            self.was_cut(log)
        self._scan.forget(key)
        self.withdraw(key)
        self.ask_again(key)
        self._checkpointed.pop(key, None)
        self._stored.pop(key, None)
        self._found.pop(key, None)
        self._active.needed_by.pop(key, None)
        self._release(key, self.sequence)

    def closed(self, topic_id: TopicId, partition: PartitionIndex) -> None:
        """The log was closed, and may be opened again later."""
        log = self._logs.pop(log_key(topic_id, partition), None)
        if log is not None:
            self.was_cut(log)

    def withdraw(self, key: LogKey) -> None:
        """The durable end of a log that was to be written again is not right any more."""
        self._carried.pop(key, None)

    def ask_again(self, key: LogKey) -> None:
        """The log may be asked for a checkpoint once more."""
        self._asked.pop(key, None)

    def _release(self, key: LogKey, sequence: int) -> None:
        for file in self._full:
            if file.needed_by.get(key, sequence + 1) <= sequence:
                del file.needed_by[key]
        self._reclaim()

    def _reclaim(self) -> None:
        """Free the files at the front that no log needs.

        Damaged ones stay until all logs have been opened: a start that ends before has told nobody.
        """
        is_held = bool(self._scan.damage) and not self._are_logs_open
        while self._full and not self._full[0].needed_by and not is_held:
            self._free.append(self._full.pop(0))
        self.is_crowded = len(self._full) > self.options.full_files_max
        if self._free:
            self._prepare()

    def _prepare(self) -> None:
        """Make the next file ready off the loop, from a free one if there is one."""
        if self._spare is not None or self._is_preparing or self._spawn is None or self.failure is not None:
            return
        self._is_preparing = True
        disk, salt, base = self._side_disk, self._salts(), self.sequence
        former = self._free.pop(0) if self._free else None
        if self._reader is not None:
            # It may be of the file that is about to be used again.
            self._reader.close()
            self._reader = None
        self._is_recycling = former is not None
        oldest = self._front().number
        state = self._state = self._state._replace(oldest=oldest)
        size = self.options.file_bytes
        checkpoints = {} if former is None else self._stored.copy()
        found = {} if former is None else self._found.copy()
        settled: dict[LogKey, int] = {}

        def work() -> JournalFile:
            if former is not None:
                settled.update(_sync_names(disk, found))
                # First, durably, that nobody has to find it, and how to tell without it what it told.
                _write_checkpoints(disk, state.journal_id, checkpoints | settled)
                _write_state(disk, state)
                return _recycle(disk, former, salt, base, size)
            return _make(disk, salt, base, size, NEXT)

        def done(spare: JournalFile) -> None:
            self._is_preparing = self._is_recycling = False
            self._spare = spare
            self._note_settled(settled)

        def failed(error: Exception) -> None:
            # Perhaps the disk is full: what is needed is made when it is needed, or the journal fails then.
            self._is_preparing = self._is_recycling = False
            events.warning("journal.spare_failed", error=error)

        self._spawn(work, done, failed)

    def _note_settled(self, settled: Mapping[LogKey, int]) -> None:
        """The names of these checkpoints, which were found, are durable now."""
        for key, sequence in settled.items():
            # Unless it was removed, or has had another checkpoint, meanwhile.
            if self._found.pop(key, None) is not None:
                self._stored[key] = sequence

    def _open_log(self, key: LogKey) -> LogJournal | None:
        """A log that was opened; of one that failed to open, only what the start found is known."""
        log = self._logs.get(key)
        return None if log is None or log.sync_file is None else log

    def _may_give_up(self, key: LogKey) -> bool:
        """Whether a log that is not open will not be soon either."""
        log = self._logs.get(key)
        return self._are_logs_open and not (log is not None and log.may_open_later)

    def count_failed_open(self, key: LogKey) -> int:
        """How often a log could not be opened, this time included."""
        count = self._failed_opens[key] = self._failed_opens.get(key, 0) + 1
        return count

    def _front(self) -> JournalFile:
        """The oldest file that has a name."""
        return (self._free or self._full or [self._active])[0]

    def relieve(self) -> None:
        """Have some of the logs synced that keep the oldest file from being free.

        When a log's own file is synced, its durable end is written again, and what older files hold
        is not needed. So is that of a log that cannot be synced, because it has stopped, cannot be
        opened or has lost something: it must not keep the file for ever, and its end stays known. A log
        that is only opened later, or once there is room, needs what the file holds.
        """
        if not self.is_crowded:
            return
        asked = 0
        for key in list(self._full[0].needed_by):
            log = self._open_log(key)
            if key in self._asked or (log is None and not self._may_give_up(key)):
                continue
            self._asked[key] = None
            if log is None:
                self._carried[key] = CarriedEnd(self._scan.recover(key, 0).durable, self.sequence)
            elif log.sync_file is None or not log.sync_file(partial(self._synced, log, self.sequence)):
                self._carried[key] = CarriedEnd(max(log.reach, log.lost_end), self.sequence)
            asked += 1
            if asked == SYNCS_PER_ROUND:
                return

    def _synced(self, log: LogJournal, sequence: int, error: StorageError | None) -> None:
        """All that the frames up to `sequence` hold of a log is in its own file, if there was no error."""
        if self._logs.get(log.key) is not log:
            return
        if error is None:
            self._carried[log.key] = CarriedEnd(log.reach, sequence)
        else:
            self._asked.pop(log.key, None)

    def recover(self, key: LogKey, checkpoint: JournalPosition, directory: str) -> JournaledLog:
        """What was found at the start about a log, behind the checkpoint in its directory."""
        after = checkpoint.sequence if checkpoint.journal_id == self.journal_id else 0
        if after > self._stored.get(key, 0):
            self._found[key] = after, directory
        if checkpoint.journal_id == self._former_id:
            after = checkpoint.sequence
        return self._scan.recover(key, after)

    def has_outdated(self, key: LogKey, checkpoint: JournalPosition, end: Offset) -> bool:
        """Whether frames that a checkpoint covers have more of its log than `end`: it was cut since."""
        return self._scan.has_outdated(key, checkpoint.sequence, end)

    def is_old_copy(self, key: LogKey, checkpoint: JournalPosition) -> bool:
        """Whether the log has had a later checkpoint than the one it was found with."""
        return checkpoint.sequence < self._stored.get(key, 0)

    def durable_end(self, topic_id: TopicId, partition: PartitionIndex) -> Offset:
        """Up to where a log was durable that was not opened yet, as far as the journal knows."""
        return self._scan.recover(log_key(topic_id, partition), 0).durable

    def forget_others(self, logs: Iterable[tuple[TopicId, PartitionIndex]]) -> None:
        """Besides those that were opened, only these logs are still the node's: forget all others."""
        known = {log_key(topic_id, partition) for topic_id, partition in logs}
        for key in (*self._scan.logs(), *self._stored):
            if key not in known and key not in self._logs:
                self._scan.forget(key)
                self._stored.pop(key, None)
                self._found.pop(key, None)
                self._release(key, self.sequence)

    def logs_opened(self) -> None:
        """All logs are open that can be: what others need may be given up, and damage is known to all."""
        self._are_logs_open = True
        self._reclaim()

    def read(self, found: JournalRange) -> bytes:
        """The batches of a range that was found at the start. Blocks."""
        reader = self._reader
        if reader is None or reader.path != path_of(found.number):
            if reader is not None:
                reader.close()
            reader = self._reader = self._disk.open(path_of(found.number), readonly=True)
        return reader.pread(found.position, found.length)

    def opened(self, key: LogKey, *, is_whole: bool) -> None:
        """A log was recovered; if it is whole, its checkpoint covers all that was found about it."""
        self._failed_opens.pop(key, None)
        if is_whole:
            self._scan.forget(key)
            self._release(key, self.sequence)

    def close(self) -> None:
        """All logs are closed: if nothing is needed any more, leave an empty journal behind. Blocks."""
        for file in (self._active, self._spare, self._former):
            if file is not None and file.writer is not None:
                file.writer.close()
        active = self._active.needed_by
        for key, sequence in list(active.items()):
            if self._checkpointed.get(key, 0) >= sequence:
                del active[key]
        if self._full or active or self.failure is not None or self._is_recycling:
            return
        state = self._state._replace(oldest=self._active.number + 1, closed=True)
        try:
            _write_checkpoints(self._disk, self.journal_id, self._stored)
            _write_state(self._disk, state)
            for number in _numbers(self._disk):
                self._disk.remove(path_of(number))
        except StorageError as error:
            # The next start reads what is left, and finds nothing that it needs.
            events.warning("journal.not_emptied", error=error)


def _numbers(disk: Disk) -> list[int]:
    names = (name.removesuffix(SUFFIX) for name in disk.listdir(DIRECTORY) if name.endswith(SUFFIX))
    return sorted(int(name) for name in names if name.isascii() and name.isdigit())


def _make(disk: Disk, salt: int, base: int, size: int, name: str, previous: int = 0) -> JournalFile:
    """Make a file full of zeros, so that writing to it later changes nothing but its bytes. Blocks."""
    writer = disk.open(f"{DIRECTORY}/{name}{SPARE}", create=True)
    try:
        writer.truncate(0)
        writer.append(encode_file_header(FileHeader(base + 1, previous, size, salt)))
        _fill(writer, size)
        writer.sync()
    except StorageError:
        writer.close()
        raise
    return JournalFile(0, size, salt, writer)


def _fill(writer: File, size: int) -> None:
    while (written := writer.size()) < size:
        writer.append(ZEROS[: size - written])


def _write_again(disk: Disk, number: int, position: int, frame: bytes) -> None:
    """Make the last frame durable that was found. Blocks.

    If only the process ended, its sync may not have; and if a sync failed, the kernel may take its pages
    for clean. From now on others count on it: it would be missed if a power cut took it away.
    """
    with closing(disk.open(path_of(number))) as file:
        file.pwrite(position, frame)
        file.sync()


def _recycle(disk: Disk, former: JournalFile, salt: int, base: int, size: int) -> JournalFile:
    """Make a free file ready to be written again. Blocks.

    One that was made small, or was cut, becomes as large as others: otherwise it would be ready for ever,
    and too small for each frame that comes.
    """
    path = f"{DIRECTORY}/{NEXT}{SPARE}"
    disk.rename(path_of(former.number), path)
    writer = disk.open(path)
    try:
        size = max(size, writer.size())
        writer.pwrite(0, encode_file_header(FileHeader(base + 1, 0, size, salt)))
        _fill(writer, size)
        writer.sync()
        return JournalFile(0, writer.size(), salt, writer)
    except StorageError:
        writer.close()
        raise


def _write_state(disk: Disk, state: JournalState) -> None:
    """Replace the state file durably. Blocks."""
    _replace(disk, STATE, encode_state(state))


def _write_checkpoints(disk: Disk, journal_id: int, checkpoints: Mapping[LogKey, int]) -> None:
    """Note durably which frames the checkpoints of all logs cover. Blocks."""
    _replace(disk, CHECKPOINTS, encode_checkpoints(journal_id, checkpoints))


def _sync_names(disk: Disk, found: Mapping[LogKey, tuple[int, str]]) -> dict[LogKey, int]:
    """Make the names of checkpoints durable that were found; returns those that could be. Blocks."""
    settled: dict[LogKey, int] = {}
    for key, (sequence, directory) in found.items():
        # Where the log was removed meanwhile, nothing is left to say about it.
        with suppress(StorageError):
            disk.sync_directory(directory)
            settled[key] = sequence
    return settled


def _read_checkpoints(disk: Disk, journal_id: int) -> dict[LogKey, int]:
    """Which frames the checkpoints of all logs cover, as far as it is known of this journal."""
    try:
        found, checkpoints = decode_checkpoints(_read(disk, f"{DIRECTORY}/{CHECKPOINTS}"))
    except (NoSuchFile, CorruptionError):
        # Nothing is lost with it: an older copy of a log is not noticed then, until the next is written.
        return {}
    return checkpoints if found == journal_id else {}


def _replace(disk: Disk, name: str, content: bytes) -> None:
    path = f"{DIRECTORY}/{name}"
    with closing(disk.open(path + TEMPORARY, create=True)) as file:
        file.truncate(0)
        file.append(content)
        file.sync()
    disk.rename(path + TEMPORARY, path)
    disk.sync_directory(DIRECTORY)


def _read(disk: Disk, path: str) -> bytes:
    """The content of a file; raises CorruptionError if the device cannot read it any more.

    Any other failure may pass, and the node had better not start now: what the journal holds would be
    given up.
    """
    with closing(disk.open(path, readonly=True)) as file:
        size = file.size()
        try:
            return file.pread(0, size)
        except DiskFailed as error:
            if error.errno != errnos.EIO:
                raise
            raise CorruptionError(str(error)) from error


def _read_state(disk: Disk, scan: JournalScan, *, expected: bool) -> JournalState | None:
    try:
        return decode_state(_read(disk, f"{DIRECTORY}/{STATE}"))
    except NoSuchFile:
        if expected:
            scan.miss("the journal is missing")
        return None
    except CorruptionError as error:
        scan.miss(f"the state of the journal cannot be read: {error}")
        return None


def _knows(state: JournalState, noted: JournalRun) -> bool:
    """Whether this is the journal that was noted, and no older copy of it."""
    return state.journal_id == noted.journal_id and state.run >= noted.run


def _read_files(disk: Disk, state: JournalState, scan: JournalScan) -> None:
    """Read every file that may be needed, in order."""
    present = frozenset(_numbers(disk))
    number, last = state.oldest, max([state.oldest, state.first, *present])
    while number <= max(last, scan.followed_by):
        if number not in present:
            scan.miss(f"the journal file {path_of(number)} is missing")
        else:
            try:
                scan.read(number, _read(disk, path_of(number)))
            except CorruptionError as error:
                scan.miss(f"the journal file {path_of(number)} cannot be read: {error}")
        number += 1
