"""As many records as librdkafka can read."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.client.endpoint import Endpoint, opened
from penstock.client.errors import ClientError, refused

BATCH_RECORDS = 10_000
TURN_SECONDS = 0.1


@dataclass(slots=True)
class Drained:
    """What was read, and what it took from the first fetch on."""

    records: int = 0
    value_bytes: int = 0
    elapsed_ns: int = 0
    first_ns: int = 0
    client_cpu_ns: int = 0


def drain(
    endpoint: Endpoint, topic: str, partitions: Sequence[int], records: int, seconds_max: float
) -> Drained:
    """Read so many records of a topic from its beginning."""
    from confluent_kafka import Consumer, TopicPartition

    settings = endpoint.settings(
        group_id="penstock-bench",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_wait_max_ms=100,
        queued_min_messages=500_000,
        queued_max_messages_kbytes=512 << 10,
        max_partition_fetch_bytes=8 << 20,
        check_crcs=False,
    )
    consumer: Any = opened(Consumer, settings)
    result = Drained()
    began, cpu = time.perf_counter_ns(), time.process_time_ns()
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        while result.records < records:
            messages = consumer.consume(BATCH_RECORDS, TURN_SECONDS)
            now = time.perf_counter_ns()
            if messages:
                result.first_ns = result.first_ns or now - began
                _count(result, messages)
                result.elapsed_ns = now - began
            elif now - began > seconds_max * 1e9:
                raise ClientError(f"{topic}: {result.records} of {records} records read in {seconds_max} s")
        result.elapsed_ns = time.perf_counter_ns() - began
        result.client_cpu_ns = time.process_time_ns() - cpu
    finally:
        consumer.close()
    return result


def _count(result: Drained, messages: list[Any]) -> None:
    for message in messages:
        if message.error() is not None:
            raise refused(message.topic() or "", message.error())
    result.records += len(messages)
    # Records of a load are all of one size; asking each would cost as much as reading it.
    result.value_bytes += len(messages) * len(messages[0])
