"""Clients that write: one kind whose records must never be lost, one whose records may be."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from penstock.core.model import ProducerId
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from penstock.core.protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
    ProduceResponsePartition,
)
from penstock.core.protocol.schema import ZERO_UUID
from penstock.sim.checkers.freshness import NOTHING_KNOWN
from penstock.sim.cluster.clients.client import ClusterNodes, KnownLeader, SimulatedClient, is_retriable
from penstock.sim.cluster.clients.connection import Answered
from penstock.sim.cluster.journal import Place
from penstock.sim.values import batch_of

IN_FLIGHT_MAX = 5
RECORDS_MAX = 8
LEADER_ACKS, ALL_ACKS = 1, -1
TIMEOUT_MS = 600
TOPIC_IDS_SINCE = 13


@dataclass(slots=True, eq=False)
class InFlightBatch:
    """Values on their way to a partition; `number` counts the producer's batches for it."""

    number: int
    values: list[bytes]
    sequence: int
    content: bytes


@dataclass(slots=True)
class PartitionQueue:
    """What one producer has to do with one partition."""

    place: Place
    batches: int = 0
    made: int = 0
    sequence: int = 0
    # Not acknowledged yet, in the order of sequences; the first `in_flight` of them are on their way.
    pending: deque[InFlightBatch] = field(default_factory=deque)
    in_flight: int = 0
    # After a failure nothing is sent until every response is there: then all of it again, in order.
    is_failing: bool = False
    is_known: bool = False

    @property
    def has_room(self) -> bool:
        # A log remembers the last five batches of a producer: no sixth before the first is settled, even
        # if those between are acknowledged already.
        return not self.pending or self.batches - self.pending[0].number < IN_FLIGHT_MAX

    @property
    def in_flight_max(self) -> int:
        # A log takes any first sequence of a producer that it does not know, as Kafka does. If the
        # first batch failed, the second would come first for good.
        return IN_FLIGHT_MAX if self.is_known else 1


class SimulatedProducer(SimulatedClient):
    """Sends one batch to one partition per request."""

    transactional_id: str | None = None
    # The newest version of Produce that it knows.
    produce_until: int | None = None

    def produce(
        self, leader: KnownLeader, place: Place, content: bytes, count: int, acks: int, answered: Answered
    ) -> None:
        """Send a batch of `count` records; `answered` is called with its row of the response, or LOST."""
        topic_id = self.topic_id(place[0])
        until = TOPIC_IDS_SINCE - 1 if topic_id is None and self.produce_until is None else self.produce_until
        version = self.versions.of(ProduceRequest, until=until)
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=acks,
            timeout_ms=TIMEOUT_MS,
            topic_data=(
                ProduceRequestTopic(
                    topic_id=topic_id or ZERO_UUID,
                    name=place[0],
                    partition_data=(ProduceRequestPartition(index=place[1], records=content),),
                ),
            ),
        )
        node = self.nodes.node(leader.node_id)
        known = self.journal.freshness.asking(place)
        epoch = -1

        def observe(response: ProduceResponse) -> None:
            nonlocal epoch
            row = _row(response)
            if row.error_code == ErrorCode.NONE:
                if acks == ALL_ACKS:
                    node.acknowledges(place, row.base_offset + count)
                    # It may have been safe long before the leader knew, even if that is a leader of old.
                    epoch = node.answers(place, NOTHING_KNOWN)
                else:
                    node.shows_partition(place)
                    node.answers(place, known)

        def received(reply: object) -> None:
            if not isinstance(reply, ProduceResponse):
                answered(reply)
                return
            row = _row(reply)
            if row.error_code == ErrorCode.NONE and acks == ALL_ACKS:
                self.journal.freshness.received(place, epoch, row.base_offset + count)
            self.hear_of_leader(place, row.current_leader.leader_id, row.current_leader.leader_epoch)
            answered(row)

        self.ask(leader.node_id, request, version, received, observe)


def _row(response: ProduceResponse) -> ProduceResponsePartition:
    ((row,),) = (topic.partition_responses for topic in response.responses)
    return row


