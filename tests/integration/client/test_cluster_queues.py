"""`QueueClient` against a broker on a thread of the test."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator

import pytest

from penstock.client.cluster import (
    ClusterClient,
    ClusterError,
    DelayedPublish,
    LogReader,
    OutgoingRecord,
    Publisher,
    QueueClient,
)
from penstock.core.protocol import ErrorCode
from penstock.core.records import Record
from penstock.testing import Broker
from penstock.testing import broker as running_broker


@pytest.fixture(scope="module")
def node() -> Iterator[Broker]:
    with running_broker() as found:
        yield found


def run(broker: Broker, scenario: Callable[[Publisher, QueueClient, LogReader], Awaitable[None]]) -> None:
    host, _, port = broker.bootstrap_servers.rpartition(":")

    async def scene() -> None:
        async with ClusterClient([(host, int(port))]) as cluster, Publisher(cluster) as publisher:
            await scenario(publisher, QueueClient(cluster), LogReader(cluster))

    asyncio.run(scene())


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def put(publisher: Publisher, topic: str, *values: str) -> None:
    await publisher.publish(topic, [OutgoingRecord(None, value.encode()) for value in values])


def test_what_is_acked_is_finished_and_what_is_nacked_comes_again(node: Broker) -> None:
    async def scenario(publisher: Publisher, queues: QueueClient, _: LogReader) -> None:
        await put(publisher, "acks", "a", "b")
        first, second = (await queues.receive("g", "one", ["acks"], wait_ms=10_000)).records
        assert (first.value, first.attempt, second.value) == (b"a", 1, b"b")
        assert await queues.renew("g", [first.receipt, second.receipt], lease_ms=60_000) == [None, None]
        assert await queues.ack("g", [first.receipt]) == [None]
        assert await queues.nack("g", [second.receipt], delay_ms=0, reason="again") == [None]

        (again,) = (await queues.receive("g", "two", {"acks": [0]}, wait_ms=10_000)).records

        assert (again.value, again.attempt) == (b"b", 2)
        (late,) = await queues.ack("g", [second.receipt])
        assert isinstance(late, ClusterError)
        assert late.code is ErrorCode.INVALID_RECORD_STATE
        assert await queues.ack("g", [again.receipt]) == [None]
        assert not (await queues.receive("g", "one", ["acks"])).records

    run(node, scenario)


def test_what_is_rejected_is_a_dead_letter(node: Broker) -> None:
    async def scenario(publisher: Publisher, queues: QueueClient, reader: LogReader) -> None:
        await put(publisher, "rejected", "bad")
        (record,) = (await queues.receive("g", "one", ["rejected"], wait_ms=10_000)).records
        assert await queues.reject("g", [record.receipt], reason="no use") == [None]

        await publisher.publish("rejected.dlq", [OutgoingRecord(None, b"marker")])
        found: list[Record] = []
        offset = 0
        while len(found) < 2:
            read = await reader.read("rejected.dlq", 0, offset, wait_ms=10_000)
            found += read.records
            offset = read.next_offset

        (letter,) = (one for one in found if one.value == b"bad")
        assert dict(letter.headers)["penstock-error"] == b"no use"

    run(node, scenario)


def test_a_dead_letter_goes_back_where_it_came_from(node: Broker) -> None:
    async def scenario(publisher: Publisher, queues: QueueClient, reader: LogReader) -> None:
        await put(publisher, "moved", "bad")
        await put(publisher, "moved.dlq", "no dead letter")
        (record,) = (await queues.receive("g", "one", ["moved"], wait_ms=10_000)).records
        await queues.reject("g", [record.receipt])
        await reader.read("moved.dlq", 0, 1, wait_ms=10_000)
        (row,) = await queues.redrive("moved.dlq", {0: [1]}, is_dry_run=True)
        assert [(one.offset, one.to_topic) for one in row.records] == [(1, "moved")]
        (row,) = await queues.redrive("moved.dlq", {0: [1]})
        assert (row.error_code, [one.error_code for one in row.records]) == (0, [0])
        (again,) = (await queues.receive("g", "one", ["moved"], wait_ms=10_000)).records
        assert (again.value, again.attempt) == (b"bad", 1)

    run(node, scenario)


def test_a_queue_is_described_looked_into_paused_and_reset(node: Broker) -> None:
    async def scenario(publisher: Publisher, queues: QueueClient, _: LogReader) -> None:
        await put(publisher, "described", "a", "b")
        (held,) = (await queues.receive("d", "one", ["described"], records_max=1, wait_ms=10_000)).records
        (row,) = await queues.describe(["d"], ["described"])
        assert (row.ready, row.leased, row.is_paused) == (1, 1, False)
        peeked = await queues.peek("d", "described", 0)
        assert [(one.value, one.attempts) for one in peeked.records] == [(b"a", 1), (b"b", 0)]
        await queues.pause("d", "described")
        assert (await queues.receive("d", "one", ["described"])).is_paused
        await queues.resume("d", "described")
        await queues.reset("d", "described")
        assert not (await queues.receive("d", "one", ["described"])).records
        assert isinstance((await queues.ack("d", [held.receipt]))[0], ClusterError)
        await queues.forget("d", "described")
        assert await queues.describe(["d"]) == ()

    run(node, scenario)


def test_a_delayed_record_is_listed_and_cancelled_or_published(node: Broker) -> None:
    async def scenario(publisher: Publisher, queues: QueueClient, reader: LogReader) -> None:
        await put(publisher, "later", "first")
        far, soon, wrong = await queues.delay(
            [
                DelayedPublish("later", None, b"never", now_ms() + 3_600_000),
                DelayedPublish("later", b"k", b"second", now_ms() + 10, (("h", b"1"),)),
                DelayedPublish("not/a/topic", None, b"", now_ms()),
            ]
        )
        assert isinstance(far, str)
        assert isinstance(soon, str)
        assert isinstance(wrong, ClusterError)
        (published,) = (await reader.read("later", 0, 1, wait_ms=10_000)).records
        assert (published.key, published.value) == (b"k", b"second")
        assert [one.delay_id for one in (await queues.delays("later")).delays] == [far]
        assert await queues.cancel([far]) == [None]
        assert isinstance((await queues.cancel([far]))[0], ClusterError)

    run(node, scenario)


def test_a_receive_that_waits_gets_what_is_published_meanwhile(node: Broker) -> None:
    async def scenario(publisher: Publisher, queues: QueueClient, _: LogReader) -> None:
        await put(publisher, "waiting", "first")
        (record,) = (await queues.receive("g", "one", ["waiting"], wait_ms=10_000)).records
        await queues.ack("g", [record.receipt])
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(queues.receive("g", "one", ["waiting"], wait_ms=60_000))
            await put(publisher, "waiting", "second")
        assert [one.value for one in waiting.result().records] == [b"second"]

    run(node, scenario)


def test_a_queue_of_a_topic_that_is_missing_is_an_error(node: Broker) -> None:
    async def scenario(_: Publisher, queues: QueueClient, __: LogReader) -> None:
        with pytest.raises(ClusterError) as raised:
            await queues.receive("g", "one", ["missing"])
        assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(node, scenario)
