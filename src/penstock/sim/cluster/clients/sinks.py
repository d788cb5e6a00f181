"""A sink as Spark's is: tasks write in transactions of their own, and a driver commits all of them at once.

    SinkTask         one transactional id, `<sink>#<task>`; writes, reports, and leaves its transaction open
    SimulatedSink    the driver: has tasks write a batch, and commits it under the key (sink, batch)

The driver dies before it asks for the commit, while it waits, and when it has the answer. Its successor asks
again with the same key: with the transactions that the dead one had listed, or with those of tasks that wrote
the batch anew. It goes on with the next batch when it was told that this one is committed.

What is left of the dead goes on: a task sends another batch, or ends its transaction, and a driver asks for
the commit of what it had.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.batch_commit import (
    BatchCommitRequest,
    BatchCommitRequestTransaction,
    BatchCommitResponse,
)
from penstock.sim.checkers.batches import BatchAttempt
from penstock.sim.checkers.transactions import TransactionHistory
from penstock.sim.cluster.clients.client import ClusterNodes, SimulatedClient, VersionPolicy, is_retriable
from penstock.sim.cluster.clients.producers import RECORDS_MAX
from penstock.sim.cluster.clients.transactions import (
    AGAIN,
    BATCHES_MAX,
    FENCED,
    Refusal,
    TransactionClient,
    Zombie,
    ZombieState,
)
from penstock.sim.cluster.journal import Place

TASKS_MAX = 3
# Tasks that have nothing to write are not listed; nor does a batch need any.
WRITES = 0.9
TASK_DIES, TASK_RUNS_TWICE, ZOMBIES = 0.06, 0.1, 0.5
DIES_BEFORE, DIES_ASKING, DIES_TOLD = 0.1, 0.25, 0.2
# A successor that knows what the dead driver had listed; others have the tasks write anew.
KNOWS_LIST = 0.4
# The driver lists what an earlier attempt of a task had reported.
LISTS_OLD = 0.05
LATE_DRIVERS = 0.3
DEATH_MS, LATE_MS = 60, 300


class TaskReport(NamedTuple):
    """What a task tells the driver: its transaction, and the producer that wrote in it."""

    transactional_id: str
    producer_id: int
    epoch: int
    history: TransactionHistory
    # Whether a request of its own that was lost may have fenced it.
    may_be_fenced: bool


class SinkTask(TransactionClient):
    """One task of a sink, in one attempt after the other, each a producer of its own."""

    def __init__(self, nodes: ClusterNodes, sink: str, number: int, places: list[Place]) -> None:
        super().__init__(nodes, f"{sink}-task-{number}")
        self.transactional_id = f"{sink}#{number}"
        self._places = places
        self._zombie = Zombie(self)
        self._before: ZombieState | None = None
        # What its attempts at the present batch have reported, the last one last.
        self.reports: list[TaskReport] = []

    def write(self, then: Callable[[], None]) -> None:
        """Write in a new transaction, in as many attempts as it takes; `then` is called with every report."""
        if self.transaction is not None and self.luck.random() < ZOMBIES:
            self._before = self.state()._replace(ended=self.transaction)
        self.init(partial(self._begin, then))

    def _begin(self, then: Callable[[], None]) -> None:
        self.begin()
        self._disturb()
        if self.luck.random() < TASK_DIES:
            self.after_ms(DEATH_MS * self.luck.random(), self.now_only(self.write), then)
        places = self.luck.sample(self._places, self.luck.randint(1, len(self._places)))
        self._send([place for place in places for _ in range(self.luck.randint(1, BATCHES_MAX))], then)

    def _send(self, places: Sequence[Place], then: Callable[[], None]) -> None:
        if not places:
            self._report(then)
            return

        def sent(refusal: Refusal | None) -> None:
            if refusal is None:
                self._send(places[1:], then)
            else:
                self.write(then)

        self.send(places[0], self.values(self.luck.randint(1, RECORDS_MAX)), sent)

    def _report(self, then: Callable[[], None]) -> None:
        history = self._ongoing()
        self.reports.append(
            TaskReport(self.transactional_id, self._producer_id, self._epoch, history, self._may_be_fenced)
        )
        if self.luck.random() < TASK_RUNS_TWICE:
            # The driver has not heard of it, and has the task run again.
            self.write(then)
        else:
            then()

    def _disturb(self) -> None:
        """What is left of an earlier attempt goes on, though this one has its place."""
        before, self._before = self._before, None
        if before is not None:
            delay_ms = DEATH_MS * self.luck.random()
            self.after_ms(delay_ms, self._zombie.write, before, self.luck.choice(self._places))
            end = partial(self._zombie.end, before, commit=self.luck.random() < 0.5)
            self.after_ms(delay_ms + DEATH_MS * self.luck.random(), end)


class SimulatedSink(SimulatedClient):
    """The driver of a sink, in one life after the other."""

    def __init__(self, nodes: ClusterNodes, host: str, places: list[Place], pace_ms: float) -> None:
        super().__init__(nodes, host, VersionPolicy.NEWEST)
        count = self.luck.randint(2, TASKS_MAX)
        self.tasks = [SinkTask(nodes, host, number, places) for number in range(count)]
        self._pace_ms = pace_ms
        self._checker = nodes.journal.batches
        self._batch = 0
        # Responses to a driver that is dead are ignored.
        self._life = 0
        self._is_stopping = False
        self.finished = False

    def start(self) -> None:
        self._rest()

    def finish(self) -> None:
        """Begin no other batch, and die no more."""
        self._is_stopping = True

    def _rest(self) -> None:
        if self._is_stopping:
            self.finished = True
        else:
            self.after_ms(self._pace_ms * 2 * self.luck.random(), self._alive(self._next))

    def _next(self) -> None:
        self._batch += 1
        for task in self.tasks:
            task.reports.clear()
        self._write()

    def _dies(self, chance: float) -> bool:
        return not self._is_stopping and self.luck.random() < chance

    def _write(self) -> None:
        """Have the tasks write the batch, and commit it when all have reported."""
        writers = [task for task in self.tasks if self.luck.random() < WRITES]
        left = dict.fromkeys(task.host for task in writers)
        if self._dies(DIES_BEFORE):
            # Perhaps while tasks are still at work; the next driver has all of them run anew.
            self.after_ms(DEATH_MS * self.luck.random(), self._alive(self._succeed), None)

        def reported(task: SinkTask) -> None:
            # One that has reported may run again: what is listed then is of an attempt that has a successor.
            if task.host in left:
                del left[task.host]
                if not left:
                    self._commit(self._attempt(writers))

        for task in writers:
            task.write(self._alive(partial(reported, task)))
        if not writers:
            self._commit(self._attempt(writers))

    def _alive(self, act: Callable[..., None]) -> Callable[..., None]:
        """`act`, unless the driver is dead by then."""
        life = self._life

        def guarded(*arguments: object) -> None:
            if life == self._life:
                act(*arguments)

        return guarded

    def _succeed(self, attempt: "_ListedAttempt | None") -> None:
        """Another driver takes the place of the one before, and may know what that had listed."""
        self._life += 1
        self.close()
        if attempt is not None and self.luck.random() < LATE_DRIVERS:
            self.after_ms(LATE_MS * self.luck.random(), self._ask, attempt, lambda _: None)
        if attempt is not None and self.luck.random() < KNOWS_LIST:
            self.after_ms(self._pace_ms * self.luck.random(), self._alive(self._commit), attempt)
        else:
            self.after_ms(self._pace_ms * self.luck.random(), self._alive(self._write))

    def _attempt(self, writers: Sequence[SinkTask]) -> "_ListedAttempt":
        reports = []
        for task in writers:
            is_old = len(task.reports) > 1 and self.luck.random() < LISTS_OLD
            reports.append(task.reports[-2 if is_old else -1])
        members = [report.history for report in reports]
        attempt = BatchAttempt(self.host, str(self._batch), members)
        return _ListedAttempt(attempt, reports, writers)

    def _commit(self, attempt: "_ListedAttempt") -> None:
        if self._dies(DIES_BEFORE):
            self._succeed(attempt)
            return
        self._ask_until_answered(attempt)
        if self._dies(DIES_ASKING):
            self.after_ms(DEATH_MS * self.luck.random(), self._alive(self._succeed), attempt)

    def _ask_until_answered(self, attempt: "_ListedAttempt") -> None:
        def answered(reply: object) -> None:
            code = reply.error_code if isinstance(reply, BatchCommitResponse) else None
            if code is None or is_retriable(code) or code in AGAIN:
                self.after_ms(self.backoff_ms(), self._alive(self._ask_until_answered), attempt)
            elif code != ErrorCode.NONE:
                self._write()
            elif self._dies(DIES_TOLD):
                self._succeed(attempt)
            else:
                self._rest()

        self._ask(attempt, self._alive(answered))

    def _ask(self, attempt: "_ListedAttempt", answered: Callable[[object], None]) -> None:
        """Ask any node for the commit of what the tasks have reported."""
        checker, transactions = self._checker, self.journal.transactions
        asked = checker.asking(attempt.attempt)
        orders = []
        for history in attempt.attempt.members:
            transactions.ending(history, commit=True)
            orders.append(transactions.asking(history.transactional_id, history.incarnation, "BatchCommit"))
        request = BatchCommitRequest(
            sink=self.host,
            batch=attempt.attempt.batch,
            transactions=tuple(
                BatchCommitRequestTransaction(
                    transactional_id=report.transactional_id,
                    producer_id=report.producer_id,
                    producer_epoch=report.epoch,
                )
                for report in attempt.reports
            ),
        )

        def observe(response: BatchCommitResponse) -> None:
            code = response.error_code
            if code == ErrorCode.NONE:
                checker.answered_done(asked, is_repeat=response.is_repeat)
                if not response.is_repeat:
                    for order, history in zip(orders, attempt.attempt.members, strict=True):
                        transactions.obeyed(order)
                        transactions.ended(history)
            elif not is_retriable(code) and code not in AGAIN:
                checker.answered_refused(asked)
                if code not in FENCED or not attempt.may_be_over(self.now):
                    self.journal.failures.append(
                        f"unexpected error: {self.host} got {ErrorCode(code).name} for batch "
                        f"{attempt.attempt.batch}: {response.error_message}"
                    )

        self.ask(self.any_node(), request, self.versions.of(BatchCommitRequest), answered, observe)


class _ListedAttempt(NamedTuple):
    """An attempt of a batch, and those whose reports it lists."""

    attempt: BatchAttempt
    reports: Sequence[TaskReport]
    tasks: Sequence[SinkTask]

    def may_be_over(self, now: int) -> bool:
        """Whether one of its transactions may have ended: it took too long, or its task has begun anew."""
        return any(
            now >= report.history.expires
            or report.may_be_fenced
            or task.incarnation > report.history.incarnation
            for report, task in zip(self.reports, self.tasks, strict=True)
        )
