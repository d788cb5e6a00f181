"""Which batches of a Fetch response a reader sees.

A control batch is never shown. To a reader of what was committed, neither are the records of a
transaction that was aborted: the response lists producer and first offset of each, and everything
transactional that this producer wrote from there on is skipped, up to the marker that ended the
transaction.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from fastcrc import crc32

from penstock.core.protocol.messages.fetch import FetchResponseAbortedTransaction
from penstock.core.records import BatchHeader, ControlType, CorruptBatch, read_control
from penstock.core.records.batch import CONTROL, CRC_START, PREFIX_BYTES

_crc32c = crc32.iscsi


class VisibleBatch(NamedTuple):
    """One batch with records to read: its header and all its bytes."""

    header: BatchHeader
    batch: memoryview


class AbortedTransactionFilter:
    """Which producers are inside an aborted transaction, as batches go by in order."""

    def __init__(self, aborted: Iterable[FetchResponseAbortedTransaction]) -> None:
        self._to_come = sorted(((one.first_offset, one.producer_id) for one in aborted), reverse=True)
        self._inside: set[int] = set()

    def hides(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether the records of this batch were aborted."""
        while self._to_come and self._to_come[-1][0] <= header.last_offset:
            self._inside.add(self._to_come.pop()[1])
        if header.producer_id not in self._inside:
            return False
        if header.is_control:
            if _ends_in_abort(header, batch):
                self._inside.discard(header.producer_id)
            return True
        return header.is_transactional


def shown_batches(
    records: memoryview,
    headers: Iterable[BatchHeader],
    aborted: Sequence[FetchResponseAbortedTransaction],
    end: int,
) -> Iterator[VisibleBatch]:
    """The batches before offset `end` that hold records to show."""
    transactions = AbortedTransactionFilter(aborted) if aborted else None
    start = 0
    for header in headers:
        # By index, for there can be as many batches as records: base offset, length, CRC, attributes.
        if header[0] >= end:
            return
        following = start + PREFIX_BYTES + header[1]
        batch = records[start:following]
        start = following
        if _crc32c(batch[CRC_START:]) != header[4]:
            raise named(header, "its CRC-32C does not match")
        if transactions is not None and transactions.hides(header, batch):
            continue
        if not header[5] & CONTROL:
            yield VisibleBatch(header, batch)


def _ends_in_abort(header: BatchHeader, batch: memoryview) -> bool:
    try:
        return read_control(batch).control_type is ControlType.ABORT
    except CorruptBatch as broken:
        raise named(header, broken) from None


def named(header: BatchHeader, reason: object) -> CorruptBatch:
    """What is wrong with a batch, and which one it is."""
    return CorruptBatch(f"the batch at offset {header.base_offset}: {reason}")
