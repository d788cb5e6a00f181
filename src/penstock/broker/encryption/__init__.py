"""Master keys change while a node runs, and what is under old keys is encrypted again.

    key service ── a new key ──► vault     what is written from now on is under it
         │
         ├─ rewrap   the data directory, the key table of every log, the metadata snapshots   (`key_rotation`)
         │           and every log goes on in another segment, under another data key
         └─ reseal   if asked for: full segments are written again under other data keys    (`segment_reseal`)

A rotation is asked for by an administrator, or is due by the age of the key. Nothing about it is stored but
how far resealing has come: which files are under which key is read from the files, so whatever a crash
interrupts, the next start finishes it. An old master key is needed until nothing names it any more
(`keys_in_use`), and the node keeps it in memory until it ends, even if it is gone at its source.

Any node takes requests for any other one, whether or not that one serves clients (`master_key_admin`).

Left out: backups need the keys that they were made under, which no node knows. Copies of damaged parts in
`quarantine/` stay under the data keys that they had, which their logs keep.
"""

from penstock.broker.encryption.key_rotation import (
    EncryptedStore,
    EncryptionMetrics,
    KeyRotation,
    KeyRotationOptions,
    Rotated,
)
from penstock.broker.encryption.master_key_admin import MasterKeyAdmin
from penstock.broker.encryption.segment_reseal import ResealPosition, SegmentReseal

__all__ = [
    "EncryptedStore",
    "EncryptionMetrics",
    "KeyRotation",
    "KeyRotationOptions",
    "MasterKeyAdmin",
    "ResealPosition",
    "Rotated",
    "SegmentReseal",
]
