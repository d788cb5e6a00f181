"""Which messages may be handled now, and up to where all of a partition's are finished.

    partition 0      5    6    7    8    9
                     A    B    A    C    A          keys
                     ✓    …    …    ✓    waits      6 and 7 run; 9 waits for 7, which has its key
                          ^ committable: everything before 6 is finished

Messages of one lane (an equal key, or a partition) are handled one after the other, in the order in
which they came; lanes are independent. Offsets become committable without gaps only, so that a crash
repeats messages and never skips one.

Plain data, without threads or loops: `WorkerPool` and `AsyncWorkerPool` run it.
"""

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from penstock.client.message import RawMessage, TopicPartition

Order = Literal["key", "partition", "none"]


@dataclass(slots=True)
class PartitionWork:
    """What is under way of one partition, for as long as it is ours."""

    partition: TopicPartition
    # Offsets in the order in which they came; finished ones leave from the left.
    offsets: deque[int] = field(default_factory=deque)
    finished: set[int] = field(default_factory=set)
    running: int = 0
    # The offset after the last one that was finished with all before it.
    end: int | None = None
    # Being taken away: what runs is waited for, nothing is begun.
    is_draining: bool = False
    # Somebody else's: nothing is committed any more.
    is_discarded: bool = False


@dataclass(slots=True, eq=False)
class Task:
    """One message to be handled."""

    message: RawMessage
    work: PartitionWork
    lane: Hashable

    @property
    def is_cancelled(self) -> bool:
        """It must not be begun any more."""
        return self.work.is_draining or self.work.is_discarded


class OrderedWork:
    """Messages that came, are handled, and are finished."""

    def __init__(self, order: Order = "key") -> None:
        self._order = order
        self._partitions: dict[TopicPartition, PartitionWork] = {}
        # Those that wait for the one of their lane that may be handled; the lane is here while it has one.
        self._lanes: dict[Hashable, deque[Task]] = {}
        self._committed: dict[TopicPartition, int] = {}
        self.pending = 0

    def add(self, message: RawMessage) -> Task | None:
        """Take in a message; returns its task if it may be handled now."""
        partition = message.topic_partition
        work = self._partitions.get(partition)
        if work is None:
            work = self._partitions[partition] = PartitionWork(partition)
        work.offsets.append(message.offset)
        self.pending += 1
        task = Task(message, work, self._lane(message))
        if task.lane is not None:
            waiting = self._lanes.get(task.lane)
            if waiting is not None:
                waiting.append(task)
                return None
            self._lanes[task.lane] = deque()
        work.running += 1
        return task

    def finish(self, task: Task, *, is_done: bool = True) -> Task | None:
        """A task has ended; returns the next one of its lane, which may be handled now.

        One that is not done (given up when everything ends) keeps its offset from being committed.
        """
        work = task.work
        work.running -= 1
        self.pending -= 1
        if is_done and not work.is_discarded:
            work.finished.add(task.message.offset)
            while work.offsets and work.offsets[0] in work.finished:
                offset = work.offsets.popleft()
                work.finished.remove(offset)
                work.end = offset + 1
        return self._next(task.lane)

    def drain(self, partitions: Iterable[TopicPartition]) -> None:
        """Begin nothing more of these partitions."""
        for partition in partitions:
            if (work := self._partitions.get(partition)) is not None:
                work.is_draining = True
        self._drop_cancelled()

    def discard(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions: what waits is dropped, what runs is not committed any more."""
        for partition in partitions:
            if (work := self._partitions.pop(partition, None)) is not None:
                work.is_discarded = True
            self._committed.pop(partition, None)
        self._drop_cancelled()

    def running(self, partitions: Iterable[TopicPartition]) -> int:
        """How many tasks of these partitions have been given out and have not ended."""
        works = (self._partitions.get(partition) for partition in partitions)
        return sum(work.running for work in works if work is not None)

    def partitions(self) -> list[TopicPartition]:
        return list(self._partitions)

    def committable(self) -> dict[TopicPartition, int]:
        """The offsets that may be committed and were not returned before."""
        offsets = {
            partition: work.end
            for partition, work in self._partitions.items()
            if work.end is not None and self._committed.get(partition) != work.end
        }
        self._committed.update(offsets)
        return offsets

    def unfinished(self) -> dict[TopicPartition, int]:
        """The first offset of each partition that is not finished, where there is one."""
        return {partition: work.offsets[0] for partition, work in self._partitions.items() if work.offsets}

    def _drop_cancelled(self) -> None:
        for waiting in self._lanes.values():
            kept = [task for task in waiting if not task.is_cancelled]
            self.pending -= len(waiting) - len(kept)
            waiting.clear()
            waiting.extend(kept)

    def _lane(self, message: RawMessage) -> Hashable:
        match self._order:
            case "key":
                # Nobody expects an order of messages without a key.
                return None if message.key is None else (message.topic, message.partition, message.key)
            case "partition":
                return (message.topic, message.partition)
            case "none":
                return None

    def _next(self, lane: Hashable) -> Task | None:
        if lane is None:
            return None
        waiting = self._lanes[lane]
        if not waiting:
            del self._lanes[lane]
            return None
        task = waiting.popleft()
        task.work.running += 1
        return task
