"""Reading back: whole partitions through file ranges, and single places through the indexes."""

from collections.abc import Callable
from dataclasses import dataclass

from penstock.cli.demo.engine.batches import Share
from penstock.cli.demo.engine.ledger import DemoFailed, Ledger
from penstock.core.model import Instant, Offset, Timestamp
from penstock.core.records import check_batches, read_header, read_records
from penstock.storage.log import PartitionLog

READ_BYTES = 1 << 20
SEEKS = 250

Now = Callable[[], Instant]


@dataclass(slots=True)
class ReadBack:
    """What reading took."""

    records: int = 0
    read_bytes: int = 0
    reading_ns: int = 0
    offset_seeks: int = 0
    offset_seeking_ns: int = 0
    time_seeks: int = 0
    time_seeking_ns: int = 0


def read_back(
    log: PartitionLog, share: Share, now: Now, result: ReadBack, advance: Callable[[int], None]
) -> None:
    """Read a whole partition and compare it with what was sent."""
    found = read_all(log, now, result, advance)
    share.sent.check(found, log.directory)


def read_all(
    log: PartitionLog, now: Now, result: ReadBack, advance: Callable[[int], None], end: Offset | None = None
) -> Ledger:
    """An account of what the log holds, up to `end`."""
    found = Ledger()
    offset = log.start
    limit = log.end if end is None else end
    while offset < limit:
        began = now()
        content = memoryview(log.read(offset, READ_BYTES, end=limit).to_bytes())
        headers = check_batches(content)
        result.reading_ns += now() - began
        result.read_bytes += len(content)
        if not headers:
            raise DemoFailed(f"{log.directory}: nothing to read at offset {offset} of {limit}")
        position = 0
        for header in headers:
            for record in read_records(content[position : position + header.size_bytes]):
                if record.offset != len(found):
                    raise DemoFailed(f"{log.directory}: offset {record.offset} instead of {len(found)}")
                found.note(record)
            position += header.size_bytes
            advance(header.record_count)
        offset = Offset(headers[-1].next_offset)
    result.records += len(found)
    return found


def seek(log: PartitionLog, share: Share, now: Now, result: ReadBack) -> None:
    """Look up offsets and times all over the partition, each against the account of what was sent."""
    for index in range(0, len(share.sent), max(1, len(share.sent) // SEEKS)):
        began = now()
        header = read_header(log.read(Offset(index), 1).to_bytes())
        result.offset_seeking_ns += now() - began
        result.offset_seeks += 1
        if not header.base_offset <= index < header.next_offset:
            raise DemoFailed(f"{log.directory}: offset {index} is not in the batch found for it")
        timestamp = share.sent.timestamps[index] - 1
        began = now()
        found = log.offset_for_timestamp(Timestamp(timestamp))
        result.time_seeking_ns += now() - began
        result.time_seeks += 1
        if found is None or found.offset != share.sent.first_at(timestamp):
            raise DemoFailed(
                f"{log.directory}: the first record from {timestamp} on is not where it should be"
            )
