"""Clients that exceed a quota: they get the throttle time, and are not read for as long."""

import ssl
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
from penstock.runtime.tls import HANDSHAKE_MS
from penstock.security import ANONYMOUS, Principal, QuotaType
from penstock.server.kafka.listener import ListenerSecurity

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


def test_bytes_are_charged_to_those_who_send_and_get_them_and_time_to_everyone(stage: "Stage") -> None:
    make_topic(stage)
    costs: list[set[QuotaType]] = []

    for request, response, version in (
        (produce(), ProduceResponse, 9),
        (fetch(), FetchResponse, 11),
        (latest(), ListOffsetsResponse, 5),
    ):
        stage.authorizer.charged.clear()
        stage.ask(request, response, version)
        costs.append({cost for cost, _ in stage.authorizer.charged})

    time = QuotaType.REQUEST_NS
    assert costs == [{QuotaType.BYTES_IN, time}, {QuotaType.BYTES_OUT, time}, {time}]


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


class Encrypted:
    """What a listener with TLS has; nobody gets as far as to see its certificate."""

    current = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def principal_of(self, _certificate: bytes | None) -> Principal:
        return ANONYMOUS


def test_an_address_that_connects_too_often_waits_for_its_handshake(stage: "Stage") -> None:
    stage.authorizer.hosts.clear()
    stage.authorizer.connection_wait_ms = 2 * HANDSHAKE_MS

    early = stage.client(security=ListenerSecurity(tls=Encrypted()), host="10.0.0.1")

    seen = [(early.tcp.is_paused, early.tcp.is_closed)]
    # Its time for the handshake begins when it is read.
    for seconds in (HANDSHAKE_MS // 500 - 1, 2, HANDSHAKE_MS // 1_000):
        stage.run(seconds * SECOND)
        seen.append((early.tcp.is_paused, early.tcp.is_closed))

    assert stage.authorizer.hosts == ["10.0.0.1"]
    assert seen == [(True, False), (True, False), (False, False), (False, True)]
