"""Idempotent producers at an even pace, and an account of everything they sent."""

import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from confluent_kafka import KafkaError, Message, Producer

from penstock.sim.checkers.log import LogHistory

TICK_SECONDS = 0.01
SECONDS_MAX = 120.0
# The client complains about every refused connection, and there are many.
QUIET = {"log_level": 0}
NO_LOGIN: Mapping[str, str] = MappingProxyType({})
# What a careful user would set: wait 200 ms before trying again, and keep trying.
PATIENT: dict[str, str | int | float | bool] = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 5,
    "retry.backoff.ms": 200,
    "retry.backoff.max.ms": 200,
    "reconnect.backoff.ms": 100,
    "reconnect.backoff.max.ms": 200,
    # A leader that is silent is given up after this long; one that is gone is noticed at once.
    "socket.timeout.ms": 5000,
    "topic.metadata.refresh.interval.ms": 1000,
    "message.timeout.ms": int(SECONDS_MAX * 1000),
    **QUIET,
}


@dataclass
class Account:
    """What was sent and what became of it."""

    sent: int = 0
    acknowledged: int = 0
    failed: list[str] = field(default_factory=list)


class Load:
    """Sends unique values to every partition in turn, from a thread of its own.

    Each value says when it was sent (`writer/number/nanoseconds`), so that the first record that
    was sent after some moment and accepted can be told from those that were under way.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        rate: int,
        writers: int = 3,
        login: Mapping[str, str] = NO_LOGIN,
    ) -> None:
        self.histories = {partition: LogHistory() for partition in range(partitions)}
        self.account = Account()
        # Acknowledged without a place: a later batch was accepted, so this one must be there too.
        self.somewhere: dict[int, list[bytes]] = {partition: [] for partition in range(partitions)}
        self._topic = topic
        self._rate = rate
        # (accepted at, sent at) of the latest records, by partition.
        self._accepted: dict[int, deque[tuple[int, int]]] = {
            partition: deque(maxlen=100_000) for partition in range(partitions)
        }
        self._accepting = threading.Condition()
        self._ended = threading.Event()
        self._next = 0
        self._producers = [
            Producer({"bootstrap.servers": bootstrap, **PATIENT, **login}) for _ in range(writers)
        ]
        self._thread = threading.Thread(target=self._run, name="load")

    def start(self) -> "Load":
        self._thread.start()
        return self

    def finish(self) -> list[str]:
        """Send no more, and wait for every response; what never comes is an anomaly."""
        self._ended.set()
        self._thread.join()
        left = sum(producer.flush(SECONDS_MAX) for producer in self._producers)
        return [f"stuck: {left} records were never answered"] if left else []

    def abandon(self) -> None:
        """Send no more, and wait for nobody."""
        self._ended.set()
        self._thread.join()
        for producer in self._producers:
            producer.purge()
            producer.flush(1)

    def accepted_since(self, moment: int, partition: int, seconds: float) -> float | None:
        """Seconds from `moment` to the first response for a record sent after it; None if none comes."""
        found: list[int] = []

        def answered() -> bool:
            found[:] = [at for at, sent in self._accepted[partition] if sent >= moment][:1]
            return bool(found)

        with self._accepting:
            self._accepting.wait_for(answered, seconds)
        return (found[0] - moment) / 1e9 if found else None

    def await_acknowledged(self, count: int, seconds: float = SECONDS_MAX) -> None:
        """Wait until so many more are acknowledged."""
        with self._accepting:
            goal = self.account.acknowledged + count
            reached = self._accepting.wait_for(lambda: self.account.acknowledged >= goal, seconds)
        assert reached, f"{goal - self.account.acknowledged} of {count} records were not accepted in time"

    def _run(self) -> None:
        began, sent = time.monotonic(), 0
        while not self._ended.is_set():
            due = int((time.monotonic() - began) * self._rate)
            # After a stall there is no catching up in one burst.
            for _ in range(min(due - sent, self._rate // 10 + 1)):
                self._send()
            sent = due
            for producer in self._producers:
                producer.poll(0)
            time.sleep(TICK_SECONDS)

    def _send(self) -> None:
        number, self._next = self._next, self._next + 1
        partition, writer = number % len(self.histories), number // len(self.histories) % len(self._producers)
        value = b"%d/%d/%d" % (writer, number, time.monotonic_ns())
        try:
            self._producers[writer].produce(
                self._topic, value, partition=partition, on_delivery=self._delivered
            )
        except BufferError:
            return  # Nobody has accepted anything for long: it was never sent.
        self.histories[partition].sent.setdefault(str(writer), []).append(value)
        self.account.sent += 1

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.account.failed.append(str(error))
            return
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert value is not None
        assert partition is not None
        with self._accepting:
            if offset is None:
                self.somewhere[partition].append(value)
            else:
                self.histories[partition].acknowledged[value] = offset
            self.account.acknowledged += 1
            self._accepted[partition].append((time.monotonic_ns(), int(value.rpartition(b"/")[2])))
            self._accepting.notify_all()
