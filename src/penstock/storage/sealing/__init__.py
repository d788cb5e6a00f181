"""The formats of encryption at rest: sealed batches, the keys of a log, and envelopes under master keys.

    master key ── from a `KeyService`
        └─ encrypts the key table of every log                                      (`vault`)
              └─ data keys ── one for each segment                                  (`key_table`)
                    └─ encrypt what stands behind the header of each batch          (`sealed_batch`)

A sealed batch is a record batch still: whole, with a CRC, and with its header in clear. So whatever goes from
batch to batch (recovery, indexes, the journal, truncation, retention) works on it as it is. Whoever needs
records gets the batch as it was sent.

What it protects: whoever has the disk or a copy of it learns no key, value or header of a record. Whoever
changes a file is found out: a batch opens only under its own key, in its own log and at its own offset.

Left out: names of topics, sizes, times, offsets and producer ids stand in clear. An older copy of a whole
partition with all its files is not told from the real one by its keys.
"""

from penstock.storage.sealing.key_table import PLAIN_ID, KeyCandidate, KeyRow, KeyTable
from penstock.storage.sealing.sealed_batch import SEAL_BYTES, BrokenSeal, DataKey, seal_batch, unseal_batch
from penstock.storage.sealing.vault import (
    BrokenEnvelope,
    KeyService,
    KeyUnavailable,
    KeyVault,
    LogVault,
    MasterKeys,
)

__all__ = [
    "PLAIN_ID",
    "SEAL_BYTES",
    "BrokenEnvelope",
    "BrokenSeal",
    "DataKey",
    "KeyCandidate",
    "KeyRow",
    "KeyService",
    "KeyTable",
    "KeyUnavailable",
    "KeyVault",
    "LogVault",
    "MasterKeys",
    "seal_batch",
    "unseal_batch",
]
