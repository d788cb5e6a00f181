"""Clients of queues: those who write what is to be done, and those who do it.

    JobProducer        idempotent; some records have keys, priorities, times to live, or are for later
    QueueConsumer      leases records of one group, and finishes, releases, rejects, renews or forgets them
    QueueTransactor    the same, and some acknowledgements are part of a transaction with an output

Some consumers stop for longer than their leases and acknowledge then; some die, and whoever starts in their
place has another name. Some records are poison: no consumer finishes them.

A request whose response did not come is repeated, with another node, until there is one.
"""

import itertools
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import not_
from typing import NamedTuple

from penstock.client.received import received, results_of
from penstock.core.model import MILLISECOND
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.queue_receive import (
    QueueReceiveRequest,
    QueueReceiveRequestTopic,
    QueueReceiveResponse,
)
from penstock.core.protocol.messages.queue_settle import QueueSettleRequest, QueueSettleResponse
from penstock.core.queues.record_headers import DELIVER_AT, PRIORITY, TTL_MS
from penstock.core.records import Record, write_batch
from penstock.sim.checkers.queues import (
    DRIFT,
    QueueDelivery,
    SentRecord,
    SettleAction,
    Settlement,
)
from penstock.sim.checkers.transactions import TransactionHistory
from penstock.sim.clocks import WORLD_BEGINS_MS
from penstock.sim.cluster.clients.client import ClusterNodes, SimulatedClient, VersionPolicy, is_retriable
from penstock.sim.cluster.clients.producers import IdempotentProducer, PartitionQueue
from penstock.sim.cluster.clients.transactions import FENCED, Refusal, Then, TransactionClient
from penstock.sim.cluster.journal import Place
from penstock.sim.cluster.options import JOBS, QueueGroup

KEYS = 6
KEYED, PRIORITIZED, DELAYED, MORTAL = 0.5, 0.2, 0.12, 0.08
DELAY_MS_MAX = 1_500
TTL_MS_MIN, TTL_MS_MAX = 100, 4_000
RECORDS_MAX = 6
WAIT_MS_MAX = 250
LEASES_MS = (300, 700, 1_500)
# Besides what it asked the node to wait.
PATIENCE_MS = 1_200
TRIES_MAX = 8
# One in so many values is poison.
POISON = 9
# Of one partition.
JOBS_MAX = 200
DIES, OVERSLEEPS, RENEWS, RELEASES, REJECTS, ONE_BY_ONE = 0.07, 0.07, 0.12, 0.2, 0.04, 0.15
TRANSACTS, COMMITS, DIES_IN_TRANSACTION = 0.5, 0.8, 0.06
WORK_MS_MAX = 80
DELAYS_MS = (0, 0, 60, 400, None)
# The lease is not the consumer's any more: or the queue is not there, which is worse.
REFUSED = (
    ErrorCode.INVALID_RECORD_STATE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.GROUP_ID_NOT_FOUND,
)


def is_poison(value: bytes) -> bool:
    """Whether consumers fail at it every time, until all is to be finished."""
    return zlib.crc32(value) % POISON == 0


def wall_ms(now: int) -> int:
    """What a clock shows that is right."""
    return WORLD_BEGINS_MS + now // MILLISECOND


def look_at_clocks(client: SimulatedClient) -> None:
    """Have the checker of queues know how wrong the clocks of nodes are."""
    for node_id in client.nodes.bootstrap():
        for skew_ms in client.nodes.node(node_id).machine.skews_ms:
            client.journal.queues.clock_is_off(skew_ms)


class ReceivedWork(NamedTuple):
    """What one response brought."""

    deliveries: list[QueueDelivery]
    receipts: Mapping[QueueDelivery, str]
    lease_ms: int

    def of(self, deliveries: list[QueueDelivery]) -> "ReceivedWork":
        """A part of it."""
        return self._replace(deliveries=deliveries)


