import pytest

from penstock.core.model import (
    ApiError,
    CorruptionError,
    ErrorKind,
    Offset,
    ProducerEpoch,
    ProducerId,
    Timestamp,
)
from penstock.core.records import BatchHeader, ControlRecord, ControlType, Record, read_header, write_batch
from penstock.core.replica import (
    ACCEPTED,
    DuplicateBatch,
    ProducerStateManager,
    decode_snapshot,
    encode_snapshot,
    forgotten_producers,
    producer_state,
)
from penstock.core.replica.forgotten_producers import RETRY_MS_MAX

ALICE = 7
NOW = Timestamp(1_000)
SEQUENCE_MAX = 2**31 - 1


def batch(
    sequence: int, records: int = 1, *, epoch: int = 0, producer: int = ALICE, txn: bool = False
) -> BatchHeader:
    written = write_batch(
        [Record(0, 5, None, None, ())] * records,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=txn,
    )
    return read_header(written)


def marker(
    offset: int, ending: ControlType, *, epoch: int = 0, coordinator: int = 1, producer: int = ALICE
) -> ControlRecord:
    return ControlRecord(offset, 5, ending, producer, epoch, coordinator)


def after(*headers: BatchHeader) -> ProducerStateManager:
    """The state after these batches, appended one after another from offset 100."""
    states = ProducerStateManager()
    offset = 100
    for header in headers:
        states.update(header, Offset(offset), NOW)
        offset += header.last_offset_delta + 1
    return states


def test_a_producer_that_nobody_knows_may_start_anywhere() -> None:
    assert ProducerStateManager().check(batch(17)) == ACCEPTED


def test_the_next_sequence_is_accepted() -> None:
    assert after(batch(0, 3)).check(batch(3)) == ACCEPTED


def test_a_hole_in_the_sequence_is_rejected() -> None:
    assert after(batch(0, 3)).check(batch(4)) == ApiError(ErrorKind.OUT_OF_ORDER_SEQUENCE)


def test_a_retry_is_answered_with_the_offsets_of_the_original() -> None:
    states = after(batch(0, 3), batch(3, 2))

    assert states.check(batch(0, 3)) == DuplicateBatch(Offset(100), Offset(102), Timestamp(5))
    assert states.check(batch(3, 2)) == DuplicateBatch(Offset(103), Offset(104), Timestamp(5))


def test_a_retry_that_is_cut_differently_is_out_of_order() -> None:
    assert after(batch(0, 3)).check(batch(0, 2)) == ApiError(ErrorKind.OUT_OF_ORDER_SEQUENCE)


def test_only_the_last_five_batches_can_be_retried() -> None:
    states = after(*(batch(sequence) for sequence in range(6)))

    assert states.check(batch(0)) == ApiError(ErrorKind.OUT_OF_ORDER_SEQUENCE)
    assert isinstance(states.check(batch(1)), DuplicateBatch)


def test_sequences_wrap_around_to_zero() -> None:
    states = after(batch(SEQUENCE_MAX - 1, 2))

    assert states.check(batch(0)) == ACCEPTED
    assert states.check(batch(1)) == ApiError(ErrorKind.OUT_OF_ORDER_SEQUENCE)


def test_an_older_epoch_is_fenced() -> None:
    assert after(batch(0, epoch=3)).check(batch(1, epoch=2)) == ApiError(ErrorKind.PRODUCER_FENCED)


def test_a_newer_epoch_starts_at_zero() -> None:
    states = after(batch(0, 5))

    assert states.check(batch(0, epoch=1)) == ACCEPTED
    assert states.check(batch(5, epoch=1)) == ApiError(ErrorKind.OUT_OF_ORDER_SEQUENCE)


def test_a_newer_epoch_forgets_the_batches_of_the_old_one() -> None:
    states = after(batch(0), batch(0, 2, epoch=1))

    assert isinstance(states.check(batch(0, 2, epoch=1)), DuplicateBatch)
    assert states.check(batch(0, 1, epoch=1)) == ApiError(ErrorKind.OUT_OF_ORDER_SEQUENCE)


def test_a_marker_with_a_raised_epoch_makes_the_next_transaction_start_at_zero() -> None:
    states = after(batch(0, 4, txn=True))

    states.update_marker(marker(104, ControlType.COMMIT, epoch=1), NOW)

    assert states.check(batch(4, epoch=0)) == ApiError(ErrorKind.PRODUCER_FENCED)
    assert states.check(batch(4, epoch=1)) == ApiError(ErrorKind.OUT_OF_ORDER_SEQUENCE)
    assert states.check(batch(0, epoch=1)) == ACCEPTED


