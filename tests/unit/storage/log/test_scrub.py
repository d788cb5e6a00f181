"""What is verified, which ranges are damaged, and what stays readable around them."""

import errno
from typing import TYPE_CHECKING

import pytest

from penstock.core.model import LeaderEpoch, Offset, Timestamp
from penstock.core.records import Record, check_batches, write_batch
from penstock.storage.disk import FailureRule
from penstock.storage.log import (
    CorruptRange,
    DamagedRange,
    FileRange,
    SuspectSegment,
    Verification,
    VerificationOutcome,
)

if TYPE_CHECKING:
    from tests.unit.storage.log.conftest import Bench

FIRST = "00000000000000000000"


def sealed(bench: "Bench", batches: int = 8) -> int:
    """A full segment of equal batches of two records, and a growing one; returns the size of a batch."""
    bench.fill(batches)
    bench.log.roll()
    bench.fill(2)
    bench.sync_now()
    return bench.headers()[0].size_bytes


def piece_at(bench: "Bench", offset: int, max_bytes: int = 1) -> FileRange:
    return bench.log.read(Offset(offset), max_bytes).ranges[0]


def verify(bench: "Bench", piece: FileRange) -> tuple[CorruptRange, ...]:
    """Verify a range as the broker does; returns the damage that was found."""
    outcome: Verification | VerificationOutcome | None = bench.log.verification(piece)
    assert outcome is not None
    while isinstance(outcome, Verification):
        outcome = outcome.finish(outcome.work())
    return outcome.damage


def damaged(bench: "Bench") -> list[tuple[int, int]]:
    return [(damage.start, damage.end) for damage in bench.log.corruption]


def readable(bench: "Bench") -> list[int]:
    """The base offsets of all batches that can be read, one read at each offset."""
    found: list[int] = []
    for offset in range(bench.log.start, bench.log.end):
        try:
            found += [base for base in bench.bases(offset, 1) if base not in found]
        except DamagedRange:
            continue
    return found


@pytest.mark.parametrize(
    "byte",
    [7, 3, 10, 15, 16, 25, 65],
    ids=["offset", "far offset", "length", "epoch", "magic", "last", "record"],
)
@pytest.mark.parametrize("number", [0, 3, 7])
def test_one_bad_batch_hides_nothing_but_itself(bench: "Bench", byte: int, number: int) -> None:
    size = sealed(bench)
    bench.flip(f"{FIRST}.log", number * size + byte)

    for _ in bench.log.scrub():
        pass

    assert damaged(bench) == [(2 * number, 2 * number + 2)]
    assert readable(bench) == [base for base in range(0, 20, 2) if base != 2 * number]


def test_bad_batches_side_by_side_are_one_range_and_others_their_own(bench: "Bench") -> None:
    size = sealed(bench)
    for number in (1, 2, 5):
        bench.flip(f"{FIRST}.log", number * size + 65)

    for _ in bench.log.scrub():
        pass

    assert damaged(bench) == [(2, 6), (10, 12)]
    assert readable(bench) == [0, 6, 8, 12, 14, 16, 18]
    assert bench.bases(6) == [6, 8]


def test_a_read_up_to_an_end_within_the_damage_stops_before_it(bench: "Bench") -> None:
    size = sealed(bench)
    bench.flip(f"{FIRST}.log", 3 * size + 65)

    for _ in bench.log.scrub():
        pass

    assert bench.bases(2, end=7) == [2, 4]
    assert bench.bases(8, end=12) == [8, 10]


def test_a_range_of_a_log_that_was_opened_again_is_not_servable_before_it_is_verified(bench: "Bench") -> None:
    sealed(bench)
    assert piece_at(bench, 4).is_servable()
    bench.reopen()

    piece = piece_at(bench, 4)
    assert not piece.is_servable()
    assert verify(bench, piece) == ()

    assert piece.is_servable()
    assert not piece_at(bench, 6).is_servable()
    # Behind the checkpoint everything is new.
    bench.append()
    assert piece_at(bench, bench.log.end - 1).is_servable()


def test_what_a_start_has_read_is_verified(bench: "Bench") -> None:
    bench.fill(4)
    bench.sync_now()

    report = bench.reopen(clean=False)

    assert report.batches_read == 4
    assert piece_at(bench, 0).is_servable()


def test_a_damaged_range_is_found_when_it_is_about_to_be_served(bench: "Bench") -> None:
    size = sealed(bench)
    bench.reopen()
    bench.flip(f"{FIRST}.log", 3 * size + 65)

    assert verify(bench, piece_at(bench, 2, 2 * size)) == ()
    (found,) = verify(bench, piece_at(bench, 4, 3 * size))

    assert (found.segment, found.start, found.end) == (0, 6, 8)
    assert (found.position, found.stop) == (3 * size, 4 * size)
    assert piece_at(bench, 4, 3 * size).length == size


