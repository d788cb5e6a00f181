"""One request after the other on plain sockets."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.client.connection import BrokerConnection
from penstock.client.errors import ClientError
from penstock.core.protocol import ErrorCode, api, decode_whole, read_response_header
from penstock.core.protocol.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from penstock.core.protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from penstock.core.records import Record, write_batch

WARM_UP = 100
# The last versions that name topics instead of numbering them.
PRODUCE_VERSION_MAX = 12
FETCH_VERSION_MAX = 12


@dataclass(slots=True)
class RoundTrips:
    """How long each took."""

    latencies_ns: list[int] = field(default_factory=list)
    elapsed_ns: int = 0


def open_connections(address: tuple[str, int], count: int) -> list[BrokerConnection]:
    """So many connections; only the first asks what the broker speaks."""
    first = BrokerConnection(address)
    versions = dict(first.versions)
    versions[0] = min(versions[0], PRODUCE_VERSION_MAX)
    versions[1] = min(versions[1], FETCH_VERSION_MAX)
    first.close()
    return [BrokerConnection(address, versions=versions) for _ in range(count)]


def publish_frames(
    connection: BrokerConnection, topic: str, partitions: int, value_bytes: int, acks: int
) -> list[bytearray]:
    """A Produce request of one record for each partition, ready to be sent."""
    batch = bytes(write_batch([Record(0, int(time.time_ns() // 1_000_000), None, b"x" * value_bytes, ())]))
    return [
        connection.frame(
            ProduceRequest(
                acks=acks,
                timeout_ms=10_000,
                topic_data=(
                    ProduceRequestTopic(
                        name=topic,
                        partition_data=(ProduceRequestPartition(index=partition, records=batch),),
                    ),
                ),
            )
        )
        for partition in range(partitions)
    ]


def publish(
    connections: Sequence[BrokerConnection], frames: Sequence[bytearray], count: int, seconds_max: float
) -> RoundTrips:
    """Send the frames in turn over the connections in turn, each after the answer to the last."""
    version = connections[0].versions[0]
    for index in range(min(WARM_UP, count)):
        _check(version, connections[index % len(connections)].exchange(frames[index % len(frames)]))
    result = RoundTrips()
    took = result.latencies_ns
    response = b""
    deadline = time.perf_counter_ns() + int(seconds_max * 1e9)
    began = time.perf_counter_ns()
    for index in range(count):
        connection, frame = connections[index % len(connections)], frames[index % len(frames)]
        start = time.perf_counter_ns()
        response = connection.exchange(frame)
        end = time.perf_counter_ns()
        took.append(end - start)
        if end > deadline:
            break
    result.elapsed_ns = time.perf_counter_ns() - began
    _check(version, response)
    return result


def _check(version: int, response: bytes) -> None:
    _, position = read_response_header(api(0), version, response)
    answer = decode_whole(ProduceResponse, response, version, position)
    code = answer.responses[0].partition_responses[0].error_code
    if code != ErrorCode.NONE:
        raise ClientError(f"a Produce request was answered with error {code}")


def fetch_frame(connection: BrokerConnection, topic: str, offset: int, max_wait_ms: int = 0) -> bytearray:
    """A Fetch request for partition 0."""
    partition = FetchRequestPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return connection.frame(
        FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=(FetchRequestTopic(topic=topic, partitions=(partition,)),),
        )
    )


def fetch_empty(connection: BrokerConnection, topic: str, offset: int, count: int) -> RoundTrips:
    """Ask at the end of a partition, where there is nothing, without waiting."""
    frame = fetch_frame(connection, topic, offset)
    for _ in range(min(WARM_UP, count)):
        connection.exchange(frame)
    result = RoundTrips()
    began = time.perf_counter_ns()
    for _ in range(count):
        start = time.perf_counter_ns()
        connection.exchange(frame)
        result.latencies_ns.append(time.perf_counter_ns() - start)
    result.elapsed_ns = time.perf_counter_ns() - began
    return result


def fetch_for(connection: BrokerConnection, topic: str, seconds: float) -> int:
    """Read the start of a partition over and over, to keep a broker busy; answers the bytes."""
    frame = fetch_frame(connection, topic, 0)
    deadline = time.perf_counter() + seconds
    received = 0
    while time.perf_counter() < deadline:
        received += len(connection.exchange(frame))
    return received
