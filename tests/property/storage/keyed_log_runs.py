"""A compacted log that runs, loses power and restarts, compared with a plain history of its records."""

import random
from uuid import UUID

from penstock.core.model import CorruptionError, LeaderEpoch, Offset, StorageError, Timestamp, TopicId
from penstock.core.records import Record, check_batches, read_records, write_batch
from penstock.storage.commit import GroupCommit
from penstock.storage.disk import CrashableDisk, PowerCut
from penstock.storage.log import (
    CleaningResult,
    Compaction,
    CompactionRules,
    IncompleteLog,
    LogOptions,
    PartitionLog,
    Uncleanable,
    cleaner_for,
)
from penstock.storage.sealing import LogVault
from tests.property.storage.log_runs import Rounds

TOPIC = TopicId(UUID(int=1))
DIRECTORY = "logs/prices/0"
OPTIONS = LogOptions(segment_bytes=700, index_interval_bytes=120, time_index_interval_ms=30)
KEYS = 60
HOT_KEYS = 6


class KeyedLives:
    """One log on one disk; `history` holds every record that was ever given to it and is not cut off."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.disk = CrashableDisk()
        self.history: dict[int, Record] = {}
        self.now = 1_000
        self.complaints: list[str] = []
        self.compactions = 0
        self.absorbed = 0
        self.records_dropped = 0
        self._tokens = 0
        self._durable = 0
        self._underway: tuple[Compaction, CleaningResult] | None = None
        # Whether that is being prepared, and ends with some round.
        self._is_preparing = False
        # How often compactions are prepared, as a node does it, and not put in place with blocking syncs.
        self.prepared_share = 0.8
        self.options = OPTIONS
        # Where a log that is encrypted has its keys from.
        self.vault: LogVault | None = None
        self.log: PartitionLog

    def start(self) -> None:
        """Open the log, and hold it against the history."""
        self.rounds = Rounds(self.chance)
        commit = GroupCommit(self.rounds)
        self._underway, self._is_preparing = None, False
        try:
            self.log, report = PartitionLog.open(
                self.disk, DIRECTORY, TOPIC, self.options, commit=commit, vault=self.vault
            )
        except (IncompleteLog, StorageError):
            if self._durable:
                raise
            self.disk.remove_tree(DIRECTORY)
            self.log = PartitionLog.create(
                self.disk, DIRECTORY, TOPIC, self.options, commit=commit, vault=self.vault
            )
        else:
            if report.corruption:
                self.complaints.append(f"blamed {report.corruption}")
        if self.log.end < self._durable:
            self.complaints.append(f"ends at {self.log.end}, and {self._durable} was durable")
        self.history = {offset: one for offset, one in self.history.items() if offset < self.log.end}
        self._raise_watermark()
        self.judge()

    def live(self, steps: int, cut_at: int | None) -> bool:
        """Start, do random things, lose power at an operation; returns whether it did."""
        self.disk.cut_power_at(cut_at)
        try:
            self.start()
            for _ in range(steps):
                self.step()
        except PowerCut:
            pass
        else:
            cut_at = None
        self.lose_power()
        return cut_at is not None

    def lose_power(self) -> None:
        """What was below the high watermark must be there when the log is opened again."""
        self.disk = self.disk.crash(self.chance)

    def step(self) -> None:
        acts = (self.append, self.append, self.append, self.finish_sync, self.checkpoint, self.compact)
        self.chance.choices((*acts, self.truncate), weights=(3, 3, 3, 3, 1, 2, 0.3))[0]()

    def append(self) -> None:
        self.now += self.chance.randrange(40)
        records = []
        for _ in range(self.chance.randint(1, 4)):
            hot = self.chance.random() < 0.7
            key = b"key-%d" % (self.chance.randrange(HOT_KEYS) if hot else self.chance.randrange(KEYS))
            value = None if self.chance.random() < 0.25 else self.chance.randbytes(self.chance.randrange(40))
            records.append(Record(0, self.now, key, value, ()))
        producer = self.chance.choice((-1, 1, 2))
        fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0} if producer > 0 else {}
        batch = write_batch(records, **fields)  # type: ignore[arg-type]
        # Before the call: a power cut in it may leave the records behind.
        for number, record in enumerate(records):
            self.history[self.log.end + number] = record._replace(offset=self.log.end + number)
        self.log.append(batch, check_batches(batch), LeaderEpoch(0), Timestamp(self.now))
        self.log.sync(lambda _: None)

    def finish_sync(self) -> None:
        self.rounds.finish()
        self._raise_watermark()

    def checkpoint(self) -> None:
        self.log.checkpoint()
        while self.rounds.finish():
            pass
        self._raise_watermark()

    def compact(self) -> None:
        """Begin a compaction, or put the result of the last one in place."""
        if self._is_preparing:
            return
        if self._underway is not None:
            if self.chance.random() < self.prepared_share:
                self._is_preparing = True
                self.log.prepare_compaction(*self._underway, self._finish_compaction)
            else:
                self._finish_compaction(None)
            return
        self._tokens += 1
        rules = CompactionRules(0.0, self.chance.choice((0, 60)), keys_max=self.chance.choice((2, 100)))
        compaction = self.log.begin_compaction(rules, Timestamp(self.now), f"t{self._tokens}")
        if compaction is not None:
            try:
                self._underway = (compaction, cleaner_for(self.disk)(compaction.order))
            except Uncleanable as error:
                self.complaints.append(f"uncleanable: {error}")

    def _finish_compaction(self, error: StorageError | None) -> None:
        assert error is None
        assert self._underway is not None
        underway, self._underway, self._is_preparing = self._underway, None, False
        segments = len(self.log.segments())
        compacted = self.log.finish_compaction(*underway)
        if compacted is not None:
            self.absorbed += segments - len(self.log.segments())
            self.compactions += 1
            self.records_dropped += compacted.records_before - compacted.records_after
            self.judge()
            self._judge_cleaned(compacted.end_offset)

    def truncate(self) -> None:
        if self.log.end > self.log.high_watermark:
            end = self.log.truncate_to(
                Offset(self.chance.randint(int(self.log.high_watermark), int(self.log.end)))
            )
            self.history = {offset: one for offset, one in self.history.items() if offset < end}

    def _raise_watermark(self) -> None:
        self.log.set_high_watermark(self.log.synced)
        self._durable = int(self.log.synced)

    def records(self) -> list[Record]:
        found: list[Record] = []
        offset = int(self.log.start)
        while offset < self.log.end:
            content = memoryview(self.log.read(Offset(offset), 500).to_bytes())
            if not content:
                break
            at = 0
            for header in check_batches(content, compacted=True):
                found += read_records(content[at : at + header.size_bytes])
                at, offset = at + header.size_bytes, header.next_offset
        return found

    def judge(self) -> None:
        """Nothing that is wrong, nothing that counts missing, and everything where it is looked for."""
        try:
            self._judge(self.records())
        except CorruptionError as corrupt:
            self.complaints.append(f"unreadable: {corrupt}")

    def _judge(self, found: list[Record]) -> None:
        offsets = [record.offset for record in found]
        if offsets != sorted(set(offsets)):
            self.complaints.append(f"offsets {offsets}")
        self.complaints += [f"altered {one}" for one in found if one != self.history.get(one.offset)]
        latest = {one.key: one for _, one in sorted(self.history.items())}
        present = {one.key for one in found}
        for key, record in latest.items():
            is_gone_for_good = record.value is None and key not in present
            if record not in found and not is_gone_for_good:
                self.complaints.append(f"the latest of {key!r} at {record.offset} is missing")
        self._judge_search(found)
        self.complaints += [f"scrub: {step.damage}" for step in self.log.scrub() if step.damage is not None]

    def _judge_cleaned(self, end: int) -> None:
        """Of every key there is one record left."""
        keys = [one.key for one in self.records() if one.offset < end]
        if len(keys) != len(set(keys)):
            self.complaints.append(f"a key has two records below {end}")

    def _judge_search(self, found: list[Record]) -> None:
        for _ in range(5):
            offset = self.chance.randint(0, int(self.log.end))
            content = self.log.read(Offset(offset), 1).to_bytes()
            wanted = next((one.offset for one in found if one.offset >= offset), None)
            if wanted is not None and (
                not content or check_batches(content, compacted=True)[0].base_offset > wanted
            ):
                self.complaints.append(f"offset {offset} does not lead to {wanted}")
            timestamp = self.chance.randint(900, self.now)
            answer = self.log.offset_for_timestamp(Timestamp(timestamp))
            first = next((one.offset for one in found if one.timestamp >= timestamp), None)
            if (None if answer is None else answer.offset) != first:
                self.complaints.append(f"time {timestamp} leads to {answer}, not {first}")
