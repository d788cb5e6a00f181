"""`penstock.v1.Penstock`: one method per call, named as in the .proto."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final

import grpc
from google.protobuf.empty_pb2 import Empty

from penstock.client.cluster import ClusterError
from penstock.client.cluster.reader import EARLIEST, LATEST
from penstock.core.metadata import is_internal
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
)
from penstock.core.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsRequestTopic
from penstock.core.protocol.messages.queue_settle import ACKNOWLEDGE, REJECT, RELEASE, RENEW
from penstock.core.protocol.schema import ZERO_UUID
from penstock.runtime.loop import MachineClock, MachineEntropy
from penstock.server.gateway.backend import GatewayBackend
from penstock.server.gateway.errors import NOT_DELETED
from penstock.server.grpc.message_proto import Place, fill_leased, fill_logged
from penstock.server.grpc.options import GrpcOptions
from penstock.server.grpc.publisher import MessagePublisher, fill_response, fill_results
from penstock.server.grpc.statuses import check_name, check_topics, grpc_status, invalid, with_status
from penstock.server.grpc.subscriptions import Subscriptions
from penstock.v1 import penstock_pb2 as proto

ADMIN_MS: Final = 30_000
REPLICATION_MAX: Final = 0x7FFF
WAIT_MS_MAX: Final = 60_000
# As far as brokers go.
LEASE_MS_MAX: Final = 43_200_000
# Of one Subscribe or Poll.
TOPICS_MAX: Final = 100
GROUP_CHARS_MAX: Final = 8_000
# Of consumers and reasons, as in REST.
NAME_CHARS_MAX: Final = 250
# Of the numbers in a message's id, so that they fit their types.
PARTITION_DIGITS: Final = 9
OFFSET_DIGITS: Final = 18
ID_CHARS_SHOWN: Final = 300
CONSUMER_KEY: Final = "penstock-consumer"
RECEIPT_ERRORS_KEY: Final = "penstock-receipt-errors-bin"


class PenstockService:
    """Translates calls to requests on the Kafka port."""

    def __init__(self, backend: GatewayBackend, options: GrpcOptions) -> None:
        self._backend = backend
        self.memory = backend.memory
        self._options = options
        self._entropy = MachineEntropy()
        self._publisher = MessagePublisher(backend, MachineClock().wall, options)
        self._subscriptions = Subscriptions(backend, options.delivery_bytes_max)

    def check_quota(self) -> None:
        """Raise QuotaExceeded while brokers want the caller to wait."""
        self._backend.check_quota()

    @with_status
    async def CreateTopic(self, request: Any, context: Any) -> Any:
        if request.replication_factor > REPLICATION_MAX:
            raise invalid(f"replication_factor: {request.replication_factor} is more than {REPLICATION_MAX}")
        check_topics("name", (request.name,))
        topic = CreateTopicsRequestTopic(
            name=request.name,
            num_partitions=_given(request, "partitions"),
            replication_factor=_given(request, "replication_factor"),
            assignments=(),
            configs=tuple(
                CreateTopicsRequestConfig(name=name, value=value)
                for name, value in sorted(request.config.items())
            ),
        )
        answer = await self._backend.cluster.ask(CreateTopicsRequest(topics=(topic,), timeout_ms=ADMIN_MS))
        created = answer.topics[0]
        _expect(created.error_code, created.error_message)
        self._backend.cluster.forget_topic(request.name)
        return proto.Topic(
            name=created.name,
            id=str(created.topic_id),
            partitions=created.num_partitions,
            replication_factor=created.replication_factor,
        )

    @with_status
    async def DeleteTopic(self, request: Any, context: Any) -> Any:
        check_topics("name", (request.name,))
        if is_internal(request.name):
            raise ClusterError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"name: {NOT_DELETED}")
        topic = DeleteTopicsRequestTopic(name=request.name, topic_id=ZERO_UUID)
        answer = await self._backend.cluster.ask(
            DeleteTopicsRequest(topics=(topic,), topic_names=(request.name,), timeout_ms=ADMIN_MS)
        )
        deleted = answer.responses[0]
        _expect(deleted.error_code, deleted.error_message)
        self._backend.cluster.forget_topic(request.name)
        return Empty()

    @with_status
    async def ListTopics(self, request: Any, context: Any) -> Any:
        topics = await self._backend.cluster.topics()
        return proto.ListTopicsResponse(
            topics=[
                proto.Topic(
                    name=topic.name,
                    id=str(topic.topic_id),
                    partitions=len(topic.partitions),
                    replication_factor=max((len(one.replicas) for one in topic.partitions), default=0),
                )
                for topic in topics
                if not topic.is_internal
            ]
        )

    @with_status
    async def Publish(self, request: Any, context: Any) -> Any:
        if request.messages:
            raise invalid("messages: Publish takes one message; PublishBatch and PublishStream take many")
        (outcome,) = await self._publisher.publish(request.topic, (request,), request.acks)
        if isinstance(outcome, ClusterError):
            raise outcome
        response = proto.PublishResponse()
        fill_response(response, request.topic, outcome)
        return response

    @with_status
    async def PublishBatch(self, request: Any, context: Any) -> Any:
        outcomes = await self._publisher.publish(request.topic, request.messages, request.acks)
        response = proto.PublishBatchResponse()
        fill_results(response.results, outcomes)
        return response

    @with_status
    async def PublishStream(self, requests: Any, context: Any) -> None:
        await self._until_stopping(self._publisher.stream(requests, context), context)

    @with_status
    async def CancelDelays(self, request: Any, context: Any) -> Any:
        if not 0 < len(request.delay_ids) <= self._options.receipts_max:
            raise invalid(
                f"delay_ids: there are {len(request.delay_ids)}, and not 1 to {self._options.receipts_max}"
            )
        outcomes = await self._backend.queues.cancel(request.delay_ids)
        return proto.CancelDelaysResponse(cancelled=[error is None for error in outcomes])

    @with_status
    async def Subscribe(self, request: Any, context: Any) -> None:
        if not request.topics:
            raise invalid("topics: there are none")
        in_flight_max = request.max_in_flight or self._options.in_flight_default
        if not 0 < in_flight_max <= self._options.in_flight_max:
            raise invalid(
                f"max_in_flight: {in_flight_max} is not between 1 and {self._options.in_flight_max}"
            )
        if not 0 <= request.batch_max <= self._options.in_flight_max:
            raise invalid(
                f"batch_max: {request.batch_max} is not between 0 and {self._options.in_flight_max}"
            )
        if request.start not in proto.Start.values():
            raise invalid(f"start: {request.start} is neither START_EARLIEST nor START_LATEST")
        if request.group:
            _check_group(request)
        _check_consumer(request)
        _lease_ms(request)
        consumer = request.consumer or self._new_consumer()
        for topic in request.topics:
            await self._backend.cluster.topic(topic)
        if _is_queue(request):
            stream = self._subscriptions.deliver_queue(request, consumer, in_flight_max, context)
        else:
            starts = await self._starts(request)
            reset = EARLIEST if request.start == proto.START_EARLIEST else LATEST
            stream = self._subscriptions.deliver_log(
                starts, in_flight_max, request.batch_max, context, reset=reset
            )
        # With these the client knows that the stream has its start.
        await context.send_initial_metadata(((CONSUMER_KEY, consumer),))
        await self._until_stopping(stream, context)

    @with_status
    async def Poll(self, request: Any, context: Any) -> Any:
        if not 0 <= request.max <= self._options.in_flight_max:
            raise invalid(f"max: {request.max} is not between 0 and {self._options.in_flight_max}")
        _check_group(request)
        _check_consumer(request)
        if not request.topics:
            raise invalid("topics: there are none")
        received = await self._backend.queues.receive(
            request.group,
            request.consumer or self._new_consumer(),
            request.topics,
            records_max=request.max
            or min(self._backend.limits.poll_records_max, self._options.in_flight_max),
            bytes_max=self._options.delivery_bytes_max,
            wait_ms=_wait_ms(request.wait_ms, context),
            lease_ms=_lease_ms(request),
        )
        response = proto.PollResponse()
        receipts = [record.receipt for record in received.records]
        fill_leased(response.messages, received.records, receipts)
        return response

    @with_status
    async def GetMessage(self, request: Any, context: Any) -> Any:
        topic, partition, offset = _parsed_id(request.id)
        record = await self._backend.reader.read_one(topic, partition, offset)
        if record is None:
            return await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no message {request.id}")
        response = proto.PollResponse()
        fill_logged(response.messages, (topic, partition), (record,))
        return response.messages[0]

    @with_status
    async def Ack(self, request: Any, context: Any) -> Any:
        await self._settle(request, ACKNOWLEDGE, context)
        return Empty()

    @with_status
    async def Nack(self, request: Any, context: Any) -> Any:
        check_name("reason", request.reason, NAME_CHARS_MAX)
        delay_ms = request.delay_ms if request.HasField("delay_ms") else -1
        if request.HasField("delay_ms") and not 0 <= delay_ms <= LEASE_MS_MAX:
            raise invalid(f"delay_ms: {delay_ms} is not between 0 and {LEASE_MS_MAX}")
        action = REJECT if request.reject else RELEASE
        await self._settle(request, action, context, delay_ms=delay_ms, reason=request.reason)
        return Empty()

    @with_status
    async def Renew(self, request: Any, context: Any) -> Any:
        lease_ms = _lease_ms(request)
        await self._settle(request, RENEW, context, lease_ms=lease_ms)
        self._subscriptions.renewed(request.receipts, lease_ms / 1_000 if lease_ms > 0 else None)
        return Empty()

    @with_status
    async def Commit(self, request: Any, context: Any) -> Any:
        _check_group(request)
        check_topics("offsets", (one.topic for one in request.offsets))
        if not 0 < len(request.offsets) <= self._options.receipts_max:
            raise invalid(
                f"offsets: there are {len(request.offsets)}, and not 1 to {self._options.receipts_max}"
            )
        offsets = {(one.topic, one.partition): one.offset for one in request.offsets}
        for place, offset in offsets.items():
            if not place[0]:
                raise invalid("offsets: one has no topic")
            if offset < 0:
                raise invalid(f"offsets: {offset} of {place[0]}/{place[1]} is negative")
        outcomes = await self._backend.membership.commit(request.group, offsets)
        for place, error in outcomes.items():
            if error is not None:
                raise ClusterError(error.code, f"{place[0]}/{place[1]}: {error.detail}")
        return Empty()

    async def _settle(self, request: Any, action: int, context: Any, **choices: Any) -> None:
        """Settle receipts; the first refusal is the status, and the metadata say which were refused."""
        if not 0 < len(request.receipts) <= self._options.receipts_max:
            raise invalid(
                f"receipts: there are {len(request.receipts)}, and not 1 to {self._options.receipts_max}"
            )
        _check_group(request)
        results = await self._backend.queues.settle(request.group, action, request.receipts, **choices)
        if action != RENEW:
            # A receipt that was refused is not in flight either.
            self._subscriptions.settled(request.receipts)
        refused = [index for index, result in enumerate(results) if result is not None]
        if refused:
            errors = proto.ReceiptErrors(indexes=refused).SerializeToString()
            first = results[refused[0]]
            assert first is not None
            await context.abort(
                grpc_status(first),
                f"{first.code.name}: {len(refused)} of {len(results)} receipts; receipts[{refused[0]}]: "
                f"{first.detail}",
                ((RECEIPT_ERRORS_KEY, errors),),
            )

    async def _starts(self, request: Any) -> dict[Place, int]:
        """Where to begin in each partition of the topics."""
        given = {(one.topic, one.partition): one.offset for one in request.positions}
        partitions = [
            (name, partition)
            for name in dict.fromkeys(request.topics)
            for partition in range(len((await self._backend.cluster.topic(name)).partitions))
        ]
        known = frozenset(partitions)
        for place, position in given.items():
            if place not in known:
                raise invalid(f"positions: {place[0]}/{place[1]} is not among the topics")
            # What a client names itself must be there; for a committed offset there is `start`.
            await self._backend.reader.read(*place, position, count=1, bytes_max=1)
        if request.group:
            committed = await self._backend.membership.committed(request.group, partitions)
            given = {place: offset for place, offset in committed.items() if offset is not None} | given
        starts: dict[Place, int] = {}
        for place in partitions:
            if (offset := given.get(place)) is None:
                start, end = await self._backend.reader.offsets(*place)
                offset = start if request.start == proto.START_EARLIEST else end
            starts[place] = offset
        return starts

    async def _until_stopping(self, work: Coroutine[Any, Any, None], context: Any) -> None:
        """Do the work of a stream; when the server stops, the client learns that another one can go on."""
        loop = asyncio.get_running_loop()
        stream = loop.create_task(work)
        stopping = loop.create_task(self._backend.stopping.wait())
        try:
            await asyncio.wait((stream, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            if not stream.done():
                stream.cancel()
                with suppress(asyncio.CancelledError):
                    await stream
        if stream.cancelled():
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the server is stopping")
        stream.result()

    def _new_consumer(self) -> str:
        return f"consumer-{self._entropy.bytes(12).hex()}"


def _expect(code: int, detail: str | None) -> None:
    if code != ErrorCode.NONE:
        raise ClusterError(code, detail)


def _given(request: Any, field: str) -> int:
    """The value of a field; -1 where it is left out, which Kafka takes for the default."""
    if not request.HasField(field):
        return -1
    value = int(getattr(request, field))
    if value < 1:
        raise invalid(f"{field}: {value} is less than 1")
    return value


def _check_group(request: Any) -> None:
    if not request.group:
        raise invalid("group: is missing")
    if len(request.group) > GROUP_CHARS_MAX:
        raise invalid(f"group: has {len(request.group)} characters, and not 1 to {GROUP_CHARS_MAX}")


def _check_consumer(request: Any) -> None:
    """The names in a request for messages, but that of the group."""
    check_name("consumer", request.consumer, NAME_CHARS_MAX)
    if len(request.topics) > TOPICS_MAX:
        raise invalid(f"topics: {len(request.topics)} are more than {TOPICS_MAX}")
    check_topics("topics", request.topics)


def _lease_ms(request: Any) -> int:
    """How long leases last; -1 where it is left out, which is as long as the queue says."""
    if not request.HasField("lease_ms"):
        return -1
    value = int(request.lease_ms)
    if not 0 < value <= LEASE_MS_MAX:
        raise invalid(f"lease_ms: {value} is not between 1 and {LEASE_MS_MAX}")
    return value


def _is_queue(request: Any) -> bool:
    if request.mode not in proto.Mode.values():
        raise invalid(f"mode: {request.mode} is neither MODE_QUEUE nor MODE_LOG")
    if request.mode == proto.MODE_QUEUE and not request.group:
        raise invalid("group: is missing, and MODE_QUEUE needs one")
    return bool(request.mode != proto.MODE_LOG and request.group)


def _wait_ms(asked: int, context: Any) -> int:
    """How long to wait at the broker: no longer than the client does."""
    if asked < 0:
        raise invalid(f"wait_ms: {asked} is negative")
    remaining = context.time_remaining()
    return int(min(asked, WAIT_MS_MAX, asked if remaining is None else max(0, remaining * 900)))


def _parsed_id(text: str) -> tuple[str, int, int]:
    topic, _, rest = text.partition("/")
    partition, _, offset = rest.partition("/")
    check_topics("id", (topic,))
    are_numbers = rest.isascii() and partition.isdecimal() and offset.isdecimal()
    if not topic or not are_numbers or len(partition) > PARTITION_DIGITS or len(offset) > OFFSET_DIGITS:
        raise invalid(f"id: {text[:ID_CHARS_SHOWN]!r} is not topic/partition/offset")
    return topic, int(partition), int(offset)
