"""After a failed sync, what the next start reads may be in memory only: the kernel calls its pages clean."""

from random import Random
from typing import TYPE_CHECKING

import pytest

from penstock.core.model import LeaderEpoch, Timestamp
from penstock.core.records import Record, check_batches, write_batch
from penstock.storage.disk import DiskFailed, FailingDisk, FailureRule
from penstock.storage.log import LogOptions
from penstock.storage.log.segment import SCAN_BYTES

if TYPE_CHECKING:
    from tests.unit.storage.log.conftest import Bench

BATCH_BYTES = 100_000


@pytest.mark.parametrize("segment_bytes", [10 * SCAN_BYTES, SCAN_BYTES // 2])
@pytest.mark.parametrize("checkpoint_lost", [False, True])
def test_all_of_a_tail_that_a_failed_sync_left_in_memory_is_written_again(
    bench: "Bench", segment_bytes: int, *, checkpoint_lost: bool
) -> None:
    bench.log.configure(LogOptions(segment_bytes=segment_bytes))
    for number in range(3 * SCAN_BYTES // BATCH_BYTES):
        batch = write_batch([Record(0, 1000, None, bytes([number]) * BATCH_BYTES, ())])
        bench.log.append(batch, check_batches(batch), LeaderEpoch(0), Timestamp(1))
    bench.disk.fail(FailureRule("sync", path_ends=".log", times=100))
    with pytest.raises(DiskFailed):
        bench.log.close()
    for name in bench.files(".log"):
        with pytest.raises(DiskFailed):
            bench.disk.open(f"{bench.log.directory}/{name}").sync()
    bench.disk.heal()
    if checkpoint_lost:
        bench.flip("checkpoint", 20)

    bench.reopen(clean=False)
    promised = bench.log.synced
    expected = bench.everything()
    bench.disk = FailingDisk(bench.crashable.crash(Random(1)))
    report = bench.reopen(clean=False)

    assert promised == len(expected) == 3 * SCAN_BYTES // BATCH_BYTES
    assert (report.cut, report.corruption, bench.log.end) == (None, (), promised)
    assert bench.everything() == expected
