"""A tail with damage in the middle: what the journal has is mended, what it lacks is named."""

import pytest

from penstock.core.model import LeaderEpoch, Offset, Timestamp
from penstock.core.records import (
    ControlRecord,
    ControlType,
    Record,
    check_batches,
    write_batch,
    write_control_batch,
)
from penstock.storage.log import GoodBytes, LogOptions
from tests.unit.storage.journal.conftest import OPTIONS, JournalBench
from tests.unit.storage.journal.test_damage import SEGMENT, holes

ONE_SEGMENT = LogOptions(segment_bytes=100_000, index_interval_bytes=150)


def written(*sizes: int, options: LogOptions = ONE_SEGMENT) -> tuple[JournalBench, list[bytes]]:
    """A log of batches of these sizes, all durable; those of more than 900 bytes are not in the journal."""
    bench = JournalBench(options=options)
    for size in sizes:
        bench.write(0, size=size)
    content = bench.content(0)
    batches, position = [], 0
    for header in check_batches(content):
        batches.append(content[position : position + header.size_bytes])
        position += header.size_bytes
    bench.crashable = bench.crashable.copy()
    return bench, batches


def readable(bench: JournalBench) -> dict[int, bytes]:
    """Every batch of the first log that can be read, by its offset."""
    log, lost = bench.logs[0], [offset for hole in holes(bench) for offset in range(*hole)]
    found = {}
    for offset in range(log.start, log.end):
        if offset not in lost:
            found[offset] = log.read(type(log.end)(offset), 1).to_bytes()
    return found


def test_large_batches_behind_a_damaged_small_one_stay() -> None:
    for byte in range(89, 176, 5):
        bench, batches = written(20, 20, 2000, 2000, 20)
        bench.crashable.flip_bit(SEGMENT, 8 * byte)

        bench.restart(power_cut=False)

        assert bench.content(0) == b"".join(batches), f"byte {byte}"
        assert not bench.reports[0].corruption
        assert bench.reports[0].lost is None


@pytest.mark.parametrize("byte", range(2, 2050, 93))
def test_a_damaged_large_batch_costs_nothing_but_itself(byte: int) -> None:
    bench, batches = written(20, 20, 2000, 20, 2000, 20)
    bench.crashable.flip_bit(SEGMENT, 8 * (len(batches[0]) + len(batches[1]) + byte))

    for _ in range(3):
        bench.restart(power_cut=False)
        assert holes(bench) == [(2, 3)]
        assert readable(bench) == {n: batch for n, batch in enumerate(batches) if n != 2}
        assert bench.reports[0].lost is None

    bench.write(0)
    assert bench.ends() == [7, 0]
    bench.restart()
    assert holes(bench) == [(2, 3)]
    assert bench.ends() == [7, 0]


def test_small_batches_between_damaged_large_ones_are_found_by_the_batch_behind_them() -> None:
    bench, batches = written(20, 2000, 20, 20, 2000, 20)
    first = len(batches[0]) + 70
    # The lengths of both, so that nothing leads from one to the other.
    bench.crashable.flip_bit(SEGMENT, 8 * len(batches[0]) + 64 + 8)
    bench.crashable.flip_bit(SEGMENT, 8 * (first + len(batches[1])))

    bench.restart(power_cut=False)

    assert holes(bench) == [(1, 2)]
    assert readable(bench) == {n: batch for n, batch in enumerate(batches) if n != 1}


def test_a_missing_segment_between_others_is_taken_from_the_journal() -> None:
    bench, batches = written(*[20] * 30, options=OPTIONS)
    bases = [segment.base_offset for segment in bench.logs[0].segments()]
    assert len(bases) > 2
    bench.crashable.remove(f"logs/orders/0/{bases[1]:020d}.log")

    bench.restart(power_cut=False)

    assert bench.content(0) == b"".join(batches)
    assert not bench.reports[0].corruption


def test_of_a_missing_segment_nothing_is_lost_but_what_the_journal_does_not_have() -> None:
    bench, batches = written(20, 2000, 20, 2000, 20, options=OPTIONS)
    bases = [int(segment.base_offset) for segment in bench.logs[0].segments()]
    assert bases == [0, 1, 2, 3, 4]
    bench.crashable.remove(f"logs/orders/0/{1:020d}.log")
    bench.crashable.cut_short(f"logs/orders/0/{2:020d}.log", 30)

    bench.restart(power_cut=False)

    assert holes(bench) == [(1, 2)]
    assert readable(bench) == {n: batch for n, batch in enumerate(batches) if n != 1}


