"""Batches that are not what they say, and small ones that are large once they are unpacked."""

import itertools
import time

from benchmarks.attacks.attack import Attacker, AttackTable
from penstock.client.connection import BrokerConnection
from penstock.core.metadata.configs.topic import MESSAGE_BYTES_MAX
from penstock.core.protocol import ErrorCode, RequestHeader, api, request_frame
from penstock.core.protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from penstock.core.protocol.messages.queue_receive import QueueReceiveRequest, QueueReceiveRequestTopic
from penstock.core.records import CompressionType, Record, read_header, write_batch
from penstock.core.records.batch import LAYOUT, seal

PRODUCE_VERSION = 9
batches = AttackTable("batches")


def plain_batch(value_bytes: int = 100, records: int = 1, **header: int) -> bytes:
    """A batch as it should be, but for what is said otherwise."""
    now = time.time_ns() // 1_000_000
    batch = write_batch([Record(0, now, b"key", b"x" * value_bytes, ()) for _ in range(records)])
    return resealed(batch, **header)


def resealed(batch: bytearray, **header: int) -> bytes:
    """Other values in the header of a batch, and a checksum that fits."""
    changed = read_header(batch)._replace(**header)
    batch[: LAYOUT.size] = LAYOUT.pack(*changed)
    seal(batch, 0, len(batch))
    return bytes(batch)


def bomb(unpacked_bytes: int, codec: CompressionType = CompressionType.ZSTD) -> bytes:
    """A batch of a few hundred bytes that is this long when it is unpacked."""
    now = time.time_ns() // 1_000_000
    return bytes(write_batch([Record(0, now, b"key", bytes(unpacked_bytes), ())], codec=codec))


def produce_frame(topic: str, batch: bytes, partition: int = 0, acks: int = -1) -> bytearray:
    data = ProduceRequestTopic(
        name=topic, partition_data=(ProduceRequestPartition(index=partition, records=batch),)
    )
    request = ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=(data,))
    return request_frame(api(0), RequestHeader(0, PRODUCE_VERSION, 1, "attacker"), request)


def produce(
    attacker: Attacker, connection: BrokerConnection, topic: str, batch: bytes, partition: int = 0
) -> int:
    """Send one batch; returns the error code, which is counted by its name."""
    response = attacker.exchange(connection, produce_frame(topic, batch, partition))
    # Correlation id and the tags of the header: five bytes.
    found = ProduceResponse.decode(response, PRODUCE_VERSION, 5)
    code = int(found.responses[0].partition_responses[0].error_code)
    attacker.counts[f"produce: {ErrorCode(code).name}"] += 1
    return code


def poison_payloads() -> dict[str, bytes]:
    """Records that are none, behind a header that is right: only who unpacks them can know."""
    noise = bytearray(plain_batch())
    noise[LAYOUT.size :] = b"\xfe" * (len(noise) - LAYOUT.size)
    zstd = bytearray(bomb(1_000))
    zstd[LAYOUT.size :] = b"\x28\xb5\x2f\xfd" + b"\xff" * (len(zstd) - LAYOUT.size - 4)
    return {
        "noise": resealed(noise),
        "broken zstd": resealed(zstd),
        "count above the records": plain_batch(record_count=1_000, last_offset_delta=999),
        "count below the records": plain_batch(records=5, record_count=1, last_offset_delta=0),
    }


def poison_headers() -> dict[str, bytes]:
    """Headers that no client may send, each wrong in one way, with a checksum that fits."""
    empty = bytearray(plain_batch()[: LAYOUT.size])
    return {
        "empty payload with a count": resealed(empty, batch_length=LAYOUT.size - 12),
        "count above the last delta": plain_batch(record_count=1_000),
        "count below the last delta": plain_batch(records=5, record_count=1),
        "count of 2^31-1": plain_batch(record_count=2**31 - 1, last_offset_delta=2**31 - 2),
        "last delta of 2^31-1": plain_batch(last_offset_delta=2**31 - 1),
        "negative last delta": plain_batch(last_offset_delta=-5),
        "count of 0": plain_batch(record_count=0, last_offset_delta=-1),
        "negative count": plain_batch(record_count=-1),
        "unknown codec": plain_batch(attributes=7),
        "control bit": plain_batch(attributes=0x20),
        "delete horizon bit": plain_batch(attributes=0x40),
        "unused bits": plain_batch(attributes=0x7F80),
        "transactional without a producer": plain_batch(attributes=0x10),
        "timestamp of the far future": plain_batch(max_timestamp=2**62),
        "sequence without an epoch": plain_batch(producer_id=1, producer_epoch=-1, base_sequence=0),
    }


