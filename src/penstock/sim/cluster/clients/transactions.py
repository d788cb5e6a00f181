"""Clients that write in transactions, and those that read what they wrote.

    TransactionClient        one transactional id: initialises, sends, commits offsets, ends
    TransactionalProducer    one transaction after the other; dies, sleeps, leaves a zombie behind
    IsolatedConsumer         reads everything, committed or not, or only what is committed
    RackConsumer             reads what is committed from the replica in its rack (KIP-392)

A client is of the new protocol, in which every transaction has an epoch of its own and its first batch adds
a partition (KIP-890), or of the old one, which adds partitions by itself. The old protocol cannot tell a
request that was delayed from one of the next transaction: such a client begins as a new incarnation
whenever it does not know what became of a request.

An incarnation is everything between two InitProducerId. What is left of an old one, a zombie, goes on to
send when the new one is at work. Nothing of that may be accepted. Nor may what the network delays past the
end of its transaction be counted as part of the next one.
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from penstock.core.model import MILLISECOND, CorruptionError, ProducerId
from penstock.core.protocol import ErrorCode, Message
from penstock.core.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.core.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTopic,
    AddPartitionsToTxnResponse,
)
from penstock.core.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.core.protocol.messages.fetch import (
    FetchRequest,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
)
from penstock.core.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.core.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from penstock.core.protocol.messages.produce import ProduceResponsePartition
from penstock.core.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from penstock.sim.checkers.transactions import TransactionHistory
from penstock.sim.cluster.clients.client import ClusterNodes, KnownLeader, VersionPolicy, is_retriable
from penstock.sim.cluster.clients.connection import Answered, Observe, RequestLost
from penstock.sim.cluster.clients.consumers import (
    BACK_TO_START,
    FETCH_BYTES,
    NO_REPLICA,
    NO_SESSION,
    REST_MS,
    SESSIONLESS_EPOCH,
    WAIT_MS,
    FetchClient,
    rows_of,
)
from penstock.sim.cluster.clients.producers import ALL_ACKS, RECORDS_MAX, SimulatedProducer
from penstock.sim.cluster.journal import Place
from penstock.sim.cluster.options import TOPIC, TRANSFERS
from penstock.sim.values import batch_of, committed_values_of, end_of, values_of

TRANSACTION_TIMEOUT_MS = 2_000
GROUP_KEY, TRANSACTION_KEY = 0, 1
KEY_TYPES_SINCE, KEY_BATCHES_SINCE = 1, 4
# The last versions without an epoch for every transaction; later AddPartitionsToTxn is for brokers.
OLD_PRODUCE, OLD_END, OLD_ADD_PARTITIONS, OLD_OFFSET_COMMIT = 11, 4, 3, 4
OFFSET_COMMIT_GENERATIONS_SINCE = 3
NEW_PROTOCOL, NEWEST = 0.6, 0.5
COMMITS, DIES, ZOMBIES, SLEEPS, LATE, READS = 0.7, 0.06, 0.6, 0.04, 0.15, 0.25
DIES_ENDING = 0.12
BATCHES_MAX = 3
DEATH_MS = 50
BACK_TO_LEADER = 0.05
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
# Somebody else has ended the transaction, or begun as a newer incarnation.
FENCED = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
)
# The member that has consumed the inputs is not in the group any more.
NOT_A_MEMBER = (
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
)
AGAIN = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NETWORK_EXCEPTION,
)


class Refusal(enum.Enum):
    """Why a transaction cannot go on."""

    FENCED = "fenced"
    ABORTABLE = "abortable"
    NOT_A_MEMBER = "not-a-member"


class ZombieState(NamedTuple):
    """What a process knows that may be taken for dead: enough to go on sending."""

    producer_id: int
    epoch: int
    incarnation: int
    sequences: Mapping[Place, int]
    # The transaction it was in, if that is over and the epoch is of that transaction alone.
    ended: TransactionHistory | None = None


# Called with None when it is done, or with the reason why not.
Then = Callable[[Refusal | None], None]


class TransactionClient(SimulatedProducer):
    """One transactional id, in one incarnation after the other, and one transaction at a time."""

    transactional_id: str

    def __init__(self, nodes: ClusterNodes, host: str, *, is_new: bool = False) -> None:
        luck = nodes.world.random(f"protocol {host}")
        self.is_new = luck.random() < NEW_PROTOCOL or is_new
        newest = self.is_new or luck.random() < NEWEST
        super().__init__(nodes, host, VersionPolicy.NEWEST if newest else VersionPolicy.ANY)
        self.topics = (TOPIC, TRANSFERS)
        self.transactional_id = host
        self.produce_until = None if self.is_new else OLD_PRODUCE
        self.checker = nodes.journal.transactions
        self.incarnation = -1
        self.transaction: TransactionHistory | None = None
        # Whether the next transaction needs a new incarnation.
        self.needs_init = True
        self._producer_id = self._epoch = -1
        self._sequences: dict[Place, int] = {}
        self._made = 0
        # Responses to requests of an earlier turn are ignored.
        self._turn = 0
        self._coordinators: dict[tuple[int, str], int] = {}
        # Whether a request was lost since the incarnation began; one of its own may fence it then.
        self._has_lost = self._may_be_fenced = False

    def state(self) -> ZombieState:
        return ZombieState(self._producer_id, self._epoch, self.incarnation, dict(self._sequences))

    def abandon(self) -> None:
        """Forget the transaction: whoever comes next, or its timeout, ends it."""
        self._turn += 1
        self.needs_init = True
        if self.transaction is not None:
            self.checker.released(self.transaction)
            self.transaction = None

    def now_only(self, act: Callable[..., None]) -> Callable[..., None]:
        """`act`, unless the client has given up meanwhile."""
        turn = self._turn

        def guarded(*arguments: Any) -> None:
            if turn == self._turn:
                act(*arguments)

        return guarded

    def init(self, then: Callable[[], None]) -> None:
        """Begin as a new incarnation."""
        self.abandon()
        self.incarnation += 1
        self._has_lost = False
        incarnation = self.incarnation
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )

        def observe(response: InitProducerIdResponse) -> None:
            if response.error_code == ErrorCode.NONE:
                self.checker.initialized(self.transactional_id, incarnation)

        def done(reply: InitProducerIdResponse) -> None:
            if reply.error_code != ErrorCode.NONE:
                # Another of its own requests has made an incarnation meanwhile.
                if reply.error_code not in FENCED:
                    self._unexpected("InitProducerId", reply.error_code)
                self.after_ms(self.backoff_ms(), self.now_only(self.init), then)
                return
            self._producer_id, self._epoch = reply.producer_id, reply.producer_epoch
            self._sequences = {}
            # One that comes late makes another incarnation.
            self._may_be_fenced = self._has_lost
            self.needs_init = False
            then()

        version = self.versions.of(InitProducerIdRequest)
        self._coordinate(request, version, lambda reply: reply.error_code, done, observe)

    def begin(self) -> TransactionHistory:
        # An InitProducerId of its own that was lost may still arrive, and abort it.
        lasts_ms = 0 if self._may_be_fenced else TRANSACTION_TIMEOUT_MS // 2
        expires = self.now + lasts_ms * MILLISECOND
        self.transaction = self.checker.begin(self.transactional_id, self.incarnation, expires)
        return self.transaction

    def send(self, place: Place, values: Sequence[bytes], then: Then) -> None:
        """Send one batch, until it is acknowledged or the transaction cannot go on."""
        history = self._ongoing()
        self.checker.sending(history, place, values)
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = sequence + len(values)
        content = batch_of(
            values, ProducerId(self._producer_id), sequence, epoch=self._epoch, transactional=True
        )
        produce = partial(self._produce, place, values, content, then)
        if self.is_new:
            produce()
        else:
            self._add_partition(place, produce, then)

    def _ongoing(self) -> TransactionHistory:
        assert self.transaction is not None
        return self.transaction

    def values(self, count: int) -> list[bytes]:
        """New ones."""
        self._made += count
        name = b"%s/%d" % (self.host.encode(), self.incarnation)
        return [b"%s/%d" % (name, number) for number in range(self._made - count, self._made)]

    def _add_partition(self, place: Place, then: Callable[[], None], refused: Then) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=(AddPartitionsToTxnRequestTopic(name=place[0], partitions=(place[1],)),),
        )
        version = self.versions.of(AddPartitionsToTxnRequest, until=OLD_ADD_PARTITIONS)
        done = partial(self._done, "AddPartitionsToTxn", _added, then, refused)
        self._coordinate(request, version, _added, done)

    def _produce(self, place: Place, values: Sequence[bytes], content: bytes, then: Then) -> None:
        again = self.now_only(partial(self._produce, place, values, content, then))
        leader = self.leader(place)
        if leader is None:
            self.after_ms(self.backoff_ms(), self.refresh_metadata, again)
            return
        history = self._ongoing()
        asked = self.checker.asking(self.transactional_id, self.incarnation, "Produce")

        def answered(reply: object) -> None:
            code = reply.error_code if isinstance(reply, ProduceResponsePartition) else None
            if isinstance(reply, ProduceResponsePartition) and code == ErrorCode.NONE:
                self.checker.obeyed(asked)
                self.checker.acknowledged(history, values, reply.base_offset)
                then(None)
            elif code is None or is_retriable(code) or code in AGAIN:
                self._has_lost |= code is None
                self.after_ms(self.backoff_ms(), self.refresh_metadata, again)
            else:
                then(self._refused("Produce", code))

        self.produce(leader, place, content, len(values), ALL_ACKS, self.now_only(answered))

    def send_offsets(
        self, group: str, generation: int, member_id: str, offsets: Mapping[Place, int], then: Then
    ) -> None:
        """Commit offsets as part of the transaction."""
        topics = tuple(
            TxnOffsetCommitRequestTopic(
                name=place[0],
                partitions=(
                    TxnOffsetCommitRequestPartition(
                        partition_index=place[1], committed_offset=offset, committed_metadata=""
                    ),
                ),
            )
            for place, offset in offsets.items()
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            generation_id=generation,
            member_id=member_id,
            topics=topics,
        )
        newest = self.versions.of(TxnOffsetCommitRequest, until=None if self.is_new else OLD_OFFSET_COMMIT)
        version = max(newest, OFFSET_COMMIT_GENERATIONS_SINCE)
        asked = self.checker.asking(self.transactional_id, self.incarnation, "TxnOffsetCommit")

        def done() -> None:
            self.checker.obeyed(asked)
            then(None)

        def commit() -> None:
            finished = partial(self._done, "TxnOffsetCommit", _taken, done, then)
            self._coordinate(request, version, _taken, finished, key=(GROUP_KEY, group))

        if self.is_new:
            commit()
            return
        addition = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            group_id=group,
        )
        added = partial(self._done, "AddOffsetsToTxn", lambda reply: reply.error_code, commit, then)
        version_of_addition = self.versions.of(AddOffsetsToTxnRequest)
        self._coordinate(addition, version_of_addition, lambda reply: reply.error_code, added)

    def _done(
        self, what: str, code_of: Callable[[Any], int], then: Callable[[], None], refused: Then, reply: object
    ) -> None:
        code = code_of(reply)
        if code == ErrorCode.NONE:
            then()
        else:
            refused(self._refused(what, code))

    def end(self, then: Then, *, commit: bool) -> None:
        """Ask for the end until there is an answer."""
        history = self._ongoing()
        self.checker.ending(history, commit=commit)
        asked = self.checker.asking(self.transactional_id, self.incarnation, "EndTxn")
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=commit,
        )

        def done(reply: EndTxnResponse) -> None:
            if reply.error_code != ErrorCode.NONE:
                then(self._refused("EndTxn", reply.error_code))
                return
            self.checker.obeyed(asked)
            self.checker.ended(history)
            self.transaction = None
            if self.is_new:
                self._producer_id, self._epoch = reply.producer_id, reply.producer_epoch
                self._sequences = {}
            else:
                self.needs_init = self._has_lost
            then(None)

        version = self.versions.of(EndTxnRequest, until=None if self.is_new else OLD_END)
        self._coordinate(request, version, lambda reply: reply.error_code, done)

    def _refused(self, what: str, code: int) -> Refusal:
        """The transaction is over for this producer; say so if there is no reason for it."""
        self.checker.was_fenced()
        if code in NOT_A_MEMBER:
            return Refusal.NOT_A_MEMBER
        if code == ErrorCode.TRANSACTION_ABORTABLE:
            return Refusal.ABORTABLE
        history = self._ongoing()
        is_over = self.now >= history.expires or self._may_be_fenced
        if code not in FENCED or not is_over:
            self._unexpected(what, code)
        return Refusal.FENCED

    def _unexpected(self, what: str, code: int) -> None:
        name = None if self.transaction is None else self.transaction.name
        self.journal.failures.append(
            f"unexpected error: {self.host} got {ErrorCode(code).name} from {what} in {name}"
        )

    def _coordinate(
        self,
        request: Message,
        version: int,
        code_of: Callable[[Any], int],
        done: Callable[[Any], None],
        observe: Observe | None = None,
        key: tuple[int, str] | None = None,
    ) -> None:
        """Ask a coordinator, wherever it is by now, until it answers for good."""
        key = key or (TRANSACTION_KEY, self.transactional_id)
        again = self.now_only(partial(self._coordinate, request, version, code_of, done, observe, key))

        def answered(reply: object) -> None:
            if reply is RequestLost.LOST:
                self._has_lost = True
            elif code_of(reply) not in AGAIN and not is_retriable(code_of(reply)):
                done(reply)
                return
            if reply is RequestLost.LOST or is_retriable(code_of(reply)):
                self._coordinators.pop(key, None)
            self.after_ms(self.backoff_ms(), again)

        node_id = self._coordinators.get(key)
        if node_id is None:
            self.after_ms(self.backoff_ms(), self.now_only(partial(self._locate, key, again)))
        else:
            self.ask(node_id, request, version, self.now_only(answered), observe)

    def _locate(self, key: tuple[int, str], then: Callable[[], None]) -> None:
        version = max(self.versions.of(FindCoordinatorRequest), KEY_TYPES_SINCE)
        request = (
            FindCoordinatorRequest(key_type=key[0], coordinator_keys=(key[1],))
            if version >= KEY_BATCHES_SINCE
            else FindCoordinatorRequest(key_type=key[0], key=key[1])
        )

        def located(reply: object) -> None:
            if isinstance(reply, FindCoordinatorResponse):
                found = reply.coordinators[0] if version >= KEY_BATCHES_SINCE else reply
                if found.error_code == ErrorCode.NONE:
                    self.reached_at(found.node_id, found.host, found.port)
                    self._coordinators[key] = found.node_id
            then()

        self.ask(self.any_node(), request, version, self.now_only(located))


def _added(response: AddPartitionsToTxnResponse) -> int:
    (topic,) = response.results_by_topic_v3_and_below
    return topic.results_by_partition[0].partition_error_code


def _taken(response: TxnOffsetCommitResponse) -> int:
    codes = [row.error_code for topic in response.topics for row in topic.partitions]
    return next((code for code in codes if code != ErrorCode.NONE), ErrorCode.NONE)


class Zombie(SimulatedProducer):
    """Sends what a process sends that does not know that it has a successor, on connections of its own."""

    transactional_id: str

    def __init__(self, client: TransactionClient) -> None:
        super().__init__(client.nodes, client.host, VersionPolicy.NEWEST)
        self.topics = (TRANSFERS,)
        self.transactional_id = client.transactional_id
        self.produce_until = client.produce_until
        self._is_new = client.is_new
        self._checker = client.checker
        self._client = client

    def write(self, state: ZombieState, place: Place) -> None:
        """Go on with the batch that would be next, and commit."""
        leader = self._client.leader(place)
        history = state.ended or self._checker.begin(self.transactional_id, state.incarnation, self.now)
        values = [b"%s/%s/late" % (history.name.encode(), self.host.encode())]
        if state.ended is None:
            self._checker.sending(history, place, values)
        else:
            # As long as a partition has no marker its leader cannot tell.
            self._checker.sending_late(history, place, values)
        asked = self._checker.asking(self.transactional_id, state.incarnation, "Produce")
        content = batch_of(
            values,
            ProducerId(state.producer_id),
            state.sequences.get(place, 0),
            epoch=state.epoch,
            transactional=True,
        )

        def answered(reply: object) -> None:
            if isinstance(reply, ProduceResponsePartition) and reply.error_code == ErrorCode.NONE:
                self._checker.obeyed(asked)

        if leader is not None:
            self.produce(leader, place, content, 1, ALL_ACKS, answered)

    def end(self, state: ZombieState, *, commit: bool) -> None:
        """Ask for the end of a transaction that is over."""
        asked = self._checker.asking(self.transactional_id, state.incarnation, "EndTxn")
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=state.producer_id,
            producer_epoch=state.epoch,
            committed=commit,
        )

        def answered(reply: object) -> None:
            if commit and isinstance(reply, EndTxnResponse) and reply.error_code == ErrorCode.NONE:
                self._checker.obeyed(asked)

        version = self.versions.of(EndTxnRequest, until=None if self._is_new else OLD_END)
        node_id = self._client._coordinators.get((TRANSACTION_KEY, self.transactional_id))
        if node_id is not None:
            self.ask(node_id, request, version, answered)


class CommittedReader(FetchClient):
    """Reads what is committed, one fetch at a time, each from where the last one ended."""

    def __init__(self, nodes: ClusterNodes, host: str) -> None:
        super().__init__(nodes, host, VersionPolicy.NEWEST)
        self.topic = TRANSFERS
        self.topics = (TRANSFERS,)
        self._positions: dict[Place, int] = {}

    def read(self, leader: KnownLeader | None, place: Place, then: Callable[[Sequence[bytes]], None]) -> None:
        """`then` is called with what is new in a partition, or with nothing."""
        position = self._positions.get(place, 0)
        if leader is None:
            then(())
            return

        def answered(reply: object) -> None:
            row = rows_of(reply)[0] if isinstance(reply, FetchResponse) and not reply.error_code else None
            taken = None if row is None or row.error_code else taken_of(row, committed=True)
            if taken is None:
                then(())
                return
            self._positions[place] = max(position, taken[1])
            then([value for offset, value in taken[0] if offset >= position])

        request = fetch_request(self.fetch_topics([(place, position, leader.epoch)]), 0, committed=True)
        self.ask(leader.node_id, request, self.fetch_version(), answered)


def fetch_request(
    topics: tuple[FetchRequestTopic, ...], wait_ms: int, *, committed: bool, rack: str = ""
) -> FetchRequest:
    """A fetch without a session."""
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        isolation_level=READ_COMMITTED if committed else READ_UNCOMMITTED,
        session_id=NO_SESSION,
        session_epoch=SESSIONLESS_EPOCH,
        topics=topics,
        rack_id=rack,
    )


def taken_of(row: FetchResponsePartition, *, committed: bool) -> tuple[list[tuple[int, bytes]], int] | None:
    """What a client takes from a row, and where it ends; None if it is damaged."""
    assert row.records is None or isinstance(row.records, bytes | memoryview)
    content = b"" if row.records is None else bytes(row.records)
    aborted = [(one.producer_id, one.first_offset) for one in row.aborted_transactions or ()]
    try:
        records = committed_values_of(content, aborted) if committed else values_of(content)
        return records, end_of(content)
    except CorruptionError:
        # As every client does: it checks the CRC, and asks again.
        return None


class TransactionalProducer:
    """Writes one transaction after the other, and does not end all of them."""

    def __init__(self, nodes: ClusterNodes, host: str, places: list[Place], pace_ms: float) -> None:
        self.host = host
        self._client = TransactionClient(nodes, host)
        self._zombie = Zombie(self._client)
        self._reader = CommittedReader(nodes, host)
        self._luck = self._client.luck
        self._places = places
        self._pace_ms = pace_ms
        self._is_stopping = False
        # What the process before had, as long as nobody has sent it.
        self._before: ZombieState | None = None
        self.finished = False

    def start(self) -> None:
        self._rest()

    def finish(self) -> None:
        """Begin nothing new."""
        self._is_stopping = True

    def _rest(self) -> None:
        if self._is_stopping:
            self.finished = True
        else:
            self._client.after_ms(self._pace_ms * 2 * self._luck.random(), self._begin)

    def _begin(self) -> None:
        if self._client.needs_init:
            self._client.init(self._transact)
        else:
            self._transact()

    def _transact(self) -> None:
        """Some batches to each of some partitions, which wait for each other at the end only."""
        self._client.begin()
        places = self._luck.sample(self._places, self._luck.randint(1, len(self._places)))
        left = dict.fromkeys(places)
        is_over = False

        def finished(place: Place, refusal: Refusal | None) -> None:
            nonlocal is_over
            if is_over:
                return
            if refusal is not None:
                is_over = True
                self._give_up(refusal)
                return
            del left[place]
            if not left:
                is_over = True
                self._sent()

        for place in places:
            count = self._luck.randint(1, BATCHES_MAX)
            self._send(place, count, partial(finished, place))
        self._disturb()
        self._perhaps_die(DIES)

    def _perhaps_die(self, chance: float) -> None:
        """With requests on their way."""
        if self._luck.random() < chance:
            self._client.after_ms(DEATH_MS * self._luck.random(), self._die_in, self._client.transaction)

    def _die_in(self, history: TransactionHistory | None) -> None:
        if history is not None and self._client.transaction is history:
            self._die()

    def _send(self, place: Place, batches: int, then: Then) -> None:
        def sent(refusal: Refusal | None) -> None:
            if refusal is not None or batches == 1:
                then(refusal)
            else:
                self._send(place, batches - 1, then)

        self._client.send(place, self._client.values(self._luck.randint(1, RECORDS_MAX)), sent)

    def _disturb(self) -> None:
        """What is left of the process before sends what it has, or the network delivers it at last."""
        before, self._before = self._before, None
        if before is not None:
            delay_ms = 60 * self._luck.random()
            self._client.after_ms(delay_ms, self._zombie.write, before, self._luck.choice(self._places))
            end = partial(self._zombie.end, before, commit=self._luck.random() < COMMITS)
            self._client.after_ms(delay_ms + 60 * self._luck.random(), end)

    def _give_up(self, refusal: Refusal) -> None:
        if refusal is Refusal.ABORTABLE:
            self._client.end(self._ended, commit=False)
        else:
            self._client.abandon()
            self._rest()

    def _sent(self) -> None:
        luck = self._luck.random()
        if luck < DIES:
            self._die()
        elif luck < DIES + SLEEPS:
            sleep_ms = TRANSACTION_TIMEOUT_MS * 1.5 * self._luck.random()
            self._client.after_ms(sleep_ms, self._client.now_only(self._end))
        elif luck < DIES + SLEEPS + READS:
            self._read()
        else:
            self._end()

    def _read(self) -> None:
        """Poll in the transaction: it sees nothing of its own, nor of any that ends after it."""
        history, place = self._client.transaction, self._luck.choice(self._places)
        assert history is not None

        def got(values: Sequence[bytes]) -> None:
            self._client.checker.read_in(history, values)
            self._end()

        self._reader.read(self._client.leader(place), place, self._client.now_only(got))

    def _die(self) -> None:
        if self._luck.random() < ZOMBIES:
            self._before = self._client.state()
        self._client.abandon()
        self._client.close()
        self._rest()

    def _end(self) -> None:
        if self._client.is_new and self._luck.random() < LATE:
            # Of this transaction, and delivered in the next one.
            self._before = self._client.state()._replace(ended=self._client.transaction)
        self._client.end(self._ended, commit=self._luck.random() < COMMITS)
        self._perhaps_die(DIES_ENDING)

    def _ended(self, refusal: Refusal | None) -> None:
        if refusal is not None:
            self._client.abandon()
        self._rest()


class IsolatedConsumer(FetchClient):
    """Reads the partitions that transactions write to, one fetch per partition at a time."""

    def __init__(self, nodes: ClusterNodes, host: str, places: list[Place], *, committed: bool) -> None:
        super().__init__(nodes, host, VersionPolicy.NEWEST)
        self.topics = (TRANSFERS,)
        self.topic = TRANSFERS
        self._positions = dict.fromkeys(places, 0)
        self._furthest = dict.fromkeys(places, 0)
        self._committed = committed
        self._rack = ""
        self._stopped = False

    def start(self) -> None:
        for place in self._positions:
            self._seek(place)
            self._poll(place)

    def stop(self) -> None:
        self._stopped = True

    def furthest(self, place: Place) -> int:
        """How far it has ever come in a partition."""
        return self._furthest[place]

    def _seek(self, place: Place) -> None:
        self._positions[place] = 0
        if self._committed:
            self.journal.transactions.sought(self.host, place, 0)

    def _poll(self, place: Place) -> None:
        if self._stopped:
            return
        leader = self.leader(place)
        if leader is None:
            self.after_ms(self.backoff_ms(), self.refresh_metadata, partial(self._poll, place))
            return
        if self.luck.random() < BACK_TO_START:
            self._seek(place)
        topics = self.fetch_topics([(place, self._positions[place], leader.epoch)])
        request = fetch_request(topics, WAIT_MS, committed=self._committed, rack=self._rack)
        observe_rows = self.observing_fetch(leader.node_id, [place])

        def observe(response: FetchResponse) -> None:
            observe_rows(response)
            self._observe_stable(place, response)

        answered: Answered = partial(self._fetched, place, leader.epoch)
        self.ask(leader.node_id, request, self.fetch_version(), answered, observe)

    def _observe_stable(self, place: Place, response: FetchResponse) -> None:
        for row in rows_of(response):
            if self._committed and row.error_code == ErrorCode.NONE:
                self.journal.transactions.showed_stable(
                    place, row.last_stable_offset, row.high_watermark, self.now
                )

    def _fetched(self, place: Place, epoch: int, reply: object) -> None:
        row = rows_of(reply)[0] if isinstance(reply, FetchResponse) and not reply.error_code else None
        if row is None or row.error_code != ErrorCode.NONE:
            if row is not None:
                self._check_retriable(row)
                self.hear_of_leader(place, row.current_leader.leader_id, row.current_leader.leader_epoch)
            self.after_ms(self.backoff_ms(), self.refresh_metadata, partial(self._poll, place))
            return
        before = self._positions[place]
        self._take(place, epoch, row)
        self.after_ms(REST_MS if self._positions[place] == before else 0, self._poll, place)

    def _check_retriable(self, row: FetchResponsePartition) -> None:
        if not is_retriable(row.error_code):
            self.journal.failures.append(f"unexpected error: {self.host} got {row.error_code} from Fetch")

    def _take(self, place: Place, epoch: int | None, row: FetchResponsePartition) -> None:
        checker, position = self.journal.transactions, self._positions[place]
        taken = taken_of(row, committed=self._committed)
        if taken is None:
            self.journal.coverage.add("client.damaged_fetch", 1)
            return
        new = [pair for pair in taken[0] if pair[0] >= position]
        end = max(position, taken[1])
        checker.saw(place, new)
        if self._committed:
            if epoch is not None:
                checker.told_stable(self.host, place, epoch, row.last_stable_offset)
            checker.polled(self.host, place, new, end, row.last_stable_offset)
        self._positions[place] = end
        self._furthest[place] = max(end, self._furthest[place])


class RackConsumer(IsolatedConsumer):
    """Reads what is committed where the leader sends it: from a follower, as long as that serves it."""

    def __init__(self, nodes: ClusterNodes, host: str, places: list[Place], rack: str) -> None:
        super().__init__(nodes, host, places, committed=True)
        self._rack = rack
        self._replicas: dict[Place, int] = {}

    def _poll(self, place: Place) -> None:
        if self.luck.random() < BACK_TO_LEADER:
            self._replicas.pop(place, None)
        leader, replica = self.leader(place), self._replicas.get(place)
        if self._stopped or leader is None or replica is None:
            super()._poll(place)
            return
        topics = self.fetch_topics([(place, self._positions[place], leader.epoch)])
        request = fetch_request(topics, WAIT_MS, committed=True, rack=self._rack)
        observe = partial(self._observe_stable, place)
        answered: Answered = partial(self._fetched_from_replica, place)
        self.ask(replica, request, self.fetch_version(), answered, observe)

    def _fetched(self, place: Place, epoch: int, reply: object) -> None:
        """The leader's answer: records, or where to read them."""
        row = rows_of(reply)[0] if isinstance(reply, FetchResponse) and not reply.error_code else None
        if row is not None and row.error_code == ErrorCode.NONE and row.preferred_read_replica != NO_REPLICA:
            self._replicas[place] = row.preferred_read_replica
            self.after_ms(0, self._poll, place)
        else:
            super()._fetched(place, epoch, reply)

    def _fetched_from_replica(self, place: Place, reply: object) -> None:
        row = rows_of(reply)[0] if isinstance(reply, FetchResponse) and not reply.error_code else None
        if row is None or row.error_code != ErrorCode.NONE:
            # It has fallen, or does not follow any more, or is behind: the leader knows better.
            if row is not None and row.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
                self._check_retriable(row)
            self._replicas.pop(place)
            self.after_ms(self.backoff_ms(), self.refresh_metadata, partial(self._poll, place))
            return
        before = self._positions[place]
        # What is stable for one follower may be behind what it was for another.
        self._take(place, None, row)
        if self._positions[place] > before:
            self.journal.coverage.add("client.read_from_follower", 1)
        self.after_ms(REST_MS if self._positions[place] == before else 0, self._poll, place)
