"""Redrive: dead letters move back to where they came from, or to another topic.

    receive from the queue of dead letters ── append to the topics they came from ──┐ in one
                                              AcknowledgeRecords ───────────────────┤ trans-
                                              commit ───────────────────────────────┘ action

A dead-letter topic has a queue of the group `penstock.redrive`: what was redriven is finished there, and what
is not finished can be redriven. A redrive leases dead letters in that queue, so that no two redrives move the
same one. Any node does it, some records at a time and one redrive per partition; whoever wants more asks
again. Letters that can go nowhere stay leased while it looks for others behind them, and are returned then.
If it fails half-way, the transaction is aborted or times out, and the leases end.

The record that is redriven is the dead letter, headers included: they say where it has been. Its timestamp is
that of the redrive, and its attempts start anew, because to queues it is a new record.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeAlias

from penstock.broker.queues.move_transaction import RECORDS_MAX, MovePeers, MoveTransaction, portion
from penstock.broker.queues.peers import DeliveredRecord, OnReceived, ReceivedRecords, ReceiveRequest
from penstock.core.metadata import MetadataImage, is_internal
from penstock.core.metadata.configs import TopicOptions
from penstock.core.model import (
    ApiError,
    ErrorKind,
    NodeId,
    Offset,
    PartitionIndex,
    TopicName,
    TopicPartition,
)
from penstock.core.queues import (
    ORIGIN_PARTITION,
    ORIGIN_TOPIC,
    REDRIVE_GROUP,
    AcknowledgeRecords,
    ClaimResults,
    LeaseClaim,
    QueueId,
    QueueReply,
    Receipt,
    ReturnRecords,
    read_receipt,
)
from penstock.core.records import Record
from penstock.core.values import dataclass
from penstock.observability import log as events
from penstock.runtime import Runtime

# The queue may have to take dead letters from the log first; chosen ones may be behind many others.
WAIT_MS = 300
CHOSEN_WAIT_MS = 2_000
BYTES_MAX = 1 << 20
OFFSETS_MAX = 1_000
# How often one redrive leases more because of letters that can go nowhere: one command returns them all.
ROUNDS_MAX = 10
UNDER_WAY = ApiError(ErrorKind.CONCURRENT_TRANSACTIONS, "a redrive of this partition is under way here")
TOO_MANY = ApiError(ErrorKind.INVALID_REQUEST, f"one request chooses {OFFSETS_MAX:,} dead letters at most")
NO_ORIGIN = "the record does not say which topic it came from; name the topic it should go to"


def _anywhere(_topic: str) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveRequest:
    """Which dead letters of one partition to move, and where to."""

    partition: TopicPartition
    # Empty: the oldest ones.
    offsets: tuple[Offset, ...] = ()
    # None: the topics they came from.
    to_topic: str | None = None
    records_max: int = RECORDS_MAX
    # Whether whoever asks may write to a topic.
    may_write: Callable[[str], bool] = _anywhere


@dataclass(frozen=True, slots=True)
class RedrivenRecord:
    """A dead letter and where it went; or why it could not go anywhere."""

    offset: Offset
    target: TopicPartition | ApiError


OnRedriven: TypeAlias = Callable[[tuple[RedrivenRecord, ...] | ApiError], None]


class RedrivePeers(MovePeers, Protocol):
    """The nodes that take part in a redrive."""

    def receive(self, request: ReceiveRequest, done: OnReceived) -> None: ...


class _Redrive:
    """Some dead letters of one partition, on their way."""

    __slots__ = (
        "claims",
        "done",
        "queue",
        "refused",
        "request",
        "returned",
        "rounds",
        "targets",
        "transaction",
        "waiting",
    )

    def __init__(
        self, request: RedriveRequest, queue: QueueId, transaction: MoveTransaction, done: OnRedriven
    ) -> None:
        self.request = request
        self.queue = queue
        self.transaction = transaction
        self.done = done
        # Of what is being moved.
        self.claims: dict[Offset, LeaseClaim] = {}
        self.targets: dict[TopicPartition, list[tuple[Offset, Record]]] = {}
        # The partitions that have not got their batch yet.
        self.waiting: list[TopicPartition] = []
        self.refused: list[RedrivenRecord] = []
        # Of what is leased and not moved.
        self.returned: list[LeaseClaim] = []
        self.rounds = 0

    @property
    def records_max(self) -> int:
        """How many more to move."""
        return min(self.request.records_max, RECORDS_MAX) - len(self.claims)


class Redriver:
    """Moves dead letters back, for whoever asks this node."""

    def __init__(
        self,
        node_id: NodeId,
        runtime: Runtime,
        peers: RedrivePeers,
        options_of: Callable[[str], TopicOptions],
    ) -> None:
        self._node_id = node_id
        self._runtime = runtime
        self._peers = peers
        self._options_of = options_of
        self._image = MetadataImage()
        self._running: dict[QueueId, _Redrive] = {}

    def on_metadata(self, image: MetadataImage) -> None:
        self._image = image

    def redrive(self, request: RedriveRequest, done: OnRedriven) -> None:
        """Move some dead letters; `done` is called once. None moved: there are no more that can be."""
        queue = self._queue_of(request)
        if isinstance(queue, ApiError):
            done(queue)
            return
        if queue in self._running:
            done(UNDER_WAY)
            return
        # One at a time on each node: two nodes do not fence each other, the leases keep them apart.
        transactional_id = f"penstock-redrive-{queue.topic_id}-{queue.partition}-{self._node_id}"
        transaction = MoveTransaction(self._runtime, self._peers, transactional_id)
        redrive = self._running[queue] = _Redrive(request, queue, transaction, done)
        self._receive(redrive)

    def _receive(self, redrive: _Redrive) -> None:
        redrive.rounds += 1
        request = redrive.request
        self._peers.receive(
            ReceiveRequest(
                queue=redrive.queue,
                consumer=f"redrive-{self._node_id}",
                records_max=redrive.records_max,
                bytes_max=BYTES_MAX,
                wait_ms=CHOSEN_WAIT_MS if request.offsets else WAIT_MS,
                offsets=request.offsets,
            ),
            partial(self._received, redrive),
        )

    def _queue_of(self, request: RedriveRequest) -> QueueId | ApiError:
        topic = self._image.topic(request.partition.topic)
        if topic is None or topic.partition(request.partition.partition) is None:
            return ApiError(ErrorKind.UNKNOWN_PARTITION, f"there is no partition {request.partition}")
        if request.to_topic is not None and self._image.topic(request.to_topic) is None:
            return ApiError(ErrorKind.UNKNOWN_PARTITION, f"there is no topic {request.to_topic}")
        if request.to_topic == topic.name:
            return ApiError(ErrorKind.INVALID_REQUEST, "dead letters cannot be moved to where they are")
        if request.records_max < 1:
            return ApiError(ErrorKind.INVALID_REQUEST, "at least one record must be asked for")
        if len(request.offsets) > OFFSETS_MAX:
            return TOO_MANY
        return QueueId(REDRIVE_GROUP, topic.id, request.partition.partition)

    def _received(self, redrive: _Redrive, received: ReceivedRecords | ApiError) -> None:
        if isinstance(received, ApiError):
            if redrive.rounds == 1:
                self._end(redrive, received)
            else:
                self._move(redrive)
            return
        now = self._runtime.clock.wall()
        refused = len(redrive.refused)
        for each in received.records:
            claim = _claim_of(each)
            target = self.target_of(each.record, redrive.request)
            if isinstance(target, ApiError):
                redrive.refused.append(RedrivenRecord(claim.offset, target))
                redrive.returned.append(claim)
                continue
            record = each.record
            redrive.claims[claim.offset] = claim
            letter = (claim.offset, Record(0, now, record.key, record.value, record.headers))
            redrive.targets.setdefault(target, []).append(letter)
        has_refused = len(redrive.refused) > refused
        may_go_on = redrive.rounds < ROUNDS_MAX and redrive.records_max > 0 and not redrive.request.offsets
        if has_refused and may_go_on:
            # Returned now, they would be the oldest again.
            self._receive(redrive)
        else:
            self._move(redrive)

    def _move(self, redrive: _Redrive) -> None:
        left = redrive.returned
        for target, letters in redrive.targets.items():
            fitting = portion(letters, self._options_of(target.topic).max_message_bytes)
            left += [redrive.claims.pop(offset) for offset, _ in letters[len(fitting) :]]
            redrive.targets[target] = fitting
        self._release(redrive, left)
        if not redrive.claims:
            self._end(redrive)
            return
        redrive.waiting = list(redrive.targets)
        redrive.transaction.begin(partial(self._begun, redrive))

    def target_of(self, record: Record, request: RedriveRequest) -> TopicPartition | ApiError:
        """Where a dead letter would go."""
        headers = dict(record.headers)
        origin = headers.get(ORIGIN_TOPIC) or b""
        name = request.to_topic or origin.decode("utf-8", "replace")
        if not name:
            return ApiError(ErrorKind.INVALID_REQUEST, NO_ORIGIN)
        if not request.may_write(name):
            return ApiError(ErrorKind.NOT_AUTHORIZED, f"{name}: not authorized to write")
        if is_internal(name):
            # Whoever wrote the dead letter may have written its headers as well.
            return ApiError(ErrorKind.INVALID_TOPIC_NAME, f"{name} is internal: nothing is moved there")
        topic = self._image.topic(name)
        if topic is None:
            return ApiError(ErrorKind.UNKNOWN_TOPIC, f"there is no topic {name} any more")
        if name == request.partition.topic:
            return ApiError(ErrorKind.INVALID_REQUEST, NO_ORIGIN)
        written = headers.get(ORIGIN_PARTITION) or b""
        is_number = written.isdigit() and len(written) < 10
        # Where it was, so that it is behind what has its key; topics do not lose partitions.
        index = (int(written) if is_number else request.partition.partition) % len(topic.partitions)
        return TopicPartition(TopicName(name), PartitionIndex(index))

    def _begun(self, redrive: _Redrive, error: ApiError | None) -> None:
        if error is not None:
            self._give_back(redrive, error)
        else:
            self._append_next(redrive)

    def _append_next(self, redrive: _Redrive) -> None:
        if not redrive.waiting:
            self._acknowledge(redrive)
            return
        target = redrive.waiting.pop()
        records = [record for _, record in redrive.targets[target]]
        bytes_max = self._options_of(target.topic).max_message_bytes
        redrive.transaction.append(target, records, bytes_max, partial(self._appended, redrive))

    def _appended(self, redrive: _Redrive, error: ApiError | None) -> None:
        if error is not None:
            self._abort(redrive, error)
        else:
            self._append_next(redrive)

    def _acknowledge(self, redrive: _Redrive) -> None:
        def replied(reply: QueueReply) -> None:
            if isinstance(reply, ClaimResults) and not any(reply.errors):
                redrive.transaction.commit(partial(self._committed, redrive))
            elif isinstance(reply, ApiError):
                self._abort(redrive, reply)
            else:
                detail = "the leases of the dead letters have ended meanwhile"
                self._abort(redrive, ApiError(ErrorKind.INVALID_RECORD_STATE, detail))

        redrive.transaction.submit(
            AcknowledgeRecords(
                on_reply=replied,
                queue=redrive.queue,
                claims=tuple(redrive.claims.values()),
                producer=redrive.transaction.producer,
            )
        )

    def _committed(self, redrive: _Redrive, error: ApiError | None) -> None:
        if error is not None:
            # Perhaps it is committed: the queue hears of it.
            self._end(redrive, error)
            return
        events.info(
            "queue.dead_letters_redriven",
            partition=str(redrive.request.partition),
            records=len(redrive.claims),
        )
        self._end(redrive)

    def _abort(self, redrive: _Redrive, error: ApiError) -> None:
        redrive.transaction.abort(lambda: self._give_back(redrive, error))

    def _give_back(self, redrive: _Redrive, error: ApiError) -> None:
        self._release(redrive, list(redrive.claims.values()))
        self._end(redrive, error)

    def _release(self, redrive: _Redrive, claims: list[LeaseClaim]) -> None:
        """Leases that cannot be given back end by themselves."""
        if claims:
            # A redrive that fails is no delivery: no letter may be given up for it.
            self._peers.submit(
                ReturnRecords(on_reply=lambda _: None, queue=redrive.queue, claims=tuple(claims))
            )

    def _end(self, redrive: _Redrive, error: ApiError | None = None) -> None:
        del self._running[redrive.queue]
        if error is not None:
            redrive.done(error)
            return
        moved = [
            RedrivenRecord(offset, target)
            for target, letters in redrive.targets.items()
            for offset, _ in letters
        ]
        redrive.done(tuple(sorted(moved + redrive.refused, key=lambda each: each.offset)))


def _claim_of(received: DeliveredRecord) -> LeaseClaim:
    receipt = read_receipt(received.receipt)
    assert isinstance(receipt, Receipt), "receipts of this cluster can be read"
    return receipt.claim
