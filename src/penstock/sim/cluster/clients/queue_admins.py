"""Clients that manage queues: one of them pauses and resumes what others consume."""

from collections.abc import Callable, Sequence
from functools import partial

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.queue_alter import (
    PAUSE,
    RESUME,
    QueueAlterRequest,
    QueueAlterResponse,
)
from penstock.sim.checkers.queues import PauseAttempt
from penstock.sim.cluster.clients.client import ClusterNodes, PacedClient, VersionPolicy, is_retriable
from penstock.sim.cluster.options import QueueGroup

PAUSED_MS = (100, 400, 1_200)
# Nobody has asked the queue for anything yet.
NO_QUEUE = ErrorCode.GROUP_ID_NOT_FOUND
REPEAT_MS = 300


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


def _code_of(response: QueueAlterResponse) -> int:
    return response.error_code or next((row.error_code for row in response.partitions), ErrorCode.NONE)
