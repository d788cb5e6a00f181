"""Why a reader does not get on: a batch that nobody can decode, found by reading it without librdkafka.

librdkafka reports some of these batches again and again, and of others nothing at all; it goes on behind
neither. A broker that checks what it is sent takes few of them, but logs may be older than the checks.
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
)
from penstock.core.records import CorruptBatch, check_batch, read_header, read_records

# The first batch comes whole, however large.
_ONE_BATCH_BYTES = 1


class BadBatch(NamedTuple):
    """The offsets of a batch without records that could be read, and what is wrong with it."""

    start: int
    end: int
    reason: str

    @property
    def what(self) -> str:
        offsets = (
            f"offset {self.start}"
            if self.end == self.start + 1
            else f"offsets {self.start} to {self.end - 1}"
        )
        return f"the batch of {offsets} cannot be read: {self.reason}"


def bad_batch_at(endpoint: Endpoint, topic: str, partition: int, offset: int) -> BadBatch | None:
    """The batch with this offset, if it cannot be read. None as well where that cannot be found out."""
    if endpoint.needs_librdkafka:
        return None
    try:
        return asyncio.run(_look(endpoint, topic, partition, offset))
    except ClusterError:
        return None


async def _look(endpoint: Endpoint, topic: str, partition: int, offset: int) -> BadBatch | None:
    place = FetchRequestPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=_ONE_BATCH_BYTES
    )
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=_ONE_BATCH_BYTES,
        topics=(FetchRequestTopic(topic=topic, partitions=(place,)),),
    )
    security = cluster_security(endpoint)
    async with ClusterClient(endpoint.addresses(), client_id="penstock", security=security) as cluster:
        answer = await cluster.ask_leader(topic, partition, request)
        assert isinstance(answer, FetchResponse)
        if answer.error_code != ErrorCode.NONE or not answer.responses:
            return None
        row = answer.responses[0].partitions[0]
        if row.error_code != ErrorCode.NONE or not isinstance(row.records, memoryview) or not row.records:
            return None
        return _judge(row.records)


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