def test_checking_changes_nothing() -> None:
    states = after(batch(0, 3))
    before = encode_snapshot(states)

    states.check(batch(3))
    states.check(batch(9))

    assert encode_snapshot(states) == before


def test_an_old_coordinator_may_not_end_a_transaction() -> None:
    states = after(batch(0, txn=True))
    states.update_marker(marker(101, ControlType.COMMIT, coordinator=5), NOW)

    assert states.check_marker(marker(102, ControlType.ABORT, coordinator=4)) == ApiError(
        ErrorKind.STALE_COORDINATOR
    )
    assert states.check_marker(marker(102, ControlType.ABORT, coordinator=5)) == ACCEPTED
    assert states.check_marker(marker(102, ControlType.ABORT, coordinator=5, epoch=-1)) == ApiError(
        ErrorKind.PRODUCER_FENCED
    )


def test_producers_that_are_silent_for_long_are_forgotten_unless_a_transaction_is_open() -> None:
    states = after(batch(0), batch(0, producer=8, txn=True))

    assert states.expire(Timestamp(NOW + 1)) == 1

    assert states.get(ProducerId(ALICE)) is None
    assert states.get(ProducerId(8)) is not None


def test_an_abort_tells_what_it_undid_and_a_commit_nothing() -> None:
    states = after(batch(0, txn=True), batch(0, producer=8, txn=True))

    aborted = states.update_marker(marker(102, ControlType.ABORT), NOW)
    committed = states.update_marker(marker(103, ControlType.COMMIT, producer=8), NOW)

    assert aborted is not None
    assert tuple(aborted) == (ALICE, 100, 102, 101)
    assert committed is None


def test_a_snapshot_holds_everything() -> None:
    states = after(batch(0, 2), batch(2), batch(0, producer=8, epoch=3, txn=True))
    states.update(batch(0, producer=9, txn=True), Offset(200), NOW)
    states.update_marker(marker(201, ControlType.ABORT, producer=9, coordinator=6), NOW)

    again = decode_snapshot(encode_snapshot(states))

    assert dict(again) == dict(states)
    assert again.transactions.ongoing() == [(8, 103)]
    assert again.transactions.ended() == [(200, 201)]
    assert again.get(ProducerId(9)) is not None


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_snapshot_that_is_cut_short_is_corrupt(cut: int) -> None:
    content = encode_snapshot(after(batch(0), batch(1)))

    with pytest.raises(CorruptionError):
        decode_snapshot(content[:-cut])


def test_a_snapshot_that_claims_more_than_it_holds_is_corrupt() -> None:
    content = bytearray(encode_snapshot(after(batch(0))))
    content[0:4] = b"\xff\xff\xff\x7f"

    with pytest.raises(CorruptionError, match="shorter"):
        decode_snapshot(content)


def test_epochs_of_a_producer_are_remembered() -> None:
    states = after(batch(0, epoch=4))

    producer = states.get(ProducerId(ALICE))

    assert producer is not None
    assert producer.epoch == ProducerEpoch(4)


FORGOTTEN = ApiError(ErrorKind.PRODUCER_FORGOTTEN)
LATER = Timestamp(NOW + RETRY_MS_MAX)


def crowd(*producers: int, now: Timestamp = NOW) -> ProducerStateManager:
    """The state after one batch of each, in this order."""
    states = ProducerStateManager()
    for offset, producer in enumerate(producers):
        states.update(batch(0, producer=producer), Offset(offset), now)
    return states


def known(states: ProducerStateManager) -> list[int]:
    return [int(producer_id) for producer_id, _ in states]


def test_those_that_have_not_written_for_longest_are_evicted() -> None:
    states = crowd(1, 2, 3, 4)
    states.update(batch(1, producer=1), Offset(4), NOW)

    assert states.evict(2, NOW) == 2

    assert known(states) == [4, 1]
    assert states.check(batch(1, producer=4)) == ACCEPTED
    assert states.check(batch(2, producer=1)) == ACCEPTED