def test_a_checkpointed_segment_that_is_gone_does_not_stop_the_log() -> None:
    bench, _ = written(20, 20, 20)
    bench.restart(power_cut=False)
    bench.logs[0].checkpoint()
    bench.rounds.finish_all()
    bench.write(0)
    bench.crashable = bench.crashable.copy()
    bench.crashable.remove(SEGMENT)

    bench.restart(power_cut=False)

    assert holes(bench) == [(0, 3)]
    assert bench.logs[0].stopped is None
    bench.write(0)
    assert bench.ends() == [5, 0]
    bench.restart()
    assert holes(bench) == [(0, 3)]
    assert bench.ends() == [5, 0]


def test_a_damaged_write_that_was_never_durable_is_cut() -> None:
    bench, batches = written(20, 20)
    bench.restart(power_cut=False)
    bench.append(0, size=2000)
    bench.append(0, size=20)
    bench.crashable = bench.crashable.copy()
    bench.crashable.flip_bit(SEGMENT, 8 * (len(batches[0]) + len(batches[1]) + 100))

    bench.restart(power_cut=False)

    assert bench.ends() == [2, 0]
    assert not bench.reports[0].corruption
    assert bench.reports[0].lost is None


@pytest.mark.parametrize("victim", [1, 2, 3])
def test_a_leader_epoch_that_nobody_had_is_damage(victim: int) -> None:
    """It stands outside of the CRC, and whoever has the latest epoch is elected."""
    bench, batches = written(20, 2000, 2000, 2000)
    start = sum(map(len, batches[:victim]))
    bench.crashable.flip_bit(SEGMENT, 8 * (start + 14) + 3)

    bench.restart(power_cut=False)

    assert bench.logs[0].epochs.latest == 0
    if victim < 3:
        assert holes(bench) == [(victim, victim + 1)]
    else:
        assert bench.reports[0].lost is not None
        assert (bench.reports[0].lost.start, bench.reports[0].lost.end) == (3, 4)


def test_transactions_in_a_damaged_tail_are_known_again_once_it_is_refilled() -> None:
    bench = JournalBench(options=ONE_SEGMENT)
    for producer, sequence, size in ((1, 0, 20), (2, 0, 2000), (1, 1, 20)):
        batch = write_batch(
            [Record(0, 1000, None, b"v" * size, ())],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
        bench.logs[0].append(batch, check_batches(batch), LeaderEpoch(0), Timestamp(1))
        bench.commit_all(0)
    for producer in (1, 2):
        marker = write_control_batch(ControlRecord(0, 1000, ControlType.ABORT, producer, 0, 1))
        bench.logs[0].append(marker, check_batches(marker), LeaderEpoch(0), Timestamp(1))
        bench.commit_all(0)
    whole, content = bench.logs[0], bench.content(0)
    aborted = whole.aborted_between(Offset(0), whole.end)
    assert [row.producer_id for row in aborted] == [1, 2]
    bench.crashable = bench.crashable.copy()
    bench.crashable.flip_bit(SEGMENT, 8 * (check_batches(content)[0].size_bytes + 70))
    bench.restart(power_cut=False)
    log = bench.logs[0]
    assert holes(bench) == [(1, 2)]
    assert log.is_unsure

    draft = log.begin_refill("refill", may_have_gaps=False)
    assert draft is not None
    while (part := draft.next) is not None:
        if isinstance(part, GoodBytes):
            draft.copy(bench.disk)
        else:
            draft.add(bench.disk, whole.read(part.start, 1, end=part.end).to_bytes())
    draft.seal(bench.disk)
    assert log.finish_refill(draft)
    bench.rounds.finish_all()
    rebuild = log.begin_producer_rebuild("rebuild")
    assert rebuild is not None
    while not rebuild.is_done:
        rebuild.work(bench.disk)
    assert rebuild.finish()

    assert bench.content(0) == content
    assert log.aborted_between(Offset(0), log.end) == aborted
    bench.restart()
    assert bench.logs[0].aborted_between(Offset(0), whole.end) == aborted
    assert not bench.logs[0].is_unsure
