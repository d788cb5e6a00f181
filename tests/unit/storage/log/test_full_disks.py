"""On a full disk a log can still be read, opened and made smaller."""

import errno
from random import Random
from typing import TYPE_CHECKING

import pytest

from penstock.core.model import Offset, Timestamp
from penstock.storage.disk import DiskFull, FailingDisk, FailureRule
from penstock.storage.disk.port import DiskSpace

if TYPE_CHECKING:
    from tests.unit.storage.log.conftest import Bench

FOR_EVER = 1_000


def test_deleting_records_makes_the_room_that_it_needs(bench: "Bench") -> None:
    bench.fill(60)
    bench.checkpoint()
    middle = bench.segment_bases()[3]
    bench.disk.fail(FailureRule("append", errno.ENOSPC, path_ends="checkpoint.tmp"))

    bench.log.delete_records(Offset(middle))
    bench.disk.heal()
    bench.reopen(clean=False)

    assert (bench.log.start, bench.segment_bases()[0]) == (middle, middle)
    assert bench.report.corruption == ()


def test_what_has_expired_goes_before_anything_new_is_made(bench: "Bench") -> None:
    bench.fill(60)
    bench.checkpoint()
    bench.log.set_high_watermark(bench.log.end)
    last = bench.segment_bases()[-1]
    bench.disk.fail(FailureRule("open", errno.ENOSPC, path_ends=f"{bench.log.end:020}.log"))

    with pytest.raises(DiskFull):
        bench.log.expire(Timestamp(10**12))

    assert bench.segment_bases() == [last]


def test_a_deletion_that_finds_no_room_at_all_leaves_every_record_readable(bench: "Bench") -> None:
    bench.fill(60)
    bench.checkpoint()
    before = bench.everything()
    bench.disk.fail(FailureRule("append", errno.ENOSPC, path_ends="checkpoint.tmp", times=FOR_EVER))

    with pytest.raises(DiskFull):
        bench.log.delete_records(Offset(bench.segment_bases()[3]))

    assert (bench.log.start, bench.log.stopped) == (0, None)
    assert bench.everything() == before

    bench.disk = FailingDisk(bench.crashable.crash(Random(1)))
    report = bench.reopen(clean=False)

    assert (report.corruption, bench.log.start, bench.everything()) == ((), 0, before)


@pytest.mark.parametrize("path_ends", ["checkpoint.tmp", "index"])
def test_a_log_can_be_opened_and_its_tail_counts_as_durable(bench: "Bench", path_ends: str) -> None:
    bench.fill(3)
    bench.checkpoint()
    bench.fill(2)
    expected = bench.everything()
    bench.disk.fail(FailureRule("append", errno.ENOSPC, path_ends=path_ends, times=FOR_EVER))

    bench.reopen(clean=False)

    assert (bench.log.synced, bench.log.stopped) == (bench.log.end, None)

    bench.disk = FailingDisk(bench.crashable.crash(Random(1)))
    bench.reopen(clean=False)

    assert bench.everything() == expected


@pytest.mark.parametrize("offset", [30, 90], ids=["in the middle", "behind a gap"])
def test_a_cut_without_room_changes_nothing_and_may_be_asked_for_again(
    bench: "Bench", offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.fill(60)
    before = bench.everything()
    monkeypatch.setattr(FailingDisk, "space", lambda _: DiskSpace(1_000, 1 << 30))

    def cut() -> None:
        if offset < bench.log.end:
            bench.log.truncate_to(Offset(offset))
        else:
            bench.log.truncate_fully(Offset(offset))

    with pytest.raises(DiskFull):
        cut()

    assert bench.log.stopped is None
    assert bench.everything() == before
    monkeypatch.undo()
    cut()
    assert bench.log.end == offset