@pytest.mark.parametrize("sequence", [0, 1, 7])
def test_a_producer_that_was_evicted_and_may_retry_is_told_so(sequence: int) -> None:
    states = crowd(1, 2, 3)
    states.evict(2, NOW)

    assert states.check(batch(sequence, producer=1)) == FORGOTTEN


def test_a_producer_that_was_evicted_begins_a_new_epoch() -> None:
    states = crowd(1, 2, 3)
    states.evict(2, NOW)

    assert states.check(batch(0, producer=1, epoch=1)) == ACCEPTED
    states.update(batch(0, producer=1, epoch=1), Offset(3), NOW)
    assert states.check(batch(1, producer=1, epoch=1)) == ACCEPTED


def test_a_producer_that_wrote_long_ago_may_start_anywhere_after_its_eviction() -> None:
    states = crowd(1, 2, 3)

    states.evict(2, LATER)

    assert states.check(batch(5, producer=1)) == ACCEPTED
    assert len(states.forgotten) == 0


def test_an_eviction_is_forgotten_when_no_retry_is_plausible_any_more() -> None:
    states = crowd(1, 2, 3)
    states.evict(2, NOW)

    for rounds in range(1, 3):
        states.forgotten.expire(Timestamp(NOW + rounds * RETRY_MS_MAX))

    assert states.check(batch(5, producer=1)) == ACCEPTED


def test_a_producer_with_an_open_transaction_is_not_evicted() -> None:
    states = ProducerStateManager()
    states.update(batch(0, producer=1, txn=True), Offset(0), NOW)
    for offset, producer in enumerate((2, 3), 1):
        states.update(batch(0, producer=producer), Offset(offset), NOW)

    assert states.evict(0, NOW) == 2

    assert known(states) == [1]
    states.update_marker(marker(3, ControlType.COMMIT, producer=1), NOW)
    assert states.evict(0, NOW) == 1


def test_a_partition_remembers_so_many_producers_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "PRODUCERS_MAX", 32)

    states = crowd(*range(1_000))

    assert len(states) <= 32
    assert known(states)[-1] == 999
    assert states.check(batch(0, producer=0)) == FORGOTTEN
    assert states.check(batch(0, producer=1_000)) == ACCEPTED


def test_an_active_producer_outlives_any_number_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "PRODUCERS_MAX", 32)
    states = ProducerStateManager()

    for number in range(200):
        assert states.check(batch(number)) == ACCEPTED
        states.update(batch(number), Offset(number * 11), NOW)
        for other in range(10):
            states.update(
                batch(0, producer=1_000 + number * 10 + other), Offset(number * 11 + 1 + other), NOW
            )

    assert states.check(batch(199)) == DuplicateBatch(Offset(199 * 11), Offset(199 * 11), Timestamp(5))


def test_with_more_evictions_than_can_be_remembered_only_a_first_batch_is_taken_from_the_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forgotten_producers, "GENERATION_MAX", 4)
    states = crowd(*range(1, 13))

    for left in range(11, -1, -1):
        states.evict(left, NOW)

    assert len(states.forgotten) <= 8
    assert states.check(batch(3, producer=1)) == FORGOTTEN
    assert states.check(batch(0, producer=99)) == ACCEPTED
    for rounds in range(1, 3):
        states.forgotten.expire(Timestamp(NOW + rounds * RETRY_MS_MAX))
    assert states.check(batch(3, producer=1)) == ACCEPTED


def test_a_snapshot_keeps_the_order_of_producers_and_those_that_were_evicted() -> None:
    states = crowd(1, 2, 3, 4, 5)
    states.update(batch(1, producer=2), Offset(5), NOW)
    states.evict(3, NOW)

    found = decode_snapshot(encode_snapshot(states))

    assert known(found) == known(states) == [4, 5, 2]
    assert found.check(batch(0, producer=1)) == FORGOTTEN
    assert found.check(batch(0, producer=3)) == FORGOTTEN
    assert found.check(batch(0, producer=6)) == ACCEPTED
    assert encode_snapshot(found) == encode_snapshot(states)


def test_a_snapshot_of_evicted_producers_that_is_cut_anywhere_is_refused() -> None:
    states = crowd(1, 2, 3)
    states.evict(1, NOW)
    whole = encode_snapshot(states)

    for length in range(len(whole)):
        with pytest.raises(CorruptionError):
            decode_snapshot(whole[:length])
    with pytest.raises(CorruptionError):
        decode_snapshot(whole + b"\0" * 8)
