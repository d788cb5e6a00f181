"""Partitions that are paused while a pool of workers has too much to do."""

import threading
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from penstock.client import HandlerFailed, Message, TopicPartition
from penstock.client.worker_pool import ProcessOptions, WorkerPool

SECONDS = 30.0
PARTITION = TopicPartition("t", 0)


class OnePartition:
    """A consumer that has fetched two messages of its only partition."""

    is_stopped = False

    def __init__(self) -> None:
        self.fetched = [Message(*PARTITION, offset, None, None, (), 0, False) for offset in range(2)]
        self.has_paused = threading.Event()
        self.paused: dict[TopicPartition, None] = {}
        self.position = 2

    def receive_raw(self, records_max: int, _timeout: float) -> list[Message[Any, Any]]:
        taken, self.fetched = self.fetched[:records_max], self.fetched[records_max:]
        return taken

    def decode(self, message: Message[Any, Any]) -> Message[Any, Any]:
        return message

    def assignment(self) -> list[TopicPartition]:
        return [PARTITION]

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self.paused.update(dict.fromkeys(partitions))
        self.has_paused.set()

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            del self.paused[partition]

    def seek(self, _partition: TopicPartition, offset: int) -> None:
        self.position = offset

    def commit_processed(self, _offsets: Mapping[TopicPartition, int]) -> None:
        raise AssertionError("nothing was finished")


def test_a_partition_that_is_paused_when_a_handler_gives_up_is_resumed() -> None:
    consumer: Any = OnePartition()

    def handle(_message: Message[Any, Any]) -> None:
        assert consumer.has_paused.wait(SECONDS)
        raise ValueError("never")

    with pytest.raises(HandlerFailed):
        WorkerPool(consumer, handle, ProcessOptions(workers=1, pending_max=2, retries=0)).run()

    assert consumer.position == 0
    assert not consumer.paused, "the next poll would return nothing"
