"""Walking every record of a batch without building any of them.

What the header check leaves open: that the records are as many as the header says,
numbered 0, 1, 2 … without gaps, exactly as long as they claim, and that nothing
follows the last one. Topics that ask for it pay for it; the others do not.
"""

from typing import Final

from penstock.core.records.batch import BatchHeader, Buffer, InvalidRecord, read_header
from penstock.core.records.compression import LIMIT_BYTES, unpack_payload
from penstock.core.records.varints import read_varint, read_varlong

# The least length a field may have.
_NULL: Final = -1
_NOT_NULL: Final = 0
# Length -1 as it stands in a record; and what a number of two bytes is less than.
_NULL_LENGTH: Final = 1
_LONG: Final = 1 << 14


def validate_records(batch: Buffer, limit_bytes: int = LIMIT_BYTES) -> BatchHeader:
    """Make sure a reader will find every record; `check_batch` checks the CRC.

    Raises `InvalidRecord` with the index of the first bad record and what is wrong.
    """
    header = read_header(batch)
    walk(unpack_payload(batch, header, limit_bytes), header.record_count)
    return header


def walk(payload: bytes, record_count: int) -> None:
    """Check `record_count` uncompressed records that must fill `payload` exactly."""
    position = 0
    index = 0
    try:
        while index < record_count:
            end = _end_of_plain(payload, position, index)
            position = _check_record(payload, position, index) if end < 0 else end
            index += 1
    except ValueError as broken:
        raise InvalidRecord(index, str(broken)) from None
    except IndexError:
        raise InvalidRecord(index, "the records end early") from None
    if position != len(payload):
        raise InvalidRecord(record_count, f"{len(payload) - position} bytes follow the last record")


def _end_of_plain(  # noqa: C901 - straight on purpose
    payload: bytes, start: int, offset_delta: int
) -> int:
    """Where the record ends if it is what most are, else -1: numbers of two bytes at most, no headers.

    A number that goes on after two bytes has a bit above theirs. Nothing is called here: as Python, a call
    per number costs as much as the rest.
    """
    try:
        length = payload[start]
        at = start + 2
        if length > 0x7F:
            length = (length & 0x7F) | payload[at - 1] << 7
            at += 1
        end = at - 1 + (length >> 1)
        time = payload[at]
        at += 1
        if time > 0x7F:
            time = payload[at] << 7
            at += 1
        delta = payload[at]
        at += 1
        if delta > 0x7F:
            delta = (delta & 0x7F) | payload[at] << 7
            at += 1
        key = payload[at]
        at += 1
        if key > 0x7F:
            key = (key & 0x7F) | payload[at] << 7
            at += 1
        if key != _NULL_LENGTH:
            at += key >> 1
        value = payload[at]
        at += 1
        if value > 0x7F:
            value = (value & 0x7F) | payload[at] << 7
            at += 1
        if value != _NULL_LENGTH:
            at += value >> 1
        is_plain = (
            at + 1 == end <= len(payload)
            and payload[at] == 0
            and delta == offset_delta << 1
            and length | time | delta | key | value < _LONG
            and length & 1 == 0
            and (key == _NULL_LENGTH or key & 1 == 0)
            and (value == _NULL_LENGTH or value & 1 == 0)
        )
    except IndexError:
        return -1
    return end if is_plain else -1


def _check_record(payload: bytes, position: int, offset_delta_expected: int) -> int:
    length, position = read_varint(payload, position)
    end = position + length
    if length < 0 or end > len(payload):
        raise ValueError(f"length {length} does not fit into the {len(payload) - position} bytes left")
    _, position = read_varlong(payload, position + 1)
    offset_delta, position = read_varint(payload, position)
    if offset_delta != offset_delta_expected:
        raise ValueError(f"offset delta is {offset_delta}, not {offset_delta_expected}")
    position = _skip_field(payload, position, end, _NULL)
    position = _skip_field(payload, position, end, _NULL)
    header_count, position = read_varint(payload, position)
    if header_count:
        position = _skip_headers(payload, position, end, header_count)
    if position != end:
        raise ValueError(f"length {length} is off by {end - position} bytes")
    return position


def _skip_field(payload: bytes, position: int, end: int, length_min: int) -> int:
    length, position = read_varint(payload, position)
    if length < length_min:
        raise ValueError(f"field length {length} is less than {length_min}")
    if length > 0:
        position += length
    if position > end:
        raise ValueError(f"field length {length} runs past the end of the record")
    return position


def _skip_headers(payload: bytes, position: int, end: int, count: int) -> int:
    if count < 0 or count > end - position:
        raise ValueError(f"header count {count} is impossible")
    for _ in range(count):
        position = _skip_field(payload, position, end, _NOT_NULL)
        position = _skip_field(payload, position, end, _NULL)
    return position
