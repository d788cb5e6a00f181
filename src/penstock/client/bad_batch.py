"""Why a reader does not get on: records that nobody can read, found by asking for them without librdkafka.

    a batch that cannot be decoded     librdkafka reports some again and again, and of others nothing at all
    damage on the only disk            the broker has an error instead of records (CORRUPT_MESSAGE)

librdkafka goes on behind neither. A broker that checks what it is sent takes few bad batches, but logs may
be older than the checks. Where damage ends, nobody says: the next offset that can be read is looked for, at
first near and then in doubling steps, so that a few good records between two damages may be passed over.
"""

import asyncio
from typing import NamedTuple

from penstock.client.cluster import ClusterClient, cluster_security
from penstock.client.cluster.errors import ClusterError
from penstock.client.endpoint import Endpoint
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
)
from penstock.core.records import CorruptBatch, check_batch, read_header, read_records

# The first batch comes whole, however large.
_ONE_BATCH_BYTES = 1
DAMAGED = "they are damaged on the broker's disk (`penstock log verify` there says more)"
# Behind the end there is no damage either.
_READABLE = (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE)


class BadBatch(NamedTuple):
    """Offsets without records that could be read, of one batch or of damage, and what is wrong there."""

    start: int
    end: int
    reason: str
    is_damage: bool = False

    @property
    def what(self) -> str:
        offsets = (
            f"offset {self.start}"
            if self.end == self.start + 1
            else f"offsets {self.start} to {self.end - 1}"
        )
        subject = offsets if self.is_damage else f"the batch of {offsets}"
        return f"{subject} cannot be read: {self.reason}"


def bad_batch_at(endpoint: Endpoint, topic: str, partition: int, offset: int) -> BadBatch | None:
    """The batch with this offset, if it cannot be read. None as well where that cannot be found out."""
    if endpoint.needs_librdkafka:
        return None
    try:
        return asyncio.run(_look(endpoint, topic, partition, offset))
    except ClusterError:
        return None


async def _look(endpoint: Endpoint, topic: str, partition: int, offset: int) -> BadBatch | None:
    security = cluster_security(endpoint)
    async with ClusterClient(endpoint.addresses(), client_id="penstock", security=security) as cluster:
        row = await _fetch(cluster, topic, partition, offset)
        if row is None:
            return None
        if row.error_code == ErrorCode.CORRUPT_MESSAGE:
            end = await _next_readable(cluster, topic, partition, offset)
            return None if end is None else BadBatch(offset, end, DAMAGED, is_damage=True)
        if row.error_code != ErrorCode.NONE or not isinstance(row.records, memoryview) or not row.records:
            return None
        return _judge(row.records)


async def _fetch(
    cluster: ClusterClient, topic: str, partition: int, offset: int
) -> FetchResponsePartition | None:
    """What a leader says of the batch at this offset; None if it says nothing."""
    place = FetchRequestPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=_ONE_BATCH_BYTES
    )
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=_ONE_BATCH_BYTES,
        topics=(FetchRequestTopic(topic=topic, partitions=(place,)),),
    )
    answer = await cluster.ask_leader(topic, partition, request)
    assert isinstance(answer, FetchResponse)
    if answer.error_code != ErrorCode.NONE or not answer.responses:
        return None
    return answer.responses[0].partitions[0]


async def _next_readable(cluster: ClusterClient, topic: str, partition: int, offset: int) -> int | None:
    """The first offset behind damage at this one; the end of the partition if there is none."""
    damaged, step = offset, 1
    while True:
        row = await _fetch(cluster, topic, partition, offset + step)
        if row is None or row.error_code not in (*_READABLE, ErrorCode.CORRUPT_MESSAGE):
            return None
        if row.error_code in _READABLE:
            break
        damaged, step = offset + step, step * 2
    readable = offset + step
    while readable - damaged > 1:
        middle = (damaged + readable) // 2
        row = await _fetch(cluster, topic, partition, middle)
        if row is None or row.error_code not in (*_READABLE, ErrorCode.CORRUPT_MESSAGE):
            return None
        if row.error_code in _READABLE:
            readable = middle
        else:
            damaged = middle
    return readable


def _judge(octets: memoryview) -> BadBatch | None:
    try:
        header = read_header(octets)
    except CorruptBatch:
        # Without a header nobody knows where the next batch begins.
        return None
    try:
        check_batch(octets, compacted=True)
        if not header.is_control:
            for _ in read_records(octets):
                pass
    except CorruptBatch as broken:
        return BadBatch(header.base_offset, header.next_offset, str(broken))
    return None
