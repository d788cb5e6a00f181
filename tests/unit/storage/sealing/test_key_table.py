"""Which offsets of a log are under which key."""

import pickle

import pytest

from penstock.core.model import LeaderEpoch, Offset
from penstock.core.records import Record, read_header, write_batch
from penstock.core.records.batch import stamp
from penstock.storage.sealing import (
    PLAIN_ID,
    BrokenEnvelope,
    BrokenSeal,
    DataKey,
    KeyCandidate,
    KeyRow,
    KeyTable,
    seal_batch,
)
from penstock.storage.sealing.key_table import decode_table, encode_table

LOG = b"log"
A, B, C, D = (DataKey(letter * 8, letter * 32) for letter in (b"a", b"b", b"c", b"d"))
KEYS = {key.key_id: key for key in (A, B, C, D)}
TABLE = KeyTable(
    LOG,
    (KeyRow(0, PLAIN_ID), KeyRow(100, A.key_id), KeyRow(200, B.key_id)),
    KEYS,
    spare=C.key_id,
    candidates=(KeyCandidate(100, 200, D.key_id),),
)


def batch_at(offset: int, key: DataKey | None = None) -> bytes:
    batch = bytearray(write_batch([Record(0, 1_000, None, b"v%d" % offset, ())]))
    stamp(batch, 0, Offset(offset), LeaderEpoch(0))
    return bytes(batch) if key is None else seal_batch(batch, key, LOG, b"n" * 12)


@pytest.mark.parametrize(
    ("offset", "key"), [(0, None), (99, None), (100, A), (199, A), (150, D), (200, B), (200, C), (999, C)]
)
def test_a_batch_opens_under_the_key_of_its_row_the_spare_behind_them_and_a_candidate(
    offset: int, key: DataKey | None
) -> None:
    assert TABLE.unseal(batch_at(offset, key)) == batch_at(offset)


@pytest.mark.parametrize("offset", [100, 200, 999])
def test_a_plain_batch_counts_in_a_plain_row_only(offset: int) -> None:
    with pytest.raises(BrokenSeal, match=f"offset {offset} is not sealed"):
        TABLE.check(batch_at(offset))


@pytest.mark.parametrize(("offset", "key"), [(0, A), (100, B), (199, C), (200, A), (200, D)])
def test_a_batch_under_the_key_of_another_row_does_not_count(offset: int, key: DataKey) -> None:
    with pytest.raises(BrokenSeal, match="not that of its segment"):
        TABLE.check(batch_at(offset, key))


def test_batches_back_to_back_are_opened_one_by_one() -> None:
    together = batch_at(99) + batch_at(100, A) + batch_at(200, B)

    assert TABLE.unseal(together) == batch_at(99) + batch_at(100) + batch_at(200)


def test_what_is_appended_is_under_the_last_row_or_plain() -> None:
    assert TABLE.current is not None
    assert TABLE.current.key_id == B.key_id
    assert KeyTable(LOG, (KeyRow(0, PLAIN_ID),), KEYS).current is None


def test_offsets_in_the_middle_change_their_key_and_others_do_not() -> None:
    rows = TABLE.replaced(120, 180, D.key_id)

    assert rows == (
        *TABLE.rows[:2],
        KeyRow(120, D.key_id),
        KeyRow(180, A.key_id),
        TABLE.rows[2],
    )


def test_a_log_that_is_cut_keeps_the_rows_in_front() -> None:
    assert TABLE.cut(200) == TABLE.rows[:2]
    assert TABLE.cut(201) == TABLE.rows


def test_keys_that_nothing_is_under_are_dropped() -> None:
    assert KeyTable(LOG, (KeyRow(0, A.key_id),), KEYS).keys.keys() == {A.key_id}


def same(one: KeyTable, other: KeyTable) -> bool:
    shape = [
        (each.context, each.rows, each.spare, each.candidates, sorted(each.keys), each.kept)
        for each in (one, other)
    ]
    secrets = [{key_id: key.secret for key_id, key in each.keys.items()} for each in (one, other)]
    return shape[0] == shape[1] and secrets[0] == secrets[1]


# Keys of copies, one of which is that of a row as well.
WITH_KEPT = KeyTable(LOG, (KeyRow(0, A.key_id),), KEYS, kept=(A.key_id, D.key_id))


@pytest.mark.parametrize("table", [TABLE, WITH_KEPT])
def test_it_is_stored_and_read_again_and_given_to_other_processes(table: KeyTable) -> None:
    assert same(decode_table(encode_table(table), LOG), table)
    assert same(pickle.loads(pickle.dumps(table)), table)


@pytest.mark.parametrize("table", [TABLE, WITH_KEPT])
def test_bytes_that_end_early_and_later_versions_are_refused(table: KeyTable) -> None:
    stored = encode_table(table)

    for end in range(len(stored)):
        with pytest.raises(BrokenEnvelope):
            decode_table(stored[:end], LOG)
    with pytest.raises(BrokenEnvelope, match="version 3"):
        decode_table(b"\x03\x00" + stored[2:], LOG)


def test_a_key_that_is_kept_opens_copies_and_nothing_in_the_log() -> None:
    batch = batch_at(5, D)

    assert WITH_KEPT.unseal_copy(batch, read_header(batch)) == batch_at(5)
    assert WITH_KEPT.unseal_copy(batch_at(5), read_header(batch_at(5))) == batch_at(5)
    with pytest.raises(BrokenSeal, match="not that of its segment"):
        WITH_KEPT.check(batch)
    with pytest.raises(BrokenSeal, match="the key 6262626262626262 of the batch at offset 5 is gone"):
        WITH_KEPT.unseal_copy(batch_at(5, B), read_header(batch_at(5, B)))


def test_the_header_says_where_a_batch_is() -> None:
    assert read_header(batch_at(123, A)).base_offset == 123
