"""What compaction keeps, what it drops, and when it leaves a log alone."""

import errno
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest

from penstock.core.model import LeaderEpoch, Offset, StorageError, Timestamp
from penstock.core.records import (
    HEADER_BYTES,
    BatchHeader,
    ControlType,
    Record,
    check_batches,
    read_header,
    read_records,
    write_batch,
)
from penstock.core.records.record import assemble
from penstock.storage.disk import DiskFailed, DiskFull, FailureRule
from penstock.storage.log import (
    CleaningResult,
    Compaction,
    CompactionResult,
    CompactionRules,
    CorruptRange,
    LogOptions,
    Uncleanable,
    cleaner_for,
)
from tests.unit.storage.log.conftest import DIRECTORY, Bench

EAGER = CompactionRules(min_dirty_ratio=0.0)
Pair = tuple[bytes | None, bytes | None]


def put(bench: Bench, *pairs: Pair, at: int = 1000, **header: object) -> None:
    """A batch of keys with values, in a segment of its own."""
    records = [Record(0, at, key, value, ()) for key, value in pairs]
    batch = write_batch(records, **header)  # type: ignore[arg-type]
    bench.log.append(batch, check_batches(batch), LeaderEpoch(0), Timestamp(1))


def seal(bench: Bench) -> None:
    """Begin a new segment; everything so far is acknowledged and below a checkpoint."""
    bench.log.roll()
    bench.sync_now()
    bench.log.set_high_watermark(bench.log.synced)
    bench.checkpoint()


def begin(bench: Bench, rules: CompactionRules = EAGER, now: int = 2000) -> Compaction | None:
    return bench.log.begin_compaction(rules, Timestamp(now), "token")


def compact(bench: Bench, rules: CompactionRules = EAGER, now: int = 2000) -> CompactionResult | None:
    compaction = begin(bench, rules, now)
    if compaction is None:
        return None
    cleaned = cleaner_for(bench.crashable)(compaction.order)
    assert prepared(bench, compaction, cleaned) == [None]
    compacted = bench.log.finish_compaction(compaction, cleaned)
    bench.rounds.finish_all()
    return compacted


def prepared(bench: Bench, compaction: Compaction, cleaned: CleaningResult) -> list[StorageError | None]:
    """What a compaction reports that was prepared; all rounds have ended."""
    reported: list[StorageError | None] = []
    bench.log.prepare_compaction(compaction, cleaned, reported.append)
    bench.rounds.finish_all()
    return reported


def batches(bench: Bench) -> list[tuple[BatchHeader, list[Record]]]:
    found = []
    offset = int(bench.log.start)
    while offset < bench.log.end:
        content = memoryview(bench.log.read(Offset(offset), 1).to_bytes())
        (header,) = check_batches(content, compacted=True)
        found.append((header, list(read_records(content))))
        offset = header.next_offset
    return found


def rows(bench: Bench) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(one.offset, one.key, one.value) for _, records in batches(bench) for one in records]


def test_the_latest_record_of_every_key_stays_at_its_offset(bench: Bench) -> None:
    put(bench, (b"a", b"1"), (b"b", b"1"))
    put(bench, (b"a", b"2"))
    put(bench, (b"c", b"1"), (b"a", b"3"))
    seal(bench)
    put(bench, (b"c", b"2"))

    compacted = compact(bench)

    assert compacted == CompactionResult(Offset(5), 1, 5, 3, compacted.bytes_before, compacted.bytes_after)  # type: ignore[union-attr]
    assert rows(bench) == [(1, b"b", b"1"), (3, b"c", b"1"), (4, b"a", b"3"), (5, b"c", b"2")]
    assert bench.log.end == 6


def test_a_later_compaction_takes_what_an_earlier_one_left(bench: Bench) -> None:
    put(bench, (b"a", b"1"), (b"b", b"1"))
    seal(bench)
    compact(bench)
    put(bench, (b"a", b"2"))
    seal(bench)

    compacted = compact(bench)

    assert compacted is not None
    assert rows(bench) == [(1, b"b", b"1"), (2, b"a", b"2")]
    assert begin(bench) is None


def test_a_compacted_log_is_the_same_after_a_restart(bench: Bench) -> None:
    for number in range(12):
        put(bench, (b"k%d" % (number % 3), b"%d" % number), at=1000 + number)
    seal(bench)
    compact(bench)
    before = rows(bench)

    report = bench.reopen()

    assert rows(bench) == before == [(9, b"k0", b"9"), (10, b"k1", b"10"), (11, b"k2", b"11")]
    assert report.corruption == ()
    assert bench.log.offset_for_timestamp(Timestamp(1002)) == (9, 1009)
    assert begin(bench) is None  # it is remembered what was compacted


