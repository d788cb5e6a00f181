"""Clients that manage queues.

QueuePauser      pauses what others consume, and resumes it
QueueRedriver    has dead letters moved to a topic of their own

"""

from collections.abc import Callable, Sequence
from functools import partial

from penstock.broker.queues.dead_letters import dead_letter_topic
from penstock.core.model import MILLISECOND
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.queue_alter import (
    PAUSE,
    RESUME,
    QueueAlterRequest,
    QueueAlterResponse,
)
from penstock.core.protocol.messages.queue_redrive import (
    QueueRedriveRequest,
    QueueRedriveRequestPartition,
    QueueRedriveResponse,
)
from penstock.sim.checkers.queues import PauseAttempt
from penstock.sim.cluster.clients.client import ClusterNodes, PacedClient, VersionPolicy, is_retriable
from penstock.sim.cluster.options import JOBS, REDRIVEN, QueueGroup

PAUSED_MS = (100, 400, 1_200)
# Nobody has asked the queue for anything yet.
NO_QUEUE = ErrorCode.GROUP_ID_NOT_FOUND
REPEAT_MS = 300
LETTERS = dead_letter_topic(JOBS)
LETTERS_MAX = 4
DRY_RUNS, CHOSEN = 0.1, 0.3
REDRIVE_PATIENCE_NS = 2_500 * MILLISECOND
# Another redrive has the dead letters, or has fenced this one, or it took too long: ask again later.
IN_VAIN = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.INVALID_RECORD_STATE,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_TXN_STATE,
)


class QueuePauser(PacedClient):
    """Pauses a group's queue on a partition for a while, and resumes it."""

    def __init__(self, nodes: ClusterNodes, host: str, groups: Sequence[QueueGroup], pace_ms: float) -> None:
        super().__init__(nodes, host, pace_ms, VersionPolicy.NEWEST)
        self._groups = groups
        self.topics = tuple(dict.fromkeys(group.topic for group in groups))
        self._is_draining = False
        # What it has paused, or may have.
        self._paused: dict[tuple[QueueGroup, int], None] = {}

    def drain(self) -> None:
        """Pause nothing more."""
        self._is_draining = True

    def _act(self) -> None:
        if self._is_draining:
            self._resume_all()
            return
        group = self.luck.choice(self._groups)
        partitions = [index for topic, index in self._leaders if topic == group.topic]
        if not partitions:
            self.refresh_metadata(self._rest)
            return
        index = self.luck.choice(partitions)
        self._paused[group, index] = None
        paused_ms = self.luck.choice(PAUSED_MS) * (0.5 + self.luck.random())

        def paused() -> None:
            self.after_ms(paused_ms, self._alter, group, index, RESUME, self._rest)

        self._alter(group, index, PAUSE, paused)

    def _resume_all(self) -> None:
        """Once more, and again: what was asked long ago may arrive late."""
        for group, index in self._paused:
            self._alter(group, index, RESUME, lambda: None)
        if not self._stopped:
            self.after_ms(REPEAT_MS, self._resume_all)

    def _alter(self, group: QueueGroup, index: int, action: int, then: Callable[[], None]) -> None:
        """Ask until it is done."""
        request = QueueAlterRequest(
            group_id=group.name, topic=group.topic, partitions=(index,), action=action
        )
        checker, place = self.journal.queues, (group.topic, index)
        attempt = checker.pausing(group.name, place, PauseAttempt(is_paused=action == PAUSE))

        def observe(response: QueueAlterResponse) -> None:
            if _code_of(response) == ErrorCode.NONE:
                checker.paused(attempt, self.now)

        def answered(reply: object) -> None:
            code = _code_of(reply) if isinstance(reply, QueueAlterResponse) else ErrorCode.REQUEST_TIMED_OUT
            if code in (ErrorCode.NONE, NO_QUEUE):
                then()
            elif not is_retriable(code):
                name = ErrorCode(code).name
                self.journal.failures.append(f"unexpected error: {self.host} got {name} from QueueAlter")
            elif not self._stopped:
                again = partial(self._alter, group, index, action, then)
                self.after_ms(self.backoff_ms(), again)

        self.ask(self.any_node(), request, 0, answered, observe)


class QueueRedriver(PacedClient):
    """Asks one node after the other to move some dead letters, of one partition or of all."""

    def __init__(self, nodes: ClusterNodes, host: str, pace_ms: float) -> None:
        super().__init__(nodes, host, pace_ms, VersionPolicy.NEWEST)
        self.topics = (LETTERS,)
        # Offsets that it has heard of, to choose from.
        self._known: dict[int, dict[int, None]] = {}

    def _act(self) -> None:
        is_dry_run = self.luck.random() < DRY_RUNS
        request = QueueRedriveRequest(
            topic=LETTERS,
            partitions=self._chosen() if self.luck.random() < CHOSEN else (),
            to_topic=REDRIVEN,
            is_dry_run=is_dry_run,
            records_max=self.luck.randint(1, LETTERS_MAX),
        )
        observe = partial(self._observe, is_dry_run)
        self.ask(self.any_node(), request, 0, self._answered, observe, REDRIVE_PATIENCE_NS)

    def _chosen(self) -> tuple[QueueRedriveRequestPartition, ...]:
        """One that it has heard of, moved or not."""
        if not self._known:
            return ()
        index = self.luck.choice(list(self._known))
        offset = self.luck.choice(list(self._known[index]))
        return (QueueRedriveRequestPartition(partition=index, offsets=(offset,)),)

    def _observe(self, is_dry_run: bool, response: QueueRedriveResponse) -> None:
        for row in response.partitions:
            for record in row.records:
                self._known.setdefault(row.partition, {})[record.offset] = None
                if not is_dry_run and not record.error_code and not row.error_code:
                    self.journal.queues.told_redriven((LETTERS, row.partition), record.offset)

    def _answered(self, reply: object) -> None:
        if isinstance(reply, QueueRedriveResponse):
            for code in (reply.error_code, *(row.error_code for row in reply.partitions)):
                if code and code not in IN_VAIN and not is_retriable(code):
                    name = ErrorCode(code).name
                    self.journal.failures.append(
                        f"unexpected error: {self.host} got {name} from QueueRedrive"
                    )
        self._rest()


def _code_of(response: QueueAlterResponse) -> int:
    return response.error_code or next((row.error_code for row in response.partitions), ErrorCode.NONE)
