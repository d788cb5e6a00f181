"""`LogReader` against a broker on a thread of the test."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress

import pytest

from penstock.client import Producer
from penstock.client.cluster import ClusterClient, ClusterError, LogReader, OutgoingRecord, Publisher
from penstock.core.protocol import ErrorCode
from penstock.core.records import CompressionType
from penstock.testing import Broker
from penstock.testing import broker as running_broker


@pytest.fixture(scope="module")
def node() -> Iterator[Broker]:
    with running_broker() as found:
        yield found


def run(broker: Broker, scenario: Callable[[Publisher, LogReader], Awaitable[None]]) -> None:
    host, _, port = broker.bootstrap_servers.rpartition(":")

    async def scene() -> None:
        async with (
            ClusterClient([(host, int(port))]) as cluster,
            Publisher(cluster, codec=CompressionType.ZSTD) as publisher,
        ):
            await scenario(publisher, LogReader(cluster))

    asyncio.run(scene())


def test_a_log_is_read_in_parts(node: Broker) -> None:
    async def scenario(publisher: Publisher, reader: LogReader) -> None:
        records = [OutgoingRecord(b"k", b"%d" % number, (("h", b"1"),)) for number in range(10)]
        await publisher.publish("parts", records)
        offset, found = 0, []
        while offset < 10:
            part = await reader.read("parts", 0, offset, count=4)
            assert len(part.records) <= 4
            assert (part.high_watermark, part.log_start) == (10, 0)
            found += part.records
            offset = part.next_offset
        assert [(one.offset, one.key, one.value, one.headers) for one in found] == [
            (number, b"k", b"%d" % number, (("h", b"1"),)) for number in range(10)
        ]
        assert await reader.offsets("parts", 0) == (0, 10)
        assert (await reader.read("parts", 0, 10)).records == []

    run(node, scenario)


def test_one_record_is_found_by_its_offset_inside_a_batch(node: Broker) -> None:
    async def scenario(publisher: Publisher, reader: LogReader) -> None:
        await publisher.publish("one", [OutgoingRecord(None, b"%d" % number) for number in range(3)])
        found = await reader.read_one("one", 0, 1)
        assert found is not None
        assert (found.offset, found.value) == (1, b"1")
        assert await reader.read_one("one", 0, 3) is None
        assert await reader.read_one("one", 0, 99) is None
        with pytest.raises(ClusterError) as raised:
            await reader.read("one", 0, 99)
        assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    run(node, scenario)


def test_a_read_waits_for_the_next_record(node: Broker) -> None:
    async def scenario(publisher: Publisher, reader: LogReader) -> None:
        await publisher.publish("wait", [OutgoingRecord(None, b"first")])
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(reader.read("wait", 0, 1, wait_ms=60_000))
            # Another read on the same broker is not held up.
            assert len((await reader.read("wait", 0, 0)).records) == 1
            assert not waiting.done()
            await publisher.publish("wait", [OutgoingRecord(None, b"second")])
        assert [one.value for one in waiting.result().records] == [b"second"]

    run(node, scenario)


def test_aborted_records_are_shown_only_to_who_asks_for_them(node: Broker) -> None:
    with Producer[str, str](bootstrap_servers=node.bootstrap_servers, transactional_id="reader") as producer:
        with suppress(ZeroDivisionError), producer.transaction() as transaction:
            transaction.send("aborted", "never").result()
            raise ZeroDivisionError
        with producer.transaction() as transaction:
            transaction.send("aborted", "committed")

    async def scenario(_: Publisher, reader: LogReader) -> None:
        committed = await reader.read("aborted", 0, 0)
        assert [one.value for one in committed.records] == [b"committed"]
        assert committed.next_offset == committed.high_watermark
        everything = await reader.read("aborted", 0, 0, is_committed=False)
        assert [one.value for one in everything.records] == [b"never", b"committed"]

    run(node, scenario)
