"""Clients that exceed a quota: they get the throttle time, and are not read for as long."""

from typing import TYPE_CHECKING

from penstock.core.model import SECOND
from penstock.core.protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from penstock.core.protocol.messages.fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
)
from penstock.core.protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)
from penstock.core.protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from penstock.core.records import Record, write_batch
from penstock.security import QuotaType

if TYPE_CHECKING:
    from tests.unit.server.kafka.handlers.conftest import Stage


def make_topic(stage: "Stage") -> None:
    topic = CreateTopicsRequestTopic(
        name="orders", num_partitions=1, replication_factor=1, assignments=(), configs=()
    )
    stage.ask(CreateTopicsRequest(topics=(topic,), timeout_ms=1_000), CreateTopicsResponse, 5)


def produce() -> ProduceRequest:
    batch = bytes(write_batch([Record(0, 1_700_000_000_000, b"k", b"v")]))
    part = ProduceRequestPartition(index=0, records=batch)
    data = ProduceRequestTopic(name="orders", partition_data=(part,))
    return ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=(data,))


def fetch() -> FetchRequest:
    part = FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
    topic = FetchRequestTopic(topic="orders", partitions=(part,))
    return FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1_000, topics=(topic,))


def latest() -> ListOffsetsRequest:
    part = ListOffsetsRequestPartition(partition_index=0, timestamp=-1)
    topic = ListOffsetsRequestTopic(name="orders", partitions=(part,))
    return ListOffsetsRequest(replica_id=-1, topics=(topic,))


def test_producers_consumers_and_lookups_get_the_throttle_time(stage: "Stage") -> None:
    make_topic(stage)
    stage.authorizer.throttle_ms = 40

    produced = stage.ask(produce(), ProduceResponse, 9)
    fetched = stage.ask(fetch(), FetchResponse, 11)
    listed = stage.ask(latest(), ListOffsetsResponse, 5)

    assert [answer.throttle_time_ms for answer in (produced, fetched, listed)] == [40, 40, 40]
    assert produced.responses[0].partition_responses[0].error_code == 0
    assert [cost for cost, _ in stage.authorizer.charged][-3:] == [
        QuotaType.BYTES_IN,
        QuotaType.BYTES_OUT,
        QuotaType.REQUEST_NS,
    ]


def test_a_throttled_client_gets_its_response_first_and_is_read_again_later(stage: "Stage") -> None:
    make_topic(stage)
    client = stage.client()
    stage.authorizer.throttle_ms = 3_000

    client.send(produce(), 9)
    stage.run(1 * SECOND)
    client.receive(ProduceResponse, 9)
    meanwhile = client.tcp.is_paused
    stage.run(3 * SECOND)

    assert meanwhile
    assert not client.tcp.is_paused
