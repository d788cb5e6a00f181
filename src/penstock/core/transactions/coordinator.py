"""The machine of one transaction-coordinator partition: commands, timeouts, and ids that expire."""

import heapq
from collections import deque
from collections.abc import Iterator
from itertools import chain, islice
from typing import TypeAlias, assert_never

from penstock.core.model import MILLISECOND, ApiError, ErrorKind, Instant, Now, Timestamp, TopicPartition
from penstock.core.transactions.commands import (
    PARTITIONS_MAX,
    AddPartitions,
    BatchDone,
    Command,
    CommitBatch,
    CompleteTransaction,
    DescribedTransaction,
    DescribeTransaction,
    EndTransaction,
    FindPrepared,
    InitProducer,
    ListedTransactions,
    ListTransactions,
    OnReply,
    PartitionResult,
    PartitionResults,
    PreparedTransaction,
    ProducerGranted,
    ProducerIdentity,
    Reply,
    TransactionOk,
    VerifyPartitions,
)
from penstock.core.transactions.facts import (
    BatchCommitted,
    BatchForgotten,
    Fact,
    TransactionForgotten,
    TransactionImage,
    TransactionState,
    TransactionStored,
    bytes_of,
)
from penstock.core.transactions.transitions import (
    CONCURRENT,
    completed,
    ended,
    fenced,
    initialized,
    next_producer,
    problem_with,
    problem_with_batch,
    verified,
    with_partitions,
)
from penstock.core.values import dataclass

_S = TransactionState
TOO_MANY_IDS = ApiError(ErrorKind.ACCESS_LIMIT, "there is no room for another transactional id")
TOO_MANY_BATCHES = ApiError(ErrorKind.INVALID_REQUEST, "there is no room for another batch: too many sinks")
# Enough for the longest id.
UNUSED_PER_TURN_MAX = 20
# What a partition takes in a record besides its topic's name.
_PARTITION_BYTES = 8


@dataclass(frozen=True, slots=True)
class TransactionOptions:
    """Limits and delays of one transaction coordinator."""

    timeout_ms_max: int = 900_000
    id_expiration_ms: int = 604_800_000
    expiration_check_interval_ms_max: int = 3_600_000
    # One call of `expire` aborts and looks at no more than this many, so that many that are due together
    # do not block the loop; the host calls again while a deadline is due.
    aborted_per_turn_max: int = 16
    checked_per_turn_max: int = 1_000
    # A record holds all partitions of a transaction. It must fit into a batch, and the loop waits while it is
    # written anew for each one that is added.
    partitions_max: int = PARTITIONS_MAX
    partition_bytes_max: int = 800_000
    # A batch's record lists its members, and must fit, too; the loop must not wait long for them.
    batch_bytes_max: int = 800_000
    batch_members_max: int = 2_000
    # Committed batches are remembered for so many of a sink, and as long as unused ids.
    batches_per_sink_max: int = 1_000
    # What ids, and batches with their sinks, may take in memory: some 15,000 ids, and 50,000 batches.
    ids_bytes_max: int = 8 << 20
    batches_bytes_max: int = 32 << 20
    # Where there is no room, ids go that have not been used for so long since they were made.
    unused_ms: int = 60_000
    # The next transaction's first partitions wait so long for the last markers of the one before.
    parked_ms: int = 500
    parked_max: int = 1_000
    # Partitions are kept in a tuple: among more than these, `has_partition` does not look for one.
    glance_partitions_max: int = 100

    @property
    def expiration_check_interval_ms(self) -> int:
        return max(1, min(self.id_expiration_ms, self.expiration_check_interval_ms_max))


