"""Making the logs of new partitions, off the loop and not too many at once."""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from penstock.core.model import PartitionIndex, StorageError, TopicId
from penstock.runtime import Executor, ExecutorKind
from penstock.storage.data_directory import CreatedReplicas
from penstock.storage.disk import Disk
from penstock.storage.log import LogOptions, PartitionLog

# A topic may have thousands of partitions, and others want to use the disk lane too.
AT_ONCE = 32


class Order(NamedTuple):
    """A log to be made, and who wants to know."""

    path: str
    topic_id: TopicId
    partition: PartitionIndex
    options: LogOptions
    made: Callable[[], None]
    failed: Callable[[Exception], None]


class LogMaker:
    """Makes empty logs in the order they are asked for, some of them side by side."""

    def __init__(self, spawn: Executor, side_disk: Disk) -> None:
        self._spawn = spawn
        self._disk = side_disk
        self._created = CreatedReplicas(side_disk)
        self._orders: deque[Order] = deque()
        self._underway = 0

    def make(self, order: Order) -> None:
        """Make a log; either `made` or `failed` is called later."""
        self._orders.append(order)
        self._begin()

    def _begin(self) -> None:
        while self._orders and self._underway < AT_ONCE:
            self._underway += 1
            self._make(self._orders.popleft())

    def _make(self, order: Order) -> None:
        disk, created = self._disk, self._created

        def work() -> None:
            PartitionLog.create(disk, order.path, order.topic_id, order.options).close()
            try:
                created.add(((order.topic_id, order.partition),))
            except StorageError:
                # Nothing has been written to it: it is made again, and noted then.
                disk.remove_tree(order.path)
                raise

        def made(_: None) -> None:
            self._underway -= 1
            self._begin()
            order.made()

        def failed(error: Exception) -> None:
            self._underway -= 1
            self._begin()
            order.failed(error)

        self._spawn.spawn(work, made, failed, ExecutorKind.DISK)
