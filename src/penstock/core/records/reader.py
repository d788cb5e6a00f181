"""Taking records out of a batch."""

from collections.abc import Iterator

from penstock.core.records.buffers import Buffer
from penstock.core.records.compression import LIMIT_BYTES, unpack_payload
from penstock.core.records.errors import InvalidRecord
from penstock.core.records.header import BatchHeader, read_header
from penstock.core.records.record import Record, read_record


def read_records(batch: Buffer, limit_bytes: int = LIMIT_BYTES) -> Iterator[Record]:
    """The records of the one batch at the start of `batch`, decoded as they are asked for.

    Compressed records are unpacked at once, `limit_bytes` at most. The CRC is not looked
    at: a log has checked it before. Gaps between offsets are fine, for the cleaner
    makes them; offsets that do not grow are not.
    """
    header = read_header(batch)
    return _decode(unpack_payload(batch, header, limit_bytes), header)


def _decode(payload: bytes, header: BatchHeader) -> Iterator[Record]:
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.is_log_append_time else None
    position, last_delta = 0, -1
    for index in range(header.record_count):
        try:
            position, delta, timestamp_delta, key, value, headers = read_record(payload, position)
        except ValueError as broken:
            raise InvalidRecord(index, str(broken)) from None
        except IndexError:
            raise InvalidRecord(index, "the records end early") from None
        if not last_delta < delta <= header.last_offset_delta:
            raise InvalidRecord(
                index, f"offset delta {delta} after {last_delta}, of {header.last_offset_delta}"
            )
        last_delta = delta
        timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
        yield Record(base_offset + delta, timestamp, key, value, headers)
    if position != len(payload):
        raise InvalidRecord(header.record_count, f"{len(payload) - position} bytes follow the last record")