@dataclass(frozen=True, slots=True)
class MarkersDue:
    """The outcome of a transaction is decided: once that is committed, its partitions must learn it."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class TransactionTimedOut:
    """A transaction was open for longer than its producer had said, and is being aborted."""

    transactional_id: str
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class TransactionCompleted:
    """Every partition knows the outcome, this long after the transaction began."""

    transactional_id: str
    is_commit: bool
    elapsed_ms: int


Event: TypeAlias = MarkersDue | TransactionTimedOut | TransactionCompleted


class TransactionOutcome:
    """What becomes true, whom to reply to once it is durable, and what happened."""

    __slots__ = ("events", "facts", "now", "responses")

    def __init__(self, now: Now) -> None:
        self.now = now
        self.facts: list[Fact] = []
        self.responses: list[tuple[OnReply, Reply]] = []
        self.events: list[Event] = []

    def reply(self, on_reply: OnReply, reply: Reply) -> None:
        self.responses.append((on_reply, reply))

    def prepare(self, transaction: TransactionStored) -> None:
        self.facts.append(transaction)
        self.events.append(MarkersDue(transaction.transactional_id))


class TransactionCoordinator:
    """Which producer holds each transactional id, and what is decided about its transaction.

    Recovery: `apply` every fact of the log, then `resume` once. Service: `decide` commands
    and `expire` deadlines; append the facts of each outcome and `apply` them before the next
    call; release its replies when the log end is committed. When an append fails, drop the machine.
    """

    def __init__(self, options: TransactionOptions | None = None) -> None:
        self._options = TransactionOptions() if options is None else options
        self._image = TransactionImage()
        self._timeouts = _Timeouts()
        self._parked = _ParkedAdditions()
        self._check_at: Instant | None = None
        # Ids and sinks that are still to be checked for expiry; the last one first.
        self._unchecked: list[str] = []
        self._unchecked_sinks: list[str] = []

    @property
    def image(self) -> TransactionImage:
        """The durable state, read only."""
        return self._image

    @property
    def open_transactions(self) -> int:
        return self._image.open_count

    def has_partition(
        self, transactional_id: str, producer: ProducerIdentity, partition: TopicPartition
    ) -> bool:
        """Whether the producer's transaction is open and has the partition, as far as a glance can tell."""
        known = self._image.transactions.get(transactional_id)
        return (
            known is not None
            and known.state is _S.ONGOING
            and len(known.partitions) <= self._options.glance_partitions_max
            and partition in known.partitions
            and problem_with(known, producer) is None
        )

    def apply(self, fact: Fact) -> None:
        """Apply a fact of the log."""
        self._image.apply(fact)

    def size(self) -> int:
        """How many facts `snapshot` has."""
        return len(self._image.transactions) + sum(map(len, self._image.batches.values()))

    def snapshot(self) -> Iterator[Fact]:
        """The durable state as facts, each as it is when the iterator reaches it."""
        transactions, batches = self._image.transactions, self._image.batches
        keys = [(sink, batch) for sink, known in batches.items() for batch in known]
        found = (transactions.get(transactional_id) for transactional_id in list(transactions))
        committed = (batches.get(sink, {}).get(batch) for sink, batch in keys)
        return (fact for fact in chain(found, committed) if fact is not None)

    def resume(self, now: Now) -> TransactionOutcome:
        """Begin to lead: open transactions have their timeout in full; prepared ones go on."""
        outcome = TransactionOutcome(now)
        for known in self._image.transactions.values():
            if known.state is _S.ONGOING:
                self._timeouts.arm(known.transactional_id, _after(now, known.timeout_ms))
            elif known.state.is_prepared:
                outcome.events.append(MarkersDue(known.transactional_id))
        self._check_at = _after(now, self._options.expiration_check_interval_ms)
        return outcome

    def decide(self, command: Command, now: Now) -> TransactionOutcome:  # noqa: C901 - one case per command
        """Reply to the command; changes nothing durable."""
        outcome = TransactionOutcome(now)
        match command:
            case InitProducer():
                self._init(command, outcome)
            case AddPartitions():
                self._add(command, outcome)
            case VerifyPartitions():
                self._verify(command, outcome)
            case EndTransaction():
                self._end(command, outcome)
            case CommitBatch():
                self._commit_batch(command, outcome)
            case CompleteTransaction():
                self._complete(command, outcome)
            case FindPrepared() | DescribeTransaction():
                self._find(command, outcome)
            case ListTransactions():
                self._list(command, outcome)
            case _:
                assert_never(command)
        return outcome

    def expire(self, now: Now) -> TransactionOutcome:
        """Do what is due, a bounded part of it at a time: call again while `next_deadline` is past."""
        outcome = TransactionOutcome(now)
        for parked in self._parked.pop_due(now.instant):
            outcome.reply(parked.on_reply, CONCURRENT)
        for _ in range(self._options.aborted_per_turn_max):
            transactional_id = self._timeouts.pop(now.instant)
            if transactional_id is None:
                self._forget_unused(outcome)
                break
            known = self._image.transactions.get(transactional_id)
            if known is not None and known.state is _S.ONGOING:
                outcome.prepare(fenced(known, now.wall))
                outcome.events.append(TransactionTimedOut(transactional_id, known.timeout_ms))
        return outcome

    def next_deadline(self) -> Instant | None:
        """When to call `expire`."""
        earliest = self._check_at
        # After every command: plain comparisons cost a third of a `min` over a generator.
        for deadline in (self._timeouts.next(), self._parked.next()):
            if deadline is not None and (earliest is None or deadline < earliest):
                earliest = deadline
        return earliest

    def _init(self, command: InitProducer, outcome: TransactionOutcome) -> None:
        if not 0 < command.timeout_ms <= self._options.timeout_ms_max:
            detail = f"a transaction may take up to {self._options.timeout_ms_max} ms here"
            outcome.reply(command.on_reply, ApiError(ErrorKind.INVALID_TRANSACTION_TIMEOUT, detail))
            return
        known = self._image.transactions.get(command.transactional_id)
        if known is None and not self._make_room(command.transactional_id, outcome):
            outcome.reply(command.on_reply, TOO_MANY_IDS)
            return
        after = initialized(known, command, outcome.now.wall)
        if not isinstance(after, TransactionStored):
            outcome.reply(command.on_reply, after)
        elif after.state.is_prepared:
            # The producer asks again until its predecessor's transaction has ended.
            outcome.prepare(after)
            outcome.reply(command.on_reply, CONCURRENT)
        else:
            outcome.facts.append(after)
            outcome.reply(command.on_reply, ProducerGranted(next_producer(after)))

    def _make_room(self, transactional_id: str, outcome: TransactionOutcome) -> bool:
        """Whether there is room for another id, if need be after those that nobody has used."""
        image, needed = self._image, bytes_of(transactional_id)
        left = self._options.ids_bytes_max - image.id_bytes
        until = outcome.now.wall - self._options.unused_ms
        for name in islice(image.unused, UNUSED_PER_TURN_MAX):
            if left >= needed or image.transactions[name].updated_at > until:
                break
            outcome.facts.append(TransactionForgotten(name))
            left += bytes_of(name)
        return left >= needed

    def _add(self, command: AddPartitions, outcome: TransactionOutcome) -> None:
        known = self._image.transactions.get(command.transactional_id)
        if (
            problem_with(known, command.producer) is CONCURRENT
            and len(self._parked) < self._options.parked_max
        ):
            # Its markers are on their way: sooner here than when the producer asks again.
            self._parked.add(command, _after(outcome.now, self._options.parked_ms))
        else:
            self._add_to(known, command, outcome)

    def _add_to(
        self, known: TransactionStored | None, command: AddPartitions, outcome: TransactionOutcome
    ) -> TransactionStored | None:
        """Returns the transaction as it is then."""
        after = with_partitions(known, command, outcome.now.wall)
        if isinstance(after, ApiError):
            outcome.reply(command.on_reply, after)
            return known
        if after is not known:
            if (
                len(after.partitions) > self._options.partitions_max
                or _stored_bytes(after.partitions) > self._options.partition_bytes_max
            ):
                detail = f"{len(after.partitions)} partitions are too many for one transaction"
                outcome.reply(command.on_reply, ApiError(ErrorKind.INVALID_REQUEST, detail))
                return known
            outcome.facts.append(after)
            if known is None or known.state is not _S.ONGOING:
                self._timeouts.arm(after.transactional_id, _after(outcome.now, after.timeout_ms))
        outcome.reply(command.on_reply, PartitionResults(tuple(map(PartitionResult, command.partitions))))
        return after

    def _verify(self, command: VerifyPartitions, outcome: TransactionOutcome) -> None:
        known = verified(self._image.transactions.get(command.transactional_id), command)
        if isinstance(known, ApiError):
            outcome.reply(command.on_reply, known)
            return
        members = frozenset(known.partitions if known.state is _S.ONGOING else ())
        results = tuple(
            PartitionResult(partition)
            if partition in members
            else PartitionResult(partition, ErrorKind.TRANSACTION_ABORTABLE)
            for partition in command.partitions
        )
        outcome.reply(command.on_reply, PartitionResults(results))

    def _end(self, command: EndTransaction, outcome: TransactionOutcome) -> None:
        if self._parked.has(command.transactional_id, command.producer):
            # It ends the transaction that its parked partitions belong to, not the one before. Clients
            # without an epoch for each transaction send both without waiting, and retry this error alone.
            outcome.reply(command.on_reply, CONCURRENT)
            return
        known = self._image.transactions.get(command.transactional_id)
        after = ended(known, command, outcome.now.wall)
        if not isinstance(after, TransactionStored):
            outcome.reply(command.on_reply, after)
            return
        outcome.prepare(after)
        outcome.reply(command.on_reply, ProducerGranted(next_producer(after)))

    def _commit_batch(self, command: CommitBatch, outcome: TransactionOutcome) -> None:
        if command.batch in self._image.batches.get(command.sink, {}):
            outcome.reply(command.on_reply, BatchDone(is_repeat=True))
            return
        if len(command.members) > self._options.batch_members_max:
            detail = f"a batch has up to {self._options.batch_members_max:,} transactions"
            outcome.reply(command.on_reply, ApiError(ErrorKind.INVALID_REQUEST, detail))
            return
        error = problem_with_batch(self._image, command, self._options.batch_bytes_max)
        if error is not None:
            outcome.reply(command.on_reply, error)
            return
        known = self._image.batches.get(command.sink, {})
        needed = self._image.batch_bytes + bytes_of(command.sink, command.batch)
        has_room = needed <= self._options.batches_bytes_max
        if not has_room and not known:
            outcome.reply(command.on_reply, TOO_MANY_BATCHES)
            return
        # Later than all before, whatever the clock says: the order in a rewritten log says nothing.
        latest = max((each.committed_at for each in known.values()), default=-1)
        now = Timestamp(max(outcome.now.wall, latest + 1))
        outcome.facts.append(BatchCommitted(command.sink, command.batch, command.members, now))
        for member in command.members:
            outcome.events.append(MarkersDue(member.transactional_id))
        # Without room a new batch takes the place of the sink's oldest.
        too_many = max(0 if has_room else 1, len(known) + 1 - self._options.batches_per_sink_max)
        for oldest in heapq.nsmallest(too_many, known.values(), key=_committed_at):
            self._forget_batch(oldest, outcome)
        outcome.reply(command.on_reply, BatchDone(is_repeat=False))

    def _complete(self, command: CompleteTransaction, outcome: TransactionOutcome) -> None:
        known = self._image.transactions.get(command.transactional_id)
        if known is not None and known.state.is_prepared and _identity(known) == command.producer:
            after = completed(known, outcome.now.wall)
            outcome.facts.append(after)
            is_commit = after.state is _S.COMPLETE_COMMIT
            elapsed_ms = max(0, after.updated_at - after.started_at)
            outcome.events.append(TransactionCompleted(after.transactional_id, is_commit, elapsed_ms))
            known = after
            for parked in self._parked.pop(after.transactional_id):
                known = self._add_to(known, parked, outcome)
        outcome.reply(command.on_reply, TransactionOk())

    def _find(self, command: FindPrepared | DescribeTransaction, outcome: TransactionOutcome) -> None:
        known = self._image.transactions.get(command.transactional_id)
        if isinstance(command, FindPrepared):
            prepared = known if known is not None and known.state.is_prepared else None
            outcome.reply(command.on_reply, PreparedTransaction(prepared))
        elif known is None:
            outcome.reply(command.on_reply, ApiError(ErrorKind.UNKNOWN_TRANSACTIONAL_ID))
        else:
            outcome.reply(command.on_reply, DescribedTransaction(known))

    def _list(self, command: ListTransactions, outcome: TransactionOutcome) -> None:
        since = outcome.now.wall - command.duration_ms_min
        states, producer_ids = frozenset(command.states), frozenset(command.producer_ids)
        listed = tuple(
            known
            for known in self._image.transactions.values()
            if (not states or known.state in states)
            and (not producer_ids or known.producer_id in producer_ids)
            and (command.duration_ms_min < 0 or known.started_at < since)
        )
        outcome.reply(command.on_reply, ListedTransactions(listed))

    def _forget_unused(self, outcome: TransactionOutcome) -> None:
        """Forget ids without a transaction that nobody used for long, as far as one turn goes."""
        if self._check_at is None or self._check_at > outcome.now.instant:
            return
        if not self._unchecked and not self._unchecked_sinks:
            self._unchecked = list(self._image.transactions)
            self._unchecked_sinks = list(self._image.batches)
        left = self._options.checked_per_turn_max
        while left > 0 and self._unchecked:
            left -= 1
            self._forget_id(self._unchecked.pop(), outcome)
        while left > 0 and self._unchecked_sinks:
            left -= self._forget_batches(self._unchecked_sinks.pop(), outcome)
        if not self._unchecked and not self._unchecked_sinks:
            self._check_at = _after(outcome.now, self._options.expiration_check_interval_ms)

    def _forget_id(self, transactional_id: str, outcome: TransactionOutcome) -> None:
        known = self._image.transactions.get(transactional_id)
        if known is None or known.state.is_open:
            return
        if known.updated_at + self._options.id_expiration_ms <= outcome.now.wall:
            outcome.facts.append(TransactionForgotten(transactional_id))

    def _forget_batches(self, sink: str, outcome: TransactionOutcome) -> int:
        """Returns how many there were to look at, and one for the sink."""
        batches = self._image.batches.get(sink, {})
        until = outcome.now.wall - self._options.id_expiration_ms
        for committed in batches.values():
            if committed.committed_at <= until:
                self._forget_batch(committed, outcome)
        return 1 + len(batches)

    def _forget_batch(self, committed: BatchCommitted, outcome: TransactionOutcome) -> None:
        """Forget the key; transactions whose markers are still on their way get records of their own."""
        for transactional_id, sink in self._image.unstored.items():
            known = self._image.transactions[transactional_id]
            if sink == committed.sink and known.updated_at == committed.committed_at:
                outcome.facts.append(known)
        outcome.facts.append(BatchForgotten(committed.sink, committed.batch))


