"""ShareFetch: a share consumer leases records, and says what it did with those before (KIP-932).

A response has the records of one partition, in batches that are made for it: records that others have are not
among them. So what is acquired and what is sent are the same, and a consumer skips nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from uuid import UUID

from penstock.broker.queues.delayed_receive import GroupReceiveRequest
from penstock.broker.queues.peers import DeliveredRecord, ReceivedRecords
from penstock.broker.queues.queue_view import WAIT_MS_MAX
from penstock.core.model import ApiError, ErrorKind, TopicId
from penstock.core.protocol import ErrorCode, Steps
from penstock.core.protocol.messages.share_fetch import (
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchResponseAcquiredRecords,
    ShareFetchResponseLeader,
    ShareFetchResponseNode,
    ShareFetchResponsePartition,
    ShareFetchResponseTopic,
)
from penstock.core.queues import QueueId, Receipt, read_receipt
from penstock.core.records import write_batch
from penstock.security import QuotaType
from penstock.server.kafka.errors import code_of
from penstock.server.kafka.partition_lookup import NOT_HERE, LeaderHints
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import KEYS_PER_STEP, collected
from penstock.server.kafka.router import routes
from penstock.server.kafka.share_acknowledgements import (
    Batches,
    SharePartition,
    batches_of,
    queue_of,
    release_all,
    settle_all,
)
from penstock.server.kafka.share_rights import share_problem
from penstock.server.kafka.share_sessions import (
    FINAL_EPOCH,
    FIRST_EPOCH,
    PARTITIONS_MAX,
    ShareSession,
)

RECORDS_MAX = 2_000
BYTES_MAX = 8 << 20
NO_LEADER = ShareFetchResponseLeader(leader_id=-1, leader_epoch=-1)


@routes.handles(ShareFetchRequest, is_long_poll=True)
def share_fetch(request: ShareFetchRequest, call: Request) -> Iterator[None]:
    return ShareFetch(request, call).serve()


class ShareFetch:
    """One request, on its way from the acknowledgements to the records."""

    def __init__(self, request: ShareFetchRequest, call: Request) -> None:
        self._request = request
        self._call = call
        self.member = (request.group_id or "", request.member_id or "")
        self._session = ShareSession()
        self._partitions: list[SharePartition] = []
        self._codes: dict[SharePartition, ErrorCode] = {}
        self._refused: dict[SharePartition, ErrorCode] = {}

    def serve(self) -> Iterator[None]:
        """Take the session, and settle what the request acknowledges."""
        request, call = self._request, self._call
        problem = share_problem(call, self.member)
        named = yield from batches_of(request.topics)
        batches = yield from _not_empty(named)
        if problem is None and request.share_session_epoch == FIRST_EPOCH and batches:
            problem = ErrorCode.INVALID_REQUEST, "the first request of a session has no acknowledgements"
        if problem is None:
            problem = yield from self._take_session(named)
        if problem is not None:
            self._refuse(*problem)
            return
        yield from settle_all(call, self.member, batches, self._settled)

    def _take_session(self, named: Iterable[SharePartition]) -> Steps[tuple[ErrorCode, str | None] | None]:
        """Take the session, and change its partitions; returns why it cannot be had."""
        sessions = self._call.connection.share_sessions
        session = sessions.take(self.member, self._request.share_session_epoch)
        if isinstance(session, ErrorCode):
            return session, None
        session.partitions.update(dict.fromkeys(named))
        for forgotten in self._request.forgotten_topics_data:
            for count, index in enumerate(forgotten.partitions):
                session.partitions.pop((forgotten.topic_id, index), None)
                if count % KEYS_PER_STEP == 0:
                    yield
        if len(session.partitions) > PARTITIONS_MAX:
            sessions.end(self.member)
            return ErrorCode.INVALID_REQUEST, f"a session has at most {PARTITIONS_MAX} partitions"
        if not sessions.resized(self.member):
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED, None
        self._session = session
        self._partitions = list(session.partitions)
        return None

    def _settled(self, codes: dict[SharePartition, ErrorCode]) -> None:
        """Acknowledgements are done: lease records, or end the session."""
        self._codes = codes
        if self._request.share_session_epoch == FINAL_EPOCH:
            self._call.run(release_all(self._call, self.member, self._session, self._reply_nothing))
        else:
            self._call.run(self._lease(), is_long_poll=True)

    def _lease(self) -> Iterator[None]:
        request = self._request
        queues = yield from self._queues_here()
        if not queues or request.max_records < 1 or request.max_bytes < 1:
            self._reply_nothing()
            return
        left = self._call.quota_left(QuotaType.BYTES_OUT)
        if left == 0:
            # What is leased is sent: a member that owes gets no leases, and hears how long it is to wait.
            self._call.charge(QuotaType.BYTES_OUT, 0)
            self._reply_nothing()
            return
        # With news, nobody waits: a consumer that hears of errors looks for other leaders.
        wait_ms = 0 if self._refused or any(self._codes.values()) else request.max_wait_ms
        cancel = self._call.backend.queues.receive_any(
            GroupReceiveRequest(
                queues=tuple(queues),
                consumer=self.member[1],
                records_max=min(request.max_records, RECORDS_MAX),
                bytes_max=min(request.max_bytes, BYTES_MAX if left is None else min(left, BYTES_MAX)),
                wait_ms=self._call.within_login(min(max(wait_ms, 0), WAIT_MS_MAX)),
            ),
            self._received,
        )
        # A consumer that has gone must not get leases: its records would wait for their ends.
        self._call.on_abandoned(cancel)

    def _queues_here(self) -> Steps[list[QueueId]]:
        """The queues of the session whose data partitions this node leads."""
        queues: list[QueueId] = []
        backend = self._call.backend
        for partition in self._partitions:
            queue = queue_of(self._call, self.member[0], *partition)
            if isinstance(queue, ErrorCode):
                self._refused[partition] = queue
                continue
            name = backend.controller.image.topic_name(queue.topic_id)
            if (name, partition[1]) in backend.partitions.led_by_name:
                queues.append(queue)
            else:
                self._refused[partition] = ErrorCode.NOT_LEADER_OR_FOLLOWER
            yield
        return queues

    def _received(self, queue: QueueId, reply: ReceivedRecords | ApiError) -> None:
        partition = (queue.topic_id, int(queue.partition))
        if not isinstance(reply, ApiError):
            self._note_lease(reply)
            if (problem := share_problem(self._call, self.member)) is not None:
                # The group was taken back while the request waited: the leases run out.
                self._refuse(*problem)
                return
            if not self._may_have(partition):
                self._reply_nothing()
                return
            self._reply(partition, reply)
            return
        if reply.kind in (ErrorKind.NOT_LEADER, ErrorKind.UNKNOWN_PARTITION):
            self._refused[partition] = code_of(reply)
        elif reply.kind is ErrorKind.INVALID_REQUEST or (
            # What was acknowledged besides was done, and is to be told.
            reply.kind is ErrorKind.GROUP_FULL and not self._codes
        ):
            self._refuse(code_of(reply), reply.detail)
            return
        # Else the queue's coordinator moves: the consumer asks again.
        self._reply_nothing()

    def _may_have(self, partition: SharePartition) -> bool:
        """Whether the member may still read what it has waited for; if not, its leases run out."""
        if not self._call.is_login_current:
            self._refused[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        else:
            queue = queue_of(self._call, self.member[0], *partition)
            if isinstance(queue, ErrorCode):
                self._refused[partition] = queue
        return partition not in self._refused

    def _note_lease(self, received: ReceivedRecords) -> None:
        """All records of a response are leased together."""
        receipt = read_receipt(received.records[0].receipt) if received.records else None
        if isinstance(receipt, Receipt):
            self._session.tokens.append(receipt.token)

    def _reply_nothing(self) -> None:
        self._reply(None, None)

    def _reply(self, served: SharePartition | None, received: ReceivedRecords | None) -> None:
        self._call.run(self._respond(served, received), is_long_poll=True)

    def _respond(self, served: SharePartition | None, received: ReceivedRecords | None) -> Iterator[None]:
        call, hints = self._call, LeaderHints(self._call)
        found = () if received is None else received.records
        records = sorted(found, key=lambda each: each.record.offset)
        lease_ms = 0 if received is None else received.lease_ms
        batches = _batches(records)
        if batches:
            call.charge(QuotaType.BYTES_OUT, len(batches))
        topics: dict[UUID, list[ShareFetchResponsePartition]] = {}
        # From dicts, whose keys are not hashed again: they may be many.
        told = dict.fromkeys(self._codes) | dict.fromkeys(self._refused)
        if served is not None and records:
            told[served] = None
        for partition in told:
            topic_id, index = partition
            row = ShareFetchResponsePartition(
                partition_index=index,
                error_code=self._refused.get(partition, ErrorCode.NONE),
                acknowledge_error_code=self._codes.get(partition, ErrorCode.NONE),
                current_leader=self._leader(hints, partition),
                records=batches if partition == served else b"",
                acquired_records=_acquired(records) if partition == served else (),
            )
            topics.setdefault(topic_id, []).append(row)
            yield
        responses = yield from collected(
            ShareFetchResponseTopic(topic_id=topic_id, partitions=tuple(rows))
            for topic_id, rows in topics.items()
        )
        call.reply(
            ShareFetchResponse(
                throttle_time_ms=call.charge_time(),
                error_code=ErrorCode.NONE,
                acquisition_lock_timeout_ms=lease_ms or call.backend.queues.lease_ms(self.member[0]),
                responses=responses,
                node_endpoints=tuple(
                    [
                        ShareFetchResponseNode(
                            node_id=node.node_id, host=node.host, port=node.port, rack=node.rack
                        )
                        for node in hints.nodes.values()
                    ]
                ),
            )
        )

    def _leader(self, hints: LeaderHints, partition: SharePartition) -> ShareFetchResponseLeader:
        if self._refused.get(partition) is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return NO_LEADER
        name = self._call.backend.controller.image.topic_name(TopicId(partition[0]))
        leader = None if name is None else hints.leader_of(name, partition[1], NOT_HERE)
        if leader is None:
            return NO_LEADER
        return ShareFetchResponseLeader(leader_id=leader.node_id, leader_epoch=leader.epoch)

    def _refuse(self, code: ErrorCode, message: str | None) -> None:
        call = self._call
        call.reply(
            ShareFetchResponse(
                throttle_time_ms=call.charge_time(),
                error_code=code,
                error_message=message,
                acquisition_lock_timeout_ms=0,
                responses=(),
                node_endpoints=(),
            )
        )


def _not_empty(named: Mapping[SharePartition, Batches]) -> Steps[dict[SharePartition, Batches]]:
    """The partitions that acknowledgements are about."""
    found: dict[SharePartition, Batches] = {}
    for count, (partition, its) in enumerate(named.items()):
        if its:
            found[partition] = its
        if count % KEYS_PER_STEP == 0:
            yield
    return found


def _runs(records: Sequence[DeliveredRecord], *, by_attempt: bool) -> list[list[DeliveredRecord]]:
    """Records with neighbouring offsets together."""
    runs: list[list[DeliveredRecord]] = []
    for each in records:
        last = runs[-1][-1] if runs else None
        follows = last is not None and each.record.offset == last.record.offset + 1
        if follows and last is not None and (not by_attempt or each.attempt == last.attempt):
            runs[-1].append(each)
        else:
            runs.append([each])
    return runs


def _batches(records: Sequence[DeliveredRecord]) -> bytes:
    batches = bytearray()
    for run in _runs(records, by_attempt=False):
        batches += write_batch([each.record for each in run], base_offset=run[0].record.offset)
    return bytes(batches)


def _acquired(records: Sequence[DeliveredRecord]) -> tuple[ShareFetchResponseAcquiredRecords, ...]:
    return tuple(
        [
            ShareFetchResponseAcquiredRecords(
                first_offset=run[0].record.offset,
                last_offset=run[-1].record.offset,
                delivery_count=run[0].attempt,
            )
            for run in _runs(records, by_attempt=True)
        ]
    )