def poison_batches() -> dict[str, bytes]:
    return {**poison_headers(), **poison_payloads()}


def _plain_topic(attacker: Attacker) -> None:
    attacker.create_topic("poisoned")


@batches.attack("poison-batches", prepare=_plain_topic)
def poison(attacker: Attacker) -> None:
    """Batches that are wrong in twenty ways, with checksums that fit."""
    wrong = itertools.cycle(poison_batches().items())

    def step(connection: BrokerConnection) -> None:
        name, batch = next(wrong)
        if produce(attacker, connection, "poisoned", batch) == ErrorCode.NONE:
            attacker.counts[f"took {name}"] += 1

    attacker.insist(step)


@batches.attack("poison-queue", prepare=_plain_topic)
def poison_queue(attacker: Attacker) -> None:
    """Broken batches in a topic that a queue reads."""
    wrong = itertools.cycle(poison_batches().values())

    def step(connection: BrokerConnection) -> None:
        produce(attacker, connection, "poisoned", next(wrong))
        attacker.ask(
            connection,
            QueueReceiveRequest(
                group_id="poisoned-queue",
                consumer="c",
                topics=(QueueReceiveRequestTopic(topic="poisoned"),),
                records_max=10,
            ),
        )

    attacker.insist(step)


def _compacted_topic(attacker: Attacker) -> None:
    attacker.create_topic(
        "bombs", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", segment_ms="1000"
    )


@batches.attack("zstd-bombs-compacted", prepare=_compacted_topic)
def bombs_compacted(attacker: Attacker) -> None:
    """Batches of 1 KB for a compacted topic that are 8 MB when they are unpacked, 100 a second."""
    packed = bomb(8 << 20)

    def step(connection: BrokerConnection) -> None:
        produce(attacker, connection, "bombs", packed)
        attacker.pause(0.01)

    attacker.insist(step)


def _topic_of_gzip(attacker: Attacker) -> None:
    attacker.create_topic("bombs", compression_type="gzip")


@batches.attack("zstd-bombs-recompressed", prepare=_topic_of_gzip)
def bombs_recompressed(attacker: Attacker) -> None:
    """Batches of 1 KB that are 900 KB unpacked, for a topic whose broker compresses them anew."""
    packed = bomb(900_000)
    attacker.insist(lambda connection: produce(attacker, connection, "bombs", packed))


@batches.attack("zstd-bombs-queue", prepare=_plain_topic)
def bombs_queue(attacker: Attacker) -> None:
    """Batches of 1 KB that are 8 MB when a queue unpacks them."""
    packed = bomb(8 << 20)

    def step(connection: BrokerConnection) -> None:
        produce(attacker, connection, "poisoned", packed)
        attacker.ask(
            connection,
            QueueReceiveRequest(
                group_id="bombed-queue",
                consumer="c",
                topics=(QueueReceiveRequestTopic(topic="poisoned"),),
                records_max=10,
                lease_ms=1_000,
            ),
        )

    attacker.insist(step)


def _topics_for_large_batches(attacker: Attacker) -> None:
    largest = str(MESSAGE_BYTES_MAX)
    attacker.create_topic("large", max_message_bytes=largest)
    attacker.create_topic("large-compacted", max_message_bytes=largest, cleanup_policy="compact")


@batches.attack("large-batches", prepare=_topics_for_large_batches)
def large_batches(attacker: Attacker) -> None:
    """The largest batches that a topic can take, and those of 1 MB, as fast as they are taken."""
    sizes = itertools.cycle((1_000_000, MESSAGE_BYTES_MAX - 1_000))
    topics = itertools.cycle(("large", "large", "large-compacted", "large-compacted"))
    made = {size: plain_batch(value_bytes=size) for size in (1_000_000, MESSAGE_BYTES_MAX - 1_000)}
    attacker.start()
    attacker.insist(lambda connection: produce(attacker, connection, next(topics), made[next(sizes)]))
