"""A log that runs, loses power and restarts, driven by a seed and checked after every start."""

import random
from collections.abc import Callable, Sequence
from uuid import UUID

from penstock.core.model import LeaderEpoch, Offset, StorageError, Timestamp, TopicId
from penstock.core.records import Record, check_batches, write_batch
from penstock.runtime.sync_helper import SyncFailed, sync_blocking
from penstock.sim.checkers.durability import (
    DurabilityChecker,
    LogAnomaly,
    LogViolation,
    StoredBatch,
    check_epochs,
    read_back,
)
from penstock.storage.commit import GroupCommit, SyncableFile
from penstock.storage.disk import CrashableDisk, Disk, NoSuchFile, PowerCut
from penstock.storage.journal import LogJournal
from penstock.storage.log import (
    DamagedRange,
    IncompleteLog,
    LogOptions,
    PartitionLog,
    RecoveryReport,
    SuspectSegment,
)
from penstock.storage.sealing import LogVault

TOPIC = TopicId(UUID(int=1))
DIRECTORY = "logs/orders/0"
MS_PER_OFFSET = 10
# Small, so that a few dozen appends roll, expire and fill several index rows.
OPTIONS = LogOptions(
    segment_bytes=3000,
    index_interval_bytes=150,
    time_index_interval_ms=30,
    retention_bytes=7000,
    retention_ms=-1,
)

Done = Callable[[OSError | None], None]
OnDisk = Callable[[CrashableDisk], Disk]


