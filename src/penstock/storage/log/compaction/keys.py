"""Which record of a key is the latest."""

from collections.abc import Iterable
from hashlib import blake2b

from penstock.core.model import ProducerId
from penstock.core.records import BatchHeader, Record
from penstock.core.replica import AbortedTransaction

_DIGEST_BYTES = 16


class LatestOffsets:
    """The offset of the last record of every key that was noted.

    Keys are kept as digests of 128 bits: two keys with the same one are not to be met.
    """

    __slots__ = ("_latest",)

    def __init__(self) -> None:
        self._latest: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._latest)

    def note(self, key: bytes, offset: int) -> None:
        """Records come in the order of their offsets."""
        self._latest[blake2b(key, digest_size=_DIGEST_BYTES).digest()] = offset

    def is_outdated(self, record: Record) -> bool:
        """Whether the key has a later record, or there is no key at all."""
        if record.key is None:
            return True
        latest = self._latest.get(blake2b(record.key, digest_size=_DIGEST_BYTES).digest())
        return latest is not None and latest > record.offset


class AbortedRanges:
    """Which batches belong to transactions that were aborted."""

    __slots__ = ("_by_producer",)

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._by_producer: dict[ProducerId, list[tuple[int, int]]] = {}
        for transaction in aborted:
            ranges = self._by_producer.setdefault(transaction.producer_id, [])
            ranges.append((transaction.first_offset, transaction.last_offset))

    def holds(self, header: BatchHeader) -> bool:
        if not header.is_transactional or not self._by_producer:
            return False
        ranges = self._by_producer.get(ProducerId(header.producer_id), ())
        return any(first <= header.base_offset <= last for first, last in ranges)