class JobProducer(IdempotentProducer):
    """Writes records that queues have to do."""

    def __init__(
        self, nodes: ClusterNodes, host: str, places: list[Place], pace_ms: float, skew_ms_max: int = 0
    ) -> None:
        super().__init__(nodes, host, places, pace_ms)
        self.topics = (JOBS,)
        # How wrong its clock is.
        self._skew_ms = self.luck.randint(-skew_ms_max, skew_ms_max) if skew_ms_max else 0

    def _step(self, lane: PartitionQueue) -> None:
        if lane.made < JOBS_MAX:
            super()._step(lane)
        elif lane.pending:
            # No more than consumers can finish in a run: faults may last until enough is done elsewhere.
            self._send_more(lane)
            self.after_ms(self._pace_ms, self._step, lane)

    def _content(self, lane: PartitionQueue, values: Sequence[bytes]) -> bytes:
        assert self._producer_id is not None
        return bytes(
            write_batch(
                [self._record(lane.place, value) for value in values],
                producer_id=self._producer_id,
                producer_epoch=0,
                base_sequence=lane.sequence,
            )
        )

    def _record(self, place: Place, value: bytes) -> Record:
        luck, now_ms = self.luck, wall_ms(self.now) + self._skew_ms
        key = b"%d" % luck.randrange(KEYS) if luck.random() < KEYED else None
        headers: list[tuple[str, bytes | None]] = []
        deliver_at = expires_at = -1
        if luck.random() < PRIORITIZED:
            headers.append((PRIORITY, b"%d" % luck.randint(0, 9)))
        if luck.random() < DELAYED:
            deliver_at = now_ms + luck.randint(1, DELAY_MS_MAX)
            headers.append((DELIVER_AT, b"%d" % deliver_at))
        if luck.random() < MORTAL:
            ttl_ms = luck.randint(TTL_MS_MIN, TTL_MS_MAX)
            expires_at = now_ms + ttl_ms
            headers.append((TTL_MS, b"%d" % ttl_ms))
        self.journal.queues.sending(place, value, SentRecord(key, deliver_at, expires_at))
        return Record(0, now_ms, key, value, tuple(headers))


