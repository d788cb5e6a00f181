"""Facts as records of `__delayed`, in schemas of our own: the `RecordCodec` of delays.

    kind   fact              value, version 0
    0      DelayStored       DelayedRecordValue
    1      DelaysFinished    DelaysFinishedValue
    2      DelaysEnding      DelaysEndingValue, in a transactional batch of its producer

Delays without headers and producer, nearly all, are written and read by hand: the same bytes, in a third of
the time, which is most of what a start with many of them takes.

The topic must be neither compacted nor cut by retention, as `__queue_state`. A kind that is not known is an
error: without it, what follows is wrong.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias, assert_never

from penstock.core.delays import (
    DelayCoordinator,
    DelayedRecord,
    DelayFact,
    DelayFinish,
    DelaysEnding,
    DelaysFinished,
    DelayStored,
    DelayTransactionEnded,
)
from penstock.core.model import Offset, ProducerEpoch, ProducerId, ProtocolError, Timestamp
from penstock.core.protocol.delayed_records import (
    DELAY_KEYS,
    DelayedRecordHeader,
    DelayedRecordValue,
    DelayKey,
    DelayProducer,
    DelaysEndingValue,
    DelaysFinishedValue,
)
from penstock.core.protocol.state_records import read_key, read_stored, write_stored
from penstock.core.queues import TransactionProducer
from penstock.core.records import BatchHeader, CompressionType, ControlRecord, ControlType
from penstock.core.records.batch import HEADER_BYTES

VERSION = 0
STORED, FINISHED, ENDING = range(3)
_SEVERAL = -1
# As in record batches: names that are not UTF-8 survive.
_UTF8_ERRORS = "surrogateescape"
# Version, kind, id and no tagged fields.
_KEY = struct.Struct(">hbqb")
_STORED_KEY = b"\x00\x00\x00"
# Version and time; where the topic's name begins.
_TIME = struct.Struct(">hq")
_PARTITION = struct.Struct(">i")
# No headers, no producer, no tagged fields.
_PLAIN_END = b"\x01\xff\x00"
_PLAIN_MIN = _TIME.size + 2 + _PARTITION.size + 2 + len(_PLAIN_END)
# Inside of a record batch: the key with its length before it; the value up to the length of the topic's name.
_RECORD_KEY = struct.Struct(">Bhbqb")
_TIME_AND_NAME = struct.Struct(">hqB")
# The record itself has no headers either.
_PLAIN_RECORD_END = _PLAIN_END + b"\x00"
_Located: TypeAlias = tuple[int, Timestamp, Offset, int, str]
_LENGTHS = [bytes((number,)) for number in range(0x80)]


def encode(fact: DelayFact) -> tuple[bytes, bytes | None]:
    """The key and value of the fact's record."""
    match fact:
        case DelayStored():
            record = fact.record
            if not record.headers and fact.producer is None:
                return _KEY.pack(VERSION, STORED, fact.id, 0), _write_plain(fact.deliver_at, record)
            headers = tuple(
                DelayedRecordHeader(name=name.encode("utf-8", _UTF8_ERRORS), value=value)
                for name, value in record.headers
            )
            stored = DelayedRecordValue(
                deliver_at=fact.deliver_at,
                topic=record.topic,
                partition=record.partition,
                key=record.key,
                value=record.value,
                headers=headers,
                producer=None if fact.producer is None else _producer(fact.producer),
            )
            return _key(STORED, fact.id), write_stored(stored, VERSION)
        case DelaysFinished():
            finished = DelaysFinishedValue(cause=fact.cause.value, ids=fact.ids)
            return _key(FINISHED, _SEVERAL), write_stored(finished, VERSION)
        case DelaysEnding():
            ending = DelaysEndingValue(producer=_producer(fact.producer), ids=fact.ids)
            return _key(ENDING, _SEVERAL), write_stored(ending, VERSION)
        case DelayTransactionEnded():
            raise AssertionError("a marker is not a record")
        case _:
            assert_never(fact)


def decode(key: bytes | None, value: bytes | None) -> DelayFact | None:
    """The fact in a record; None for one that is not of a delay. Raises ProtocolError if it is damaged."""
    if key is None:
        return None
    return _read_plain(key, value) or _read_any(key, value)


