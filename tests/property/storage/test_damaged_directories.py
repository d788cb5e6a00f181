"""Any file is damaged after a crash: what was durable is read back, or said to be lost."""

import os
import random
from contextlib import closing
from dataclasses import dataclass, field

import pytest

from penstock.core.model import CorruptionError, Offset, PartitionIndex, StorageError
from penstock.core.records import check_batches
from penstock.storage.journal.codec import FRAME_BYTES, FRAME_MAGIC, decode_file_header, read_frame_header
from penstock.storage.log import LogOptions, PartitionLog, RecoveryReport
from tests.unit.storage.journal.conftest import TOPIC, JournalBench, path_of

# More for a long run: PENSTOCK_DAMAGED_DIRECTORIES=20000.
RUNS = int(os.environ.get("PENSTOCK_DAMAGED_DIRECTORIES", "240"))
CHUNKS = 8
LOGS = 2
SIZES = (1, 20, 20, 20, 300, 1000, 2000)


@dataclass
class Run:
    """Two logs that are written, crash, are damaged and are opened again, twice."""

    seed: int
    bench: JournalBench = field(init=False)
    chance: random.Random = field(init=False)
    # What was durable when the node crashed: batches by log and offset.
    durable: list[dict[int, bytes]] = field(init=False)
    harm: list[str] = field(default_factory=list)
    is_power_cut: bool = False

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        segment_bytes = self.chance.choice([800, 3000, 100_000])
        self.bench = JournalBench(LOGS, options=LogOptions(segment_bytes, index_interval_bytes=150))
        self.durable = [{} for _ in range(LOGS)]

    def write(self, steps: int) -> None:
        bench, chance = self.bench, self.chance
        for _ in range(steps):
            what, log = chance.random(), chance.randrange(LOGS)
            if what < 0.85:
                for _ in range(chance.choice([1, 1, 3])):
                    bench.append(log, size=chance.choice(SIZES))
                bench.logs[log].sync(bench.answers.append)
                bench.rounds.finish_all()
                self.remember(log)
            elif what < 0.92:
                bench.logs[log].checkpoint()
                bench.rounds.finish_all()
            else:
                bench.do_work()
        if chance.random() < 0.3:
            # On its way, and nobody was told.
            bench.append(0, size=chance.choice(SIZES))

    def remember(self, log: int) -> None:
        known, opened = self.durable[log], self.bench.logs[log]
        offset = max(known, default=-1) + 1
        while offset < opened.end:
            content = opened.read(Offset(offset), 1).to_bytes()
            known[offset] = content
            offset = check_batches(content)[-1].next_offset

    def crash(self) -> None:
        bench = self.bench
        self.is_power_cut = self.chance.random() < 0.5
        bench.crashable = bench.crashable.crash(self.chance) if self.is_power_cut else bench.crashable.copy()

    def damage(self) -> None:
        disk, chance = self.bench.crashable, self.chance
        harmed: list[str] = []
        for _ in range(chance.choice([1, 1, 2, 3])):
            path = chance.choice([path for path in disk.files() if path not in harmed])
            harmed.append(path)
            size, kind = disk.size(path), chance.choice(["flip", "flip", "cut", "remove", "zero"])
            self.harm.append(f"{kind} {path} of {size}")
            if kind == "remove":
                disk.remove(path)
                disk.sync_directory(path.rpartition("/")[0])
            elif kind == "cut" and size:
                disk.cut_short(path, chance.randrange(size))
            elif kind == "flip" and (end := self._known_end(path)):
                disk.flip_bit(path, chance.randrange(8 * end))
            elif kind == "zero" and (end := self._known_end(path, is_whole=True)):
                start = chance.randrange(end)
                with closing(disk.open(path)) as file:
                    file.pwrite(start, bytes(min(512, end - start)))
                    file.sync()

    def _known_end(self, path: str, *, is_whole: bool = False) -> int:
        """Up to where damage to a file can be told from what a crash leaves.

        In a journal that is the last frame that another one follows, or the seal. A seal is not durable, and
        damage must not take it away together with the frame.
        """
        with closing(self.bench.crashable.open(path, readonly=True)) as file:
            content = file.pread(0, file.size())
        if not path.endswith(".journal"):
            return len(content)
        salt, last = decode_file_header(content).salt, content.rfind(FRAME_MAGIC)
        while last > 0 and read_frame_header(content, last, salt) is None:
            last = content.rfind(FRAME_MAGIC, 0, last)
        return max(0, last) if self.is_power_cut or is_whole else last + FRAME_BYTES

    def open(self) -> list[tuple[PartitionLog, RecoveryReport] | None]:
        bench = self.bench
        bench._begin()
        opened: list[tuple[PartitionLog, RecoveryReport] | None] = []
        for number in range(LOGS):
            journal = bench.journal.of(TOPIC, PartitionIndex(number))
            try:
                opened.append(
                    PartitionLog.open(
                        bench.disk,
                        path_of(number),
                        TOPIC,
                        bench.log_options,
                        commit=bench.commit,
                        journal=journal,
                    )
                )
            except (StorageError, CorruptionError):
                # A node says that such a log is lost.
                opened.append(None)
        bench.rounds.finish_all()
        bench.journal.logs_opened()
        return opened

    def judge(self) -> None:
        for number, found in enumerate(self.open()):
            if found is None:
                continue
            log, report = found
            # Below its checkpoint a start reads nothing: readers have it verified before they get it.
            for _ in log.scrub():
                pass
            for offset, content in self.durable[number].items():
                if report.doubt or log.stopped is not None:
                    break
                if report.lost is not None and report.lost.start <= offset < report.lost.end:
                    continue
                told = f"seed {self.seed}: {self.harm}; log {number}, offset {offset} of {log.end}: {report}"
                assert offset < log.end, told
                if not any(damage.start <= offset < damage.end for damage in log.corruption):
                    assert log.read(Offset(offset), 1).to_bytes() == content, told


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_what_was_durable_is_read_back_or_said_to_be_lost(chunk: int) -> None:
    for seed in range(chunk, RUNS, CHUNKS):
        run = Run(seed)
        run.write(run.chance.randrange(3, 40))
        run.crash()
        run.damage()
        run.judge()
        # Nothing of it may be forgotten by the next start.
        run.crash()
        run.judge()