def test_a_bad_batch_at_the_beginning_of_what_is_served_is_named_exactly(bench: "Bench") -> None:
    size = sealed(bench)
    bench.reopen()
    bench.flip(f"{FIRST}.log", 3 * size + 65)

    (found,) = verify(bench, piece_at(bench, 6, 2 * size))

    assert (found.start, found.end) == (6, 8)


def test_a_read_that_fails_counts_as_damage(bench: "Bench") -> None:
    size = sealed(bench)
    bench.reopen()
    piece = piece_at(bench, 4, 2 * size)

    # Once for the range, once for the search behind it, and once for each batch that is tried.
    bench.disk.fail(FailureRule("pread", errno.EIO, path_ends=f"{FIRST}.log", times=1_000))
    (found,) = verify(bench, piece)
    bench.disk.heal()

    assert (found.start, found.end) == (4, 16)
    assert "Input/output error" in found.reason
    assert readable(bench) == [0, 2, 16, 18]


def test_a_segment_whose_file_is_gone_is_damaged_from_end_to_end(bench: "Bench") -> None:
    sealed(bench)
    bench.reopen()
    bench.disk.remove(f"{bench.log.directory}/{FIRST}.log")

    for _ in bench.log.scrub():
        pass

    assert damaged(bench) == [(0, 16)]


def test_a_link_that_makes_no_sense_is_a_suspicion_and_damage_once_it_was_verified(bench: "Bench") -> None:
    size = sealed(bench)
    bench.reopen()
    bench.flip(f"{FIRST}.log", 1 * size + 16)

    with pytest.raises(SuspectSegment):
        bench.log.read(Offset(2), 100)
    for _ in bench.log.scrub(around=Offset(2)):
        pass

    assert damaged(bench) == [(2, 4)]
    assert bench.bases(4) == [4, 6, 8, 10, 12, 14]


def test_the_log_goes_on_in_a_new_segment_when_the_growing_one_is_damaged(bench: "Bench") -> None:
    bench.fill(4)
    bench.sync_now()
    size = bench.headers()[0].size_bytes
    bench.flip(f"{FIRST}.log", size + 65)

    for _ in bench.log.scrub():
        pass
    bench.append(2)

    assert damaged(bench) == [(2, 4)]
    assert readable(bench) == [0, 4, 6, 8]
    assert bench.segment_bases() == [0, 8]


def test_a_segment_that_was_cut_meanwhile_is_not_blamed(bench: "Bench") -> None:
    sealed(bench)
    verification = bench.log.verification(piece_at(bench, 8, 10_000))
    assert verification is not None

    bench.log.truncate_to(Offset(10))
    found = verification.work()

    assert found.stopped is not None
    assert verification.finish(found) == VerificationOutcome((), is_whole=False, is_current=False)
    assert bench.log.corruption == ()


def test_a_damaged_log_can_be_closed(bench: "Bench") -> None:
    size = sealed(bench)
    bench.flip(f"{FIRST}.log", size + 65)
    for _ in bench.log.scrub():
        pass

    bench.log.close()

    assert bench.log.stopped is None


def test_truncation_behind_a_damaged_range_keeps_what_lies_between(bench: "Bench") -> None:
    size = sealed(bench)
    bench.flip(f"{FIRST}.log", size + 65)
    for _ in bench.log.scrub():
        pass

    assert bench.log.truncate_to(Offset(8)) == 8
    bench.append(2)

    assert damaged(bench) == [(2, 4)]
    assert readable(bench) == [0, 4, 6, 8]


def test_retention_drops_a_damaged_range_with_its_segment(bench: "Bench") -> None:
    size = sealed(bench)
    bench.flip(f"{FIRST}.log", size + 65)
    for _ in bench.log.scrub():
        pass
    bench.log.set_high_watermark(bench.log.end)

    bench.log.delete_records(Offset(16))

    assert bench.log.corruption == ()


def test_damage_in_a_log_with_gaps_is_found_between_its_neighbours(bench: "Bench") -> None:
    for base in (0, 10, 20, 30):
        batch = write_batch([Record(base, 1000, None, b"value", ())], base_offset=base)
        bench.log.append_replica(batch, check_batches(batch), Timestamp(1))
    bench.log.begin_epoch(LeaderEpoch(1))
    bench.log.roll()
    size = bench.headers()[0].size_bytes
    bench.flip(f"{FIRST}.log", size + 1)

    for _ in bench.log.scrub():
        pass

    assert damaged(bench) == [(1, 20)]
    assert bench.bases(20) == [20, 30]
