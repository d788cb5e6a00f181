"""A member of a share group (KIP-932): what it leases is its own while it is a member.

    locate ─▶ join (epoch 0) ─▶ fetch, acknowledge, heartbeat … ─▶ leave (-1), or die
                 ▲                        │
                 └── unknown, fenced ◀────┘ under the same id

Heartbeats go on while it works, but for naps that last longer than its session: then it is removed, what it
has is released, and it joins again under its id. Now and then it ends its session with a leader, which
releases what it got in it, and begins another one. A process that dies comes back with another id.

Records are accepted, released, rejected and renewed, one by one or together. A request whose response did not
come is repeated; as there are no receipts, what arrives late counts for a later delivery to the same member.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple
from uuid import UUID

from penstock.core.model import MILLISECOND
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.share_acknowledge import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeRequestAcknowledgementBatch,
    ShareAcknowledgeRequestPartition,
    ShareAcknowledgeRequestTopic,
    ShareAcknowledgeResponse,
)
from penstock.core.protocol.messages.share_fetch import (
    ShareFetchRequest,
    ShareFetchRequestPartition,
    ShareFetchRequestTopic,
    ShareFetchResponse,
    ShareFetchResponsePartition,
)
from penstock.core.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from penstock.sim.checkers.queues import (
    DRIFT,
    QueueDelivery,
    SettleAction,
    Settlement,
    ShareMembership,
)
from penstock.sim.cluster.clients.client import ClusterNodes, VersionPolicy, is_retriable
from penstock.sim.cluster.clients.connection import ClientConnection
from penstock.sim.cluster.clients.members import ELSEWHERE, GroupClient
from penstock.sim.cluster.clients.queues import (
    PATIENCE_MS,
    RECORDS_MAX,
    TRIES_MAX,
    WAIT_MS_MAX,
    WORK_MS_MAX,
    is_poison,
    look_at_clocks,
    wall_ms,
)
from penstock.sim.cluster.journal import Place
from penstock.sim.cluster.options import SHARE_SESSION_MS, QueueGroup
from penstock.sim.values import read_all_records

SURE_SESSION_NS = SHARE_SESSION_MS * MILLISECOND * 99 // 100
JOIN_EPOCH, LEAVE_EPOCH = 0, -1
FIRST_EPOCH, FINAL_EPOCH = 0, -1
VERSION = 2
DOWN_MS = 1_000
NAP_MS = 1.6 * SHARE_SESSION_MS
DIES, LEAVES, NAPS, ENDS, OVERSLEEPS, RENEWS, RELEASES, REJECTS = (
    0.04,
    0.04,
    0.06,
    0.06,
    0.04,
    0.1,
    0.15,
    0.04,
)
ONE_BY_ONE = 0.3
TYPES = {
    SettleAction.ACKNOWLEDGE: 1,
    SettleAction.RELEASE: 2,
    SettleAction.REJECT: 3,
    SettleAction.RENEW: 4,
}
REMOVED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
NO_SESSION = (ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH)
# Anything else says that nothing was done, or that nobody knows.
SETTLED = (ErrorCode.NONE, ErrorCode.INVALID_RECORD_STATE)


@dataclass(slots=True)
class ShareConnection:
    """The session of a member on one connection: the epoch of the next request, and what it got."""

    connection: ClientConnection | None = None
    epoch: int = FIRST_EPOCH
    held: list[QueueDelivery] = field(default_factory=list)


class SharedJob(NamedTuple):
    """What one response brought, of one partition."""

    place: Place
    deliveries: list[QueueDelivery]
    lease_ms: int

    def of(self, deliveries: list[QueueDelivery]) -> "SharedJob":
        """A part of it."""
        return self._replace(deliveries=deliveries)


class ShareConsumer(GroupClient):
    """One process after the other of a share group, on one host."""

    def __init__(self, nodes: ClusterNodes, host: str, group: QueueGroup, pace_ms: float) -> None:
        super().__init__(nodes, host, group.name, VersionPolicy.NEWEST)
        self.topics = (group.topic,)
        self.topic = group.topic
        self._checker = nodes.journal.queues
        self._pace_ms = pace_ms
        self._is_draining = False
        self._member_id = ""
        self._epoch = JOIN_EPOCH
        self._membership = ShareMembership()
        self._places: list[Place] = []
        self._sessions: dict[int, ShareConnection] = {}
        self._asleep_until = 0

    def start(self) -> None:
        self._come_back()

    def drain(self) -> None:
        """From now on finish whatever comes, and stay."""
        self._is_draining = True

    def _come_back(self) -> None:
        """Begin as a new process."""
        self._member_id = str(UUID(int=self.luck.getrandbits(128)))
        self._join()

    def _join(self) -> None:
        """Join, as somebody new or under the id it has."""
        self._turn += 1
        if self._stopped:
            return
        self._membership.is_over = True
        self._membership = ShareMembership()
        self._epoch, self._places = JOIN_EPOCH, []
        self._locate(self._beat)

    def _die(self) -> None:
        self._turn += 1
        self.close()
        self.after_ms(DOWN_MS * self.luck.random(), self._now(self._come_back))

    def _beat(self) -> None:
        if self.now < self._asleep_until:
            self.after_ms((self._asleep_until - self.now) / MILLISECOND, self._now(self._beat))
            return
        request = ShareGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._member_id,
            member_epoch=self._epoch,
            subscribed_topic_names=(self.topic,) if self._epoch == JOIN_EPOCH else None,
        )
        self._submit(request, partial(self._heard, self.now))

    def _heard(self, sent_at: int, reply: object) -> None:
        if not isinstance(reply, ShareGroupHeartbeatResponse) or reply.error_code in ELSEWHERE:
            self._locate(self._beat)
        elif reply.error_code in REMOVED and self._epoch != JOIN_EPOCH:
            self._checker.removals += 1
            self._join()
        elif reply.error_code == ErrorCode.NONE:
            joins, self._epoch = self._epoch == JOIN_EPOCH, reply.member_epoch
            self._membership.sure_until = sent_at + SURE_SESSION_NS
            if reply.assignment is not None:
                rows = reply.assignment.topic_partitions
                self._places = [(self.topic, index) for row in rows for index in row.partitions]
            self.after_ms(reply.heartbeat_interval_ms, self._now(self._beat))
            if joins:
                self._rest()
        else:
            self._unexpected("ShareGroupHeartbeat", reply.error_code)

    def _rest(self) -> None:
        pace_ms = 1 if self._is_draining else self._pace_ms
        self.after_ms(pace_ms * self.luck.random(), self._now(self._receive))

    def _receive(self) -> None:
        place = self.luck.choice(self._places) if self._places else None
        if place is None or self.leader(place) is None or self.topic_id(self.topic) is None:
            self.after_ms(self.backoff_ms(), self._now(lambda: self.refresh_metadata(self._now(self._rest))))
            return
        luck = 1.0 if self._is_draining else self.luck.random()
        if luck < ENDS:
            self._fetch(place, 0, self._rest, is_final=True)
        else:
            self._fetch(place, self.luck.randint(1, RECORDS_MAX), self._rest)

    def _session(self, place: Place) -> tuple[int, ShareConnection]:
        """The leader as it is known, and the session with it: a new one if the connection is."""
        leader = self.leader(place)
        assert leader is not None
        known, connection = self._sessions.get(leader.node_id), self._connections.get(leader.node_id)
        if known is None or connection is None or connection.is_over or known.connection is not connection:
            known = self._sessions[leader.node_id] = ShareConnection()
        return leader.node_id, known

    def _fetch(
        self, place: Place, records_max: int, then: Callable[[], None], *, is_final: bool = False
    ) -> None:
        """Lease records; none at all begins a session only. The last request of one releases what it has."""
        node_id, session = self._session(place)
        if is_final and session.epoch == FIRST_EPOCH:
            then()
            return
        wait_ms = self.luck.randint(0, WAIT_MS_MAX)
        row = ShareFetchRequestPartition(partition_index=place[1], acknowledgement_batches=())
        request = ShareFetchRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=FINAL_EPOCH if is_final else session.epoch,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_records=records_max,
            batch_size=records_max,
            topics=() if is_final else (self._topic_row(row),),
            forgotten_topics_data=(),
        )
        if is_final:
            # From now on the node may release what it got in the session, and nothing else.
            del self._sessions[node_id]
            for each in session.held:
                each.is_released = True
        else:
            session.epoch += 1
        jobs: list[SharedJob] = []
        observe = partial(self._observe, self._member_id, self._membership, self.now, session, jobs)

        def answered(reply: object) -> None:
            code = reply.error_code if isinstance(reply, ShareFetchResponse) else ErrorCode.NONE
            if code and code not in NO_SESSION and not is_retriable(code):
                self._unexpected("ShareFetch", code)
            if code or not isinstance(reply, ShareFetchResponse):
                self._sessions.pop(node_id, None)
                self.after_ms(self.backoff_ms(), self._now(lambda: self.refresh_metadata(self._now(then))))
                return
            self._learn_leaders(reply)
            if jobs:
                self._work(jobs[0])
            else:
                then()

        self.ask(
            node_id, request, VERSION, self._now(answered), observe, (wait_ms + PATIENCE_MS) * MILLISECOND
        )
        session.connection = self._connections[node_id]

    def _topic_row(self, row: ShareFetchRequestPartition) -> ShareFetchRequestTopic:
        topic_id = self.topic_id(self.topic)
        assert topic_id is not None
        return ShareFetchRequestTopic(topic_id=topic_id, partitions=(row,))

    def _observe(
        self,
        member_id: str,
        membership: ShareMembership,
        asked: int,
        session: ShareConnection,
        jobs: list[SharedJob],
        response: ShareFetchResponse,
    ) -> None:
        look_at_clocks(self)
        lease_ns = response.acquisition_lock_timeout_ms * MILLISECOND
        for topic in response.responses:
            for row in topic.partitions:
                attempts = {
                    offset: run.delivery_count
                    for run in row.acquired_records
                    for offset in range(run.first_offset, run.last_offset + 1)
                }
                place = (self.topic, row.partition_index)
                deliveries = [
                    QueueDelivery(
                        self._group,
                        member_id,
                        place,
                        record.offset,
                        bytes(record.value or b""),
                        attempts[record.offset],
                        asked,
                        self.now,
                        asked + lease_ns - lease_ns // DRIFT,
                        membership=membership,
                    )
                    for record in read_all_records(_content_of(row))
                ]
                for delivery in deliveries:
                    self._checker.delivered(delivery, wall_ms(self.now))
                    session.held.append(delivery)
                if deliveries:
                    jobs.append(SharedJob(place, deliveries, response.acquisition_lock_timeout_ms))

    def _learn_leaders(self, response: ShareFetchResponse) -> None:
        for node in response.node_endpoints:
            self.reached_at(node.node_id, node.host, node.port)
        for topic in response.responses:
            for row in topic.partitions:
                place, leader = (self.topic, row.partition_index), row.current_leader
                if row.error_code and leader.leader_id >= 0:
                    self.hear_of_leader(place, leader.leader_id, leader.leader_epoch)
                elif row.error_code:
                    self._leaders.pop(place, None)

    def _work(self, job: SharedJob) -> None:
        """Do something about what was received, and rest when that is done."""
        luck = self.luck
        if self._is_draining:
            self._settle(job, SettleAction.ACKNOWLEDGE, self._rest)
            return
        fate = luck.random()
        for share, act in (
            (DIES, self._die),
            (LEAVES, self._leave),
            (NAPS, partial(self._nap, job)),
            (OVERSLEEPS, partial(self._later, job.lease_ms * (0.9 + 0.6 * luck.random()), job)),
            (RENEWS, partial(self._renew, job)),
            (RELEASES, partial(self._settle, job, SettleAction.RELEASE, self._rest)),
            (REJECTS, partial(self._settle, job, SettleAction.REJECT, self._rest)),
        ):
            if fate < share:
                act()
                return
            fate -= share
        self._later(WORK_MS_MAX * luck.random(), job)

    def _later(self, delay_ms: float, job: SharedJob) -> None:
        self.after_ms(delay_ms, self._now(self._finish), job)

    def _nap(self, job: SharedJob) -> None:
        """No heartbeat for longer than the session lasts; then work on, if it is a member still."""
        self._asleep_until = self.now + int(NAP_MS * (0.5 + self.luck.random())) * MILLISECOND
        self._later((self._asleep_until - self.now) / MILLISECOND + 1, job)

    def _leave(self) -> None:
        """Leave the group, and join again under the same id."""
        request = ShareGroupHeartbeatRequest(
            group_id=self._group, member_id=self._member_id, member_epoch=LEAVE_EPOCH
        )
        self._turn += 1
        self._membership.is_over = True
        self._submit(request, lambda _: self._join())

    def _renew(self, job: SharedJob) -> None:
        work_on = partial(self._later, job.lease_ms * self.luck.random(), job)
        self.after_ms(
            job.lease_ms * 0.6 * self.luck.random(),
            self._now(partial(self._settle, job, SettleAction.RENEW, work_on)),
        )

    def _finish(self, job: SharedJob) -> None:
        """Accept, but for what is poison."""
        good = [each for each in job.deliveries if self._is_draining or not is_poison(each.value)]
        poison = [each for each in job.deliveries if each not in good]
        then: Callable[[], None] = self._rest
        if self.luck.random() < ONE_BY_ONE and len(good) > 1:
            good, later = good[:1], good[1:]
            then = partial(self._later, WORK_MS_MAX * self.luck.random(), job.of(later))
        if poison:
            then = partial(self._settle, job.of(poison), SettleAction.RELEASE, then)
        self._settle(job.of(good), SettleAction.ACKNOWLEDGE, then)

    def _settle(  # noqa: C901 - one step after the other
        self, job: SharedJob, action: SettleAction, then: Callable[[], None], tries: int = 1
    ) -> None:
        """Ask until it is known what became of all, or it takes too long."""
        if not job.deliveries or tries > TRIES_MAX or self._stopped:
            then()
            return
        again = partial(self._settle, job, action, then, tries + 1)
        if self.leader(job.place) is None:
            self.after_ms(self.backoff_ms(), self._now(lambda: self.refresh_metadata(self._now(again))))
            return
        node_id, session = self._session(job.place)
        if session.epoch == FIRST_EPOCH:
            # Whatever comes with it is not asked for.
            self._fetch(job.place, 0, again)
            return
        lease_ns = job.lease_ms * MILLISECOND if action is SettleAction.RENEW else 0
        settlements = [
            self._checker.settling(each, Settlement(action, self.now, 0, lease_ns=lease_ns))
            for each in job.deliveries
        ]
        epoch, session.epoch = session.epoch, session.epoch + 1

        def observe(response: ShareAcknowledgeResponse) -> None:
            code = _code_of(response)
            if code == ErrorCode.NONE or (code in SETTLED and len(job.deliveries) == 1):
                for delivery, settlement in zip(job.deliveries, settlements, strict=True):
                    self._checker.settled(delivery, settlement, self.now, granted=code == ErrorCode.NONE)

        def answered(reply: object) -> None:
            code = _code_of(reply) if isinstance(reply, ShareAcknowledgeResponse) else None
            if code in SETTLED:
                then()
                return
            if code is not None and code not in NO_SESSION and not is_retriable(code):
                self._unexpected("ShareAcknowledge", code)
            self._sessions.pop(node_id, None)
            self.after_ms(self.backoff_ms(), self._now(lambda: self.refresh_metadata(self._now(again))))

        request = self._acknowledgement(job, action, epoch)
        patience_ns = PATIENCE_MS * MILLISECOND
        self.ask(node_id, request, VERSION, self._now(answered), observe, patience_ns)
        session.connection = self._connections[node_id]

    def _acknowledgement(self, job: SharedJob, action: SettleAction, epoch: int) -> ShareAcknowledgeRequest:
        batches = tuple(
            ShareAcknowledgeRequestAcknowledgementBatch(
                first_offset=offset, last_offset=offset, acknowledge_types=(TYPES[action],)
            )
            for offset in sorted(each.offset for each in job.deliveries)
        )
        topic_id = self.topic_id(self.topic)
        assert topic_id is not None
        row = ShareAcknowledgeRequestPartition(partition_index=job.place[1], acknowledgement_batches=batches)
        return ShareAcknowledgeRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=epoch,
            is_renew_ack=action is SettleAction.RENEW,
            topics=(ShareAcknowledgeRequestTopic(topic_id=topic_id, partitions=(row,)),),
        )

    def _unexpected(self, what: str, code: int) -> None:
        self.journal.failures.append(f"unexpected error: {self.host} got {ErrorCode(code).name} from {what}")


def _code_of(response: ShareAcknowledgeResponse) -> int:
    codes = [row.error_code for topic in response.responses for row in topic.partitions]
    return response.error_code or next((code for code in codes if code), ErrorCode.NONE)


def _content_of(row: ShareFetchResponsePartition) -> bytes:
    assert isinstance(row.records, bytes | memoryview)
    return bytes(row.records)