class Rounds:
    """The runtime's sync port: a round syncs when it starts or when it ends, and ends on demand."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._running: tuple[list[SyncableFile], list[tuple[SyncableFile, OSError]], Done] | None = None

    def sync(self, files: Sequence[SyncableFile], done: Done) -> None:
        targets = self._chance.sample(files, len(files))
        failures = []
        if self._chance.random() < 0.5:
            failures, targets = self.sync_now(targets), []
        self._running = (targets, failures, done)

    def sync_now(self, targets: Sequence[SyncableFile]) -> list[tuple[SyncableFile, OSError]]:
        return sync_blocking(targets)

    def finish(self) -> bool:
        """End the round that runs; False if there is none."""
        if self._running is None:
            return False
        (targets, failures, done), self._running = self._running, None
        failures = failures or self.sync_now(targets)
        done(SyncFailed(failures) if failures else None)
        return True


class Lives:
    """One log on one disk, from power cut to power cut.

    `on_disk` and `rounds` are where a test plants its bugs.
    """

    disk_fails = False

    def __init__(self, seed: int, on_disk: OnDisk = lambda disk: disk, rounds: type[Rounds] = Rounds) -> None:
        self.chance = random.Random(seed)
        self.checker = DurabilityChecker()
        self.violations: list[LogViolation] = []
        self.disk = CrashableDisk()
        self.power_cuts = 0
        self._on_disk = on_disk
        self._make_rounds = rounds
        self._created = False
        self._epoch = 0
        self._nonce = 0
        self._generation = 0
        self._next_start = 0
        self.options = OPTIONS
        # Where a log that is encrypted has its keys from.
        self.vault: LogVault | None = None
        self.log: PartitionLog
        self._rounds: Rounds

    def live(self, steps: int, cut_at: int | None) -> None:
        """Start, be judged, work; lose power at an operation of the disk, or else at the end."""
        self.disk.cut_power_at(cut_at)
        try:
            self.start()
            for _ in range(steps):
                # A log that failed its judge may do anything: there is nothing more to learn.
                if not self.violations:
                    self.step()
        except PowerCut:
            pass
        if cut_at is None and self.chance.random() < 0.3:
            # Only the process dies: the kernel keeps what was written, but it is not durable yet.
            self.disk = self.disk.copy()
        else:
            self.power_cuts += 1
            self.disk = self.disk.crash(self.chance)

    def start(self) -> None:
        """Open the log, or make it if it was never finished, and judge what is there."""
        self._generation += 1
        self._next_start = 0
        self._rounds = self._make_rounds(self.chance)
        disk = self._on_disk(self.disk)
        commit, journal = self.make_commit(disk)
        try:
            self.log, report = PartitionLog.open(
                disk, DIRECTORY, TOPIC, self.options, commit=commit, journal=journal, vault=self.vault
            )
            self.judge_report(report)
        except (IncompleteLog, NoSuchFile) as missing:
            if self._created:
                self.violations.append(LogViolation(LogAnomaly.LOST, f"the whole log: {missing}"))
            self.log = PartitionLog.create(
                disk, DIRECTORY, TOPIC, self.options, commit=commit, journal=journal, vault=self.vault
            )
            self._created = True
            self.checker = DurabilityChecker()
        found = read_back(self.log)
        self.violations += self.checker.judge(found)
        self.violations += self.search(found.batches)

    def make_commit(self, disk: Disk) -> tuple[GroupCommit, LogJournal | None]:
        """Begin a new incarnation's group commit, and journal if there is one."""
        return GroupCommit(self._rounds), None

    def judge_report(self, report: RecoveryReport) -> None:
        """Check what recovery says about a disk that only lost power."""

    def search(self, batches: Sequence[StoredBatch], samples: int = 4) -> list[LogViolation]:
        """Look some offsets and times up, which is where the indexes come in."""
        batches = [batch for batch in batches if batch.end > self.log.start]
        wrong = check_epochs(self.log, batches)
        for batch in self.chance.sample(batches, min(samples, len(batches))):
            offset = Offset(self.chance.randint(max(batch.base, self.log.start), batch.end - 1))
            try:
                content = self.log.read(offset, 1).to_bytes()
                by_time = self.log.offset_for_timestamp(Timestamp(offset * MS_PER_OFFSET))
            except (DamagedRange, SuspectSegment) as damage:
                if isinstance(damage.__cause__, StorageError):
                    # The device refuses to read it now; nothing is said of what is there.
                    raise damage.__cause__ from None
                wrong.append(LogViolation(LogAnomaly.BLAMED, str(damage)))
                continue
            if content != batch.content:
                wrong.append(
                    LogViolation(LogAnomaly.LOOKUP, f"offset {offset} is in the batch at {batch.base}")
                )
            if by_time is None or by_time.offset != offset:
                wrong.append(
                    LogViolation(LogAnomaly.LOOKUP, f"time {offset * MS_PER_OFFSET} leads to {by_time}")
                )
        return wrong

    def step(self) -> None:
        """Do one thing that a broker does."""
        often = [(self.append, 40), (self.sync, 16), (self._rounds.finish, 22)]
        rarely = [
            (self.log.checkpoint, 5),
            (self.log.roll, 3),
            (self.raise_epoch, 3),
            (self.truncate, 3),
            (self.delete_records, 3),
            (self.advance_start, 3),
            (self.expire, 3),
            (self.stop_cleanly, 2),
            (self.throw_away, 1),
        ]
        deeds, weights = zip(*often, *rarely, strict=True)
        self.chance.choices(deeds, weights)[0]()

    def append(self) -> None:
        base = int(self.log.end)
        batches = bytearray()
        for _ in range(self.chance.choice([1, 1, 2, 3])):
            batches += self._batch(base + len(check_offsets(batches)))
        headers = check_batches(batches)
        # The log writes offsets and epoch into the bytes; what it was asked to keep is known
        # before it begins, because the power may go off while it writes.
        expected, offset, position = bytearray(batches), base, 0
        for header in headers:
            expected[position : position + 8] = offset.to_bytes(8, "big")
            expected[position + 12 : position + 16] = self._epoch.to_bytes(4, "big")
            end = position + header.size_bytes
            count = header.last_offset_delta + 1
            self.checker.appended(StoredBatch(offset, offset + count, bytes(expected[position:end])))
            offset, position = offset + count, end
        self.log.append(batches, headers, LeaderEpoch(self._epoch), Timestamp(offset * MS_PER_OFFSET))

    def _batch(self, base: int) -> bytearray:
        self._nonce += 1
        value = b"%d " % self._nonce * self.chance.choice([1, 5, 40, 200])
        records = [
            Record(0, (base + delta) * MS_PER_OFFSET, None, value, ())
            for delta in range(self.chance.choice([1, 1, 3]))
        ]
        producer = self.chance.choice([-1, 7])
        return write_batch(
            records, producer_id=producer, producer_epoch=min(producer, 0), base_sequence=min(producer, 0)
        )

    def sync(self) -> None:
        end, generation = int(self.log.end), self._generation

        def done(error: StorageError | None) -> None:
            assert error is None or self.disk_fails, error
            if error is None and generation == self._generation:
                self.checker.made_durable(end)
                self.log.set_high_watermark(Offset(end))

        self.log.sync(done)

    def finish_syncs(self) -> None:
        while self._rounds.finish():
            pass

    def raise_epoch(self) -> None:
        self._epoch += 1
        self.log.begin_epoch(LeaderEpoch(self._epoch))

    def truncate(self) -> None:
        self.truncate_to(self.chance.randint(self.log.start, self.log.end))

    def truncate_to(self, end: int) -> None:
        offset = Offset(end)
        self._generation += 1
        self.checker.cutting(offset)
        self.checker.was_cut(self.log.truncate_to(offset))

    def delete_records(self) -> None:
        before = Offset(self.chance.randint(self.log.start, self.log.end))
        self.forgetting(before)
        if before > self.log.start:
            self.forgot(self.log.delete_records(before))

    def forgetting(self, before: int) -> None:
        """The start may rise as far as this, or as one that is still being raised."""
        self.checker.forgetting(max(before, self._next_start))

    def forgot(self, start: int) -> None:
        """The log starts there now; a start that is still being raised may come on top of it."""
        self.checker.forgot(start)
        self.checker.forgetting(self._next_start)

    def advance_start(self) -> None:
        """Delete without blocking: it takes effect some rounds later, unless the log is cut before."""
        before = Offset(self.chance.randint(self.log.start, self.log.end))
        generation = self._generation
        self._next_start = max(self._next_start, before)
        self.forgetting(before)

        def done(error: StorageError | None) -> None:
            assert error is None or self.disk_fails or generation != self._generation, error
            if error is None and generation == self._generation:
                assert self.log.start >= before
                self.forgot(self.log.start)

        if before > self.log.start:
            self.log.advance_start(before, done)

    def expire(self) -> None:
        self.forgetting(self.log.end)
        # If nothing had to go, an earlier attempt that failed may still turn out either way.
        at_once = self.chance.choice((None, 1, 2))
        if self.log.expire(Timestamp(self.log.end * MS_PER_OFFSET), at_once):
            self.forgot(self.log.start)

    def throw_away(self) -> None:
        start = Offset(self.chance.randint(0, self.log.end + 5))
        self._generation += 1
        self.checker.restarting(start)
        self.log.truncate_fully(start)
        self._next_start = 0
        self.checker.restarted()

    def stop_cleanly(self) -> None:
        self.finish_syncs()
        end = int(self.log.end)
        if self.log.stopped is None:
            self.log.close()
            self.checker.made_durable(end)
            self.closed()
        self.start()

    def closed(self) -> None:
        """The log was closed in order."""


def check_offsets(batches: bytearray) -> range:
    """The offsets that some batches will take, counted from 0."""
    return range(sum(header.last_offset_delta + 1 for header in check_batches(batches)))


def run_lives(
    seed: int, lives: int, on_disk: OnDisk = lambda disk: disk, rounds: type[Rounds] = Rounds
) -> Lives:
    """Several incarnations, some of them so short that the power goes off during recovery."""
    run = Lives(seed, on_disk, rounds)
    live_on(run, lives)
    return run


def live_on(run: Lives, lives: int) -> None:
    for _ in range(lives):
        cut_at = run.chance.choice([run.chance.randint(1, 15), run.chance.randint(1, 150), None])
        run.live(run.chance.randint(10, 60), cut_at)
        if run.violations:
            return
    run.live(3, None)
