"""What `Publisher` does when a leader loses responses, or does not know its producer any more.

The leader of these tests is a server that keeps sequences as Kafka's brokers do, and does with each
Produce request what its script says.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from penstock.client.cluster import ClusterClient, ClusterError, OutgoingRecord, Publisher, RecordPosition
from penstock.core.protocol import (
    APIS,
    ErrorCode,
    Message,
    api,
    decode_whole,
    read_request_header,
    response_frame,
)
from penstock.core.protocol.messages.api_versions import ApiVersionsResponse, ApiVersionsResponseApi
from penstock.core.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from penstock.core.protocol.messages.init_producer_id import InitProducerIdResponse
from penstock.core.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from penstock.core.protocol.messages.produce import (
    ProduceRequest,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseTopic,
)
from penstock.core.records import read_header, read_records

TOPIC = "orders"
SERVED = {0: 12, 3: 12, 18: 0, 19: 7, 22: 4}
STORE, STORE_AND_DROP, DROP, FORGET = "store", "store and drop", "drop", "forget"
# A leader that stops says so to everyone who waits, whether their records are in the log or not.
STORE_AND_STOP = "store and stop"


class ScriptedLeader:
    """One partition; what the script does not say is stored."""

    def __init__(self, script: Sequence[str | ErrorCode]) -> None:
        self.script = list(script)
        self.bytes_max = 1 << 20
        self.topic_error = ErrorCode.NONE
        # Requests to produce and to create topics wait for this, and whatever is behind them on the same
        # connection.
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.is_waiting = asyncio.Event()
        self.values: list[bytes | None] = []
        self.requests = 0
        self.producer_ids = 0
        self._next_sequences: dict[int, int] = {}
        self._last_offsets: dict[tuple[int, int], int] = {}
        self._ends: list[asyncio.Event] = []

    async def start(self) -> tuple[str, int]:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self._address = str(host), int(port)
        return self._address

    async def close(self) -> None:
        self._server.close()
        for end in self._ends:
            await end.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        end = asyncio.Event()
        self._ends.append(end)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
                header, position = read_request_header(frame)
                about = api(header.api_key)
                request = decode_whole(about.request, memoryview(frame), header.api_version, position)
                if isinstance(request, (ProduceRequest, CreateTopicsRequest)):
                    self.is_waiting.set()
                    await self.goes_on.wait()
                answer = self._answer(header.api_key, request)
                if answer is None:
                    return
                if isinstance(request, ProduceRequest) and request.acks == 0:
                    continue
                writer.write(response_frame(about, header.api_version, header.correlation_id, answer))
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()
            end.set()

    def _answer(self, key: int, request: Any) -> Message | None:
        if key == 18:
            rows = [
                ApiVersionsResponseApi(api_key=one, min_version=APIS[one].versions[0], max_version=last)
                for one, last in SERVED.items()
            ]
            return ApiVersionsResponse(error_code=0, api_keys=tuple(rows))
        if key == 22:
            self.producer_ids += 1
            return InitProducerIdResponse(
                throttle_time_ms=0, error_code=0, producer_id=self.producer_ids, producer_epoch=0
            )
        if key == 3:
            partition = MetadataResponsePartition(
                error_code=0, partition_index=0, leader_id=1, replica_nodes=(1,), isr_nodes=(1,)
            )
            topic = MetadataResponseTopic(error_code=self.topic_error, name=TOPIC, partitions=(partition,))
            host, port = self._address
            return MetadataResponse(
                brokers=(MetadataResponseBroker(node_id=1, host=host, port=port),), topics=(topic,)
            )
        if key == 19:
            return CreateTopicsResponse(throttle_time_ms=0, topics=())
        return self._produce(request)

    def _produce(self, request: ProduceRequest) -> Message | None:
        self.requests += 1
        step = self.script.pop(0) if self.script else STORE
        if step == DROP:
            return None
        if isinstance(step, ErrorCode):
            return _response(step, -1)
        if step == FORGET:
            self._next_sequences.clear()
        batch = request.topic_data[0].partition_data[0].records
        assert batch is not None
        if len(batch) > self.bytes_max:
            return _response(ErrorCode.MESSAGE_TOO_LARGE, -1)
        code, offset = self._append(batch)
        if step == STORE_AND_STOP:
            return _response(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        return None if step == STORE_AND_DROP else _response(code, offset)

    def _append(self, batch: bytes | memoryview) -> tuple[ErrorCode, int]:
        header = read_header(batch)
        producer, first = header.producer_id, header.base_sequence
        if producer >= 0:
            if (producer, first) in self._last_offsets:
                return ErrorCode.NONE, self._last_offsets[producer, first]
            expected = self._next_sequences.get(producer)
            if expected is None and first:
                return ErrorCode.UNKNOWN_PRODUCER_ID, -1
            if expected is not None and first != expected:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            self._next_sequences[producer] = first + header.record_count
            self._last_offsets[producer, first] = len(self.values)
        offset = len(self.values)
        self.values += [record.value for record in read_records(batch)]
        return ErrorCode.NONE, offset


def _response(code: ErrorCode, offset: int) -> ProduceResponse:
    row = ProduceResponsePartition(index=0, error_code=code, base_offset=offset)
    return ProduceResponse(responses=(ProduceResponseTopic(name=TOPIC, partition_responses=(row,)),))


def run(
    script: ScriptedLeader | Sequence[str | ErrorCode],
    scenario: Callable[[Publisher], Awaitable[None]],
    delivery_seconds: float = 30.0,
    buffer_bytes: int = 64 << 20,
) -> ScriptedLeader:
    leader = script if isinstance(script, ScriptedLeader) else ScriptedLeader(script)

    async def scene() -> None:
        address = await leader.start()
        async with (
            ClusterClient([address]) as cluster,
            Publisher(cluster, delivery_seconds=delivery_seconds, buffer_bytes=buffer_bytes) as publisher,
        ):
            try:
                await scenario(publisher)
            finally:
                leader.script.clear()
                leader.goes_on.set()
        await leader.close()

    asyncio.run(scene())
    return leader


async def publish(
    publisher: Publisher, *values: bytes, acks: int = -1
) -> list[RecordPosition | ClusterError]:
    return await publisher.publish(TOPIC, [OutgoingRecord(None, value) for value in values], acks=acks)


def offsets(results: list[RecordPosition | ClusterError]) -> list[int]:
    return [one.offset if isinstance(one, RecordPosition) else -1 for one in results]


def test_a_batch_whose_response_is_lost_is_stored_once() -> None:
    async def scenario(publisher: Publisher) -> None:
        assert offsets(await publish(publisher, b"a", b"b")) == [0, 1]
        assert offsets(await publish(publisher, b"c")) == [2]
        assert offsets(await publish(publisher, b"d")) == [3]

    leader = run([STORE_AND_DROP, DROP, STORE, ErrorCode.REQUEST_TIMED_OUT], scenario)

    assert leader.values == [b"a", b"b", b"c", b"d"]
    assert leader.producer_ids == 1


def test_a_refusal_that_is_over_soon_is_tried_again() -> None:
    async def scenario(publisher: Publisher) -> None:
        assert offsets(await publish(publisher, b"a")) == [0]

    refusals = [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.LEADER_NOT_AVAILABLE,
    ]
    leader = run(refusals, scenario)

    assert (leader.values, leader.requests) == ([b"a"], 4)


def test_a_leader_that_forgot_the_producer_gets_the_batch_under_a_new_id() -> None:
    async def scenario(publisher: Publisher) -> None:
        assert offsets(await publish(publisher, b"a")) == [0]
        assert offsets(await publish(publisher, b"b")) == [1]

    leader = run([STORE, FORGET], scenario)

    assert leader.values == [b"a", b"b"]
    assert leader.producer_ids == 2


def test_what_may_be_stored_already_is_never_sent_under_a_new_id() -> None:
    async def scenario(publisher: Publisher) -> None:
        assert offsets(await publish(publisher, b"a")) == [0]
        (lost,) = await publish(publisher, b"b")
        assert isinstance(lost, ClusterError)
        assert lost.code is ErrorCode.UNKNOWN_PRODUCER_ID
        assert "not known" in lost.detail
        assert offsets(await publish(publisher, b"c")) == [1]

    # The second batch is lost on its way, as far as anybody knows, and then nobody knows its producer.
    leader = run([STORE, DROP, FORGET], scenario)

    assert leader.values == [b"a", b"c"]
    assert leader.producer_ids == 2


def test_records_with_an_unknown_fate_do_not_hold_up_the_next_ones() -> None:
    leader = ScriptedLeader([STORE_AND_DROP, *[DROP] * 1_000])

    async def scenario(publisher: Publisher) -> None:
        (lost,) = await publish(publisher, b"a")
        assert isinstance(lost, ClusterError)
        assert "not known" in lost.detail
        leader.script.clear()
        assert offsets(await publish(publisher, b"b")) == [1]

    run(leader, scenario, delivery_seconds=1.0)

    # The first was stored, though nobody said so; the next does not depend on that.
    assert leader.values == [b"a", b"b"]
    assert leader.producer_ids == 2


@pytest.mark.parametrize("lost", [STORE_AND_DROP, STORE_AND_STOP])
def test_with_acks_of_the_leader_too_what_may_be_stored_is_stored_once(lost: str) -> None:
    async def scenario(publisher: Publisher) -> None:
        assert offsets(await publish(publisher, b"a", acks=1)) == [0]
        assert offsets(await publish(publisher, b"b", acks=-1)) == [1]
        assert offsets(await publish(publisher, b"c", acks=1)) == [2]

    leader = run([lost], scenario)

    assert leader.values == [b"a", b"b", b"c"]
    # The sequences of one kind of acks do not depend on the other's.
    assert leader.producer_ids == 2


@pytest.mark.parametrize("acks", [-1, 1])
def test_a_batch_that_a_stopped_leader_may_have_stored_gives_up_its_sequence(acks: int) -> None:
    leader = ScriptedLeader([STORE_AND_STOP, *[ErrorCode.NOT_LEADER_OR_FOLLOWER] * 1_000])

    async def scenario(publisher: Publisher) -> None:
        (lost,) = await publish(publisher, b"a", acks=acks)
        assert isinstance(lost, ClusterError)
        assert lost.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert "not known" in lost.detail
        leader.script.clear()
        assert offsets(await publish(publisher, b"b", acks=acks)) == [1]

    run(leader, scenario, delivery_seconds=0.2)

    # Under the old sequence the leader would take the second for the first, and say that it is stored.
    assert leader.values == [b"a", b"b"]


def test_a_topic_that_seems_to_be_gone_gives_up_its_sequences() -> None:
    leader = ScriptedLeader([STORE, STORE_AND_DROP])

    async def scenario(publisher: Publisher) -> None:
        assert offsets(await publish(publisher, b"a")) == [0]
        leader.topic_error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        (lost,) = await publish(publisher, b"b")
        assert isinstance(lost, ClusterError)
        assert lost.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert "not known" in lost.detail
        leader.topic_error = ErrorCode.NONE
        assert offsets(await publish(publisher, b"c")) == [2]

    run(leader, scenario)

    # Sequence 0 of the same producer was the first record.
    assert leader.values == [b"a", b"b", b"c"]
    assert leader.producer_ids == 2


def test_without_acks_a_leader_that_does_not_read_is_not_sent_records_without_end() -> None:
    leader = ScriptedLeader([])
    large = b"x" * 500_000

    async def scenario(publisher: Publisher) -> None:
        leader.goes_on.clear()
        # The sockets' buffers take a few megabytes, ours one.
        for _ in range(200):
            (result,) = await publish(publisher, large, acks=0)
            if isinstance(result, ClusterError):
                break
        assert isinstance(result, ClusterError)
        assert result.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        leader.goes_on.set()
        # An acknowledgement comes when everything before it was read.
        for acks in (-1, 0, -1):
            assert isinstance((await publish(publisher, b"%d" % acks, acks=acks))[0], RecordPosition)

    run(leader, scenario, buffer_bytes=1 << 20)

    assert leader.values[-3:] == [b"-1", b"0", b"-1"]


def test_records_that_wait_for_replicas_and_topics_that_are_created_hold_up_nothing_else() -> None:
    leader = ScriptedLeader([])

    async def scene() -> None:
        async with (
            ClusterClient([await leader.start()]) as cluster,
            Publisher(cluster) as publisher,
            asyncio.TaskGroup() as group,
        ):
            # Metadata, the producer id and the connections are there.
            await publish(publisher, b"first")
            leader.is_waiting.clear()
            leader.goes_on.clear()
            produced = group.create_task(publish(publisher, b"slow"))
            await leader.is_waiting.wait()
            leader.is_waiting.clear()
            created = group.create_task(cluster.ask(CreateTopicsRequest(topics=(), timeout_ms=1_000)))
            await leader.is_waiting.wait()
            async with asyncio.timeout(10):
                assert [one.name for one in await cluster.topics()] == [TOPIC]
            assert not produced.done()
            assert not created.done()
            leader.goes_on.set()
        await leader.close()

    asyncio.run(scene())

    assert leader.values == [b"first", b"slow"]


def test_an_error_that_stays_is_returned_and_the_sequence_goes_on() -> None:
    async def scenario(publisher: Publisher) -> None:
        (refused,) = await publish(publisher, b"a")
        assert isinstance(refused, ClusterError)
        assert refused.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert offsets(await publish(publisher, b"b")) == [0]

    leader = run([ErrorCode.TOPIC_AUTHORIZATION_FAILED], scenario)

    assert (leader.values, leader.producer_ids) == ([b"b"], 1)


def test_a_batch_that_is_too_large_for_the_topic_is_halved_until_one_record_stands_alone() -> None:
    leader = ScriptedLeader([])
    leader.bytes_max = 500

    async def scenario(publisher: Publisher) -> None:
        values = [b"%d" % number + b"x" * 100 for number in range(10)]
        values[4] = b"x" * 1_000
        results = await publish(publisher, *values)
        assert offsets(results) == [0, 1, 2, 3, -1, 4, 5, 6, 7, 8]
        refused = results[4]
        assert isinstance(refused, ClusterError)
        assert refused.code is ErrorCode.MESSAGE_TOO_LARGE
        requests = leader.requests
        # Once it is known, batches stay small.
        assert offsets(await publish(publisher, b"a" * 100, b"b" * 100)) == [9, 10]
        assert leader.requests - requests <= 2

    run(leader, scenario)

    assert [(value or b"")[:1] for value in leader.values] == [
        b"0",
        b"1",
        b"2",
        b"3",
        b"5",
        b"6",
        b"7",
        b"8",
        b"9",
        b"a",
        b"b",
    ]
    assert leader.producer_ids == 1
