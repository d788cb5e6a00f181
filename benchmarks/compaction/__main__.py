"""Compact a log of some gigabytes that was written in transactions, and write the figures to a JSON file.

Records of a kilobyte are spread evenly over the keys, in batches of sixteen. A transaction has a few batches,
and one in ten is aborted. The CPU seconds say more than the others if the machine does something else.
"""

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from benchmarks.micro.__main__ import commit, machine
from penstock.core.model import LeaderEpoch, Timestamp, TopicId
from penstock.core.records import (
    ControlRecord,
    ControlType,
    Record,
    check_batches,
    write_batch,
    write_control_batch,
)
from penstock.storage.disk import PosixDisk
from penstock.storage.log import CompactionRules, LogOptions, PartitionLog, cleaner_for

GIGABYTE, MEGABYTE = 10**9, 10**6
TOPIC = TopicId(UUID(int=1))
DIRECTORY = "logs/prices/0"
OPTIONS = LogOptions(segment_bytes=256 << 20, retention_ms=-1, retention_bytes=-1)
RULES = CompactionRules(min_dirty_ratio=0.0, delete_retention_ms=0)
BATCH_RECORDS = 16
TRANSACTION_BATCHES = 4
ABORTED = 0.1
NOW = 1_000_000


class Fill:
    """Writes transactions until the log is large enough."""

    def __init__(self, log: PartitionLog, keys: int) -> None:
        self._log = log
        self._chance = random.Random(1)
        self._keys = keys
        self._value = bytes(self._chance.randrange(256) for _ in range(1000))
        self.transactions = self.aborted = 0

    def fill(self, size_bytes: int) -> None:
        sequence = 0
        while self._log.size_bytes < size_bytes:
            for _ in range(TRANSACTION_BATCHES):
                self._append(self._batch(sequence))
                sequence = (sequence + BATCH_RECORDS) % 2**31
            is_aborted = self._chance.random() < ABORTED
            kind = ControlType.ABORT if is_aborted else ControlType.COMMIT
            self._append(write_control_batch(ControlRecord(self._log.end, NOW, kind, 1, 0, 0)))
            self.transactions += 1
            self.aborted += is_aborted
        self._log.roll()

    def _batch(self, sequence: int) -> bytearray:
        records = [
            Record(0, NOW, b"key-%08d" % self._chance.randrange(self._keys), self._value)
            for _ in range(BATCH_RECORDS)
        ]
        return write_batch(
            records, producer_id=1, producer_epoch=0, base_sequence=sequence, transactional=True
        )

    def _append(self, batch: bytearray) -> None:
        self._log.append(batch, check_batches(batch), LeaderEpoch(0), Timestamp(NOW))


def timed(work: Callable[[], None]) -> dict[str, float]:
    began, cpu = time.perf_counter(), time.process_time()
    work()
    return {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu}


def compact(log: PartitionLog, disk: PosixDisk, number: int) -> dict[str, float]:
    """One compaction, with its speed in what was read."""
    figures: dict[str, float] = {}

    def work() -> None:
        now = Timestamp(NOW + number * 1000)
        compaction = log.begin_compaction(RULES, now, str(number))
        assert compaction is not None, "nothing is due"
        cleaned = cleaner_for(disk)(compaction.order)
        result = log.finish_compaction(compaction, cleaned)
        assert result is not None
        figures.update(
            mb_before=result.bytes_before / MEGABYTE,
            mb_after=result.bytes_after / MEGABYTE,
            records_before=result.records_before,
            records_after=result.records_after,
            markers_removed=cleaned.markers_removed,
        )

    figures.update(timed(work))
    figures["mb_per_cpu_second"] = figures["mb_before"] / figures["cpu_seconds"]
    return figures


def run(size_bytes: int, keys: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as root:
        disk = PosixDisk(root)
        log = PartitionLog.create(disk, DIRECTORY, TOPIC, OPTIONS)
        fill = Fill(log, keys)
        filled = timed(lambda: fill.fill(size_bytes))
        log.sync(lambda _: None)
        log.set_high_watermark(log.end)
        log.checkpoint()
        # The first removes records, the second gives their markers a time to stay, the third removes them.
        passes = []
        for number in range(3):
            passes.append(compact(log, disk, number))
            fill.fill(log.size_bytes + MEGABYTE)
            log.sync(lambda _: None)
            log.set_high_watermark(log.end)
            log.checkpoint()
        log.close()
    return {"transactions": fill.transactions, "aborted": fill.aborted, "fill": filled, "passes": passes}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compaction", description=__doc__)
    parser.add_argument("--gb", type=float, default=5.0, help="size of the log")
    parser.add_argument("--keys", type=int, default=200_000, help="how many keys")
    parser.add_argument("--out", type=Path, default=Path("bench-results/compaction.json"))
    options = parser.parse_args()
    figures = {
        "commit": commit(),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "shape": {"gb": options.gb, "keys": options.keys},
        "results": run(round(options.gb * GIGABYTE), options.keys),
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(figures, indent=1) + "\n")
    print(json.dumps(figures["results"], indent=1))


if __name__ == "__main__":
    main()
