"""A consumer group of two that writes down what it sees, and a judge that reads everything at the end."""

import threading
import time
from collections.abc import Mapping

from confluent_kafka import Consumer, TopicPartition

from penstock.sim.checkers.log import LogHistory
from tests.cluster.load import NO_LOGIN, QUIET

POLL_SECONDS = 0.1
READ_SECONDS = 20.0


class GroupReaders:
    """Consumers of one group, each in a thread of its own."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        histories: dict[int, LogHistory],
        count: int = 2,
        *,
        checks_order: bool = False,
        login: Mapping[str, str] = NO_LOGIN,
    ) -> None:
        """With `checks_order` the histories have what each consumer was given between two assignments."""
        self._histories = histories
        self._checks_order = checks_order
        self._login = login
        self._reading = threading.Condition()
        self._ended = threading.Event()
        self.errors: list[str] = []
        # (read at, sent at) of the last record.
        self._last = (0, 0)
        self.read = 0
        self._threads = [
            threading.Thread(target=self._run, args=(bootstrap, topic, f"reader-{number}"))
            for number in range(count)
        ]

    def start(self) -> "GroupReaders":
        for thread in self._threads:
            thread.start()
        return self

    def finish(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def resumed_since(self, moment: int, seconds: float) -> float | None:
        """Seconds from `moment` until a record was read that had been sent after it."""
        with self._reading:
            self._reading.wait_for(lambda: self._last[1] >= moment, seconds)
            return (self._last[0] - moment) / 1e9 if self._last[1] >= moment else None

    def missing(self) -> int:
        """How many acknowledged records nobody of the group has read."""
        with self._reading:
            return sum(
                1
                for history in self._histories.values()
                for offset in history.acknowledged.values()
                if offset not in history.read
            )

    def await_all_read(self, seconds: float) -> list[str]:
        """Wait until everything acknowledged was read; what was not is an anomaly."""
        deadline = time.monotonic() + seconds
        while (left := self.missing()) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        return [f"unread: {left} acknowledged records never reached the group"] if left else []

    def _run(self, bootstrap: str, topic: str, name: str) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 500,
                "auto.commit.interval.ms": 500,
                "retry.backoff.ms": 200,
                "reconnect.backoff.ms": 100,
                "reconnect.backoff.max.ms": 200,
                "socket.timeout.ms": 5000,
                "topic.metadata.refresh.interval.ms": 1000,
                **QUIET,
                **self._login,
            }
        )

        def assigned(_: Consumer, places: list[TopicPartition]) -> None:
            with self._reading:
                for place in places:
                    self._histories[place.partition].sought(name)

        consumer.subscribe([topic], on_assign=assigned)
        try:
            while not self._ended.is_set():
                # One by one: an assignment is told before its first record, and behind the last of the old.
                message = consumer.poll(POLL_SECONDS)
                if message is None:
                    continue
                if message.error() is not None:
                    self.errors.append(str(message.error()))
                    continue
                self._saw(name, message.partition() or 0, message.offset() or 0, message.value() or b"")
        finally:
            consumer.close()

    def _saw(self, name: str, partition: int, offset: int, value: bytes) -> None:
        with self._reading:
            history = self._histories[partition]
            if self._checks_order:
                history.polled(name, [(offset, value)])
            else:
                history.saw(offset, value)
            self.read += 1
            sent = int(value.rpartition(b"/")[2])
            if sent > self._last[1]:
                self._last = (time.monotonic_ns(), sent)
                self._reading.notify_all()


def read_everything(
    bootstrap: str, topic: str, partitions: int, login: Mapping[str, str] = NO_LOGIN
) -> dict[int, list[tuple[int, bytes]]]:
    """Every record of every partition, from start to end."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "judge", "enable.auto.commit": False, **QUIET, **login}
    )
    found: dict[int, list[tuple[int, bytes]]] = {}
    for partition in range(partitions):
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=READ_SECONDS)
        consumer.assign([TopicPartition(topic, partition, low)])
        rows = found[partition] = []
        while len(rows) < high - low:
            messages = consumer.consume(min(5000, high - low - len(rows)), timeout=READ_SECONDS)
            assert messages, f"partition {partition} ends at {len(rows)} of {high}"
            for message in messages:
                assert message.error() is None, message.error()
                rows.append((message.offset() or 0, message.value() or b""))
    consumer.close()
    return found
