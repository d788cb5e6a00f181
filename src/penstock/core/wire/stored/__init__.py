"""Messages inside messages: what coordinators keep in their topics, in Kafka's own formats.

Keys and values of `__consumer_offsets` and `__transaction_state` are messages like those on
the wire, each behind a two-byte version. In keys that version also tells the kinds apart:

    00 01 | 00 02 "g1" | 00 06 "orders" | 00 00 00 03     OffsetCommitKey, partition 3 of orders

Because the formats are Kafka's, its tools can read our topics and a migration can copy them.
The subscription and assignment that consumers of classic groups pass through the coordinator
have the same form and live here too.

Left out: the records of share groups and streams groups, whose state Penstock keeps
elsewhere (`__queue_state`), and the metadata records of Kafka's controllers.
"""

from penstock.core.wire.stored.envelope import (
    OFFSETS_KEYS,
    TRANSACTION_KEYS,
    read_embedded,
    read_key,
    read_stored,
    write_stored,
)

__all__ = ["OFFSETS_KEYS", "TRANSACTION_KEYS", "read_embedded", "read_key", "read_stored", "write_stored"]
