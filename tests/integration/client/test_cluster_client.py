"""`ClusterClient` against a broker on a thread of the test."""

import asyncio
from collections.abc import Iterator

import pytest

from penstock.client.cluster import ClusterClient, ClusterError, ConnectionLost
from penstock.client.cluster.client import error_codes
from penstock.client.connection import BrokerAddress
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.create_topics import CreateTopicsRequest
from penstock.core.protocol.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from penstock.core.protocol.messages.list_groups import ListGroupsRequest
from penstock.core.protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
)
from penstock.core.protocol.messages.metadata import MetadataRequest
from penstock.core.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from penstock.testing import Broker
from penstock.testing import broker as running_broker


@pytest.fixture(scope="module")
def node() -> Iterator[Broker]:
    with running_broker() as found:
        found.create_topic("orders", partitions=3)
        yield found


def address_of(broker: Broker) -> BrokerAddress:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return host, int(port)


EVERYTHING = MetadataRequest(topics=None, allow_auto_topic_creation=False)


def end_of(topic: str, partition: int) -> ListOffsetsRequest:
    row = ListOffsetsRequestPartition(partition_index=partition, timestamp=-1)
    return ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsRequestTopic(name=topic, partitions=(row,)),))


def test_many_requests_share_one_connection(node: Broker) -> None:
    async def scenario() -> None:
        async with ClusterClient([address_of(node)]) as cluster:
            async with asyncio.TaskGroup() as group:
                asked = [
                    group.create_task(cluster.ask_leader("orders", turn % 3, end_of("orders", turn % 3)))
                    for turn in range(50)
                ]
            assert [one.result().topics[0].partitions[0].partition_index for one in asked] == [
                turn % 3 for turn in range(50)
            ]

    asyncio.run(scenario())


def test_topics_have_their_partitions_and_leaders(node: Broker) -> None:
    async def scenario() -> None:
        async with ClusterClient([address_of(node)]) as cluster:
            found = await cluster.topic("orders")
            assert [one.partition for one in found.partitions] == [0, 1, 2]
            assert all(one.leader in one.replicas for one in found.partitions)
            assert cluster.cached_topic("orders") is found
            assert found in await cluster.topics()

    asyncio.run(scenario())


def test_a_topic_that_is_missing_is_an_error_unless_it_may_be_created(node: Broker) -> None:
    async def scenario() -> None:
        async with ClusterClient([address_of(node)]) as cluster:
            with pytest.raises(ClusterError) as raised:
                await cluster.topic("missing")
            assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert len((await cluster.topic("made", create=True)).partitions) == 1
            with pytest.raises(ClusterError) as raised:
                await cluster.topic("not/a/name", create=True)
            assert raised.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
            with pytest.raises(ClusterError, match="no partition 7"):
                await cluster.ask_leader("orders", 7, end_of("orders", 7))

    asyncio.run(scenario())


def test_a_coordinator_is_found_and_asked(node: Broker) -> None:
    async def scenario() -> None:
        async with ClusterClient([address_of(node)]) as cluster:
            group = OffsetFetchRequestGroup(group_id="workers", topics=None)
            answer = await cluster.ask_coordinator(0, "workers", OffsetFetchRequest(groups=(group,)))
            assert answer.groups[0].group_id == "workers"
            assert set(error_codes(answer)) == {0}

    asyncio.run(scenario())


def test_a_request_that_waits_does_not_hold_up_the_others(node: Broker) -> None:
    async def scenario() -> None:
        async with ClusterClient([address_of(node)]) as cluster:
            start = FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
            fetch = FetchRequest(
                max_wait_ms=60_000,
                min_bytes=1,
                topics=(FetchRequestTopic(topic="orders", partitions=(start,)),),
            )
            async with asyncio.TaskGroup() as group:
                waiting = group.create_task(cluster.ask_leader("orders", 0, fetch, seconds=90, waits=True))
                for _ in range(3):
                    await cluster.ask_leader("orders", 0, end_of("orders", 0))
                assert not waiting.done()
                waiting.cancel()

    asyncio.run(scenario())


def test_a_caller_that_stops_waiting_disturbs_nobody(node: Broker) -> None:
    async def scenario() -> None:
        async with ClusterClient([address_of(node)]) as cluster:
            await cluster.topic("orders")
            async with asyncio.TaskGroup() as group:
                first = group.create_task(cluster.ask(EVERYTHING))
                second = group.create_task(cluster.ask(ListGroupsRequest()))
                await asyncio.sleep(0)
                first.cancel()
            assert second.result().error_code == 0

    asyncio.run(scenario())


def test_a_request_is_repeated_after_a_restart_of_the_broker() -> None:
    async def scenario(broker: Broker) -> None:
        async with ClusterClient([address_of(broker)]) as cluster:
            await cluster.topic("orders")
            broker.nodes[0].stop()
            with pytest.raises(ClusterError) as raised:
                await cluster.ask(EVERYTHING, seconds=0.5)
            assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT
            async with asyncio.TaskGroup() as group:
                asked = group.create_task(cluster.ask_leader("orders", 0, end_of("orders", 0)))
                await asyncio.to_thread(broker.nodes[0].start)
            assert asked.result().topics[0].partitions[0].error_code == 0

    with running_broker() as broker:
        broker.create_topic("orders")
        asyncio.run(scenario(broker))


def test_a_lost_response_is_an_error_if_the_request_must_not_come_twice() -> None:
    async def scenario() -> None:
        requests = 0
        served: list[asyncio.Event] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal requests
            served.append(asyncio.Event())
            ended = served[-1]
            try:
                # ApiVersions v0: no error, and two keys: Metadata and CreateTopics.
                head = await reader.readexactly(4)
                frame = await reader.readexactly(int.from_bytes(head, "big"))
                body = frame[4:8] + bytes.fromhex("0000 00000002 0003 0000 000c 0013 0000 0007")
                writer.write(len(body).to_bytes(4, "big") + body)
                await reader.readexactly(4)
                requests += 1
            except asyncio.IncompleteReadError:
                pass
            finally:
                writer.close()
                ended.set()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        try:
            async with ClusterClient([server.sockets[0].getsockname()]) as cluster:
                with pytest.raises(ConnectionLost):
                    await cluster.ask(CreateTopicsRequest(topics=(), timeout_ms=1_000))
                assert requests == 1
                with pytest.raises(ClusterError) as raised:
                    await cluster.ask(EVERYTHING, seconds=0.5)
                assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT
                assert requests > 2
            for one in served:
                await one.wait()
        finally:
            server.close()

    asyncio.run(scenario())
