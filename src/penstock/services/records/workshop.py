"""Large batches that must be walked or compressed anew: by a worker, while the loop goes on.

    batches of one partition   1   2   3
                               │ worker ──► appended ─┐
                                   └ waits ───────────┴► judged, appended ─► 3 …

A partition takes its batches in the order they came, however long one of them is away: the
sequence of an idempotent producer is judged when it is the batch's turn. Partitions do not
wait for each other, unless for a worker.
"""

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from penstock.core.model import Refused
from penstock.core.records import BatchHeader
from penstock.runtime import Executor, ExecutorKind
from penstock.services.partitions import Partition

# Less is done at once: a worker costs two copies, and some tenths of a millisecond.
LARGE_BYTES = 64 << 10
MANY_RECORDS = 1_000
# What became of a batch: its new bytes, None if it stays as it is, or why it does not.
Finished: TypeAlias = "bytes | Refused | None"
# Deals with a batch whose turn it is; answers whether that has gone to a worker too.
Turn: TypeAlias = Callable[[], bool]


def is_large(header: BatchHeader) -> bool:
    return header.size_bytes > LARGE_BYTES or header.record_count > MANY_RECORDS


class Workshop:
    """Which partitions have a batch with a worker, and what waits behind it."""

    def __init__(self, spawn: Executor) -> None:
        self._spawn = spawn
        # What waits behind a batch that is away, for each partition that has one.
        self.queues: dict[Partition, deque[Turn]] = {}

    def send(
        self,
        partition: Partition,
        work: Callable[[], Finished],
        done: Callable[[Finished], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Have a worker do it; then `done` or `failed` is called, and then it is the next one's turn."""
        self.queues.setdefault(partition, deque())

        def ended(finished: Finished) -> None:
            done(finished)
            self._go_on(partition)

        def broke(error: Exception) -> None:
            failed(error)
            self._go_on(partition)

        self._spawn.spawn(work, ended, broke, ExecutorKind.WORKER)

    def wait(self, partition: Partition, turn: Turn) -> None:
        """Take turns with those that came before."""
        self.queues[partition].append(turn)

    def _go_on(self, partition: Partition) -> None:
        queue = self.queues[partition]
        while queue:
            if queue.popleft()():
                return
        del self.queues[partition]
