"""Dead letters: what a queue has given up moves to the topic `<topic>.dlq`, created when it is needed.

    FindDeadLetters ── values from the log ── InitProducer ── append to the dead-letter topic ──┐ in one
                                                              FinishMoves ──────────────────────┤ trans-
                                                              EndTransaction ───────────────────┘ action

The leader of the data partition moves, some records at a time, under a transactional id of the queue: a
leader that takes over fences the one before, whose open transaction is aborted. Whatever fails ends the move;
the coordinator reminds of what is left every few seconds. While the outcome of a transaction is not known,
its records are not among those that are to be moved; but the coordinator reminds of them as well, and whoever
finds nothing to move then begins anew, which aborts the one that nobody ends. Its timeout may take very long:
it starts again with every new coordinator of the transaction.

A record that the log does not have any more has nothing to move, and is finished. One that is too large for
the dead-letter topic, compressed as well, waits until the topic takes more; the others go on.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from penstock.broker.coordinator.queue_metrics import QueueMetrics
from penstock.broker.partitions import LeaderPartition, ReplicaManager
from penstock.broker.produce import ALL_ACKS, PendingProduce, ProduceService, Results
from penstock.broker.queues.move_transaction import (
    RECORDS_MAX,
    RETRIES_MAX,
    RETRY_MS,
    MovePeers,
    MoveTransaction,
    portion,
)
from penstock.broker.queues.peers import NO_LEADER_HERE, OnAppended
from penstock.broker.queues.record_reader import RecordReader
from penstock.broker.topics import NewTopic
from penstock.broker.transactions.verification import TransactionalRequest
from penstock.core.metadata import CreatedTopic, MetadataImage
from penstock.core.metadata.configs import TopicOptions
from penstock.core.metadata.configs.topic import MESSAGE_BYTES_MAX
from penstock.core.model import (
    MILLISECOND,
    ApiError,
    ErrorKind,
    Instant,
    Offset,
    PartitionIndex,
    TopicName,
    TopicPartition,
)
from penstock.core.queues import (
    ClaimResults,
    DeadLetter,
    DeadLettersFound,
    FindDeadLetters,
    FinishMoves,
    QueueId,
    QueueReply,
    dead_letter_headers,
)
from penstock.core.records import Record
from penstock.observability import log as events
from penstock.runtime import Clock, Runtime

SUFFIX = ".dlq"
APPEND_TIMEOUT_MS = 5_000
# What a dead letter may have more than its record: the headers that say why.
HEADERS_BYTES_MAX = 8 << 10


def dead_letter_topic(topic: str) -> str:
    return topic + SUFFIX


class TransactionalAppender:
    """Appends batches of transactions that nodes run themselves, to partitions that this node leads."""

    def __init__(self, partitions: ReplicaManager, produce: ProduceService, clock: Clock) -> None:
        self._partitions = partitions
        self._produce = produce
        self._clock = clock

    def append(
        self, partition: TopicPartition, transactional_id: str, batch: bytes, done: OnAppended
    ) -> None:
        """`done` is called once, when all replicas in sync have the batch, or with the error."""
        found = self._partitions.find(*partition)
        if found is None:
            done(NO_LEADER_HERE)
            return

        def produced(results: Results) -> None:
            (result,) = results
            done(result if isinstance(result, ApiError) else None)

        request = PendingProduce(ALL_ACKS, APPEND_TIMEOUT_MS, self._clock.now(), produced, _ignore, _ignore)
        request.transaction = TransactionalRequest(transactional_id, True, True)
        self._produce.produce(request, [(found, memoryview(bytearray(batch)))])


class TopicCreator(Protocol):
    """Creates topics."""

    def create(
        self, wanted: list[NewTopic], done: Callable[[list[CreatedTopic | ApiError]], None]
    ) -> None: ...


class _Move:
    """The dead letters of one queue, on their way."""

    __slots__ = (
        "bytes_max",
        "is_due",
        "letters",
        "origin",
        "partition",
        "queue",
        "retries",
        "target",
        "transaction",
    )

    def __init__(self, queue: QueueId, partition: LeaderPartition, transaction: MoveTransaction) -> None:
        self.queue = queue
        self.partition = partition
        self.origin = partition.name
        # More were given up meanwhile.
        self.is_due = False
        self.letters: list[tuple[DeadLetter, Record]] = []
        self.target = partition.name
        # What the target takes in one batch.
        self.bytes_max = 0
        self.transaction = transaction
        # Of looking for the dead-letter topic.
        self.retries = 0

    @property
    def offsets(self) -> tuple[Offset, ...]:
        return tuple(letter.offset for letter, _ in self.letters)


class DeadLetterMover:
    """Moves dead letters of queues whose data partitions this node leads."""

    def __init__(
        self,
        runtime: Runtime,
        peers: MovePeers,
        reader: RecordReader,
        topics: TopicCreator,
        options_of: Callable[[str], TopicOptions],
        metrics: QueueMetrics,
    ) -> None:
        self._runtime = runtime
        self._timers = runtime.timers
        self._clock = runtime.clock
        self._peers = peers
        self._reader = reader
        self._topics = topics
        self._options_of = options_of
        self._metrics = metrics
        self._image = MetadataImage()
        self._moves: dict[QueueId, _Move] = {}
        # What does not fit into the dead-letter topic, and the limit it had then.
        self._too_large: dict[QueueId, dict[Offset, int]] = {}

    def on_metadata(self, image: MetadataImage) -> None:
        self._image = image

    def move(self, queue: QueueId, partition: LeaderPartition) -> None:
        """Move all that the queue has given up, unless that is under way."""
        known = self._moves.get(queue)
        if known is not None:
            known.is_due = True
            return
        group_id, topic_id, index = queue
        transactional_id = f"penstock-dead-letters-{topic_id}-{index}-{group_id}"
        transaction = MoveTransaction(self._runtime, self._peers, transactional_id)
        self._moves[queue] = move = _Move(queue, partition, transaction)
        self._find(move)

    def _find(self, move: _Move) -> None:
        move.is_due = False
        self._peers.submit(
            FindDeadLetters(
                on_reply=partial(self._found, move),
                queue=move.queue,
                records_max=RECORDS_MAX + len(self._too_large.get(move.queue, ())),
            )
        )

    def _found(self, move: _Move, reply: QueueReply) -> None:
        if not isinstance(reply, DeadLettersFound):
            self._end(move, reply)
            return
        letters = self._without_too_large(move, reply.records)[:RECORDS_MAX]
        if not letters:
            # Does nothing if the last transaction is this move's own, and ended.
            move.transaction.begin(partial(self._nothing_left, move))
        else:
            offsets = [letter.offset for letter in letters]
            self._reader.find(move.partition, offsets, partial(self._read, move, letters))

    def _without_too_large(self, move: _Move, letters: tuple[DeadLetter, ...]) -> tuple[DeadLetter, ...]:
        """Those that the topic may take: all, once it takes larger batches than the last time."""
        known = self._too_large.pop(move.queue, {})
        bytes_max = self._options_of(dead_letter_topic(move.origin.topic)).max_message_bytes
        found = dict.fromkeys(letter.offset for letter in letters)
        known = {offset: limit for offset, limit in known.items() if offset in found and limit >= bytes_max}
        if known:
            self._too_large[move.queue] = known
        return tuple(letter for letter in letters if letter.offset not in known)

    def _nothing_left(self, move: _Move, error: ApiError | None) -> None:
        if error is None and move.is_due:
            self._timers.soon(partial(self._find, move))
        else:
            self._end(move, error)

    def _read(
        self, move: _Move, letters: tuple[DeadLetter, ...], found: dict[Offset, Record] | ApiError
    ) -> None:
        if isinstance(found, ApiError):
            self._end(move, found)
            return
        gone = tuple(letter.offset for letter in letters if letter.offset not in found)
        if gone:
            finished = partial(self._gone_finished, move)
            self._peers.submit(FinishMoves(on_reply=finished, queue=move.queue, offsets=gone))
            return
        move.letters = [(letter, found[letter.offset]) for letter in letters]
        self._choose_target(move)

    def _gone_finished(self, move: _Move, reply: QueueReply) -> None:
        if isinstance(reply, ClaimResults):
            self._find(move)
        else:
            self._end(move, reply)

    def _choose_target(self, move: _Move) -> None:
        name = dead_letter_topic(move.origin.topic)
        topic = self._image.topic(name)
        if topic is None:
            self._create(move, name)
            return
        index = move.origin.partition % len(topic.partitions)
        move.target = TopicPartition(TopicName(name), PartitionIndex(index))
        move.bytes_max = self._options_of(name).max_message_bytes
        move.letters = portion(
            [(letter, self._dead_letter(move.origin, letter, record)) for letter, record in move.letters],
            move.bytes_max,
        )
        move.transaction.begin(partial(self._begun, move))

    def _dead_letter(self, origin: TopicPartition, letter: DeadLetter, record: Record) -> Record:
        headers = (*record.headers, *dead_letter_headers(origin, record, letter))
        return Record(0, self._clock.wall(), record.key, record.value, headers)

    def _create(self, move: _Move, name: str) -> None:
        origin = self._image.topic(move.origin.topic)
        if origin is None:
            self._end(move)
            return
        bytes_max = min(
            self._options_of(origin.name).max_message_bytes + HEADERS_BYTES_MAX, MESSAGE_BYTES_MAX
        )
        wanted = NewTopic(
            name,
            len(origin.partitions),
            configs=(("max.message.bytes", str(bytes_max)),),
        )

        def created(replies: list[CreatedTopic | ApiError]) -> None:
            (reply,) = replies
            exists = isinstance(reply, ApiError) and reply.kind is ErrorKind.TOPIC_EXISTS
            if isinstance(reply, ApiError) and not exists:
                self._end(move, reply)
            elif self._image.topic(name) is None:
                self._again(move)
            else:
                self._choose_target(move)

        self._topics.create([wanted], created)

    def _begun(self, move: _Move, error: ApiError | None) -> None:
        if error is None:
            records = [record for _, record in move.letters]
            move.transaction.append(move.target, records, move.bytes_max, partial(self._appended, move))
        else:
            self._end(move, error)

    def _appended(self, move: _Move, error: ApiError | None) -> None:
        if error is None:
            move.transaction.submit(
                FinishMoves(
                    on_reply=partial(self._finishing, move),
                    queue=move.queue,
                    offsets=move.offsets,
                    producer=move.transaction.producer,
                )
            )
        elif error.kind is ErrorKind.BATCH_TOO_LARGE and len(move.letters) == 1:
            self._pass_over(move)
        else:
            self._abort(move, error)

    def _pass_over(self, move: _Move) -> None:
        (offset,) = move.offsets
        self._too_large.setdefault(move.queue, {})[offset] = move.bytes_max
        events.warning(
            "queue.dead_letter_too_large",
            group=move.queue.group_id,
            partition=str(move.origin),
            offset=offset,
            topic=move.target.topic,
            max_message_bytes=move.bytes_max,
        )
        move.transaction.abort(partial(self._find, move))

    def _finishing(self, move: _Move, reply: QueueReply) -> None:
        if isinstance(reply, ClaimResults) and not any(reply.errors):
            move.transaction.commit(partial(self._committed, move))
        else:
            self._abort(move, reply)

    def _committed(self, move: _Move, error: ApiError | None) -> None:
        if error is not None:
            # Perhaps it is committed: the coordinator of the queue hears of it, or of the timeout.
            self._end(move, error)
            return
        self._metrics.dead_letters.of(move.origin.topic).count += len(move.letters)
        events.info(
            "queue.dead_letters_moved",
            group=move.queue.group_id,
            partition=str(move.origin),
            records=len(move.letters),
        )
        move.retries = 0
        self._find(move)

    def _abort(self, move: _Move, reason: object) -> None:
        move.transaction.abort(lambda: self._end(move, reason))

    def _again(self, move: _Move) -> None:
        move.retries += 1
        if move.retries > RETRIES_MAX:
            self._end(move, "the dead-letter topic is not known here yet")
            return
        at = Instant(self._clock.now() + RETRY_MS * MILLISECOND)
        self._timers.at(at, partial(self._choose_target, move))

    def _end(self, move: _Move, reason: object = None) -> None:
        """The coordinator reminds of what is left."""
        del self._moves[move.queue]
        if reason is not None:
            events.warning(
                "queue.dead_letters_waiting",
                group=move.queue.group_id,
                partition=str(move.origin),
                reason=str(reason),
            )


def _ignore() -> None:
    """The batch comes from this node: there is no client to pause."""