def _read_any(key: bytes, value: bytes | None) -> DelayFact | None:
    try:
        decoded = read_key(DELAY_KEYS, key)
    except ProtocolError:
        return None
    assert isinstance(decoded, DelayKey)
    if value is None:
        raise ProtocolError(f"a record of kind {decoded.kind} of a delay has no value")
    match decoded.kind:
        case 0:
            return _read_stored(decoded.id, value)
        case 1:
            return _read_finished(value)
        case 2:
            ending = read_stored(DelaysEndingValue, value)
            return DelaysEnding(_producer_of(ending.producer), ending.ids)
        case _:
            raise ProtocolError(f"there is no record of kind {decoded.kind} of a delay")


def located(fact: DelayFact, offset: Offset) -> DelayFact:
    """The fact as the machine gets it: a delay's record is read again when it is due."""
    if not isinstance(fact, DelayStored):
        return fact
    return DelayStored(*fact[:-1], offset)


def load_batch(machine: DelayCoordinator, batch: memoryview, header: BatchHeader) -> bool:
    """Have the machine take over a batch of plain delays, without decoding their records."""
    found = None if header.codec is not CompressionType.NONE else _scan(bytes(batch), header)
    if found is not None:
        machine.load(found)
    return found is not None


def _scan(batch: bytes, header: BatchHeader) -> list[_Located] | None:
    """Id, time, offset, size and topic of each delay, as `decode` would find them.

    None: other records are among them, or any that this writer would not write so.
    """
    found: list[_Located] = []
    at, offset = HEADER_BYTES, header.base_offset
    name, topic = b"", ""
    try:
        for _ in range(header.record_count):
            length, at = _read_varint(batch, at)
            end = at + length
            # Behind attributes and time: the offset, in one byte or two.
            key_at = at + (3 if batch[at + 2] < 0x80 else 4)
            key_bytes, key_version, kind, delay_id, tags = _RECORD_KEY.unpack_from(batch, key_at)
            length, value_at = _read_varint(batch, key_at + _RECORD_KEY.size)
            version, deliver_at, name_length = _TIME_AND_NAME.unpack_from(batch, value_at)
            if (
                key_bytes != 2 * _KEY.size
                or key_version | kind | tags | version
                or delay_id < 0
                or not 1 < name_length < 0x80
                or value_at + length + 1 != end
                or batch[end - len(_PLAIN_RECORD_END) : end] != _PLAIN_RECORD_END
            ):
                return None
            at = value_at + _TIME_AND_NAME.size
            if batch[at : at + name_length - 1] != name:
                name = batch[at : at + name_length - 1]
                topic = name.decode()
            length, at = _read_length(batch, at + name_length - 1 + _PARTITION.size)
            size_bytes = max(0, length)
            length, at = _read_length(batch, at + size_bytes)
            if length > 0:
                size_bytes += length
                at += length
            if at != end - len(_PLAIN_RECORD_END):
                return None
            found.append((delay_id, deliver_at, Offset(offset), size_bytes, topic))
            offset += 1
            at = end
    except (IndexError, struct.error, UnicodeDecodeError):
        return None
    is_whole = at == len(batch) and offset == header.next_offset
    return found if is_whole else None


def _read_varint(batch: bytes, at: int) -> tuple[int, int]:
    """A length of one or two bytes; one that is longer or negative fits nowhere."""
    low = batch[at]
    if low < 0x80:
        return low >> 1, at + 1
    high = batch[at + 1]
    return len(batch) if high >= 0x80 else (high << 7 | low & 0x7F) >> 1, at + 2


class DelayTransactions:
    """How delays that transactions end are stored: the `TransactionalFacts` of delays."""

    def producer_of(self, fact: DelayFact) -> tuple[int, int] | None:
        """The producer id and epoch of the batch that the fact's record belongs to, if any."""
        return (fact.producer.producer_id, fact.producer.epoch) if isinstance(fact, DelaysEnding) else None

    def in_transaction(self, fact: DelayFact, producer_id: int, producer_epoch: int) -> DelayFact:  # noqa: ARG002
        """The fact of a record that stands in a transactional batch: it names its producer itself."""
        return fact

    def ended(self, marker: ControlRecord) -> DelayTransactionEnded:
        """The fact of a marker."""
        return DelayTransactionEnded(
            ProducerId(marker.producer_id), marker.control_type is ControlType.COMMIT
        )

    def to_copy_before(
        self,
        machine: DelayCoordinator,  # noqa: ARG002
        marker: ControlRecord,  # noqa: ARG002
        *,
        is_rewriting: bool,  # noqa: ARG002
    ) -> Sequence[DelayFact]:
        """Nothing: a rewritten record says which transaction decides on it."""
        return ()