class _ParkedAdditions:
    """Partitions that wait for the end of the transaction before, by transactional id."""

    __slots__ = ("_by_id", "_deadlines", "_waiting")

    def __init__(self) -> None:
        self._by_id: dict[str, list[AddPartitions]] = {}
        self._waiting = 0
        # All wait equally long: the first is due first. Those that were added by now are skipped.
        self._deadlines: deque[tuple[Instant, AddPartitions]] = deque()

    def __len__(self) -> int:
        return self._waiting

    def add(self, command: AddPartitions, until: Instant) -> None:
        self._waiting += 1
        self._by_id.setdefault(command.transactional_id, []).append(command)
        self._deadlines.append((until, command))

    def has(self, transactional_id: str, producer: ProducerIdentity) -> bool:
        return any(each.producer == producer for each in self._by_id.get(transactional_id, ()))

    def next(self) -> Instant | None:
        return self._deadlines[0][0] if self._deadlines else None

    def pop(self, transactional_id: str) -> list[AddPartitions]:
        waiting = self._by_id.pop(transactional_id, [])
        self._waiting -= len(waiting)
        return waiting

    def pop_due(self, now: Instant) -> Iterator[AddPartitions]:
        while self._deadlines and self._deadlines[0][0] <= now:
            _, command = self._deadlines.popleft()
            waiting = self._by_id.get(command.transactional_id, [])
            if any(each is command for each in waiting):
                self._waiting -= 1
                waiting[:] = [each for each in waiting if each is not command]
                if not waiting:
                    del self._by_id[command.transactional_id]
                yield command