class QueueConsumer(SimulatedClient):
    """One consumer after the other of one group, on one host."""

    def __init__(self, nodes: ClusterNodes, host: str, group: QueueGroup, pace_ms: float) -> None:
        super().__init__(nodes, host, VersionPolicy.NEWEST)
        self.topics = (group.topic,)
        self._group = group
        self._checker = nodes.journal.queues
        self._pace_ms = pace_ms
        self._born = 0
        self._is_draining = False
        self._stopped = False

    def start(self) -> None:
        self._rest()

    def stop(self) -> None:
        self._stopped = True

    def drain(self) -> None:
        """From now on finish whatever comes."""
        self._is_draining = True

    @property
    def _name(self) -> str:
        return f"{self.host}.{self._born}"

    def _rest(self) -> None:
        if not self._stopped:
            pace_ms = 1 if self._is_draining else self._pace_ms
            self.after_ms(pace_ms * self.luck.random(), self._receive)

    def _receive(self) -> None:
        luck, group, asked = self.luck, self._group, self.now
        wait_ms = luck.randint(0, WAIT_MS_MAX)
        lease_ms = luck.choice(LEASES_MS)
        request = QueueReceiveRequest(
            group_id=group.name,
            consumer=self._name,
            topics=(QueueReceiveRequestTopic(topic=group.topic),),
            records_max=luck.randint(1, RECORDS_MAX),
            wait_ms=wait_ms,
            lease_ms=lease_ms,
        )
        got: list[QueueDelivery] = []
        receipts: dict[QueueDelivery, str] = {}

        def observe(response: QueueReceiveResponse) -> None:
            look_at_clocks(self)
            lease_ns = response.lease_ms * MILLISECOND
            for row in received(response).records:
                delivery = QueueDelivery(
                    group.name,
                    request.consumer,
                    (row.topic, row.partition),
                    row.offset,
                    row.value or b"",
                    row.attempt,
                    asked,
                    self.now,
                    asked + lease_ns - lease_ns // DRIFT,
                )
                if group.is_transactional and self.journal.transactions.delivered(self.host, delivery.value):
                    self._checker.sending(delivery.place, delivery.value, SentRecord())
                self._checker.delivered(delivery, wall_ms(self.now))
                got.append(delivery)
                receipts[delivery] = row.receipt

        def answered(reply: object) -> None:
            if not isinstance(reply, QueueReceiveResponse):
                self.after_ms(self.backoff_ms(), self._rest)
            elif reply.error_code != ErrorCode.NONE:
                if not is_retriable(reply.error_code):
                    self._unexpected("QueueReceive", reply.error_code)
                self.after_ms(self.backoff_ms(), self._rest)
            else:
                self._work(ReceivedWork(got, receipts, lease_ms))

        patience_ns = (wait_ms + PATIENCE_MS) * MILLISECOND
        self.ask(self.any_node(), request, 0, answered, observe, patience_ns)

    def _work(self, work: ReceivedWork) -> None:
        """Do something about what was received, and rest when that is done."""
        luck = self.luck
        if not work.deliveries:
            self._rest()
            return
        if self._is_draining:
            self._settle(work, work.deliveries, SettleAction.ACKNOWLEDGE, self._rest)
            return
        fate = luck.random()
        if fate < DIES:
            self._die()
        elif (fate := fate - DIES) < OVERSLEEPS:
            self.after_ms(work.lease_ms * (0.9 + 0.6 * luck.random()), self._finish, work)
        elif (fate := fate - OVERSLEEPS) < RENEWS:
            self.after_ms(work.lease_ms * 0.6 * luck.random(), self._renew, work)
        elif (fate := fate - RENEWS) < RELEASES:
            self._release(work, work.deliveries)
        elif (fate := fate - RELEASES) < REJECTS:
            self._settle(work, work.deliveries, SettleAction.REJECT, self._rest)
        else:
            self.after_ms(WORK_MS_MAX * luck.random(), self._finish, work)

    def _die(self) -> None:
        """Whoever comes next knows nothing of what this one had."""
        self.close()
        self._born += 1
        self._rest()

    def _finish(self, work: ReceivedWork) -> None:
        """Acknowledge, but for what is poison."""
        good = [each for each in work.deliveries if self._is_draining or not is_poison(each.value)]
        poison = [each for each in work.deliveries if each not in good]
        then: Callable[[], None] = self._rest
        if self.luck.random() < ONE_BY_ONE and len(good) > 1:
            # The others stay leased meanwhile.
            good, later = good[:1], good[1:]
            then = partial(self.after_ms, WORK_MS_MAX * self.luck.random(), self._finish, work.of(later))
        if poison:
            then = partial(self._release, work, poison, then)
        self._settle(work, good, SettleAction.ACKNOWLEDGE, then)

    def _release(
        self, work: ReceivedWork, deliveries: list[QueueDelivery], then: Callable[[], None] | None = None
    ) -> None:
        delay_ms = self.luck.choice(DELAYS_MS)
        self._settle(work, deliveries, SettleAction.RELEASE, then or self._rest, delay_ms=delay_ms)

    def _renew(self, work: ReceivedWork) -> None:
        """Once, for as long or twice as long as before; then work on."""
        work = work._replace(lease_ms=work.lease_ms * self.luck.randint(1, 2))

        def work_on() -> None:
            self.after_ms(work.lease_ms * self.luck.random(), self._finish, work)

        self._settle(work, work.deliveries, SettleAction.RENEW, work_on)

    def _settle(
        self,
        work: ReceivedWork,
        deliveries: list[QueueDelivery],
        action: SettleAction,
        then: Callable[[], None],
        *,
        delay_ms: int | None = None,
        tries: int = 1,
    ) -> None:
        """Ask until it is known what became of each, or it takes too long."""
        if not deliveries:
            then()
            return
        lease_ms = work.lease_ms if action is SettleAction.RENEW else -1
        request = QueueSettleRequest(
            group_id=self._group.name,
            action=action.value,
            receipts=tuple(work.receipts[each] for each in deliveries),
            delay_ms=-1 if delay_ms is None else delay_ms,
            lease_ms=lease_ms,
            reason="of the simulation",
        )
        settlements = [
            self._checker.settling(
                each, Settlement(action, self.now, delay_ms, lease_ns=lease_ms * MILLISECOND)
            )
            for each in deliveries
        ]

        def answered(reply: object) -> None:
            left = deliveries
            if isinstance(reply, QueueSettleResponse):
                for code in codes_of(reply):
                    if not _is_known(code) and not is_retriable(code):
                        self._unexpected("QueueSettle", code)
                known = [_is_known(row.error_code) for row in results_of(reply)]
                left = (
                    deliveries if reply.error_code else list(itertools.compress(deliveries, map(not_, known)))
                )
            if left and tries < TRIES_MAX and not self._stopped:
                again = partial(self._settle, work, left, action, then, delay_ms=delay_ms, tries=tries + 1)
                self.after_ms(self.backoff_ms(), again)
            else:
                then()

        observe = partial(observe_results, self, deliveries, settlements)
        self.ask(self.any_node(), request, 0, answered, observe, PATIENCE_MS * MILLISECOND)

    def _unexpected(self, what: str, code: int) -> None:
        self.journal.failures.append(f"unexpected error: {self.host} got {ErrorCode(code).name} from {what}")


def codes_of(response: QueueSettleResponse) -> list[int]:
    return [response.error_code, *(row.error_code for row in response.results)]


def _is_known(code: int) -> bool:
    """Whether an error code, or none, says for certain what became of a request."""
    return code == ErrorCode.NONE or code in REFUSED


