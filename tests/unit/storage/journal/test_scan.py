"""What the frames of a journal say about one log."""

from uuid import UUID

import pytest

from penstock.core.model import Offset, PartitionIndex, TopicId
from penstock.storage.journal.codec import (
    BATCHES,
    FileHeader,
    encode_file_header,
    encode_frame,
    log_key,
    pack_durable,
    pack_entry,
)
from penstock.storage.journal.recovery import JournaledLog, JournalScan

LOG = log_key(TopicId(UUID(int=7)), PartitionIndex(1))
SALT, EPOCH = 9, 5


def batches(start: int, end: int) -> bytes:
    return pack_entry(BATCHES, LOG, start, end, EPOCH, 0)


def recover(*entries: bytes, after: int = 0) -> JournaledLog:
    """What a journal with one entry in each frame says; the first frame is number 1."""
    scan = JournalScan()
    frames = [encode_frame(number, (entry,), SALT) for number, entry in enumerate(entries, 1)]
    scan.read(1, encode_file_header(FileHeader(1, 0, 0, SALT)) + b"".join(frames))
    return scan.recover(LOG, after)


def ranges(found: JournaledLog) -> list[tuple[int, int]]:
    return [(one.start, one.end) for one in found.ranges]


def test_batches_that_follow_one_another_are_all_there() -> None:
    found = recover(batches(0, 4), batches(4, 5), batches(5, 9))

    assert (ranges(found), found.durable, found.marked) == ([(0, 4), (4, 5), (5, 9)], 9, None)


def test_frames_up_to_the_checkpoint_say_nothing() -> None:
    found = recover(batches(0, 4), batches(4, 5), batches(5, 9), after=2)

    assert (ranges(found), found.durable) == ([(5, 9)], 9)
    assert recover(batches(0, 4), after=1) == JournaledLog([], Offset(0))


def test_a_log_that_was_cut_goes_on_below_where_it_ended() -> None:
    found = recover(batches(0, 4), batches(4, 8), batches(8, 9), batches(4, 6))

    assert (ranges(found), found.durable) == ([(0, 4), (4, 6)], 6)


@pytest.mark.parametrize("after", [0, 1])
def test_what_was_made_durable_in_the_logs_own_file_leaves_a_hole(after: int) -> None:
    found = recover(batches(0, 4), pack_durable(LOG, Offset(7), EPOCH), batches(7, 9), after=after)

    assert ranges(found) == [(0, 4), (7, 9)][after:]
    assert found.durable == 9
    assert found.marked is not None
    assert found.marked.end == 7


def test_a_durable_end_at_the_end_counts() -> None:
    found = recover(batches(0, 4), batches(4, 5), pack_durable(LOG, Offset(7), EPOCH))

    assert (ranges(found), found.durable) == ([(0, 4), (4, 5)], 7)


def test_a_durable_end_is_no_range_although_it_fits_between_two() -> None:
    found = recover(batches(0, 4), pack_durable(LOG, Offset(4), EPOCH), batches(4, 5))

    assert (ranges(found), found.durable) == ([(0, 4), (4, 5)], 5)
