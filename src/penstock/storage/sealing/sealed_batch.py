"""One sealed batch: what stands behind the header is encrypted with AES-256-GCM.

    plain    0 header 61 │ 61 records …
    sealed   0 header 61 │ 61 key id 8 │ 69 nonce 12 │ 81 encrypted: plain CRC-32C 4, records … │ tag 16

Length, CRC and attributes of a sealed batch's header are its own, and one bit of the attributes says what it
is; every other field is that of the plain batch. So it is 40 bytes longer, and everybody who walks from
header to header can walk over it.

The tag covers the header too, all but the CRC, and which log it is in: a batch that was changed, or moved to
another offset, segment, partition or topic, does not open. The offset is known when a batch is sealed:
the log seals behind everything that patches headers.

The nonce is random, or counts where a key is used for one file that is written once.
"""

import struct
from functools import cached_property

from fastcrc import crc32

from penstock.core.records import HEADER_BYTES, BatchHeader, Buffer, CorruptBatch
from penstock.core.records.batch import CRC_POSITION, CRC_START, LAYOUT, SEALED
from penstock.storage.sealing.aead import Aead, NotAuthentic

KEY_ID_BYTES = 8
SECRET_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16
_CRC = struct.Struct(">I")
_CIPHERTEXT = HEADER_BYTES + KEY_ID_BYTES + NONCE_BYTES
# What a batch grows by.
SEAL_BYTES = KEY_ID_BYTES + NONCE_BYTES + _CRC.size + TAG_BYTES
_SEALED_BYTES_MIN = HEADER_BYTES + SEAL_BYTES
_PREFIX = struct.Struct(">qiib")
_FIELDS = struct.Struct(">hiqqqhii")
_crc32c = crc32.iscsi

assert _PREFIX.size == CRC_POSITION
assert _FIELDS.size == HEADER_BYTES - CRC_START


class BrokenSeal(CorruptBatch):
    """A sealed batch does not open: it was changed, or is not the one that was written here."""


class DataKey:
    """A key and its id. Its secret appears in no message."""

    def __init__(self, key_id: bytes, secret: bytes) -> None:
        assert len(key_id) == KEY_ID_BYTES
        assert len(secret) == SECRET_BYTES
        self.key_id = key_id
        self.secret = secret

    @cached_property
    def cipher(self) -> Aead:
        return Aead(self.secret)

    def __repr__(self) -> str:
        return f"DataKey({self.key_id.hex()})"

    def __reduce__(self) -> tuple[type["DataKey"], tuple[bytes, bytes]]:
        """Compaction uses it in another process."""
        return DataKey, (self.key_id, self.secret)


def seal_batch(batch: Buffer, key: DataKey, context: bytes, nonce: bytes) -> bytes:
    """The sealed form of one whole plain batch that has its offset; `context` says which log it is in."""
    (offset, length, epoch, magic, crc, attributes, *fields) = LAYOUT.unpack_from(batch)
    assert not attributes & SEALED
    prefix = _PREFIX.pack(offset, length + SEAL_BYTES, epoch, magic)
    header = _FIELDS.pack(attributes | SEALED, *fields)
    ciphertext = key.cipher.encrypt(
        nonce,
        b"".join((_CRC.pack(crc), memoryview(batch)[HEADER_BYTES:])),
        b"".join((context, key.key_id, prefix, header)),
    )
    # In two steps: each copy of a large batch takes as long as encrypting it.
    sealed_crc = _crc32c(ciphertext, _crc32c(b"".join((header, key.key_id, nonce))))
    return b"".join((prefix, _CRC.pack(sealed_crc), header, key.key_id, nonce, ciphertext))


def sealed_header(header: BatchHeader) -> BatchHeader:
    """What of a plain batch's header is known before it is sealed: all but the CRC."""
    return header._replace(
        batch_length=header.batch_length + SEAL_BYTES, attributes=header.attributes | SEALED
    )


def key_id_of(batch: Buffer) -> bytes:
    """Under which key a sealed batch is; raises BrokenSeal if it is too short for a seal."""
    view = memoryview(batch)
    if len(view) < _SEALED_BYTES_MIN:
        raise BrokenSeal(f"a batch of {len(view)} bytes is too short for its seal")
    return bytes(view[HEADER_BYTES : HEADER_BYTES + KEY_ID_BYTES])


def unseal_batch(batch: Buffer, key: DataKey, context: bytes) -> bytes:
    """The batch as it was before it was sealed, every byte of it; raises BrokenSeal."""
    view = memoryview(batch)
    if key_id_of(view) != key.key_id:
        raise BrokenSeal(f"it is sealed under the key {key_id_of(view).hex()}, not {key.key_id.hex()}")
    (offset, length, epoch, magic, _, attributes, *fields) = LAYOUT.unpack_from(view)
    try:
        content = key.cipher.decrypt(
            view[_CIPHERTEXT - NONCE_BYTES : _CIPHERTEXT],
            view[_CIPHERTEXT:],
            b"".join((context, key.key_id, view[:CRC_POSITION], view[CRC_START:HEADER_BYTES])),
        )
    except NotAuthentic:
        raise BrokenSeal(f"the seal of the batch at offset {offset} is broken") from None
    (crc,) = _CRC.unpack_from(content)
    header = LAYOUT.pack(offset, length - SEAL_BYTES, epoch, magic, crc, attributes & ~SEALED, *fields)
    return b"".join((header, memoryview(content)[_CRC.size :]))