class IdempotentProducer(SimulatedProducer):
    """Idempotent, with up to five batches in flight, and every acknowledgement from all in-sync replicas."""

    def __init__(self, nodes: ClusterNodes, host: str, places: list[Place], pace_ms: float) -> None:
        super().__init__(nodes, host)
        self._executors = [PartitionQueue(place) for place in places]
        self._pace_ms = pace_ms
        self._producer_id: ProducerId | None = None
        self._is_stopping = False

    @property
    def finished(self) -> bool:
        """Whether everything it ever sent was acknowledged, and nothing more will come."""
        return self._is_stopping and not any(lane.pending for lane in self._executors)

    def finish(self) -> None:
        """Send nothing new."""
        self._is_stopping = True

    def start(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=TIMEOUT_MS)
        self.ask(self.any_node(), request, self.versions.of(InitProducerIdRequest), self._got_id)

    def _got_id(self, reply: object) -> None:
        if not isinstance(reply, InitProducerIdResponse) or reply.error_code:
            self.after_ms(self.backoff_ms(), self.start)
            return
        self._producer_id = ProducerId(reply.producer_id)
        for lane in self._executors:
            self.after_ms(self._pace_ms * self.luck.random(), self._step, lane)

    def _step(self, lane: PartitionQueue) -> None:
        """One more batch, if there is room for it, and the next step after a while."""
        if not self._is_stopping and lane.has_room:
            lane.pending.append(self._make(lane))
        if not lane.pending:
            return
        self._send_more(lane)
        self.after_ms(self._pace_ms * 2 * self.luck.random(), self._step, lane)

    def _make(self, lane: PartitionQueue) -> InFlightBatch:
        assert self._producer_id is not None
        count = self.luck.randint(1, RECORDS_MAX)
        name = b"%s/%d" % (self.host.encode(), lane.place[1])
        values = [b"%s/%d" % (name, lane.made + i) for i in range(count)]
        self.journal.log(*lane.place).sent.setdefault(self.host, []).extend(values)
        batch = InFlightBatch(lane.batches, values, lane.sequence, self._content(lane, values))
        lane.batches += 1
        lane.made += count
        lane.sequence += count
        return batch

    def _content(self, lane: PartitionQueue, values: Sequence[bytes]) -> bytes:
        assert self._producer_id is not None
        return batch_of(values, self._producer_id, lane.sequence, keyed=self.journal.is_compacted)

    def _send_more(self, lane: PartitionQueue) -> None:
        if lane.is_failing:
            return
        leader = self.leader(lane.place)
        if leader is None:
            self._fail(lane)
            return
        while lane.in_flight < min(len(lane.pending), lane.in_flight_max):
            batch = lane.pending[lane.in_flight]
            lane.in_flight += 1
            answered = partial(self._answered, lane, batch)
            self.produce(leader, lane.place, batch.content, len(batch.values), ALL_ACKS, answered)

    def _answered(self, lane: PartitionQueue, batch: InFlightBatch, reply: object) -> None:
        lane.in_flight -= 1
        code = reply.error_code if isinstance(reply, ProduceResponsePartition) else None
        if isinstance(reply, ProduceResponsePartition) and code == ErrorCode.NONE:
            self._acknowledged(lane, batch, reply.base_offset)
        else:
            if lane.pending and batch is lane.pending[0] and not _may_be_told(lane, code):
                self.journal.failures.append(
                    f"unexpected error: {self.host} got {reply} for {batch.values[0]!r}"
                )
            lane.is_failing = True
        if lane.is_failing and not lane.in_flight:
            self._fail(lane)

    def _acknowledged(self, lane: PartitionQueue, batch: InFlightBatch, first_offset: int) -> None:
        lane.is_known = True
        acknowledged = self.journal.log(*lane.place).acknowledged
        for index, value in enumerate(batch.values):
            acknowledged.setdefault(value, first_offset + index)
        if batch not in lane.pending:
            return
        if batch is not lane.pending[0]:
            # Its forerunners are in the log too, or it would have been rejected: their responses are lost.
            lane.is_failing = True
        lane.pending.remove(batch)

    def _fail(self, lane: PartitionQueue) -> None:
        lane.is_failing = True
        self.after_ms(self.backoff_ms(), self.refresh_metadata, lambda: self._again(lane))

    def _again(self, lane: PartitionQueue) -> None:
        lane.is_failing = False
        self._send_more(lane)


def _may_be_told(lane: PartitionQueue, code: int | None) -> bool:
    # Behind a batch that failed, those in flight do not follow the producer's last one.
    is_gap = code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    return code is None or is_retriable(code) or (is_gap and lane.is_failing)


class AtMostOnceProducer(SimulatedProducer):
    """acks=1, one batch at a time, and never sends anything twice."""

    def __init__(self, nodes: ClusterNodes, host: str, places: list[Place], pace_ms: float) -> None:
        super().__init__(nodes, host)
        self._places = places
        self._pace_ms = pace_ms
        self._made = 0
        self.finished = False

    def finish(self) -> None:
        """Send nothing more."""
        self.finished = True

    def start(self) -> None:
        self._again()

    def _again(self) -> None:
        if not self.finished:
            self.after_ms(self._pace_ms * 2 * self.luck.random(), self._send)

    def _send(self) -> None:
        place = self.luck.choice(self._places)
        leader = self.leader(place)
        if leader is None:
            self._look_around()
            return
        self._made += 1
        value = b"%s/%d/%d" % (self.host.encode(), place[1], self._made)
        history = self.journal.log(*place)
        # What has timed out may still arrive, behind what it sent next.
        history.sent_in_any_order.append(value)

        def answered(reply: object) -> None:
            if isinstance(reply, ProduceResponsePartition) and reply.error_code == ErrorCode.NONE:
                history.told_by_leader[value] = reply.base_offset
                self._again()
            else:
                self._look_around()

        content = batch_of([value], keyed=self.journal.is_compacted)
        self.produce(leader, place, content, 1, LEADER_ACKS, answered)

    def _look_around(self) -> None:
        self.after_ms(self.backoff_ms(), self.refresh_metadata, self._again)
