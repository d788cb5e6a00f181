"""Fetch: the hot path out. Record bytes go from the log's files to the socket by sendfile."""

from penstock.core.model import Refused, TopicId, Why
from penstock.core.wire import ErrorCode, response_pieces
from penstock.core.wire.kafka.fetch import (
    FetchRequest,
    FetchResponse,
    FetchResponseAbortedTransaction,
    FetchResponseLeader,
    FetchResponseNode,
    FetchResponsePartition,
    FetchResponseTopic,
)
from penstock.gateways.kafka.answers.redirects import Redirects
from penstock.gateways.kafka.call import Call
from penstock.gateways.kafka.fetch_sessions import FetchTarget, SessionRefused
from penstock.gateways.kafka.lookup import partition_of
from penstock.gateways.kafka.refusals import code_of
from penstock.gateways.kafka.routes import routes
from penstock.runtime.pipes import Part
from penstock.security import Cost, Operation
from penstock.services.records import Fetched, FetchLimits, Wanted
from penstock.storage.log import FileRange

READ_COMMITTED = 1
LEADERS_SINCE = 16
FETCH_BYTES_MAX = 55 << 20
NO_RECORDS = b""
NO_HINT = FetchResponseLeader()


class RecordsSpan:
    """A file range as the encoder and the pipe know it: so many bytes, somewhere else."""

    __slots__ = ("_range", "length", "position")

    def __init__(self, source: FileRange) -> None:
        self._range = source
        self.position = source.position
        self.length = source.length

    def __len__(self) -> int:
        return self.length

    def fileno(self) -> int:
        return self._range.file.fileno()

    def read(self) -> bytes:
        return self._range.to_bytes()


@routes.handles(FetchRequest)
def fetch(request: FetchRequest, call: Call) -> None:
    context = call.fetch_sessions.begin(request, call.version)
    if isinstance(context, SessionRefused):
        call.reply(FetchResponse(throttle_time_ms=0, error_code=context.code, session_id=0, responses=()))
        return
    targets = context.targets
    # As Kafka's `fetch.max.bytes`: one answer must not keep the disk from the others for long.
    max_bytes = min(request.max_bytes, FETCH_BYTES_MAX)
    limits = FetchLimits(
        # More than the answer may hold will never be there.
        min(request.min_bytes, max_bytes),
        max_bytes,
        request.max_wait_ms,
        request.isolation_level == READ_COMMITTED,
    )

    def done(found: list[Fetched]) -> None:
        if call.is_open:
            _reply(call, context.session_id, context.changed(targets, found))

    waiting = call.backend.fetching.fetch([_wanted(call, target) for target in targets], limits, done)
    if waiting is not None:
        call.when_abandoned(waiting.cancel)


def _wanted(call: Call, target: FetchTarget) -> Wanted:
    backend = call.backend
    name = target.topic
    if target.by_id:
        known = backend.controller.image.topic_name(TopicId(target.topic_id))
        if known is None:
            return Wanted(Refused(Why.UNKNOWN_TOPIC_ID), 0, 0)
        name = known
    partition = partition_of(call, name, target.partition, Operation.READ)
    if isinstance(partition, Refused):
        return Wanted(partition, 0, 0)
    return Wanted(partition, target.offset, target.max_bytes, target.leader_epoch)


def _reply(call: Call, session_id: int, rows: list[tuple[FetchTarget, Fetched]]) -> None:
    topics: dict[object, tuple[FetchTarget, list[FetchResponsePartition]]] = {}
    redirects: Redirects | None = None
    sent = 0
    for target, found in rows:
        key = target.topic_id if target.by_id else target.topic
        entry = topics.get(key)
        if entry is None:
            entry = topics[key] = (target, [])
        leader = NO_HINT
        if found.refused is not None and call.version >= LEADERS_SINCE:
            redirects = redirects or Redirects(call)
            leader = _leader(call, redirects, target, found.refused)
        entry[1].append(_row(target, found, leader))
        sent += found.records.length if found.records is not None else 0
    throttle_ms = call.charge(Cost.BYTES_OUT, sent)
    response = FetchResponse(
        throttle_time_ms=throttle_ms,
        error_code=0,
        session_id=session_id,
        responses=tuple(
            FetchResponseTopic(
                topic_id=target.topic_id, topic="" if target.by_id else target.topic, partitions=tuple(parts)
            )
            for target, parts in topics.values()
        ),
        node_endpoints=() if redirects is None else _endpoints(redirects),
    )
    pieces: list[Part] = response_pieces(call.api, call.version, call.correlation_id, response)  # type: ignore[assignment]
    call.reply_parts(pieces)


def _endpoints(redirects: Redirects) -> tuple[FetchResponseNode, ...]:
    return tuple(
        FetchResponseNode(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
        for node in redirects.nodes.values()
    )


def _leader(call: Call, redirects: Redirects, target: FetchTarget, refused: Refused) -> FetchResponseLeader:
    name: str | None = target.topic
    if target.by_id:
        name = call.backend.controller.image.topic_name(TopicId(target.topic_id))
    leader = None if name is None else redirects.leader_of(name, target.partition, refused)
    if leader is None:
        return NO_HINT
    return FetchResponseLeader(leader_id=leader.node_id, leader_epoch=leader.epoch)


def _row(target: FetchTarget, found: Fetched, leader: FetchResponseLeader) -> FetchResponsePartition:
    return FetchResponsePartition(
        partition_index=target.partition,
        error_code=ErrorCode.NONE if found.refused is None else code_of(found.refused),
        high_watermark=found.high_watermark,
        last_stable_offset=found.last_stable_offset,
        log_start_offset=found.log_start,
        current_leader=leader,
        aborted_transactions=None
        if found.aborted is None
        else tuple(
            FetchResponseAbortedTransaction(
                producer_id=aborted.producer_id, first_offset=aborted.first_offset
            )
            for aborted in found.aborted
        ),
        records=NO_RECORDS if found.records is None else RecordsSpan(found.records),
    )
