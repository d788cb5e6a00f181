"""Measurements packed into batches, one list per partition, as a producer's client would."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.cli.demo.engine.ledger import Ledger
from penstock.cli.demo.series import records
from penstock.core.records import BatchHeader, Codec, Record, check_batch, murmur2_partition, write_batch

BATCH_RECORDS = 100
CODEC = Codec.LZ4


class Batch(NamedTuple):
    """A batch ready to be appended, with the header that the check at the door answered."""

    content: bytearray
    header: BatchHeader


@dataclass(slots=True)
class Share:
    """What one partition gets: its batches, and the account of the records in them."""

    batches: list[Batch] = field(default_factory=list)
    sent: Ledger = field(default_factory=Ledger)
    _open: list[Record] = field(default_factory=list)

    def add(self, record: Record) -> None:
        self.sent.note(record)
        self._open.append(record)
        if len(self._open) >= BATCH_RECORDS:
            self.flush()

    def flush(self) -> None:
        if self._open:
            self.batches.append(pack(self._open))
            self._open = []


def pack(members: list[Record]) -> Batch:
    content = write_batch(members, codec=CODEC)
    return Batch(content, check_batch(content))


def share_out(
    count: int, partitions: int, first_timestamp: int, advance: Callable[[int], None]
) -> list[Share]:
    """`count` measurements, each in the partition of its series as the Java client would choose it."""
    shares = [Share() for _ in range(partitions)]
    for record in records(count, first_timestamp):
        shares[murmur2_partition(record.key or b"", partitions)].add(record)
        advance(1)
    for share in shares:
        share.flush()
    return shares


def endless_batches(first_timestamp: int) -> Iterator[list[Record]]:
    """The measurements again, for a writer that goes on until it is stopped."""
    series = records(1 << 30, first_timestamp)
    while True:
        yield [next(series) for _ in range(BATCH_RECORDS)]
