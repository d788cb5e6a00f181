"""Kafka messages: Produce v9 and Fetch v12 as on the hot path, Metadata of 100 topics with 10 partitions."""

from benchmarks.micro.measure import figures
from penstock.core.protocol import (
    RequestHeader,
    api,
    decoder,
    encoder,
    read_request_header,
    request_frame,
    response_pieces,
)
from penstock.core.protocol.messages.fetch import FetchResponse, FetchResponsePartition, FetchResponseTopic
from penstock.core.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from penstock.core.protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from penstock.core.records import Record, write_batch

PRODUCE, FETCH = api(0), api(1)


def run() -> dict[str, float]:
    batch = bytes(write_batch([Record(0, 1_700_000_000_000, None, b"x" * 100)] * 100))
    frame = memoryview(request_frame(PRODUCE, RequestHeader(0, 9, 1, "rdkafka"), _produce(batch)))[4:]
    _, start = read_request_header(frame)
    decode = decoder(ProduceRequest, 9)
    answer = _fetched(memoryview(batch))
    metadata, out = _metadata(100, 10), encoder(MetadataResponse, 12)
    results = figures("request_header", lambda: read_request_header(frame))
    results |= figures("produce_v9_decode", lambda: decode(frame, start))
    results |= figures("fetch_v12_encode", lambda: response_pieces(FETCH, 12, 1, answer))
    results |= figures("metadata_v12_100x10_encode", lambda: out(metadata, bytearray()))
    return results


def _produce(batch: bytes) -> ProduceRequest:
    partition = ProduceRequestPartition(index=0, records=batch)
    topic = ProduceRequestTopic(name="metrics.inbound", partition_data=(partition,))
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=(topic,))


def _fetched(records: memoryview) -> FetchResponse:
    partition = FetchResponsePartition(
        partition_index=0,
        error_code=0,
        high_watermark=100,
        last_stable_offset=100,
        log_start_offset=0,
        aborted_transactions=None,
        records=records,
    )
    topic = FetchResponseTopic(topic="metrics.inbound", partitions=(partition,))
    return FetchResponse(throttle_time_ms=0, responses=(topic,))


def _metadata(topics: int, partitions: int) -> MetadataResponse:
    rows = tuple(
        MetadataResponsePartition(
            error_code=0,
            partition_index=index,
            leader_id=1,
            leader_epoch=3,
            replica_nodes=(1, 2, 3),
            isr_nodes=(1, 2, 3),
            offline_replicas=(),
        )
        for index in range(partitions)
    )
    return MetadataResponse(
        brokers=(MetadataResponseBroker(node_id=1, host="127.0.0.1", port=9092),),
        cluster_id="penstock",
        controller_id=1,
        topics=tuple(
            MetadataResponseTopic(error_code=0, name=f"topic-{n}", is_internal=False, partitions=rows)
            for n in range(topics)
        ),
    )
