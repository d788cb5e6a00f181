"""DescribeProducers: which producers a partition remembers."""

from collections.abc import Iterator

from penstock.broker.partitions import LeaderPartition
from penstock.core.model import ApiError, ProducerId
from penstock.core.protocol import ErrorCode, Steps
from penstock.core.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersResponsePartition,
    DescribeProducersResponseProducer,
    DescribeProducersResponseTopic,
)
from penstock.core.replica import ProducerState
from penstock.security import AclOperation
from penstock.server.kafka.errors import code_of, message_of
from penstock.server.kafka.partition_lookup import partition_of
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import by_topic_in_steps, collected, unique
from penstock.server.kafka.router import routes

NONE_OPEN = -1
NO_SEQUENCE = -1


@routes.handles(DescribeProducersRequest)
def describe_producers(request: DescribeProducersRequest, call: Request) -> Iterator[None]:
    # Each once, however often it is named: a short request must not have an endless response.
    named = yield from unique(
        (topic.name, index) for topic in request.topics for index in topic.partition_indexes
    )
    rows: list[tuple[str, DescribeProducersResponsePartition]] = []
    for name, index in named:
        row = yield from _row(call, name, index)
        rows.append((name, row))
        yield
    found = yield from by_topic_in_steps(rows)
    topics = yield from collected(
        DescribeProducersResponseTopic(name=name, partitions=rows) for name, rows in found
    )
    call.reply(DescribeProducersResponse(throttle_time_ms=call.charge_time(), topics=topics))


def _row(call: Request, topic: str, index: int) -> Steps[DescribeProducersResponsePartition]:
    partition = partition_of(call, topic, index, AclOperation.READ)
    if not isinstance(partition, ApiError):
        partition = call.backend.offset_lookup.check(partition) or partition
    if isinstance(partition, ApiError):
        return DescribeProducersResponsePartition(
            partition_index=index,
            error_code=code_of(partition),
            error_message=message_of(partition),
            active_producers=(),
        )
    # Those of this moment: others come and go meanwhile.
    present = list(partition.log.producers)
    producers = yield from collected(_producer(partition, *known) for known in present)
    return DescribeProducersResponsePartition(
        partition_index=index, error_code=ErrorCode.NONE, active_producers=producers
    )


def _producer(
    partition: LeaderPartition, producer_id: ProducerId, producer: ProducerState
) -> DescribeProducersResponseProducer:
    last = producer.batches[-1] if producer.batches else None
    started = partition.log.producers.transactions.first_offset_of(producer_id)
    return DescribeProducersResponseProducer(
        producer_id=producer_id,
        producer_epoch=producer.epoch,
        last_sequence=NO_SEQUENCE if last is None else last.last_sequence,
        last_timestamp=producer.seen_at if last is None else last.timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=NONE_OPEN if started is None else started,
    )
