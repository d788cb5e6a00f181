"""Which errors a producer gets for records that are rejected."""

from typing import TYPE_CHECKING

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from penstock.core.protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from penstock.core.records import Record, write_batch

if TYPE_CHECKING:
    from tests.support.wire import Wire


def test_every_record_that_makes_a_batch_unacceptable_is_named(wire: "Wire") -> None:
    compacted = CreateTopicsRequestTopic(
        name="compacted",
        num_partitions=1,
        replication_factor=1,
        assignments=(),
        configs=(CreateTopicsRequestConfig(name="cleanup.policy", value="compact"),),
    )
    wire.ask(CreateTopicsRequest(topics=(compacted,)), CreateTopicsResponse, 7)
    keys = [None, b"a", None, b"b", None]
    batch = write_batch([Record(n, 0, key, b"value", ()) for n, key in enumerate(keys)])
    partition = ProduceRequestPartition(index=0, records=bytes(batch))
    topic = ProduceRequestTopic(name="compacted", partition_data=(partition,))

    answer = wire.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=(topic,)), ProduceResponse, 8)

    (row,) = answer.responses[0].partition_responses
    assert row.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in row.record_errors] == [0, 2, 4]
