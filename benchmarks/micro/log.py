"""The partition log on a real disk: append, lookup, read, open, recovery.

Appends are compared with plain `os.write` to a new file in the same run, call by call,
since the machine's page cache is faster or slower from minute to minute. `run(log_bytes=10 << 30)`
opens a log of that size; the default keeps the run short.
"""

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from benchmarks.micro.measure import figures as measured
from benchmarks.micro.measure import time_us
from penstock.core.model import LeaderEpoch, Offset, Timestamp, TopicId
from penstock.core.records import BatchHeader, Record, check_batches, write_batch
from penstock.storage.disk import PosixDisk
from penstock.storage.log import LogOptions, PartitionLog

TOPIC = TopicId(UUID(int=1))
EPOCH = LeaderEpoch(0)
NOW = Timestamp(1_700_000_000_000)
MIB = 1 << 20
APPEND_ROUND_BYTES = 64 * MIB
APPEND_ROUNDS = 5
TAIL_BYTES = 8 * MIB
LARGE = LogOptions(message_bytes_max=2 * MIB)
NAME = "logs/bench/0"


def run(log_bytes: int = 256 * MIB) -> dict[str, float]:
    """Every figure of the log."""
    return {**_append_large(), **_append_small(), **_lookups(), **_open(log_bytes)}


@contextmanager
def _disk() -> Iterator[PosixDisk]:
    root = tempfile.mkdtemp(prefix="penstock-bench-")
    try:
        yield PosixDisk(root)
    finally:
        shutil.rmtree(root)


def _batch(value_bytes: int, producer_id: int = -1) -> tuple[bytearray, list[BatchHeader]]:
    idempotent = 0 if producer_id >= 0 else -1
    batch = write_batch(
        [Record(0, NOW, None, b"v" * value_bytes, ())],
        producer_id=producer_id,
        producer_epoch=idempotent,
        base_sequence=idempotent,
    )
    return batch, check_batches(batch)


def _append_large() -> dict[str, float]:
    """Batches of 1 MB, in turns with the same bytes through os.write."""
    batch, headers = _batch(MIB - 100)
    raw, logged = [], []
    for _ in range(APPEND_ROUNDS):
        with _disk() as disk:
            log = PartitionLog.create(disk, NAME, TOPIC, LARGE)
            descriptor = os.open(f"{disk.root}/raw", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
            for _ in range(APPEND_ROUND_BYTES // len(batch)):
                began = time.perf_counter()
                os.write(descriptor, batch)
                between = time.perf_counter()
                log.append(batch, headers, EPOCH, NOW)
                logged.append(time.perf_counter() - between)
                raw.append(between - began)
            os.close(descriptor)
    # Medians, because now and then the kernel makes a writer wait for the device.
    return {
        "append_1mb_mb_s": len(batch) / MIB / statistics.median(logged),
        "raw_write_1mb_mb_s": len(batch) / MIB / statistics.median(raw),
        "append_1mb_to_raw_ratio": statistics.median(raw) / statistics.median(logged),
    }


def _append_small() -> dict[str, float]:
    """One batch of one small record, with and without a producer id."""
    figures: dict[str, float] = {}
    with _disk() as disk:
        log = PartitionLog.create(disk, NAME, TOPIC, LARGE)
        plain, plain_headers = _batch(100)
        idempotent, idempotent_headers = _batch(100, producer_id=7)
        figures |= measured("append_small", lambda: log.append(plain, plain_headers, EPOCH, NOW))
        figures |= measured(
            "append_small_idempotent", lambda: log.append(idempotent, idempotent_headers, EPOCH, NOW)
        )
        descriptor = os.open(f"{disk.root}/raw", os.O_CREAT | os.O_WRONLY)
        figures["raw_write_small_us"] = time_us(lambda: os.write(descriptor, plain))
        os.close(descriptor)
    return figures


def _lookups() -> dict[str, float]:
    """Reads of a log with 200,000 small batches: at its tail, in the middle, and by time."""
    figures: dict[str, float] = {}
    with _disk() as disk:
        log = PartitionLog.create(disk, NAME, TOPIC, LARGE)
        batch, headers = _batch(100)
        for _ in range(200_000):
            log.append(batch, headers, EPOCH, NOW)
        tail, middle = Offset(log.end - 1), Offset(log.end // 2)
        figures |= measured("read_tail", lambda: log.read(tail, MIB))
        figures["read_tail_below_end_us"] = time_us(lambda: log.read(Offset(tail - 5), MIB, end=tail))
        figures |= measured("read_middle", lambda: log.read(middle, MIB))
        figures["read_nothing_us"] = time_us(lambda: log.read(log.end, MIB))
        log.roll()
        figures |= measured("read_sealed", lambda: log.read(middle, MIB))
        figures |= measured("time_lookup", lambda: log.offset_for_timestamp(NOW))
    return figures


def _open(log_bytes: int) -> dict[str, float]:
    """Opening after a clean stop, and after a crash with a tail behind the checkpoint."""
    figures = {"open_log_bytes": float(log_bytes)}
    with _disk() as disk:
        log = PartitionLog.create(disk, NAME, TOPIC, LARGE)
        batch, headers = _batch(16_000, producer_id=7)
        while log.size_bytes < log_bytes:
            for _ in range(1000):
                log.append(batch, headers, EPOCH, NOW)
        log.close()
        began = time.perf_counter()
        log, report = PartitionLog.open(disk, NAME, TOPIC, LARGE)
        figures["open_clean_ms"] = (time.perf_counter() - began) * 1000
        figures["open_clean_bytes_read"] = float(report.bytes_read)

        for _ in range(TAIL_BYTES // len(batch)):
            log.append(batch, headers, EPOCH, NOW)
        began = time.perf_counter()
        log, report = PartitionLog.open(disk, NAME, TOPIC, LARGE)
        figures["open_crashed_ms"] = (time.perf_counter() - began) * 1000
        figures["open_crashed_bytes_read"] = float(report.bytes_read)
        figures["open_crashed_tail_bytes"] = float(TAIL_BYTES // len(batch) * len(batch))
    return figures


if __name__ == "__main__":
    # The size of the log that is opened can be named: `python -m benchmarks.micro.log 10` makes 10 GB.
    gigabytes = float(sys.argv[1]) if len(sys.argv) > 1 else 0.25
    for name, value in run(int(gigabytes * 1024 * MIB)).items():
        print(f"{name:40} {value:14.3f}")