def _key(kind: int, delay_id: int) -> bytes:
    return write_stored(DelayKey(kind=kind, id=delay_id), VERSION)


def _write_plain(deliver_at: int, record: DelayedRecord) -> bytes:
    """A `DelayedRecordValue` without headers and producer."""
    topic, partition, key, value, _ = record
    try:
        start, place = _TIME.pack(VERSION, deliver_at), _PARTITION.pack(partition)
    except struct.error as error:
        raise ProtocolError(f"a delay does not fit its record: {error}") from None
    return b"".join(
        (
            start,
            _topic_bytes(topic),
            place,
            _length(key),
            key or b"",
            _length(value),
            value or b"",
            _PLAIN_END,
        )
    )


@lru_cache(maxsize=1_024)
def _topic_bytes(topic: str) -> bytes:
    name = topic.encode()
    return _length(name) + name


def _length(content: bytes | None) -> bytes:
    """The length of nullable bytes, plus one, as an unsigned varint."""
    number = 0 if content is None else len(content) + 1
    if number < 0x80:
        return _LENGTHS[number]
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_plain(key: bytes, value: bytes | None) -> DelayStored | None:
    """The delay, if it is one without headers and producer; None: it is something else, or damaged."""
    if value is None or len(key) != _KEY.size or not key.startswith(_STORED_KEY):
        return None
    version, _, delay_id, tags = _KEY.unpack(key)
    end = len(value) - len(_PLAIN_END)
    if version or tags or delay_id < 0 or len(value) < _PLAIN_MIN or not value.endswith(_PLAIN_END):
        return None
    version, deliver_at = _TIME.unpack_from(value)
    name_length = value[_TIME.size]
    at = _TIME.size + name_length
    if version or not 0 < name_length < 0x80 or at + _PARTITION.size + 2 > end:
        return None
    (partition,) = _PARTITION.unpack_from(value, at)
    name, at = value[_TIME.size + 1 : at], at + _PARTITION.size
    length, at = _read_length(value, at)
    record_key = None if length < 0 else value[at : at + length]
    at += max(0, length)
    if at >= end:
        return None
    length, at = _read_length(value, at)
    if at + max(0, length) != end:
        return None
    try:
        topic = name.decode()
    except UnicodeDecodeError:
        return None
    content = None if length < 0 else value[at:end]
    return DelayStored(delay_id, deliver_at, DelayedRecord(topic, partition, record_key, content))


def _read_length(value: bytes, at: int) -> tuple[int, int]:
    """The length of nullable bytes, -1 for null, and where they start; `value` does not end here."""
    byte = value[at]
    at += 1
    if byte < 0x80:
        return byte - 1, at
    number, shift = byte & 0x7F, 7
    while byte >= 0x80 and at < len(value):
        byte = value[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
    return number - 1, at


def _producer(producer: TransactionProducer) -> DelayProducer:
    return DelayProducer(producer_id=producer.producer_id, producer_epoch=producer.epoch)


def _producer_of(stored: DelayProducer) -> TransactionProducer:
    return TransactionProducer(ProducerId(stored.producer_id), ProducerEpoch(stored.producer_epoch))


def _read_stored(delay_id: int, value: bytes) -> DelayStored:
    stored = read_stored(DelayedRecordValue, value)
    if delay_id < 0:
        raise ProtocolError(f"{delay_id} is not the id of a delay")
    headers = tuple((_name_of(each), each.value) for each in stored.headers)
    return DelayStored(
        delay_id,
        Timestamp(stored.deliver_at),
        DelayedRecord(stored.topic, stored.partition, stored.key, stored.value, headers),
        None if stored.producer is None else _producer_of(stored.producer),
    )


def _name_of(header: DelayedRecordHeader) -> str:
    if header.name is None:
        raise ProtocolError("a header of a delayed record has no name")
    return header.name.decode("utf-8", _UTF8_ERRORS)


def _read_finished(value: bytes) -> DelaysFinished:
    finished = read_stored(DelaysFinishedValue, value)
    try:
        cause = DelayFinish(finished.cause)
    except ValueError:
        raise ProtocolError(f"there is no cause {finished.cause} for a delay to be over") from None
    return DelaysFinished(finished.ids, cause)
