"""What the workers of queue groups were given and what they said about it, judged by the simulator's checker.

Workers write down what they see, with the times of one clock: when they asked for records, when they had
them, when they said something about one, and what they were told. At the end that is played back to
`QueueChecker` in the order in which it happened. All times are the worker's, so they are on the safe side: a
lease is counted from when its worker asked, and a delivery from when it was there.

A lease may end early without a word of its worker if the worker goes away in a way that gives records back. A
worker that did says so (`gone`), and then nobody is blamed for delivering its records to others. A delivery
that was given back so need not count: the next one may be the same attempt.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.core.model import MILLISECOND
from penstock.sim.checkers.queues import (
    DRIFT,
    QueueChecker,
    QueueDelivery,
    QueuePolicy,
    SentRecord,
    SettleAction,
    Settlement,
)

Rows = Mapping[int, Sequence[tuple[int, bytes]]]


class Received(NamedTuple):
    """A record as a worker got it."""

    partition: int
    offset: int
    value: bytes
    attempt: int
    receipt: str


@dataclass(slots=True, eq=False)
class Held:
    """A record that a worker has, or had."""

    worker: str
    group: str
    record: Received
    asked: int
    got: int
    lease_ns: int
    is_gone: bool = False
    is_finished: bool = False


@dataclass(slots=True, eq=False)
class Word:
    """What a worker said about a record."""

    held: Held
    action: SettleAction
    asked: int
    delay_ms: int | None


@dataclass(slots=True, eq=False)
class Answer:
    """What it was told about that."""

    word: Word
    at: int
    granted: bool


@dataclass
class QueueJournal:
    """The record of one run, of workers in many threads."""

    topic: str
    # Workers are to finish whatever comes; and then to end.
    draining: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    # How many records each group has acknowledged for certain, and how many were delivered to each worker.
    finished: Counter[str] = field(default_factory=Counter)
    delivered: Counter[str] = field(default_factory=Counter)
    # How often a worker lost its server, or was refused by it.
    interruptions: Counter[str] = field(default_factory=Counter)
    checker: QueueChecker = field(default_factory=QueueChecker)
    _events: list[Held | Word | Answer] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def got(
        self, worker: str, group: str, asked: int, lease_ms: int, records: Iterable[Received]
    ) -> list[Held]:
        """Records have come; `asked` is when the worker asked for them."""
        with self._changed:
            now = time.monotonic_ns()
            held = [Held(worker, group, each, asked, now, lease_ms * MILLISECOND) for each in records]
            self._events += held
            self.delivered[worker] += len(held)
            self._changed.notify_all()
        return held

    def says(self, held: Sequence[Held], action: SettleAction, delay_ms: int | None = None) -> list[Word]:
        """To be written down before it is sent."""
        with self._changed:
            now = time.monotonic_ns()
            words = [Word(each, action, now, delay_ms) for each in held]
            self._events += words
        return words

    def told(self, word: Word, granted: bool) -> None:
        """A worker knows what became of its word. What it is not told stays open."""
        with self._changed:
            self._events.append(Answer(word, time.monotonic_ns(), granted))
            if granted and word.action is not SettleAction.RENEW:
                word.held.is_finished = True
            if granted and word.action is SettleAction.ACKNOWLEDGE:
                self.finished[word.held.group] += 1
                self._changed.notify_all()

    def gone(self, held: Iterable[Held]) -> None:
        """The worker has lost what it had, and it may have been given back for it."""
        with self._changed:
            for each in held:
                each.is_gone = not each.is_finished

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until what workers have reported satisfies a condition."""
        with self._changed:
            return self._changed.wait_for(condition, seconds)

    def check(self, sent: Mapping[int, Iterable[bytes]], rows: Rows, policy: QueuePolicy) -> list[str]:
        """Every anomaly, given what was sent to each partition and what it holds at the end."""
        checker = self.checker
        groups = list(dict.fromkeys(each.group for each in self._events if isinstance(each, Held)))
        checker.policies = dict.fromkeys(groups, policy)
        for partition, values in sent.items():
            for value in values:
                checker.sending((self.topic, partition), value, SentRecord())
        deliveries: dict[Held, QueueDelivery] = {}
        settlements: dict[Word, Settlement] = {}
        uncounted = self._uncounted()
        for event in self._events:
            if _held_of(event) in uncounted:
                continue
            match event:
                case Held():
                    deliveries[event] = self._play_delivery(event)
                case Word(held=held, action=action):
                    settlement = Settlement(action, event.asked, event.delay_ms, held.lease_ns)
                    settlements[event] = checker.settling(deliveries[held], settlement)
                case Answer(word=word):
                    checker.settled(deliveries[word.held], settlements[word], event.at, granted=event.granted)
        logs = {(self.topic, partition): found for partition, found in rows.items()}
        return [*checker.anomalies, *checker.check(dict.fromkeys(groups, logs), (), {}, 0)]

    def _uncounted(self) -> set[Held]:
        """Deliveries that were given back with their workers, and are followed by the same attempt."""
        found: set[Held] = set()
        last: dict[tuple[str, int, int, int], Held] = {}
        for event in self._events:
            if isinstance(event, Held):
                record = event.record
                place = (event.group, record.partition, record.offset, record.attempt)
                before = last.get(place)
                if before is not None and before.is_gone and not before.is_finished:
                    found.add(before)
                last[place] = event
        return found

    def _play_delivery(self, held: Held) -> QueueDelivery:
        record = held.record
        delivery = QueueDelivery(
            held.group,
            held.worker,
            (self.topic, record.partition),
            record.offset,
            record.value,
            record.attempt,
            held.asked,
            held.got,
            held.asked + held.lease_ns - held.lease_ns // DRIFT,
        )
        self.checker.delivered(delivery, 0)
        if held.is_gone:
            self.checker.settling(delivery, Settlement(SettleAction.RELEASE, held.got))
        return delivery


def _held_of(event: Held | Word | Answer) -> Held:
    match event:
        case Held():
            return event
        case Word(held=held):
            return held
        case Answer(word=word):
            return word.held
