"""Produce: the hot path in.

frame ── decoded, records still in the receive buffer ── appended, partition by partition
      ── answered when what was appended is safe: on the leader's disk with acks=1, on those of
         all in-sync replicas with acks=all, which is when the high watermark has reached it
"""

from penstock.core.metadata import is_internal
from penstock.core.model import Refused, TopicId, Why
from penstock.core.wire import ErrorCode, decoder
from penstock.core.wire.kafka.produce import (
    ProduceRequest,
    ProduceRequestTopic,
    ProduceResponse,
    ProduceResponseLeader,
    ProduceResponseNode,
    ProduceResponsePartition,
    ProduceResponseRecordError,
    ProduceResponseTopic,
)
from penstock.gateways.kafka.answers.redirects import Leader, Redirects
from penstock.gateways.kafka.call import Call
from penstock.gateways.kafka.lookup import partition_of
from penstock.gateways.kafka.refusals import code_of, message_of
from penstock.gateways.kafka.routes import routes
from penstock.security import Cost, Operation
from penstock.services.partitions import Partition
from penstock.services.records import Pending, Placed

TOPIC_IDS_SINCE = 13
LEADERS_SINCE = 10
NO_ACKS, LEADER_ACKS, ALL_ACKS = 0, 1, -1
UNKNOWN_ID = Refused(Why.UNKNOWN_TOPIC_ID)
# What coordinators keep there would be lost to them if a client wrote something else.
INTERNAL = Refused(Why.INVALID_TOPIC_NAME, "clients do not write to internal topics")
NO_HINT = ProduceResponseLeader()
EMPTY = Refused(Why.INVALID_RECORD, "a partition takes exactly one batch per request")


@routes.handles_frames(ProduceRequest)
def produce(call: Call, frame: memoryview, position: int) -> None:
    request, _ = decoder(ProduceRequest, call.version)(frame, position)
    if request.acks not in (NO_ACKS, LEADER_ACKS, ALL_ACKS):
        _refuse_all(call, request, ErrorCode.INVALID_REQUIRED_ACKS)
        return
    answer = _Answer(call, request)
    for topic in request.topic_data:
        answer.append_topic(topic)
    call.charge(Cost.BYTES_IN, len(frame))
    answer.finish()


