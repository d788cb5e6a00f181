"""Produce: the hot path in.

The records stay in the receive buffer until they are appended. `broker.produce` decides what is
appended and when it is acknowledged; this module only translates.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator
from functools import partial
from typing import NamedTuple
from uuid import UUID

from penstock.broker.partitions import LeaderPartition
from penstock.broker.produce import AppendResult, PendingBatch, PendingProduce, ProduceService, Results
from penstock.broker.transactions.verification import TransactionalRequest
from penstock.core.metadata import INTERNAL_TOPICS
from penstock.core.model import ApiError, ErrorKind, TopicId
from penstock.core.protocol import ErrorCode, TooManyEntries, exceeds_entries
from penstock.core.protocol.codec import decoder_in_steps, decoders
from penstock.core.protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
    ProduceResponseLeader,
    ProduceResponseNode,
    ProduceResponsePartition,
    ProduceResponseRecordError,
    ProduceResponseTopic,
)
from penstock.security import AclOperation, QuotaType, Resource, ResourceType
from penstock.server.kafka.errors import code_of, message_of
from penstock.server.kafka.partition_lookup import LeaderHints, PartitionLeader, partition_of
from penstock.server.kafka.request import Request
from penstock.server.kafka.request_limits import REQUEST_LIMITS
from penstock.server.kafka.response_rows import collected
from penstock.server.kafka.response_template import MARKS, ResponseTemplates, Template
from penstock.server.kafka.router import routes
from penstock.server.kafka.slice_scheduler import SMALL_BYTES

TOPIC_IDS_SINCE = 13
LEADERS_SINCE = 10
# KIP-890: the client aborts by itself on TRANSACTION_ABORTABLE; its first batch adds the partition.
ABORTABLE_SINCE = 11
ADDS_PARTITIONS_SINCE = 12
NO_ACKS, LEADER_ACKS, ALL_ACKS = 0, 1, -1
UNKNOWN_ID = ApiError(ErrorKind.UNKNOWN_TOPIC_ID)
# Coordinators could not read their state if a client wrote something else.
INTERNAL = ApiError(ErrorKind.INVALID_TOPIC_NAME, "clients may not write to internal topics")
NO_HINT = ProduceResponseLeader()
DECODERS = decoders(ProduceRequest)
LOG_START_SINCE = 5
TEMPLATES = ResponseTemplates()
LIMIT = REQUEST_LIMITS["Produce"]
# Requests up to this size are decoded in one go: most have a single batch.
WHOLE_BYTES_MAX = 32 << 10
# Topics and batches that are served at once, however many bytes they have.
AT_ONCE_MAX = 64
# From here on lengths are varints, and messages end with tags.
FLEXIBLE_SINCE = 9
ENVELOPES_MAX = 10_000
# Where the length of the topic's name stands in an envelope; how long one is beside it, and with an id.
NAME_LENGTH_AT, NAMED_BYTES, IDENTIFIED_BYTES = 8, 13, 29


class Envelope(NamedTuple):
    """What a request with one batch says before it, and the response to it."""

    acks: int
    timeout_ms: int
    # Name of the topic, index of the partition; and the id if the request names the topic by that.
    target: tuple[str, int]
    topic_id: UUID | None
    template: Template


class Envelopes:
    """Envelopes that were decoded before, by version and bytes: clients repeat theirs with every batch.

        0 | acks | timeout | 2 | length + 1, name, or id | 2 | index
        │                    │                             └── one partition
        │                    └── one topic                     (counts and lengths are one more than they say)
        └── no transactional id

    Others, such as that of a topic with a name of more than 126 bytes, are not kept.
    """

    def __init__(self) -> None:
        self.by_bytes: defaultdict[int, dict[bytes, Envelope]] = defaultdict(dict)

    def add(self, version: int, frame: memoryview, position: int, envelope: Envelope) -> None:
        """Keep the envelope that starts at `position` of the frame."""
        kept = self.by_bytes[version]
        length = frame[position + NAME_LENGTH_AT] + NAMED_BYTES
        seen = bytes(frame[position:][: length if envelope.topic_id is None else IDENTIFIED_BYTES])
        # Otherwise what stands there is of another layout.
        has_lengths = envelope.topic_id is not None or seen[NAME_LENGTH_AT] < 0x80
        if has_lengths and seen[0] == 0 and seen[NAME_LENGTH_AT - 1] == 2 and seen[-5] == 2:
            if len(kept) >= ENVELOPES_MAX:
                kept.clear()
            kept[seen] = envelope


ENVELOPES = Envelopes()


@routes.handles_frames(ProduceRequest)
def produce(call: Request, frame: memoryview, position: int) -> None:
    if len(frame) > WHOLE_BYTES_MAX:
        _run_large(call, frame, position)
        return
    if call.version >= FLEXIBLE_SINCE and call.authorizer is None and _produce_again(call, frame, position):
        return
    request, _ = DECODERS[call.version](frame, position)
    topics, acks = request.topic_data, request.acks
    if (
        len(topics) == 1
        and len(topics[0].partition_data) == 1
        and acks in (LEADER_ACKS, ALL_ACKS)
        and request.transactional_id is None
        and call.version >= LOG_START_SINCE
        and _produce_one(call, request, frame, position)
    ):
        return
    if exceeds_entries(request, AT_ONCE_MAX):
        # From the start, with a frame that stays: others use the buffer of this one.
        _run_large(call, frame, position)
    else:
        _run(_produce_all(call, request, len(frame)))


def _run_large(call: Request, frame: memoryview, position: int) -> None:
    """Begin at once; only its batches become more than they are, and there may be so many of them."""
    steps = _large(call, call.connection.keep(frame), position)
    call.run(steps, frame_bytes=min(len(frame), SMALL_BYTES), is_long_poll=True)


def _large(call: Request, frame: memoryview, position: int) -> Iterator[None]:
    """A request of many bytes or many batches; that of a few batches has one step."""
    try:
        decode = decoder_in_steps(ProduceRequest, call.version)
        request, _ = yield from decode(frame, position, LIMIT.entries_max)
    except TooManyEntries:
        call.refuse(f"it has more than {LIMIT.entries_max:,} entries")
        return
    steps = _produce_all(call, request, len(frame))
    if exceeds_entries(request, AT_ONCE_MAX):
        yield from steps
    else:
        # At once, as the small ones: it does not wait for large requests of other clients.
        _run(steps)


def _run(steps: Iterator[None]) -> None:
    for _ in steps:
        pass


def _produce_all(call: Request, request: ProduceRequest, frame_bytes: int) -> Iterator[None]:
    """Append every batch, each in a step of its own."""
    if request.acks not in (NO_ACKS, LEADER_ACKS, ALL_ACKS):
        yield from _refuse_all(call, request, ErrorCode.INVALID_REQUIRED_ACKS)
        return
    if request.transactional_id is not None and not _may_use(call, request.transactional_id):
        yield from _refuse_all(call, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return
    batches: list[tuple[LeaderPartition | ApiError, memoryview | None]] = []
    names: list[str] = []
    for topic in request.topic_data:
        name = _name_of(call, topic)
        names.append(name)
        for part in topic.partition_data:
            records = part.records
            assert records is None or isinstance(records, memoryview)
            batches.append((_target(call, name, part.index), records))
            yield
    if call.authorizer is not None:
        call.charge(QuotaType.BYTES_IN, frame_bytes)
        call.charge_time()
    pending = PendingProduce(
        request.acks,
        request.timeout_ms,
        call.began_ns,
        partial(_respond, call, request, names),
        call.pause_reads,
        call.resume_reads,
    )
    pending.client = id(call.connection)
    if request.transactional_id is not None:
        pending.transaction = TransactionalRequest(
            request.transactional_id,
            call.version >= ADDS_PARTITIONS_SINCE,
            call.version >= ABORTABLE_SINCE,
        )
    yield from call.backend.produce_service.produce_in_steps(pending, batches)


def _name_of(call: Request, topic: ProduceRequestTopic) -> str:
    """Empty for an id that no topic has."""
    if call.version < TOPIC_IDS_SINCE:
        return topic.name
    return call.backend.controller.image.topic_name(TopicId(topic.topic_id)) or ""


def _target(call: Request, name: str, index: int) -> LeaderPartition | ApiError:
    if not name and call.version >= TOPIC_IDS_SINCE:
        return UNKNOWN_ID
    if name in INTERNAL_TOPICS:
        return INTERNAL
    target = call.backend.partitions.led_by_name.get((name, index))
    if target is None or call.authorizer is not None:
        return partition_of(call, name, index, AclOperation.WRITE)
    return target


def _produce_one(call: Request, request: ProduceRequest, frame: memoryview, position: int) -> bool:
    """Append the only batch of a request; returns whether that was done: other cases go the general way."""
    (topic,), acks = request.topic_data, request.acks
    part, name, backend, named = topic.partition_data[0], topic.name, call.backend, None
    if call.version >= TOPIC_IDS_SINCE:
        named = topic.topic_id
        name = backend.controller.image.topic_name(TopicId(named)) or ""
    index, records = part.index, part.records
    target = backend.partitions.led_by_name.get((name, index))
    if target is None or not records or call.authorizer is not None or name in INTERNAL_TOPICS:
        return False
    assert isinstance(records, memoryview)
    # Not by both: hashing an id is a Python call.
    key = (call.version, name if named is None else named, index)
    template = TEMPLATES.by_key.get(key) or _add_template(key, call, topic, index)
    if call.version >= FLEXIBLE_SINCE:
        envelope = Envelope(acks, request.timeout_ms, (name, index), named, template)
        ENVELOPES.add(call.version, frame, position, envelope)
    service = backend.produce_service
    service.produce_one(
        SingleProduce(service, acks, call, target, template, named), records, request.timeout_ms
    )
    return True


def _produce_again(  # noqa: C901 - the hot path, straight on purpose
    call: Request, frame: memoryview, position: int
) -> bool:
    """Like `_produce_one`, for a request with an envelope that was decoded before.

    What follows it: the length of the batch, the batch, and no tags of partition, topic and request.
    """
    version = call.version
    try:
        if version < TOPIC_IDS_SINCE:
            end = position + NAMED_BYTES + frame[position + NAME_LENGTH_AT]
        else:
            end = position + IDENTIFIED_BYTES
        envelope = ENVELOPES.by_bytes[version].get(bytes(frame[position:end]))
        if envelope is None:
            return False
        length, begin = frame[end], end + 1
        if length > 0x7F:
            high = frame[begin]
            if high > 0x7F:
                return False
            length += (high << 7) - 0x80
            begin += 1
        stop = begin + length - 1
        if length <= 1 or stop + 3 != len(frame) or frame[stop] or frame[stop + 1] or frame[stop + 2]:
            return False
    except IndexError:
        return False
    acks, timeout_ms, name_and_index, topic_id, template = envelope
    backend = call.backend
    if topic_id is not None and backend.controller.image.topic_name(TopicId(topic_id)) != name_and_index[0]:
        return False
    target = backend.partitions.led_by_name.get(name_and_index)
    if target is None:
        return False
    service = backend.produce_service
    batch = SingleProduce(service, acks, call, target, template, topic_id)
    service.produce_one(batch, frame[begin:stop], timeout_ms)
    return True


class SingleProduce(PendingBatch):
    """A request with one batch. Its message is not kept: the template has what the response says."""

    __slots__ = ("_call", "_template", "_topic_id")

    def __init__(
        self,
        service: ProduceService,
        acks: int,
        call: Request,
        partition: LeaderPartition,
        template: Template,
        topic_id: UUID | None,
    ) -> None:
        """`topic_id` if the request names the topic by it."""
        # The fields of `PendingBatch`, without calling its constructor.
        self._service = service
        self.acks = acks
        self.began_ns = call.began_ns
        self.partition = partition
        self._call = call
        self._template = template
        self._topic_id = topic_id

    @property
    def client(self) -> Hashable:
        return id(self._call.connection)

    def respond(self, result: AppendResult | ApiError) -> None:
        if not isinstance(result, ApiError):
            self._call.reply_template(self._template, result[0], result[2], result[3])
            return
        partition, topic_id = self.partition.name, self._topic_id
        part = ProduceRequestPartition(index=partition.partition, records=None)
        topic = (
            ProduceRequestTopic(name=partition.topic, partition_data=(part,))
            if topic_id is None
            else ProduceRequestTopic(topic_id=topic_id, partition_data=(part,))
        )
        request = ProduceRequest(acks=self.acks, timeout_ms=0, topic_data=(topic,))
        _respond(self._call, request, [partition.topic], [result])

    def pause(self) -> None:
        self._call.pause_reads()

    def resume(self) -> None:
        self._call.resume_reads()


def _may_use(call: Request, transactional_id: str) -> bool:
    return call.authorize(AclOperation.WRITE, Resource(ResourceType.TRANSACTIONAL_ID, transactional_id))


def _respond(call: Request, request: ProduceRequest, names: list[str], results: Results) -> None:
    """Every batch has its result: in the order in which the request names them."""
    if len(results) == 1 and request.acks != NO_ACKS and call.version >= LOG_START_SINCE:
        result = results[0]
        if not isinstance(result, ApiError) and call.throttle_ms == 0:
            topic = request.topic_data[0]
            index = topic.partition_data[0].index
            # Not by both: hashing an id is a Python call.
            key = (call.version, topic.name or topic.topic_id, index)
            template = TEMPLATES.by_key.get(key) or _add_template(key, call, topic, index)
            call.reply_template(template, result[0], result[2], result[3])
            return
    steps = _respond_in_steps(call, request, names, results)
    if len(results) > AT_ONCE_MAX:
        call.run(steps)
    else:
        _run(steps)


def _respond_in_steps(
    call: Request, request: ProduceRequest, names: list[str], results: Results
) -> Iterator[None]:
    redirects: LeaderHints | None = None
    topics: list[ProduceResponseTopic] = []
    position, refused = 0, False
    for topic, name in zip(request.topic_data, names, strict=True):
        rows: list[ProduceResponsePartition] = []
        for part in topic.partition_data:
            yield
            result = results[position]
            position += 1
            if not isinstance(result, ApiError):
                rows.append(
                    ProduceResponsePartition(
                        index=part.index,
                        error_code=0,
                        base_offset=result.first_offset,
                        log_append_time_ms=result.log_append_time,
                        log_start_offset=result.log_start,
                    )
                )
                continue
            refused = True
            leader: PartitionLeader | None = None
            if call.version >= LEADERS_SINCE:
                redirects = redirects or LeaderHints(call)
                leader = redirects.leader_of(name, part.index, result)
            rows.append(_error(part.index, result, leader))
        topics.append(
            ProduceResponseTopic(topic_id=topic.topic_id, name=topic.name, partition_responses=tuple(rows))
        )
    if request.acks != NO_ACKS:
        nodes = () if redirects is None else _endpoints(redirects)
        call.reply(ProduceResponse(responses=tuple(topics), node_endpoints=nodes))
    elif refused:
        # With acks=0, closing the connection is Kafka's only way to report an error.
        call.close()
    else:
        call.no_reply()


def _add_template(key: Hashable, call: Request, topic: ProduceRequestTopic, index: int) -> Template:
    base_offset, append_time, log_start = MARKS
    row = ProduceResponsePartition(
        index=index,
        error_code=0,
        base_offset=base_offset,
        log_append_time_ms=append_time,
        log_start_offset=log_start,
    )
    answer = ProduceResponseTopic(topic_id=topic.topic_id, name=topic.name, partition_responses=(row,))
    return TEMPLATES.add(key, call.api, call.version, ProduceResponse(responses=(answer,)))


def _endpoints(redirects: LeaderHints) -> tuple[ProduceResponseNode, ...]:
    return tuple(
        ProduceResponseNode(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
        for node in redirects.nodes.values()
    )


def _error(index: int, error: ApiError, leader: PartitionLeader | None) -> ProduceResponsePartition:
    return ProduceResponsePartition(
        index=index,
        error_code=code_of(error),
        base_offset=-1,
        record_errors=tuple(
            ProduceResponseRecordError(batch_index=record, batch_index_error_message=message_of(error))
            for record in error.records
        ),
        error_message=message_of(error),
        current_leader=NO_HINT
        if leader is None
        else ProduceResponseLeader(leader_id=leader.node_id, leader_epoch=leader.epoch),
    )


def _failed(index: int, code: ErrorCode) -> ProduceResponsePartition:
    return ProduceResponsePartition(index=index, error_code=code, base_offset=-1)


def _refuse_all(call: Request, request: ProduceRequest, code: ErrorCode) -> Iterator[None]:
    topics: list[ProduceResponseTopic] = []
    for topic in request.topic_data:
        rows = yield from collected(_failed(part.index, code) for part in topic.partition_data)
        topics.append(
            ProduceResponseTopic(topic_id=topic.topic_id, name=topic.name, partition_responses=rows)
        )
    call.reply(ProduceResponse(responses=tuple(topics)))