def observe_results(
    client: SimulatedClient,
    deliveries: list[QueueDelivery],
    settlements: list[Settlement],
    response: QueueSettleResponse,
) -> None:
    """A node writes what became of a request about deliveries."""
    for delivery, settlement, row in zip(deliveries, settlements, results_of(response), strict=False):
        if _is_known(row.error_code):
            granted = row.error_code == ErrorCode.NONE
            client.journal.queues.settled(delivery, settlement, client.now, granted=granted)


class QueueTransactionClient(TransactionClient):
    """A transactional id whose transactions acknowledge what was received."""

    def __init__(self, nodes: ClusterNodes, host: str) -> None:
        # The queue's coordinator adds its partition to the transaction, as leaders do (KIP-890).
        super().__init__(nodes, host, is_new=True)

    def acknowledge(self, group: QueueGroup, work: ReceivedWork, then: Then) -> None:
        """Have the transaction finish the records; without a response the transaction is to be aborted."""
        history = self._ongoing()
        checker = self.nodes.journal.queues
        request = QueueSettleRequest(
            group_id=group.name,
            action=SettleAction.ACKNOWLEDGE.value,
            receipts=tuple(work.receipts[each] for each in work.deliveries),
            transactional_id=self.transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
        )
        asked = self.checker.asking(self.transactional_id, self.incarnation, "QueueSettle")
        settlements = [
            checker.settling(each, Settlement(SettleAction.ACKNOWLEDGE, self.now, transaction=history))
            for each in work.deliveries
        ]

        def answered(reply: object) -> None:
            if not isinstance(reply, QueueSettleResponse):
                self._has_lost = True
                then(Refusal.ABORTABLE)
                return
            codes = codes_of(reply)
            worst = next((code for code in codes if code in FENCED), None) or max(codes)
            if ErrorCode.NONE in codes[1:]:
                self.checker.obeyed(asked)
            if not any(codes):
                then(None)
            elif worst in REFUSED or is_retriable(worst):
                then(Refusal.ABORTABLE)
            else:
                then(self._refused("QueueSettle", worst))

        patience_ns = PATIENCE_MS * MILLISECOND
        observe = partial(observe_results, self, work.deliveries, settlements)
        self.ask(self.any_node(), request, 0, self.now_only(answered), observe, patience_ns)


class QueueTransactor(QueueConsumer):
    """Consumes, transforms and produces: an output for each input, and the acknowledgement with them."""

    def __init__(
        self, nodes: ClusterNodes, host: str, group: QueueGroup, outputs: list[Place], pace_ms: float
    ) -> None:
        super().__init__(nodes, host, group, pace_ms)
        self._outputs = outputs
        self._client = QueueTransactionClient(nodes, host)

    def stop(self) -> None:
        super().stop()
        self._client.abandon()

    def _die(self) -> None:
        self._client.abandon()
        self._client.close()
        super()._die()

    def _finish(self, work: ReceivedWork) -> None:
        good = [each for each in work.deliveries if not is_poison(each.value)]
        if self._is_draining or not good or self.luck.random() >= TRANSACTS:
            super()._finish(work)
        elif self._client.needs_init:
            self._client.init(partial(self._transact, work.of(good)))
        else:
            self._transact(work.of(good))

    def _transact(self, work: ReceivedWork) -> None:
        client, luck = self._client, self.luck
        history = client.begin()
        if luck.random() < DIES_IN_TRANSACTION:
            self.after_ms(WORK_MS_MAX * luck.random(), self._die_in, history)

        def sent(refusal: Refusal | None) -> None:
            if refusal is None:
                client.acknowledge(self._group, work, added)
            else:
                self._trouble(refusal)

        def added(refusal: Refusal | None) -> None:
            if refusal is None:
                client.end(ended, commit=luck.random() < COMMITS)
            else:
                self._trouble(refusal)

        def ended(refusal: Refusal | None) -> None:
            if refusal is not None:
                client.abandon()
            self._rest()

        client.send(luck.choice(self._outputs), client.values(len(work.deliveries)), sent)

    def _die_in(self, history: TransactionHistory) -> None:
        if self._client.transaction is history:
            self._die()

    def _trouble(self, refusal: Refusal) -> None:
        if refusal is Refusal.ABORTABLE:
            self._client.end(self._aborted, commit=False)
        else:
            self._aborted(refusal)

    def _aborted(self, refusal: Refusal | None) -> None:
        """What it has is leased still, and comes again when that ends."""
        if refusal is not None:
            self._client.abandon()
        self._rest()