def test_a_compacted_log_without_its_checkpoint_is_read_again_and_nothing_is_cut(bench: Bench) -> None:
    for number in range(12):
        put(
            bench,
            (b"k%d" % (number % 3), b"%d" % number),
            producer_id=5,
            producer_epoch=0,
            base_sequence=number,
        )
        if number % 4 == 3:
            seal(bench)
    compact(bench)
    before = rows(bench)
    bench.log.close()
    bench.rounds.finish_all()
    bench.crashable.remove(f"{DIRECTORY}/checkpoint")
    bench.options = replace(bench.options, may_have_gaps=True)

    report = bench.reopen(clean=False)

    assert report.checkpoint_lost
    assert report.cut is None
    assert report.corruption == ()
    assert rows(bench) == before
    assert [producer.batches[-1].last_sequence for _, producer in bench.log.producers] == [11]


def test_a_tombstone_stays_until_its_time_has_come(bench: Bench) -> None:
    rules = EAGER._replace(delete_retention_ms=500)
    put(bench, (b"a", b"1"), (b"b", b"1"))
    put(bench, (b"a", None))
    seal(bench)

    compact(bench, rules, now=2000)
    horizons = [header.delete_horizon_ms for header, records in batches(bench) if records]
    put(bench, (b"c", b"1"))
    seal(bench)
    compact(bench, rules, now=2500)
    kept = rows(bench)
    put(bench, (b"c", b"2"))
    seal(bench)
    compact(bench, rules, now=2501)

    assert horizons == [None, 2500]
    assert kept == [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1")]
    assert rows(bench) == [(1, b"b", b"1"), (4, b"c", b"2")]


def test_timestamps_survive_the_horizon_that_takes_their_place(bench: Bench) -> None:
    put(bench, (b"a", None), (b"b", b"1"), at=1234)
    seal(bench)

    compact(bench)

    assert [one.timestamp for _, records in batches(bench) for one in records] == [1234, 1234]


def test_the_active_segment_is_left_alone(bench: Bench) -> None:
    put(bench, (b"a", b"1"))
    put(bench, (b"a", b"2"))
    bench.sync_now()
    bench.log.set_high_watermark(bench.log.synced)
    bench.checkpoint()

    assert begin(bench) is None


def test_nothing_above_the_high_watermark_is_touched(bench: Bench) -> None:
    put(bench, (b"a", b"1"))
    put(bench, (b"a", b"2"))
    bench.log.roll()
    bench.checkpoint()

    bench.log.set_high_watermark(Offset(1))
    early = begin(bench)
    bench.log.set_high_watermark(Offset(2))

    assert early is None
    assert begin(bench) is not None


def test_an_open_transaction_holds_compaction_back(bench: Bench) -> None:
    put(bench, (b"a", b"1"))
    put(bench, (b"a", b"2"), producer_id=3, producer_epoch=0, base_sequence=0, transactional=True)
    seal(bench)
    early = begin(bench)

    bench.end_transaction(3, ControlType.COMMIT)
    seal(bench)
    compact(bench)

    assert early is None
    values = [(header.is_control, len(records)) for header, records in batches(bench)]
    assert values == [(False, 1), (True, 1)]


def test_an_aborted_record_outdates_nothing_and_goes(bench: Bench) -> None:
    put(bench, (b"a", b"good"))
    put(bench, (b"a", b"bad"), producer_id=3, producer_epoch=0, base_sequence=0, transactional=True)
    bench.end_transaction(3, ControlType.ABORT)
    seal(bench)

    compact(bench)

    assert [row for row in rows(bench) if row[1] == b"a"] == [(0, b"a", b"good")]
    assert [one.first_offset for one in bench.log.aborted_between(Offset(0), Offset(3))] == [1]


def test_a_producers_last_batch_stays_without_its_records(bench: Bench) -> None:
    put(bench, (b"a", b"1"), producer_id=8, producer_epoch=0, base_sequence=0)
    put(bench, (b"a", b"2"), producer_id=8, producer_epoch=0, base_sequence=1)
    put(bench, (b"a", b"3"))
    seal(bench)

    compact(bench)

    shape = [(header.producer_id, header.base_sequence, len(records)) for header, records in batches(bench)]
    assert shape == [(8, 1, 0), (-1, -1, 1)]


def test_records_that_are_too_young_wait(bench: Bench) -> None:
    rules = EAGER._replace(min_lag_ms=100)
    put(bench, (b"a", b"1"), at=1000)
    put(bench, (b"a", b"2"), at=1050)
    seal(bench)

    assert begin(bench, rules, now=1149) is None
    assert begin(bench, rules, now=1150) is not None


def test_a_log_that_is_clean_enough_waits_but_not_longer_than_it_may(bench: Bench) -> None:
    rules = CompactionRules(min_dirty_ratio=0.5)
    put(bench, (b"a", b"1" * 300), at=1000)
    seal(bench)
    compact(bench)
    put(bench, (b"a", b"2"), at=1500)
    seal(bench)

    assert bench.log.dirty_ratio(rules, Timestamp(9999)) == 0
    assert begin(bench, rules, now=9999) is None
    assert begin(bench, rules._replace(max_lag_ms=600), now=2100) is None
    assert begin(bench, rules._replace(max_lag_ms=600), now=2101) is not None


def test_a_full_map_compacts_as_far_as_it_reaches(bench: Bench) -> None:
    for segment in range(3):
        for number in range(4):
            put(bench, (b"k%d" % number, b"%d" % segment))
        seal(bench)
    rules = EAGER._replace(keys_max=4)

    first = compact(bench, rules)
    second = compact(bench, rules)
    third = compact(bench, rules)

    ends = [compacted.end_offset for compacted in (first, second, third) if compacted is not None]
    assert ends == [4, 8, 12]
    assert rows(bench) == [(8 + number, b"k%d" % number, b"2") for number in range(4)]


def test_records_without_a_key_go(bench: Bench) -> None:
    put(bench, (None, b"x"), (b"a", b"1"))
    seal(bench)

    compact(bench)

    assert rows(bench) == [(1, b"a", b"1")]


def test_a_segment_in_which_nothing_changes_is_not_written_again(bench: Bench) -> None:
    put(bench, (b"a", b"1"))
    put(bench, (b"b", b"1"))
    seal(bench)
    before = bench.files()

    compacted = compact(bench)

    assert compacted is not None
    assert compacted.segments == 0
    assert [name for name in bench.files() if name not in before] == []


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_batches_stay_compressed(bench: Bench, codec: int) -> None:
    put(bench, (b"a", b"1" * 50), (b"b", b"1" * 50), codec=codec)
    put(bench, (b"a", b"2" * 50), codec=codec)
    seal(bench)

    compact(bench)

    assert [header.attributes & 7 for header, _ in batches(bench)] == [codec, codec]
    assert rows(bench) == [(1, b"b", b"1" * 50), (2, b"a", b"2" * 50)]


def too_small_to_share(bench: Bench) -> None:
    """Segments with room for two batches and not for four."""
    bench.options = LogOptions(segment_bytes=200)
    bench.reopen()


def small_segments(bench: Bench) -> None:
    for number in range(8):
        put(bench, (b"k%d" % (number % 5), b"%d" % number), at=1000 + number)
        if number % 2:
            seal(bench)


def test_small_neighbours_become_one_segment(bench: Bench) -> None:
    small_segments(bench)

    compacted = compact(bench)

    assert compacted is not None
    assert (compacted.end_offset, compacted.segments) == (8, 1)
    assert [segment.base_offset for segment in bench.log.segments()] == [0, 8]
    assert [name for name in bench.files() if name.endswith(".log")] == [f"{0:020d}.log", f"{8:020d}.log"]
    assert [offset for offset, _, _ in rows(bench)] == [3, 4, 5, 6, 7]
    assert bench.log.offset_for_timestamp(Timestamp(1006)) == (6, 1006)


def test_neighbours_that_became_one_are_so_after_a_restart(bench: Bench) -> None:
    small_segments(bench)
    compact(bench)
    before = rows(bench)

    report = bench.reopen()

    assert rows(bench) == before
    assert report.corruption == ()
    assert [segment.base_offset for segment in bench.log.segments()] == [0, 8]
    assert begin(bench) is None


def test_segments_that_are_too_large_for_one_stay_apart(bench: Bench) -> None:
    too_small_to_share(bench)
    small_segments(bench)

    compact(bench)

    assert [segment.base_offset for segment in bench.log.segments()] == [0, 2, 4, 6, 8]


def test_segments_with_aborted_transactions_are_put_together_and_so_are_their_lists(bench: Bench) -> None:
    put(bench, (b"a", b"1"))
    seal(bench)
    for producer in (5, 6):
        put(bench, (b"a", b"2"), producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)
        bench.end_transaction(producer, ControlType.ABORT)
        seal(bench)

    compact(bench)

    assert [segment.base_offset for segment in bench.log.segments()] == [0, 5]
    for _ in range(2):
        aborted = bench.log.aborted_between(Offset(0), bench.log.end)
        assert [(one.producer_id, one.last_offset) for one in aborted] == [(5, 2), (6, 4)]
        bench.reopen()


RETENTION_MS = 1_000
BRIEF = CompactionRules(min_dirty_ratio=0.0, delete_retention_ms=RETENTION_MS)


def transaction(bench: Bench, ending: ControlType, producer: int = 5) -> None:
    """A transaction over two segments; what it wrote is outdated by what comes next."""
    put(bench, (b"a", b"1"), producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)
    seal(bench)
    bench.end_transaction(producer, ending)
    put(bench, (b"a", b"2"))
    seal(bench)


def forget_producers(bench: Bench) -> None:
    """They were silent for long enough: nothing has to be found again for them."""
    bench.log.producers.expire(Timestamp(2**62))


def markers(bench: Bench) -> list[int]:
    return [header.base_offset for header, _ in batches(bench) if header.is_control]


@pytest.mark.parametrize("ending", list(ControlType))
def test_a_marker_stays_until_its_transaction_is_gone_and_for_as_long_as_a_tombstone(
    bench: Bench, ending: ControlType
) -> None:
    transaction(bench, ending)
    forget_producers(bench)

    compact(bench, BRIEF, now=2_000)
    with_records = markers(bench)
    put(bench, (b"b", b"1"))
    seal(bench)
    compact(bench, BRIEF, now=3_000)
    alone = markers(bench)
    put(bench, (b"c", b"1"))
    seal(bench)
    compact(bench, BRIEF, now=3_999)
    in_time = markers(bench)
    compact(bench, BRIEF, now=4_001)

    assert with_records == alone == in_time == [1]
    assert markers(bench) == []
    assert bench.log.aborted_between(Offset(0), bench.log.end) == []
    assert rows(bench) == [(2, b"a", b"2"), (3, b"b", b"1"), (4, b"c", b"1")]


@pytest.mark.parametrize("ending", list(ControlType))
def test_a_transaction_whose_marker_went_is_not_open_in_a_log_that_is_rebuilt(
    bench: Bench, ending: ControlType
) -> None:
    bench.log.configure(replace(bench.options, segment_bytes=200))
    transaction(bench, ending)
    put(bench, (b"c", b"v" * 200))
    forget_producers(bench)
    for now in (2_000, 4_000, 6_000):
        put(bench, (b"b", b"v" * 200))
        seal(bench)
        compact(bench, BRIEF, now=now)
    assert markers(bench) == []
    assert bench.segment_bases()[:2] == [0, 1]

    # Rebuilt from the snapshot of a segment that began while the transaction was open.
    bench.log.truncate_to(Offset(2))

    assert bench.log.producers.transactions.ongoing() == []


def test_the_last_marker_of_a_producer_stays_for_its_epoch(bench: Bench) -> None:
    for sequence in range(2):
        put(bench, (b"a", b"1"), producer_id=5, producer_epoch=0, base_sequence=sequence, transactional=True)
        bench.end_transaction(5, ControlType.COMMIT)
    for now in (2_000, 4_000, 6_000):
        put(bench, (b"a", b"2"))
        seal(bench)
        compact(bench, BRIEF, now=now)

    # The last batch of the producer stays as well, without its record, for its sequence.
    assert [(header.base_offset, header.is_control) for header, _ in batches(bench)][:2] == [
        (2, False),
        (3, True),
    ]


def test_a_range_of_a_segment_that_was_absorbed_can_still_be_read(bench: Bench) -> None:
    small_segments(bench)
    lent = bench.log.read(Offset(4), 10_000)
    before = lent.to_bytes()

    compact(bench)

    assert lent.to_bytes() == before


def test_tombstones_whose_time_is_over_go_although_nothing_new_has_come(bench: Bench) -> None:
    rules = EAGER._replace(min_dirty_ratio=0.5, delete_retention_ms=1_000)
    put(bench, (b"a", b"1"), (b"b", b"1"))
    put(bench, (b"a", None))
    seal(bench)
    compact(bench, rules, now=2_000)

    early = bench.log.dirty_ratio(rules, Timestamp(3_000))
    late = bench.log.dirty_ratio(rules, Timestamp(3_001))
    compacted = compact(bench, rules, now=3_001)

    assert early == 0
    assert 0 < late < 0.01
    assert compacted is not None
    assert rows(bench) == [(1, b"b", b"1")]
    assert bench.log.dirty_ratio(rules, Timestamp(9_999_999)) == 0


def test_tombstones_from_before_a_restart_get_their_time_once_more(bench: Bench) -> None:
    rules = EAGER._replace(min_dirty_ratio=0.5, delete_retention_ms=1_000)
    put(bench, (b"a", b"1"), (b"b", b"1"))
    put(bench, (b"a", None))
    seal(bench)
    compact(bench, rules, now=2_000)
    bench.reopen()

    early = [bench.log.dirty_ratio(rules, Timestamp(now)) for now in (5_000, 6_000)]
    compacted = compact(bench, rules, now=6_001)

    assert early == [0, 0]
    assert compacted is not None
    assert rows(bench) == [(1, b"b", b"1")]


def test_a_range_that_was_lent_out_keeps_its_old_bytes(bench: Bench) -> None:
    put(bench, (b"a", b"1"))
    put(bench, (b"a", b"2"))
    seal(bench)
    lent = bench.log.read(Offset(0), 10_000)
    before = lent.to_bytes()

    compact(bench)

    assert lent.to_bytes() == before
    assert len(bench.log.read(Offset(0), 10_000).to_bytes()) < len(before)


def test_a_consumer_is_not_shown_empty_batches_alone(bench: Bench) -> None:
    too_small_to_share(bench)
    for number in range(8):
        put(bench, (b"a", b"%d" % number))
        if number % 2:
            seal(bench)
    compact(bench)

    replica = check_batches(bench.log.read(Offset(0), 10_000).to_bytes(), compacted=True)
    consumer = check_batches(bench.log.read_filled(Offset(0), 10_000).to_bytes(), compacted=True)
    early = check_batches(bench.log.read_filled(Offset(0), 1, end=Offset(6)).to_bytes(), compacted=True)

    assert [(header.base_offset, header.record_count) for header in replica] == [(1, 0)]
    assert [(header.base_offset, header.record_count) for header in consumer] == [(7, 1)]
    # Where there is nothing else, they show how far a consumer has come.
    assert [(header.base_offset, header.record_count) for header in early] == [(1, 0)]


def started(bench: Bench) -> Compaction:
    for number in range(8):
        put(bench, (b"a", b"%d" % number))
        if number % 2:
            seal(bench)
    compaction = begin(bench)
    assert compaction is not None
    return compaction


def test_what_retention_took_meanwhile_does_not_come_back(bench: Bench) -> None:
    compaction = started(bench)
    cleaned = cleaner_for(bench.crashable)(compaction.order)
    bench.log.delete_records(Offset(4))

    compacted = bench.log.finish_compaction(compaction, cleaned)

    assert compacted is None
    assert bench.files(".cleaned") == []
    assert [row[0] for row in rows(bench)] == [4, 5, 6, 7]


def test_what_was_cut_off_meanwhile_does_not_come_back(bench: Bench) -> None:
    compaction = started(bench)
    cleaned = cleaner_for(bench.crashable)(compaction.order)
    bench.log.truncate_to(Offset(7))

    assert bench.log.finish_compaction(compaction, cleaned) is None
    assert [row[0] for row in rows(bench)] == [0, 1, 2, 3, 4, 5, 6]


def test_a_damaged_segment_is_not_compacted(bench: Bench) -> None:
    compaction = started(bench)
    bench.flip("00000000000000000002.log", 70)

    with pytest.raises(Uncleanable):
        cleaner_for(bench.crashable)(compaction.order)

    assert bench.files(".cleaned") == []


def test_a_full_disk_leaves_the_log_as_it_was(bench: Bench) -> None:
    compaction = started(bench)
    cleaned = cleaner_for(bench.crashable)(compaction.order)
    bench.disk.fail(FailureRule("append", errno.ENOSPC, "checkpoint.tmp"))

    with pytest.raises(DiskFull):
        bench.log.finish_compaction(compaction, cleaned)

    assert bench.log.stopped is None
    assert bench.files(".cleaned") == []
    assert len(rows(bench)) == 8


@pytest.mark.parametrize("operation", ["rename", "sync_directory"])
@pytest.mark.parametrize("after", range(3))
def test_a_disk_that_fails_in_a_swap_stops_the_log_and_a_start_finds_it_whole(
    bench: Bench, operation: str, after: int
) -> None:
    compaction = started(bench)
    cleaned = cleaner_for(bench.crashable)(compaction.order)
    bench.disk.fail(FailureRule(operation, errno.EIO, after=after))

    with pytest.raises(DiskFailed):
        bench.log.finish_compaction(compaction, cleaned)
    was_stopped = bench.log.stopped is not None
    report = bench.reopen(clean=False)

    assert was_stopped
    assert report.corruption == ()
    assert bench.files(".cleaned") == []
    assert rows(bench)[-1] == (7, b"a", b"7")


class BlockingSyncs:
    """The syncs that this disk has been asked for since: all of them block whoever asks."""

    def __init__(self, bench: Bench) -> None:
        self.seen: list[str] = []
        for operation in ("sync", "sync_directory"):
            note = partial(self.seen.append, operation)
            bench.disk.fail(FailureRule(operation, 0, times=1_000_000, wait=note))


def leftovers(bench: Bench) -> list[str]:
    """What a compaction that came to nothing has left."""
    return bench.files(".cleaned") + bench.files(".tmp")


def test_preparing_a_compaction_waits_for_no_sync_and_putting_it_in_place_for_one(bench: Bench) -> None:
    compaction = started(bench)
    bench.log.begin_epoch(LeaderEpoch(3))
    cleaned = cleaner_for(bench.crashable)(compaction.order)
    syncs = BlockingSyncs(bench)
    reported: list[StorageError | None] = []

    bench.log.prepare_compaction(compaction, cleaned, reported.append)
    in_preparation = list(syncs.seen)
    bench.rounds.finish_all()
    syncs.seen.clear()
    compacted = bench.log.finish_compaction(compaction, cleaned)
    in_place = list(syncs.seen)
    bench.rounds.finish_all()

    assert (in_preparation, reported, in_place) == ([], [None], ["sync_directory"])
    assert compacted is not None
    assert [row[0] for row in rows(bench)] == [7]
    assert leftovers(bench) == []
    assert bench.reopen(clean=False).corruption == ()


def test_no_file_gets_a_name_that_a_start_looks_for_before_the_last_checkpoint_is_durable(
    bench: Bench,
) -> None:
    too_small_to_share(bench)
    compaction = started(bench)
    # It names files that were to be swapped, and the checkpoint behind it is not durable.
    prepared(bench, compaction, cleaned := cleaner_for(bench.crashable)(compaction.order))
    assert bench.log.finish_compaction(compaction, cleaned) is not None
    bench.rounds.finish_all()
    put(bench, (b"a", b"8"))
    seal(bench)
    again = begin(bench)
    assert again is not None
    cleaned = cleaner_for(bench.crashable)(again.order)

    bench.log.prepare_compaction(again, cleaned, lambda _: None)
    before = [name for name in bench.files(".cleaned") if "token" not in name]
    bench.rounds.finish()
    behind = [name for name in bench.files(".cleaned") if "token" not in name]

    assert before == []
    assert behind != []


def test_nothing_of_a_compaction_counts_before_it_is_put_in_place(bench: Bench) -> None:
    compaction = started(bench)
    cleaned = cleaner_for(bench.crashable)(compaction.order)

    assert prepared(bench, compaction, cleaned) == [None]
    seen = len(rows(bench))
    report = bench.reopen(clean=False)

    assert seen == 8
    assert (report.corruption, len(rows(bench)), leftovers(bench)) == ((), 8, [])


def test_a_checkpoint_that_comes_while_a_compaction_is_prepared_is_not_taken_back(bench: Bench) -> None:
    compaction = started(bench)
    cleaned = cleaner_for(bench.crashable)(compaction.order)
    reported: list[StorageError | None] = []
    bench.log.prepare_compaction(compaction, cleaned, reported.append)
    put(bench, (b"b", b"later"))
    bench.log.checkpoint()
    while not reported:
        bench.rounds.finish()
    syncs = BlockingSyncs(bench)

    assert reported == [None]
    assert bench.log.finish_compaction(compaction, cleaned) is not None
    # What was prepared was written again meanwhile, or the checkpoint that was on its way comes to nothing.
    assert syncs.seen == ["sync_directory"]
    put(bench, (b"b", b"last"))
    bench.sync_now()
    report = bench.reopen(clean=False)

    assert report.corruption == ()
    assert rows(bench) == [(7, b"a", b"7"), (8, b"b", b"later"), (9, b"b", b"last")]
    assert leftovers(bench) == []


def test_a_checkpoint_between_preparation_and_the_end_of_a_compaction_is_not_taken_back(
    bench: Bench,
) -> None:
    compaction = started(bench)
    cleaned = cleaner_for(bench.crashable)(compaction.order)
    prepared(bench, compaction, cleaned)
    put(bench, (b"b", b"later"))
    bench.checkpoint()

    assert bench.log.finish_compaction(compaction, cleaned) is not None
    report = bench.reopen(clean=False)

    assert report.recovery_point == 9
    assert rows(bench) == [(7, b"a", b"7"), (8, b"b", b"later")]
    assert leftovers(bench) == []


@pytest.mark.parametrize("is_synced_before", [True, False])
@pytest.mark.parametrize("change", ["delete", "cut", "cut fully", "damage"])
def test_a_log_that_changes_while_a_compaction_is_prepared_stays_as_it_is_then(
    bench: Bench, change: str, *, is_synced_before: bool
) -> None:
    compaction = started(bench)
    cleaned = cleaner_for(bench.crashable)(compaction.order)
    reported: list[StorageError | None] = []
    bench.log.prepare_compaction(compaction, cleaned, reported.append)
    if is_synced_before:
        bench.rounds.finish_all()
    match change:
        case "delete":
            bench.log.delete_records(Offset(4))
        case "cut":
            bench.log.truncate_to(Offset(5))
        case "cut fully":
            bench.log.truncate_fully(Offset(20))
        case _:
            segment = bench.log._state.segments[1]
            bench.log._state.add_damage(
                segment, CorruptRange(Offset(2), Offset(2), Offset(4), "rotten", 0, 100)
            )
    bench.rounds.finish_all()

    assert reported == [None]
    assert bench.log.finish_compaction(compaction, cleaned) is None
    assert leftovers(bench) == []
    assert bench.log.stopped is None
    assert bench.reopen(clean=False).corruption == ()
    left = {"delete": [4, 5, 6, 7], "cut": [0, 1, 2, 3, 4], "cut fully": []}
    assert [row[0] for row in rows(bench)] == left.get(change, list(range(8)))


@pytest.mark.parametrize("is_removed", [True, False])
def test_a_log_that_is_closed_while_a_compaction_is_prepared_is_left_alone(
    bench: Bench, *, is_removed: bool
) -> None:
    compaction = started(bench)
    cleaned = cleaner_for(bench.crashable)(compaction.order)
    reported: list[StorageError | None] = []
    bench.log.prepare_compaction(compaction, cleaned, reported.append)
    if is_removed:
        bench.log.abandon()
    else:
        bench.log.close()
    rounds = bench.rounds
    bench.reopen(clean=False)
    again = begin(bench)
    assert again is not None
    bench.log.prepare_compaction(again, cleaner_for(bench.crashable)(again.order), lambda _: None)
    before = bench.files()

    rounds.finish_all()

    assert reported == [None]
    assert compaction.finish(cleaned) is None
    # Another life of the log uses the same names.
    assert [name for name in bench.files() if "token" not in name] == [
        name for name in before if "token" not in name
    ]


@pytest.mark.parametrize(
    "rule",
    [
        FailureRule("rename", errno.EIO, ".cleaned", after=2),
        FailureRule("rename", errno.EIO, "token.cleaned", after=2),
        FailureRule("open", errno.EIO, ".tmp"),
        FailureRule("append", errno.ENOSPC, ".tmp"),
    ],
)
def test_a_compaction_that_cannot_be_prepared_leaves_the_log_as_it_was(
    bench: Bench, rule: FailureRule
) -> None:
    compaction = started(bench)
    cleaned = cleaner_for(bench.crashable)(compaction.order)
    bench.disk.fail(rule)

    (error,) = prepared(bench, compaction, cleaned)
    compaction.cancel()

    assert isinstance(error, DiskFailed)
    assert bench.log.stopped is None
    assert leftovers(bench) == []
    assert len(rows(bench)) == 8
    assert compact(bench) is not None
    assert len(rows(bench)) == 1


def test_a_sync_that_fails_while_a_compaction_is_prepared_stops_the_log(bench: Bench) -> None:
    compaction = started(bench)
    cleaned = cleaner_for(bench.crashable)(compaction.order)
    reported: list[StorageError | None] = []
    bench.log.prepare_compaction(compaction, cleaned, reported.append)

    while bench.rounds.waiting:
        bench.rounds.finish(OSError(errno.EIO, "broken"))
    compaction.cancel()

    assert [error is not None for error in reported] == [True]
    assert bench.log.stopped is not None
    assert bench.reopen(clean=False).corruption == ()
    assert len(rows(bench)) == 8
    assert leftovers(bench) == []


@pytest.mark.parametrize(
    "rule",
    [
        FailureRule("rename", errno.EIO, "checkpoint.token.tmp"),
        FailureRule("rename", errno.EIO, ".cleaned"),
        FailureRule("sync_directory", errno.EIO),
        FailureRule("sync_directory", errno.ENOSPC),
    ],
)
def test_a_disk_that_fails_when_a_prepared_compaction_is_put_in_place_stops_the_log(
    bench: Bench, rule: FailureRule
) -> None:
    compaction = started(bench)
    cleaned = cleaner_for(bench.crashable)(compaction.order)
    prepared(bench, compaction, cleaned)
    bench.disk.fail(rule)

    with pytest.raises(DiskFailed):
        bench.log.finish_compaction(compaction, cleaned)
    was_stopped = bench.log.stopped is not None
    report = bench.reopen(clean=False)

    assert was_stopped
    assert (report.corruption, leftovers(bench)) == ((), [])
    assert rows(bench)[-1] == (7, b"a", b"7")


def test_the_last_names_of_a_compaction_that_cannot_be_synced_stop_the_log_before_a_checkpoint(
    bench: Bench,
) -> None:
    compaction = started(bench)
    cleaned = cleaner_for(bench.crashable)(compaction.order)
    prepared(bench, compaction, cleaned)
    assert bench.log.finish_compaction(compaction, cleaned) is not None
    checkpoint = bench.crashable.read(f"{DIRECTORY}/checkpoint")

    while bench.rounds.waiting:
        bench.rounds.finish(OSError(errno.EIO, "broken"))

    assert bench.log.stopped is not None
    assert bench.crashable.read(f"{DIRECTORY}/checkpoint") == checkpoint


def sizes(bench: Bench) -> Sequence[int]:
    return [segment.size_bytes for segment in bench.log.segments()]


def test_a_scrub_finds_nothing_wrong_with_a_compacted_log(bench: Bench) -> None:
    compaction = started(bench)
    before = sizes(bench)
    bench.log.finish_compaction(compaction, cleaner_for(bench.crashable)(compaction.order))

    assert [step.damage for step in bench.log.scrub() if step.damage is not None] == []
    assert sum(sizes(bench)) < sum(before)


def put_unreadable(bench: Bench, *pairs: Pair) -> bytes:
    """A batch whose CRC is right and whose last record is not there."""
    records = [Record(0, 1000, key, value, ()) for key, value in pairs]
    header = read_header(write_batch(records))
    batch = assemble(header, bytes(write_batch(records[:-1])[HEADER_BYTES:]))
    bench.log.append(batch, check_batches(batch), LeaderEpoch(0), Timestamp(1))
    return bytes(batch[HEADER_BYTES:])


def test_a_batch_that_cannot_be_decoded_stays_and_outdates_nothing(bench: Bench) -> None:
    put(bench, (b"a", b"1"), (b"b", b"1"))
    payload = put_unreadable(bench, (b"a", b"2"), (b"c", b"1"))
    put(bench, (b"b", b"2"))
    seal(bench)

    compaction = begin(bench)
    assert compaction is not None
    cleaned = cleaner_for(bench.crashable)(compaction.order)
    bench.log.finish_compaction(compaction, cleaned)
    bench.rounds.finish_all()

    content = memoryview(bench.log.read(Offset(0), 1 << 20).to_bytes())
    kept, bad, last = check_batches(content, compacted=True)
    assert [one.value for one in read_records(content)] == [b"1"]
    assert (kept.record_count, bad.base_offset, last.base_offset) == (1, 2, 4)
    assert payload in bytes(content)
    assert (cleaned.unreadable, cleaned.first_unreadable) == (1, (2, "record 1: the records end early"))
    assert begin(bench) is None