class _Answer:
    """Gathers the outcome of each partition, and replies when the last one is acknowledged."""

    __slots__ = (
        "_acks",
        "_by_id",
        "_call",
        "_failed",
        "_names",
        "_redirects",
        "_timeout_ms",
        "_topics",
        "_waiting",
    )

    def __init__(self, call: Call, request: ProduceRequest) -> None:
        self._call = call
        self._acks = request.acks
        self._timeout_ms = request.timeout_ms
        self._by_id = call.version >= TOPIC_IDS_SINCE
        self._topics: list[tuple[ProduceRequestTopic, list[ProduceResponsePartition]]] = []
        self._names: list[str] = []
        self._redirects: Redirects | None = None
        self._failed = False
        # One for ourselves, so that nothing is sent before every partition was appended.
        self._waiting = 1

    def append_topic(self, topic: ProduceRequestTopic) -> None:
        call, backend = self._call, self._call.backend
        name = topic.name
        if self._by_id:
            name = backend.controller.image.topic_name(TopicId(topic.topic_id)) or ""
        rows: list[ProduceResponsePartition] = []
        self._topics.append((topic, rows))
        self._names.append(name)
        for wanted in topic.partition_data:
            partition = (
                INTERNAL if is_internal(name) else partition_of(call, name, wanted.index, Operation.WRITE)
            )
            if isinstance(partition, Refused):
                unknown_id = self._by_id and not name
                rows.append(self._refused(name, wanted.index, UNKNOWN_ID if unknown_id else partition))
                continue
            outcome: Placed | Refused | Pending = EMPTY
            if wanted.records:
                assert isinstance(wanted.records, memoryview)
                on_all = self._acks == ALL_ACKS
                outcome = backend.producing.append(partition, wanted.records, on_all=on_all)
            if isinstance(outcome, Placed):
                rows.append(_placed(wanted.index, partition, outcome))
                self._await(rows, len(rows) - 1, partition, outcome)
            elif isinstance(outcome, Refused):
                rows.append(self._refused(name, wanted.index, outcome))
            else:
                self._wait(rows, wanted.index, partition, outcome)

    def _wait(
        self, rows: list[ProduceResponsePartition], index: int, partition: Partition, pending: Pending
    ) -> None:
        """A worker has the batch: its row comes later, and its client is not read until then."""
        at = len(rows)
        rows.append(_failed(index, ErrorCode.UNKNOWN_SERVER_ERROR))
        self._waiting += 1
        self._call.hold()

        def done(outcome: Placed | Refused) -> None:
            if isinstance(outcome, Refused):
                rows[at] = self._refused(partition.name.topic, index, outcome)
            else:
                rows[at] = _placed(index, partition, outcome)
                self._await(rows, at, partition, outcome)
            self._call.let_go()
            self.finish()

        pending.done = done

    def _refused(self, topic: str, index: int, refused: Refused) -> ProduceResponsePartition:
        self._failed = True
        leader: Leader | None = None
        if self._call.version >= LEADERS_SINCE:
            if self._redirects is None:
                self._redirects = Redirects(self._call)
            leader = self._redirects.leader_of(topic, index, refused)
        return _refused(index, refused, leader)

    def _await(
        self, rows: list[ProduceResponsePartition], at: int, partition: Partition, placed: Placed
    ) -> None:
        if self._acks == NO_ACKS:
            return

        def acknowledged(refused: Refused | None) -> None:
            if refused is not None:
                topic, index = partition.name
                rows[at] = self._refused(topic, index, refused)
            self.finish()

        if self._acks == LEADER_ACKS:
            is_safe = partition.when_synced(placed.end, acknowledged)
        else:
            is_safe = partition.when_acknowledged(placed.end, acknowledged, self._timeout_ms)
        if not is_safe:
            self._waiting += 1

    def finish(self) -> None:
        """One thing less to wait for."""
        self._waiting -= 1
        if self._waiting:
            return
        call = self._call
        if self._acks == NO_ACKS:
            if self._failed:
                # Kafka's only way of telling such a client that something is wrong.
                call.hang_up()
            else:
                call.no_reply()
            return
        if not self._failed:
            call.backend.producing.acknowledged(self._names, call.began_ns)
        call.reply(
            ProduceResponse(
                responses=tuple(
                    ProduceResponseTopic(
                        topic_id=topic.topic_id, name=topic.name, partition_responses=tuple(rows)
                    )
                    for topic, rows in self._topics
                ),
                node_endpoints=() if self._redirects is None else _endpoints(self._redirects),
            )
        )


def _endpoints(redirects: Redirects) -> tuple[ProduceResponseNode, ...]:
    return tuple(
        ProduceResponseNode(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
        for node in redirects.nodes.values()
    )


def _placed(index: int, partition: Partition, placed: Placed) -> ProduceResponsePartition:
    return ProduceResponsePartition(
        index=index,
        error_code=0,
        base_offset=placed.first_offset,
        log_append_time_ms=placed.log_append_time,
        log_start_offset=partition.log.start,
    )


def _refused(index: int, refused: Refused, leader: Leader | None) -> ProduceResponsePartition:
    return ProduceResponsePartition(
        index=index,
        error_code=code_of(refused),
        base_offset=-1,
        record_errors=tuple(
            ProduceResponseRecordError(batch_index=record, batch_index_error_message=message_of(refused))
            for record in refused.records
        ),
        error_message=message_of(refused),
        current_leader=NO_HINT
        if leader is None
        else ProduceResponseLeader(leader_id=leader.node_id, leader_epoch=leader.epoch),
    )


def _failed(index: int, code: ErrorCode) -> ProduceResponsePartition:
    return ProduceResponsePartition(index=index, error_code=code, base_offset=-1)


def _refuse_all(call: Call, request: ProduceRequest, code: ErrorCode) -> None:
    call.reply(
        ProduceResponse(
            responses=tuple(
                ProduceResponseTopic(
                    topic_id=topic.topic_id,
                    name=topic.name,
                    partition_responses=tuple(_failed(part.index, code) for part in topic.partition_data),
                )
                for topic in request.topic_data
            )
        )
    )
