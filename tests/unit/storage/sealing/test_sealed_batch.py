"""A sealed batch is a batch that says nothing about its records, and opens only where it was sealed."""

import pickle
from collections.abc import Callable

import pytest

from penstock.core.records import HEADER_BYTES, Record, check_batches, read_header, write_batch
from penstock.core.records.batch import SEALED
from penstock.storage.sealing import SEAL_BYTES, BrokenSeal, DataKey, seal_batch, unseal_batch
from penstock.storage.sealing.sealed_batch import sealed_header

SECRET = b"the quick brown fox"
KEY = DataKey(b"k" * 8, b"s" * 32)
LOG = b"this log"
NONCE = b"n" * 12


def plain(value: bytes = SECRET) -> bytes:
    return bytes(write_batch([Record(0, 1_000, b"key of " + value, value, (("h", value),))]))


def sealed(batch: bytes, nonce: bytes = NONCE) -> bytes:
    return seal_batch(batch, KEY, LOG, nonce)


def test_it_is_a_whole_batch_with_the_header_of_the_plain_one_and_without_its_records() -> None:
    batch = plain()

    hidden = sealed(batch)

    (header,) = check_batches(hidden)
    assert header.size_bytes == len(hidden) == len(batch) + SEAL_BYTES
    assert header._replace(crc=0) == sealed_header(read_header(batch))._replace(crc=0)
    assert header.attributes & SEALED
    assert SECRET not in hidden


@pytest.mark.parametrize("size", [0, 1, 1_000, 100_000])
def test_it_opens_to_every_byte_of_the_plain_batch(size: int) -> None:
    batch = plain(b"v" * size)

    assert unseal_batch(sealed(batch), KEY, LOG) == batch


def test_a_batch_of_bytes_that_change_anywhere_does_not_open() -> None:
    hidden = sealed(plain())
    crc = range(17, 21)

    for position in range(len(hidden)):
        changed = bytearray(hidden)
        changed[position] ^= 1
        if position in crc:
            # Whoever reads it checks that first.
            assert unseal_batch(changed, KEY, LOG) == plain()
        else:
            with pytest.raises(BrokenSeal):
                unseal_batch(changed, KEY, LOG)


@pytest.mark.parametrize(
    "open_it",
    [
        pytest.param(lambda hidden: unseal_batch(hidden, KEY, b"that log"), id="in another log"),
        pytest.param(
            lambda hidden: unseal_batch(hidden, DataKey(KEY.key_id, b"t" * 32), LOG), id="wrong secret"
        ),
        pytest.param(
            lambda hidden: unseal_batch(hidden, DataKey(b"l" * 8, b"s" * 32), LOG), id="another key"
        ),
        pytest.param(lambda hidden: unseal_batch(hidden[: HEADER_BYTES + 39], KEY, LOG), id="too short"),
        pytest.param(lambda hidden: unseal_batch(hidden[:-1], KEY, LOG), id="cut"),
    ],
)
def test_it_does_not_open(open_it: Callable[[bytes], bytes]) -> None:
    with pytest.raises(BrokenSeal):
        open_it(sealed(plain()))


def test_a_key_can_be_given_to_another_process_and_tells_nobody_its_secret() -> None:
    key = pickle.loads(pickle.dumps(KEY))

    assert (key.key_id, key.secret) == (KEY.key_id, KEY.secret)
    assert repr(KEY) == f"DataKey({KEY.key_id.hex()})"
