"""Fetch: the hot path out. Record bytes go from the log's files to the socket by sendfile.

A client that is over its quota gets a response without partitions, at once, and hears how long it is to wait
(KIP-219): new connections do not get it more than its rate.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial

from penstock.broker.fetch import (
    NO_REPLICA,
    READABLE,
    SLICE_PARTITIONS,
    STEP_PARTITIONS,
    FetchedPartition,
    FetchLimits,
    FetchPartition,
    ReadablePartition,
    ReadReplica,
)
from penstock.broker.partitions import LeaderPartition
from penstock.core.metadata import MetadataImage
from penstock.core.model import ApiError, ErrorKind, Offset, TopicId
from penstock.core.protocol import ErrorCode, TooManyEntries, response_pieces, response_pieces_in_steps
from penstock.core.protocol.codec import decoder_in_steps, decoders
from penstock.core.protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
    FetchResponseAbortedTransaction,
    FetchResponseLeader,
    FetchResponseNode,
    FetchResponsePartition,
    FetchResponseTopic,
)
from penstock.core.replica import AbortedTransaction
from penstock.runtime.sliced_work import Slices
from penstock.runtime.tcp import Part
from penstock.security import AclOperation, QuotaType
from penstock.server.kafka.errors import code_of
from penstock.server.kafka.fetch_sessions import (
    FINAL_EPOCH,
    FIRST_EPOCH,
    NO_SESSION,
    FetchContext,
    FetchSessionError,
    FetchSessionPartition,
    FetchTargets,
    named_targets,
)
from penstock.server.kafka.node_addresses import named_broker
from penstock.server.kafka.partition_lookup import NOT_ALLOWED, NOT_HERE, LeaderHints, partition_of
from penstock.server.kafka.request import Request
from penstock.server.kafka.request_limits import REQUEST_LIMITS
from penstock.server.kafka.response_rows import topic_resource
from penstock.server.kafka.response_template import MARKS, ResponseTemplates, Template
from penstock.server.kafka.router import routes

READ_COMMITTED = 1
LEADERS_SINCE = 16
FETCH_BYTES_MAX = 55 << 20
NO_RECORDS = b""
NO_ERROR = int(ErrorCode.NONE)
UNKNOWN_ID = ApiError(ErrorKind.UNKNOWN_TOPIC_ID)
DECODERS = decoders(FetchRequest)
NO_HINT = FetchResponseLeader()
LOG_START_SINCE = 5
TEMPLATES = ResponseTemplates()
LIMIT = REQUEST_LIMITS["Fetch"]
# A request with some hundred partitions is read in one go.
LARGE_FRAME_BYTES = 16 << 10
# What a partition of a session takes while it is read, in bytes of a request that would name it.
PARTITION_BYTES = 20


@routes.handles_frames(FetchRequest)
def fetch(call: Request, frame: memoryview, position: int) -> None:
    if len(frame) > LARGE_FRAME_BYTES:
        steps = _large(call, call.connection.keep(frame), position)
        call.run(steps, frame_bytes=len(frame), is_large=True)
        return
    request, _ = DECODERS[call.version](frame, position)
    if call.authorizer is not None and _is_over_quota(call, request):
        return
    context = call.connection.fetch_sessions.begin(request, call.version)
    if isinstance(context, FetchSessionError):
        call.reply(FetchResponse(throttle_time_ms=0, error_code=context.code, session_id=0, responses=()))
        return
    # As Kafka's `fetch.max.bytes`: one answer must not keep the disk from the others for long.
    max_bytes = min(request.max_bytes, FETCH_BYTES_MAX)
    # More than the answer may hold will never be there.
    min_bytes = min(request.min_bytes, max_bytes)
    read_committed = request.isolation_level == READ_COMMITTED
    # Not by its constructor, which is a Python call.
    limits = tuple.__new__(FetchLimits, (min_bytes, max_bytes, request.max_wait_ms, read_committed))
    if len(context.targets) > SLICE_PARTITIONS:
        steps = _fetch_in_slices(call, context, limits, request.rack_id, request.session_epoch)
        call.run(steps, frame_bytes=PARTITION_BYTES * len(context.targets))
        return
    wanted = _wanted(call, context.targets, request.rack_id)
    done = partial(_respond, call, context, wanted)
    if call.authorizer is not None:
        limits = _within_limits(call, limits)
        done = partial(_respond_within_quota, call, request.session_epoch, context, done)
        done = partial(_respond_as_allowed, call, wanted, call.backend.controller.image, done)
    account = call.connection.account
    waiting = call.backend.fetch_service.fetch(wanted, limits, done, call.session.host, account)
    if waiting is not None:
        call.on_abandoned(waiting.cancel)


def _large(call: Request, frame: memoryview, position: int) -> Iterator[None]:
    """A request that names very many partitions."""
    try:
        decode = decoder_in_steps(FetchRequest, call.version)
        request, _ = yield from decode(frame, position, LIMIT.entries_max)
    except TooManyEntries:
        call.refuse(f"it has more than {LIMIT.entries_max:,} entries")
        return
    named = yield from named_targets(request, call.version)
    if call.authorizer is not None and _is_over_quota(call, request, named):
        return
    context = call.connection.fetch_sessions.begin(request, call.version, named)
    if isinstance(context, FetchSessionError):
        call.reply(FetchResponse(throttle_time_ms=0, error_code=context.code, session_id=0, responses=()))
        return
    max_bytes = min(request.max_bytes, FETCH_BYTES_MAX)
    limits = FetchLimits(
        min(request.min_bytes, max_bytes),
        max_bytes,
        request.max_wait_ms,
        request.isolation_level == READ_COMMITTED,
    )
    yield from _fetch_in_slices(call, context, limits, request.rack_id, request.session_epoch)


def _is_over_quota(call: Request, request: FetchRequest, named: FetchTargets | None = None) -> bool:
    """Whether the client gets no records, because it owes; it is told so. Nothing is read."""
    if call.quota_left(QuotaType.BYTES_OUT) != 0:
        return False
    session_id = NO_SESSION
    if request.session_epoch not in (FIRST_EPOCH, FINAL_EPOCH):
        context = call.connection.fetch_sessions.begin(request, call.version, named)
        if isinstance(context, FetchSessionError):
            call.reply(FetchResponse(throttle_time_ms=0, error_code=context.code, session_id=0, responses=()))
            return True
        session_id = context.session_id
    _reply_throttled(call, session_id)
    return True


def _reply_throttled(call: Request, session_id: int) -> None:
    call.charge(QuotaType.BYTES_OUT, 0)
    call.reply(
        FetchResponse(
            throttle_time_ms=call.charge_time(), error_code=NO_ERROR, session_id=session_id, responses=()
        )
    )


def _within_limits(call: Request, limits: FetchLimits) -> FetchLimits:
    """One response has no more than comes in a second: or a small quota would be owed for hours.

    And it comes before the login expires: records that are written later are for those who may have them.
    """
    if limits.max_wait_ms > 0:
        wait_ms = call.within_login(limits.max_wait_ms)
        if wait_ms != limits.max_wait_ms:
            limits = limits._replace(max_wait_ms=wait_ms)
    left = call.quota_left(QuotaType.BYTES_OUT)
    if left is None or left >= limits.max_bytes:
        return limits
    return limits._replace(min_bytes=min(limits.min_bytes, left), max_bytes=left)


def _respond_within_quota(
    call: Request,
    epoch: int,
    context: FetchContext,
    respond: Callable[[list[FetchedPartition]], None],
    found: list[FetchedPartition],
) -> None:
    """Charge what is sent, and respond; while a fetch has waited, others may have used up the quota."""
    if not call.is_open:
        return
    sent = sum([part.records.length for part in found if part.records is not None])
    if not sent or call.quota_left(QuotaType.BYTES_OUT) != 0:
        call.charge(QuotaType.BYTES_OUT, sent)
        call.charge_time()
        respond(found)
        return
    session_id = context.session_id
    if epoch == FIRST_EPOCH and context.session is not None:
        call.connection.fetch_sessions.cancel(context.session)
        session_id = NO_SESSION
    _reply_throttled(call, session_id)


def _fetch_in_slices(
    call: Request, context: FetchContext, limits: FetchLimits, rack: str, epoch: int
) -> Slices:
    """A fetch of very many partitions: others are served between its steps."""
    targets, wanted = context.targets, list[FetchPartition]()
    # What is judged first is judged by this: rules may change before the last one is.
    asked = call.backend.controller.image
    for start in range(0, len(targets), STEP_PARTITIONS):
        wanted += _wanted(call, targets[start : start + STEP_PARTITIONS], rack)
        yield
    service = call.backend.fetch_service

    def found_all(found: list[FetchedPartition]) -> None:
        if call.is_open:
            call.run(_respond_in_slices(call, context, wanted, found))

    done: Callable[[list[FetchedPartition]], None] = found_all
    if call.authorizer is not None:
        limits = _within_limits(call, limits)
        done = partial(_respond_within_quota, call, epoch, context, done)
        done = partial(_respond_as_allowed, call, wanted, asked, done)
    waiting = service.in_slices(wanted, limits, done, call.session.host, call.connection.account)
    call.on_abandoned(waiting.cancel, keeps_room=True)
    yield from waiting.begin(STEP_PARTITIONS)
    if waiting.is_waiting:
        # What waits is counted by the service, and its client may go on.
        call.release_reads()


def _wanted(call: Request, targets: Sequence[FetchSessionPartition], rack: str) -> list[FetchPartition]:
    """The partitions where they are read."""
    wanted: list[FetchPartition] = []
    led = call.backend.partitions.led_by_name
    served_offsets = call.connection.fetch_sessions.served_offsets
    for target in targets:
        name: str | None = target.topic
        if target.by_id:
            name = call.backend.controller.image.topic_name(TopicId(target.topic_id))
        partition: ReadablePartition | ReadReplica | ApiError | None = UNKNOWN_ID
        if name is not None:
            partition = led.get((name, target.partition))
            if partition is None or call.authorizer is not None:
                partition = partition_of(call, name, target.partition, AclOperation.READ)
            if rack:
                partition = _nearest(call, partition, name, target, rack)
            if served_offsets and isinstance(partition, READABLE):
                served = served_offsets.get(partition.name)
                # A client that was sent records asks for the same once more: some do so when a CRC is wrong.
                # There are harmless reasons, too, so not every time: now, and after 2, 4, 8 … more.
                if served is not None and served[0] == target.offset and not served[1] & (served[1] + 1):
                    call.backend.fetch_service.distrust(partition, Offset(target.offset))
        # Not by its constructor, which is a Python call.
        wanted.append(
            tuple.__new__(FetchPartition, (partition, target.offset, target.max_bytes, target.leader_epoch))
        )
    return wanted


def _nearest(
    call: Request,
    partition: LeaderPartition | ApiError,
    topic: str,
    target: FetchSessionPartition,
    rack: str,
) -> ReadablePartition | ReadReplica | ApiError:
    """Where a consumer in this rack reads the partition: here, also if another node leads, or elsewhere."""
    replicas = call.backend.read_replicas
    if isinstance(partition, LeaderPartition):
        node = replicas.nearest(partition, target.offset, rack)
        return partition if node is None or named_broker(call, node) is None else ReadReplica(partition, node)
    followed = replicas.followed(topic, target.partition) if partition is NOT_HERE else None
    return partition if followed is None else followed


def _respond_as_allowed(
    call: Request,
    wanted: Sequence[FetchPartition],
    asked: MetadataImage,
    respond: Callable[[list[FetchedPartition]], None],
    found: list[FetchedPartition],
) -> None:
    """Respond on a node with an authorizer: what the client might read may be forbidden by now.

    A fetch waits for as long as its client says. Whoever took the right back was told that it is gone.
    """
    image = call.backend.controller.image
    if image is asked or not call.is_open:
        respond(found)
    elif not call.is_login_current:
        call.close()
    elif image.acls is asked.acls:
        # Topics come and go, and what was judged counts.
        respond(found)
    elif len(found) > SLICE_PARTITIONS:
        call.run(_judge_in_slices(call, wanted, found, respond))
    else:
        respond([_as_allowed(call, *pair) for pair in zip(wanted, found, strict=True)])


def _judge_in_slices(
    call: Request,
    wanted: Sequence[FetchPartition],
    found: list[FetchedPartition],
    respond: Callable[[list[FetchedPartition]], None],
) -> Slices:
    judged: list[FetchedPartition] = []
    for start in range(0, len(found), STEP_PARTITIONS):
        if start:
            yield
        end = start + STEP_PARTITIONS
        pairs = zip(wanted[start:end], found[start:end], strict=True)
        judged += [_as_allowed(call, *pair) for pair in pairs]
    respond(judged)


def _as_allowed(call: Request, want: FetchPartition, part: FetchedPartition) -> FetchedPartition:
    partition = want.partition
    if isinstance(partition, ApiError):
        return part
    name = (partition.partition if isinstance(partition, ReadReplica) else partition).name
    return (
        part
        if call.authorize(AclOperation.READ, topic_resource(name.topic))
        else FetchedPartition(NOT_ALLOWED)
    )


def _respond(
    call: Request, context: FetchContext, wanted: Sequence[FetchPartition], found: list[FetchedPartition]
) -> None:
    if not call.connection.is_open:
        return
    if len(found) == 1 and context.session_id == NO_SESSION and call.authorizer is None:
        error, high_watermark, last_stable, log_start, file_range, aborted, replica = found[0]
        if (
            error is None
            and file_range is None
            and aborted is None
            and replica == NO_REPLICA
            and call.version >= LOG_START_SINCE
        ):
            # A consumer that has read everything.
            target = context.targets[0]
            # Not by both: hashing an id is a Python call.
            key = (call.version, target.topic or target.topic_id, target.partition)
            template = TEMPLATES.by_key.get(key) or _add_template(key, call, target)
            call.reply_template(template, high_watermark, last_stable, log_start)
            return
    # Has one slice only.
    for _ in _respond_in_slices(call, context, wanted, found):
        pass


def _respond_in_slices(  # noqa: C901, PLR0912 - the hot path, straight on purpose
    call: Request, context: FetchContext, wanted: Sequence[FetchPartition], found: list[FetchedPartition]
) -> Slices:
    """Respond with what was found, as far as the session has not said it before."""
    sessions, session = call.connection.fetch_sessions, context.session
    served_offsets = sessions.served_offsets
    topics: dict[object, tuple[FetchSessionPartition, list[FetchResponsePartition]]] = {}
    redirects: LeaderHints | None = None
    for start in range(0, len(found), STEP_PARTITIONS):
        if start:
            yield
        end = start + STEP_PARTITIONS
        some = found[start:end]
        for want, part in zip(wanted[start:end], some, strict=True):
            if part.records is not None:
                name, offset = want.partition.name, want.offset  # type: ignore[union-attr]
                before = served_offsets.get(name)
                if before is None:
                    sessions.remember_served(name, offset)
                else:
                    served_offsets[name] = offset, before[1] + 1 if before[0] == offset else 0
        rows: Iterable[tuple[FetchSessionPartition, FetchedPartition]]
        rows = zip(context.targets[start:end], some, strict=True)
        for target, part in rows if session is None else session.changed(rows):
            topic = target.topic_id if target.by_id else target.topic
            entry = topics.get(topic)
            if entry is None:
                entry = topics[topic] = (target, [])
            refused, records = part.error, part.records
            leader = NO_HINT
            if refused is not None and call.version >= LEADERS_SINCE:
                redirects = redirects or LeaderHints(call)
                leader = _leader(call, redirects, target, refused)
            entry[1].append(
                FetchResponsePartition(
                    partition_index=target.partition,
                    error_code=NO_ERROR if refused is None else code_of(refused),
                    high_watermark=part.high_watermark,
                    last_stable_offset=part.last_stable_offset,
                    log_start_offset=part.log_start,
                    current_leader=leader,
                    preferred_read_replica=part.read_replica,
                    aborted_transactions=None if part.aborted is None else _aborted(part.aborted),
                    records=NO_RECORDS if records is None else records,
                )
            )
    if not call.connection.is_open:
        return
    responses: list[FetchResponseTopic] = []
    for count, (target, answered) in enumerate(topics.values(), 1):
        name = "" if target.by_id else target.topic
        responses.append(FetchResponseTopic(topic_id=target.topic_id, topic=name, partitions=tuple(answered)))
        if count % STEP_PARTITIONS == 0:
            yield
    response = FetchResponse(
        throttle_time_ms=call.throttle_ms,
        error_code=NO_ERROR,
        session_id=context.session_id,
        responses=tuple(responses),
        node_endpoints=() if redirects is None else _endpoints(redirects),
    )
    if len(found) > SLICE_PARTITIONS:
        call.run(_send(call, response))
        return
    pieces: list[Part] = response_pieces(call.api, call.version, call.correlation_id, response)  # type: ignore[assignment]
    call.reply_parts(pieces)


def _send(call: Request, response: FetchResponse) -> Iterator[None]:
    pieces: list[Part]
    pieces = yield from response_pieces_in_steps(call.api, call.version, call.correlation_id, response)  # type: ignore[assignment]
    call.reply_parts(pieces)


def _add_template(key: Hashable, call: Request, target: FetchSessionPartition) -> Template:
    high_watermark, last_stable, log_start = MARKS
    row = FetchResponsePartition(
        partition_index=target.partition,
        error_code=NO_ERROR,
        high_watermark=high_watermark,
        last_stable_offset=last_stable,
        log_start_offset=log_start,
        aborted_transactions=None,
        records=NO_RECORDS,
    )
    name = "" if target.by_id else target.topic
    answer = FetchResponseTopic(topic_id=target.topic_id, topic=name, partitions=(row,))
    response = FetchResponse(
        throttle_time_ms=0, error_code=NO_ERROR, session_id=NO_SESSION, responses=(answer,)
    )
    return TEMPLATES.add(key, call.api, call.version, response)


def _aborted(aborted: Sequence[AbortedTransaction]) -> tuple[FetchResponseAbortedTransaction, ...]:
    return tuple(
        FetchResponseAbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
        for one in aborted
    )


def _endpoints(redirects: LeaderHints) -> tuple[FetchResponseNode, ...]:
    return tuple(
        FetchResponseNode(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
        for node in redirects.nodes.values()
    )


def _leader(
    call: Request, redirects: LeaderHints, target: FetchSessionPartition, error: ApiError
) -> FetchResponseLeader:
    name: str | None = target.topic
    if target.by_id:
        name = call.backend.controller.image.topic_name(TopicId(target.topic_id))
    leader = None if name is None else redirects.leader_of(name, target.partition, error)
    if leader is None:
        return NO_HINT
    return FetchResponseLeader(leader_id=leader.node_id, leader_epoch=leader.epoch)