class _Timeouts:
    """When the last transaction of each id may have to be aborted, unless it has ended by then.

    Entries of the heap that are out of date are skipped.
    """

    __slots__ = ("_due", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[Instant, str]] = []
        self._due: dict[str, Instant] = {}

    def arm(self, transactional_id: str, at: Instant) -> None:
        self._due[transactional_id] = at
        heapq.heappush(self._heap, (at, transactional_id))
        if len(self._heap) > 2 * len(self._due) + 64:
            # Transactions end long before their timeout: what they leave here must not pile up.
            self._heap = [(due, each) for each, due in self._due.items()]
            heapq.heapify(self._heap)

    def next(self) -> Instant | None:
        heap, due = self._heap, self._due
        while heap and due.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop(self, now: Instant) -> str | None:
        """A transaction whose time is over."""
        at = self.next()
        if at is None or at > now:
            return None
        _, transactional_id = heapq.heappop(self._heap)
        del self._due[transactional_id]
        return transactional_id


def _after(now: Now, delay_ms: int) -> Instant:
    return Instant(now.instant + delay_ms * MILLISECOND)


def _identity(known: TransactionStored) -> ProducerIdentity:
    return ProducerIdentity(known.producer_id, known.producer_epoch)


def _committed_at(batch: BatchCommitted) -> Timestamp:
    return batch.committed_at


def _stored_bytes(partitions: tuple[TopicPartition, ...]) -> int:
    return sum(len(partition.topic.encode()) + _PARTITION_BYTES for partition in partitions)
