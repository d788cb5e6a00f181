"""The master keys of a node, and what they encrypt: the key tables of logs.

    envelope   0 "PSEV" 4 │ 4 version 1 │ 5 name's length 1 │ 6 name of the master key … │ nonce 12
               │ encrypted content … │ tag 16

AES-256-GCM again. The tag covers what the envelope is for, so that one cannot take the place of another.

A node learns its master keys when it starts, from a `KeyService`, and keeps them in memory. A rotation brings
a new one: what is written from then on is under it, and what is there is written again.
Until that is done, and as long as there are backups, the old one is needed.
"""

import struct
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from penstock.core.model import CorruptionError, PartitionIndex, StorageError, TopicId
from penstock.storage.disk import Buffer
from penstock.storage.sealing.aead import Aead, NotAuthentic
from penstock.storage.sealing.sealed_batch import (
    KEY_ID_BYTES,
    NONCE_BYTES,
    SECRET_BYTES,
    DataKey,
    seal_batch,
)

_MAGIC = b"PSEV"
_VERSION = 1
_HEAD = struct.Struct("<4sBB")
_PARTITION = struct.Struct("<i")
NAME_BYTES_MAX = 200


class KeyUnavailable(StorageError):
    """A key that is needed is not there. Nothing is wrong with what is on disk."""


class BrokenEnvelope(CorruptionError):
    """An envelope does not open under the key that it names: it was changed, or is another one's."""


class MasterKeys(NamedTuple):
    """Every master key that a node has, by name, and the one that it encrypts with.

    `created_ms`: when that one was made, by the wall clock; -1 if nobody knows.
    """

    secrets: Mapping[str, bytes]
    current: str
    created_ms: int = -1

    def __repr__(self) -> str:
        return f"MasterKeys({', '.join(sorted(self.secrets))}; current {self.current})"


class KeyService(Protocol):
    """Where master keys come from. Both calls block, and raise KeyUnavailable."""

    def load(self) -> MasterKeys:
        """Every key that there is."""

    def rotate(self, now_ms: int) -> MasterKeys:
        """Have a new key made, and return every key; where keys are made elsewhere, just read them again."""


class KeyVault:
    """The master keys of a node while it runs. Threads use it, too.

    `random` returns so many random bytes. `has_all_tables`: every log of the node has a key table, so that
    one without has lost it (see `storage.data_directory`). `on_other_key` is called when another key is the
    current one, whoever has read it at its source: what is under the former one has to be written again.
    `on_old_table` is called when a log was opened, or made, whose table is under another key than that.
    """

    def __init__(self, service: KeyService, keys: MasterKeys, random: Callable[[int], bytes]) -> None:
        check_master_keys(keys)
        self.service = service
        self.keys = keys
        self.random = random
        self.has_all_tables = False
        self.on_other_key: Callable[[], None] = _ignore
        self.on_old_table: Callable[[], None] = _ignore

    def check(self, keys: MasterKeys) -> None:
        """Raise KeyUnavailable unless the node can go on with these: a name stays that of one key.

        What is under the former key of that name would not open any more, and envelopes name it.
        """
        check_master_keys(keys)
        for name, secret in keys.secrets.items():
            if self.keys.secrets.get(name, secret) != secret:
                raise KeyUnavailable(
                    f"the key service has another key that is called {name!r}, and nothing was changed:"
                    " put the former one back, and give a new key a name of its own"
                )

    def adopt(self, keys: MasterKeys) -> bool:
        """Use these from now on; returns whether another key is the current one now.

        Raises KeyUnavailable, and changes nothing, if they cannot be used.
        """
        self.check(keys)
        is_other = keys.current != self.keys.current
        # Keys that are gone at their source stay: something may be under them until it is written again.
        self.keys = keys._replace(secrets={**self.keys.secrets, **keys.secrets})
        if is_other:
            self.on_other_key()
        return is_other

    def adopt_read(self, keys: MasterKeys, former: str) -> bool:
        """Like `adopt`, for what was asked of the service while `former` was the current key.

        If another one is by now, a rotation has overtaken this: what was read is older, and that one stays.
        """
        current, created_ms = self.keys.current, self.keys.created_ms
        if current != former:
            secrets = {current: self.keys.secrets[current], **keys.secrets}
            keys = MasterKeys(secrets, current, created_ms)
        return self.adopt(keys)

    def of(self, topic_id: TopicId, partition: PartitionIndex) -> "LogVault":
        """What the log of a partition uses."""
        return LogVault(self, topic_id.bytes + _PARTITION.pack(partition))

    def new_key(self) -> DataKey:
        return DataKey(self.random(KEY_ID_BYTES), self.random(SECRET_BYTES))

    def close_envelope(self, content: bytes, purpose: bytes) -> bytes:
        """Encrypt under the current master key."""
        keys = self.keys
        name = keys.current.encode()
        head = _HEAD.pack(_MAGIC, _VERSION, len(name)) + name
        nonce = self.random(NONCE_BYTES)
        sealed = Aead(keys.secrets[keys.current]).encrypt(nonce, content, head + purpose)
        return b"".join((head, nonce, sealed))

    def open_envelope(self, envelope: bytes, purpose: bytes) -> bytes:
        """Decrypt; raises KeyUnavailable if the master key is not there, and BrokenEnvelope."""
        name = master_key_of(envelope)
        secret = self.keys.secrets.get(name)
        if secret is None:
            raise KeyUnavailable(f"the master key {name!r} is not there, and it is needed")
        end = _HEAD.size + len(name.encode())
        nonce = envelope[end : end + NONCE_BYTES]
        try:
            return Aead(secret).decrypt(nonce, envelope[end + NONCE_BYTES :], envelope[:end] + purpose)
        except NotAuthentic:
            raise BrokenEnvelope(f"it does not open under the master key {name!r}") from None


class LogVault(NamedTuple):
    """The vault as one log uses it; `context` says which log that is."""

    vault: KeyVault
    context: bytes

    def seal(self, batch: Buffer, key: DataKey | None) -> Buffer:
        """A whole plain batch that has its offset, sealed; the same one without a key."""
        return batch if key is None else seal_batch(batch, key, self.context, self.vault.random(NONCE_BYTES))


def _ignore() -> None:
    """Nobody writes anything again: this is no running node."""


def is_envelope(content: bytes) -> bool:
    return content[: len(_MAGIC)] == _MAGIC


def master_key_of(envelope: bytes) -> str:
    """The name of the master key that an envelope is under; raises BrokenEnvelope."""
    try:
        magic, version, length = _HEAD.unpack_from(envelope)
        name = envelope[_HEAD.size : _HEAD.size + length].decode()
    except (struct.error, UnicodeDecodeError):
        raise BrokenEnvelope("this is no envelope") from None
    if magic != _MAGIC or version != _VERSION or not name:
        raise BrokenEnvelope("this is no envelope, or one of a later version")
    return name


def check_master_keys(keys: MasterKeys) -> None:
    """Raise KeyUnavailable unless every key can be used, and the current one is there."""
    for name, secret in keys.secrets.items():
        if len(secret) != SECRET_BYTES:
            raise KeyUnavailable(f"the master key {name!r} has {len(secret)} bytes, not {SECRET_BYTES}")
        if not 0 < len(name.encode()) <= NAME_BYTES_MAX:
            raise KeyUnavailable(f"the name of a master key has 1 to {NAME_BYTES_MAX} bytes")
    if keys.current not in keys.secrets:
        raise KeyUnavailable(f"the current master key {keys.current!r} is not there")
