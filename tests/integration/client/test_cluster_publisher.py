"""`Publisher` against a broker on a thread of the test."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from penstock.client.cluster import ClusterClient, ClusterError, OutgoingRecord, Publisher, RecordPosition
from penstock.client.cluster import publisher as publisher_module
from penstock.client.cluster.publisher import _short_key_hash
from penstock.client.connection import BrokerAddress, BrokerConnection
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsRequestTopic
from penstock.core.protocol.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from penstock.core.protocol.schema import ZERO_UUID
from penstock.core.records import murmur2_partition, read_header, read_records
from penstock.core.records.partitioner import murmur2
from penstock.testing import Broker
from penstock.testing import broker as running_broker


@pytest.fixture(scope="module")
def node() -> Iterator[Broker]:
    with running_broker() as found:
        yield found


def address_of(broker: Broker) -> BrokerAddress:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return host, int(port)


def stored(broker: Broker, topic: str, partition: int = 0) -> dict[int, bytes | None]:
    """What a partition holds: the values by offset."""
    connection = BrokerConnection(address_of(broker), versions={1: 12})
    try:
        start = FetchRequestPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 24)
        asked = FetchRequestTopic(topic=topic, partitions=(start,))
        answer = connection.ask(FetchRequest(max_wait_ms=0, min_bytes=0, topics=(asked,)))
        octets = memoryview(bytes(answer.responses[0].partitions[0].records or b""))
        found: dict[int, bytes | None] = {}
        while octets:
            header = read_header(octets)
            found |= {one.offset: one.value for one in read_records(octets[: header.size_bytes])}
            octets = octets[header.size_bytes :]
        return found
    finally:
        connection.close()


def run(broker: Broker, scenario: Callable[[Publisher], Awaitable[None]], **options: Any) -> None:
    async def scene() -> None:
        async with ClusterClient([address_of(broker)]) as cluster, Publisher(cluster, **options) as publisher:
            await scenario(publisher)

    asyncio.run(scene())


def test_records_are_stored_where_their_positions_say(node: Broker) -> None:
    records = [OutgoingRecord(b"key %d" % number, b"value %d" % number) for number in range(100)]
    positions: list[RecordPosition | ClusterError] = []

    async def scenario(publisher: Publisher) -> None:
        positions.extend(await publisher.publish("positions", records))

    node.create_topic("positions", partitions=3)
    run(node, scenario)

    logs = [stored(node, "positions", partition) for partition in range(3)]
    for record, position in zip(records, positions, strict=True):
        assert isinstance(position, RecordPosition)
        assert record.key is not None
        assert position.partition == murmur2_partition(record.key, 3)
        assert logs[position.partition][position.offset] == record.value
    assert sum(map(len, logs)) == len(records)


@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_what_many_callers_publish_is_stored_once_and_in_their_order(node: Broker, acks: int) -> None:
    topic = f"callers{acks}"

    async def scenario(publisher: Publisher) -> None:
        async def caller(name: int) -> None:
            for turn in range(20):
                (position,) = await publisher.publish(
                    topic, [OutgoingRecord(None, b"%d %d" % (name, turn))], acks=acks
                )
                assert isinstance(position, RecordPosition)
                assert position.offset >= 0 or acks == 0

        async with asyncio.TaskGroup() as group:
            for name in range(10):
                group.create_task(caller(name))
        # What comes behind records without a response is stored behind them.
        await publisher.publish(topic, [OutgoingRecord(None, b"10 0")])

    run(node, scenario)

    found = [tuple(map(int, (one or b"").split())) for one in stored(node, topic).values()]
    assert sorted(found) == [*((name, turn) for name in range(10) for turn in range(20)), (10, 0)]
    for name in range(10):
        assert [turn for one, turn in found if one == name] == list(range(20))


def test_long_keys_are_hashed_beside_the_loop_and_nobody_is_overtaken(
    node: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop_hashed: list[int] = []
    loop_thread = threading.current_thread()

    def hashed(key: bytes) -> int:
        if threading.current_thread() is loop_thread:
            loop_hashed.append(len(key))
        return murmur2(key)

    monkeypatch.setattr("penstock.client.cluster.publisher.murmur2", hashed)
    long, medium = b"l" * 50_000, b"m" * 100

    async def scenario(publisher: Publisher) -> None:
        await publisher.publish("long_keys", [OutgoingRecord(b"warm", b"up", partition=0)])
        turns = [
            [OutgoingRecord(long, b"0"), OutgoingRecord(medium, b"1")],
            [OutgoingRecord(medium, b"2")],
            [OutgoingRecord(b"x" * ((1 << 20) + 1), b"refused")],
        ]
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(publisher.publish("long_keys", records)) for records in turns]
        (first, second), (third,), (refused,) = (one.result() for one in asked)
        assert isinstance(first, RecordPosition)
        assert first.partition == murmur2_partition(long, 3)
        assert isinstance(second, RecordPosition)
        assert isinstance(third, RecordPosition)
        assert second.partition == third.partition == murmur2_partition(medium, 3)
        assert second.offset < third.offset
        assert isinstance(refused, ClusterError)
        assert refused.code is ErrorCode.MESSAGE_TOO_LARGE
        # A little is hashed where it is.
        assert loop_hashed == []
        await publisher.publish("long_keys", [OutgoingRecord(medium, b"3")])
        assert loop_hashed == [100]

    kept = _short_key_hash.cache_info().currsize
    node.create_topic("long_keys", partitions=3)
    run(node, scenario)

    assert _short_key_hash.cache_info().currsize == kept


def test_a_record_that_is_too_large_fails_alone(node: Broker) -> None:
    async def scenario(publisher: Publisher) -> None:
        records = [OutgoingRecord(None, b"%d" % number + b"x" * 300_000) for number in range(5)]
        records[2] = OutgoingRecord(None, b"x" * 1_500_000)
        results = await publisher.publish("large", records)
        assert [isinstance(one, RecordPosition) for one in results] == [True, True, False, True, True]
        refused = results[2]
        assert isinstance(refused, ClusterError)
        assert refused.code is ErrorCode.MESSAGE_TOO_LARGE

    run(node, scenario)

    assert [(one or b"")[:1] for one in stored(node, "large").values()] == [b"0", b"1", b"3", b"4"]


def test_wrong_records_fail_alone(node: Broker) -> None:
    async def scenario(publisher: Publisher) -> None:
        results = await publisher.publish(
            "wrong",
            [
                OutgoingRecord(None, b"", partition=9),
                OutgoingRecord(None, b"", timestamp_ms=-(2**63)),
                OutgoingRecord(None, b"", headers=(("\ud800", b""),)),
                OutgoingRecord(None, b"right", partition=0, timestamp_ms=1_000, headers=(("h", None),)),
            ],
        )
        assert [one.code for one in results if isinstance(one, ClusterError)] == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_TIMESTAMP,
            ErrorCode.INVALID_RECORD,
        ]
        assert results[3] == RecordPosition(0, 0, 1_000)

    run(node, scenario)


def test_what_is_no_bytes_is_an_error_and_holds_up_nobody(node: Broker) -> None:
    async def scenario(publisher: Publisher) -> None:
        text: Any = "text"
        (refused,) = await publisher.publish("types", [OutgoingRecord(None, text)])
        assert isinstance(refused, ClusterError)
        assert refused.code is ErrorCode.INVALID_RECORD
        (position,) = await publisher.publish("types", [OutgoingRecord(None, b"bytes")])
        assert isinstance(position, RecordPosition)

    run(node, scenario)


def test_a_call_that_cannot_be_served_returns_an_error_for_each_record(node: Broker) -> None:
    async def scenario(publisher: Publisher) -> None:
        two = [OutgoingRecord(None, b"a"), OutgoingRecord(None, b"b")]
        for topic, acks, code in (
            ("missing", -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("missing", 2, ErrorCode.INVALID_REQUIRED_ACKS),
        ):
            results = await publisher.publish(topic, two, acks=acks)
            assert [one.code for one in results if isinstance(one, ClusterError)] == [code, code]
        assert await publisher.publish("missing", []) == []

    run(node, scenario, creates_topics=False)


def test_records_that_do_not_fit_into_the_buffer_are_refused(node: Broker) -> None:
    async def scenario(publisher: Publisher) -> None:
        kilobyte = [OutgoingRecord(None, b"x" * 1_000)]
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(publisher.publish("buffer", kilobyte)) for _ in range(20)]
        results = [one.result()[0] for one in asked]
        refused = [one for one in results if isinstance(one, ClusterError)]
        assert 0 < len(refused) < 20
        assert {one.code for one in refused} == {ErrorCode.THROTTLING_QUOTA_EXCEEDED}
        assert publisher.buffered_bytes == 0
        (late,) = await publisher.publish("buffer", [OutgoingRecord(None, b"x" * 20_000)])
        assert isinstance(late, ClusterError)
        assert late.code is ErrorCode.MESSAGE_TOO_LARGE

    run(node, scenario, buffer_bytes=10_000)


def test_a_caller_that_stops_waiting_disturbs_nobody_and_close_sends_the_rest(node: Broker) -> None:
    async def scenario(publisher: Publisher) -> None:
        await publisher.publish("cancelled", [OutgoingRecord(None, b"first")])
        async with asyncio.TaskGroup() as group:
            given_up = group.create_task(publisher.publish("cancelled", [OutgoingRecord(None, b"given up")]))
            other = group.create_task(publisher.publish("cancelled", [OutgoingRecord(None, b"other")]))
            await asyncio.sleep(0)
            given_up.cancel()
        assert isinstance(other.result()[0], RecordPosition)
        async with asyncio.TaskGroup() as group:
            last = group.create_task(publisher.publish("cancelled", [OutgoingRecord(None, b"last")]))
            await asyncio.sleep(0)
            last.cancel()

    run(node, scenario)

    assert list(stored(node, "cancelled").values()) == [b"first", b"given up", b"other", b"last"]


def test_topics_that_are_gone_are_forgotten(node: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher_module, "QUEUES_MIN", 4)

    async def scenario(publisher: Publisher) -> None:
        for number in range(20):
            name = f"short-lived-{number}"
            (position,) = await publisher.publish(name, [OutgoingRecord(None, b"a", partition=0)])
            assert isinstance(position, RecordPosition)
            delete = DeleteTopicsRequest(
                topics=(DeleteTopicsRequestTopic(name=name, topic_id=ZERO_UUID),),
                topic_names=(name,),
                timeout_ms=10_000,
            )
            await publisher._cluster.ask(delete)

        assert len(publisher._queues) < 10

    run(node, scenario)


def test_records_for_a_topic_that_was_made_anew_are_not_stored_in_the_new_one(node: Broker) -> None:
    name = node.create_topic()
    outcomes: list[RecordPosition | ClusterError] = []

    async def scenario(publisher: Publisher) -> None:
        await publisher.publish(name, [OutgoingRecord(None, b"before", partition=0)])
        cluster = publisher._cluster
        waiting = asyncio.get_running_loop().create_task(
            publisher.publish(name, [OutgoingRecord(None, b"late", partition=0)])
        )
        # It is queued in this turn of the loop, and sent in the next one.
        await asyncio.sleep(0)
        before = await cluster.topic(name)
        cluster._topics[name] = before._replace(topic_id=UUID(int=1))
        outcomes.extend(await waiting)
        cluster.forget_topic(name)
        outcomes.extend(await publisher.publish(name, [OutgoingRecord(None, b"after", partition=0)]))

    run(node, scenario)

    late, after = outcomes
    assert isinstance(late, ClusterError)
    assert (late.code, "there is another one" in late.detail) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True,
    )  # fmt: skip
    assert isinstance(after, RecordPosition)
    assert list(stored(node, name).values()) == [b"before", b"after"]


def test_nothing_is_lost_or_doubled_when_the_broker_restarts() -> None:
    results: dict[bytes, RecordPosition | ClusterError] = {}

    async def scenario(publisher: Publisher) -> None:
        is_busy, is_back = asyncio.Event(), asyncio.Event()

        async def caller(name: int) -> None:
            turn = 0
            while not is_back.is_set() or turn < 5:
                value = b"%d %d" % (name, turn)
                results[value] = (await publisher.publish("restart", [OutgoingRecord(None, value)]))[0]
                turn += 1
                if turn == 10:
                    is_busy.set()

        async with asyncio.TaskGroup() as group:
            for name in range(5):
                group.create_task(caller(name))
            await is_busy.wait()
            await asyncio.to_thread(broker.nodes[0].stop)
            await asyncio.to_thread(broker.nodes[0].start)
            is_back.set()

    with running_broker() as broker:
        broker.create_topic("restart")
        run(broker, scenario)
        found = stored(broker, "restart")

    assert all(isinstance(one, RecordPosition) for one in results.values())
    assert {one.offset: value for value, one in results.items() if isinstance(one, RecordPosition)} == found
