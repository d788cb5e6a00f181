"""Encryption at rest: sealed batches, key tables and envelopes.

What opens is what was sealed, byte for byte. Behind the seals, where the damage is of another version,
nothing but the errors of their formats may come out.
"""

import random
from functools import cache

from fuzz.harness import Target
from fuzz.targets.records import random_records
from penstock.core.records import CompressionType, CorruptBatch, check_batches, write_batch
from penstock.storage.sealing import (
    PLAIN_ID,
    BrokenEnvelope,
    DataKey,
    KeyCandidate,
    KeyRow,
    KeyTable,
    KeyUnavailable,
    KeyVault,
    MasterKeys,
    seal_batch,
    unseal_batch,
)
from penstock.storage.sealing.key_table import decode_table, encode_table
from penstock.storage.sealing.sealed_batch import NONCE_BYTES

CONTEXT, PURPOSE = b"log", b"keys"
KEYS = tuple(DataKey(bytes([n]) * 8, bytes([n]) * 32) for n in (1, 2, 3))
PLAIN_END, FIRST_END = 1_000, 2_000


class NoService:
    """There are no other keys than those in memory."""

    def load(self) -> MasterKeys:
        raise KeyUnavailable("none")

    def rotate(self, now_ms: int) -> MasterKeys:
        raise KeyUnavailable(f"none at {now_ms}")


def vault() -> KeyVault:
    secrets = {"first": b"1" * 32, "second": b"2" * 32}
    return KeyVault(NoService(), MasterKeys(secrets, "second"), lambda size: b"n" * size)


@cache
def table() -> KeyTable:
    """Plain batches, then two ranges under a key each, of which the first is being replaced."""
    rows = (
        KeyRow(0, PLAIN_ID),
        KeyRow(PLAIN_END, KEYS[0].key_id),
        KeyRow(FIRST_END, KEYS[1].key_id),
    )
    candidates = (KeyCandidate(PLAIN_END, FIRST_END, KEYS[2].key_id),)
    return KeyTable(CONTEXT, rows, {key.key_id: key for key in KEYS}, KEYS[2].key_id, candidates)


@cache
def sealed_before() -> dict[bytes, bytes]:
    """What was sealed, by what it became: nonces of the fuzzer never repeat a batch."""
    return {}


def _sealed(batch: bytes, key: DataKey, rng: random.Random) -> bytes:
    made = seal_batch(batch, key, CONTEXT, rng.randbytes(NONCE_BYTES))
    # The CRC in front is not under the seal: it is the reader's, and is checked before.
    sealed_before()[made[21:]] = batch
    return made


def _batch(rng: random.Random, offset: int) -> bytes:
    records = random_records(rng, rng.randint(1, 3))
    return bytes(write_batch(records, codec=rng.choice(list(CompressionType)), base_offset=offset))


def a_sealed_batch(rng: random.Random) -> bytes:
    return _sealed(_batch(rng, FIRST_END), KEYS[1], rng)


def unseal_one(data: bytes) -> None:
    """Whatever opens was sealed like this."""
    plain = unseal_batch(data, KEYS[1], CONTEXT)
    assert plain == sealed_before()[data[21:]]
    check_batches(plain)


def some_sealed_batches(rng: random.Random) -> bytes:
    """Plain and sealed batches, each where the table has its key."""
    first = PLAIN_END + rng.randint(0, 100)
    return b"".join(
        (
            _batch(rng, rng.randint(0, PLAIN_END - 100)),
            _sealed(_batch(rng, first), KEYS[rng.choice((0, 2))], rng),
            _sealed(_batch(rng, FIRST_END + rng.randint(0, 100)), KEYS[rng.choice((1, 2))], rng),
        )
    )


def unseal_all(data: bytes) -> None:
    plain = table().unseal(data)
    # Plain ones have no seal: what damage does to them is found by their CRC.
    check_batches(plain)


def a_table(rng: random.Random) -> bytes:
    """The clear content of a table."""
    ids = (PLAIN_ID, *(key.key_id for key in KEYS))
    rows = tuple(KeyRow(100 * n, rng.choice(ids)) for n in range(rng.randint(1, 5)))
    candidates = tuple(KeyCandidate(100 * n, 100 * n + 50, rng.choice(ids)) for n in range(rng.randint(0, 2)))
    spare = rng.choice((None, KEYS[2].key_id))
    return encode_table(KeyTable(CONTEXT, rows, {key.key_id: key for key in KEYS}, spare, candidates))


def read_table(data: bytes) -> None:
    """A table that is understood says the same when it is written again, and can be asked."""
    found = decode_table(data, CONTEXT)
    again = decode_table(encode_table(found), CONTEXT)
    assert (again.rows, again.candidates, again.spare) == (found.rows, found.candidates, found.spare)
    assert {key: made.secret for key, made in again.keys.items()} == {
        key: made.secret for key, made in found.keys.items()
    }
    assert found.current is None or found.current.key_id == found.rows[-1].key_id
    for offset in (0, 50, 1 << 62):
        assert found.is_allowed(offset, found.id_at(offset))


def an_envelope(rng: random.Random) -> bytes:
    return vault().close_envelope(a_table(rng), PURPOSE)


def open_envelope(data: bytes) -> None:
    """What opens is a whole table."""
    decode_table(vault().open_envelope(data, PURPOSE), CONTEXT)


TARGETS = (
    Target("sealing.batch", a_sealed_batch, unseal_one, (CorruptBatch,)),
    Target("sealing.batches", some_sealed_batches, unseal_all, (CorruptBatch,)),
    Target("sealing.key-table", a_table, read_table, (BrokenEnvelope,)),
    Target("sealing.envelope", an_envelope, open_envelope, (BrokenEnvelope, KeyUnavailable)),
)
