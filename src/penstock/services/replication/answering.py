"""Putting an answer together: what there is for one follower, within its limits."""

from collections.abc import Callable
from functools import partial

from penstock.core.model import (
    MILLISECOND,
    CorruptionError,
    Instant,
    LeaderEpoch,
    Offset,
    PenstockError,
    StorageError,
)
from penstock.core.replica import diverging_epoch
from penstock.observability import log as events
from penstock.runtime import Buffer, ExecutorKind, Runtime
from penstock.services.partitions import Partition
from penstock.services.replication.codec import AnswerRow, Status
from penstock.services.replication.options import ReplicationOptions
from penstock.services.replication.sessions import Row, Session
from penstock.services.replication.throttle import Throttle
from penstock.storage.disk import warmer
from penstock.storage.log import FileRange, PartitionLog

NOTHING = b""
NO_EPOCH = -1


class Answering:
    """Reads for followers. What is sent changes nothing here: only the next fetch tells what arrived."""

    def __init__(
        self,
        runtime: Runtime,
        options: ReplicationOptions,
        throttle: Throttle,
        wake: Callable[[Session], None],
    ) -> None:
        self._runtime = runtime
        self._options = options
        self._throttle = throttle
        self._wake = wake

    def collect(self, session: Session, *, time_is_up: bool) -> tuple[list[AnswerRow], list[Buffer]]:
        """Rows and their batches; without any, the fetch had better wait."""
        rows: list[AnswerRow] = []
        contents: list[Buffer] = []
        left = self._options.answer_bytes_max
        for row in list(session.ready):
            if left <= 0:
                break
            if row.is_warming:
                continue
            answer, content = self._read(session, row, left)
            if answer is None:
                continue
            rows.append(answer)
            contents.append(content)
            left -= len(content)
        now = self._runtime.clock.now()
        if time_is_up or (rows and now >= session.news_at):
            session.news_at = Instant(now + self._options.fetch_wait_ms * MILLISECOND)
            self._collect_news(session, rows, contents)
        return rows, contents

    def sent(self, session: Session, rows: list[AnswerRow], contents: list[Buffer]) -> None:
        """The answer is on its way: these have nothing to tell until the follower has moved."""
        for answer, content in zip(rows, contents, strict=True):
            row = session.rows[answer.key]
            row.told(answer)
            session.ready.pop(row, None)
            if _is_catching_up(session, row):
                self._throttle.spend(len(content))

    def _read(self, session: Session, row: Row, left: int) -> tuple[AnswerRow | None, Buffer]:
        if row.verdict is not None:
            return row.answered(*row.verdict), NOTHING
        partition = row.partition
        if partition is None or partition.stopped is not None or row.position >= partition.log.end:
            del session.ready[row]
            return None, NOTHING
        if _is_catching_up(session, row) and not self._throttle.has_room(
            session, partial(self._wake, session)
        ):
            return None, NOTHING
        try:
            limit = min(left, self._options.partition_bytes_max)
            ranges = partition.log.read(Offset(row.position), limit).ranges
            if not ranges or self._is_cold(session, row, ranges[0]):
                return None, NOTHING
            content = ranges[0].to_bytes()
        except PenstockError as error:
            return self._unreadable(row, partition, error), NOTHING
        session.unsettled[row] = None
        return row.answered(Status.OK, end=partition.log.end), content

    def _is_cold(self, session: Session, row: Row, piece: FileRange) -> bool:
        """A read that would wait for the device would make every client wait: a thread does it first."""
        if piece.is_warm():
            return False
        read = warmer(piece.file, piece.position, piece.length)

        def ready() -> None:
            row.is_warming = False
            self._wake(session)

        def failed(error: Exception) -> None:
            # The read itself will meet the same trouble, and tell.
            events.warning("replication.not_warmed", error=error)
            ready()

        row.is_warming = True
        self._runtime.spawn.spawn(read, lambda _: ready(), failed, ExecutorKind.DISK)
        return True

    def _unreadable(self, row: Row, partition: Partition, error: PenstockError) -> AnswerRow | None:
        is_damage = isinstance(error, CorruptionError)
        if not is_damage and not isinstance(error, StorageError):
            # The log start has moved past the follower since it was judged.
            return row.answered(Status.OUT_OF_RANGE, end=partition.log.end)
        events.error("replication.unreadable", partition=str(partition.name), error=error)
        return row.answered(Status.DAMAGED)

    def _collect_news(self, session: Session, rows: list[AnswerRow], contents: list[Buffer]) -> None:
        """High watermarks and log starts that moved without new records."""
        named = {answer.key for answer in rows}
        for row in list(session.unsettled):
            if row.key in named or row in session.ready:
                # What is ready gets its news with its batches.
                continue
            if row.has_news and row.verdict is None:
                rows.append(row.answered(Status.OK))
                contents.append(NOTHING)
            elif row.partition is None or row.told_watermark >= row.position:
                del session.unsettled[row]


def _is_catching_up(session: Session, row: Row) -> bool:
    return row.partition is not None and session.node not in row.partition.insync.assignment.isr


def judge(log: PartitionLog, position: Offset, last_epoch: LeaderEpoch) -> tuple[Status, int, int] | None:
    """What a follower has to do first, if it cannot go on from where it is."""
    if position >= log.start:
        parting = diverging_epoch(log.epochs, log.end, position, last_epoch)
        if parting is not None:
            return Status.DIVERGED, *parting
        if position <= log.end:
            return None
    return Status.OUT_OF_RANGE, NO_EPOCH, log.end
