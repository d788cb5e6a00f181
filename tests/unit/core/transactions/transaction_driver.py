"""Drives a transaction coordinator as its host does: applies facts, collects responses, moves time."""

from collections.abc import Iterable
from typing import Any

from penstock.core.model import (
    MILLISECOND,
    Instant,
    Now,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    Timestamp,
    TopicName,
    TopicPartition,
)
from penstock.core.transactions import (
    AddPartitions,
    Command,
    CompleteTransaction,
    EndTransaction,
    Event,
    Fact,
    FindPrepared,
    InitProducer,
    PreparedTransaction,
    ProducerGranted,
    ProducerIdentity,
    ProducerIdNeeded,
    Reply,
    TransactionCoordinator,
    TransactionOptions,
    TransactionOutcome,
    TransactionStored,
    VerifyPartitions,
)

ID = "payments"
TIMEOUT_MS = 60_000
WALL_START_MS = 1_700_000_000_000
OLD, NEW = 0, 2


def at(topic: str, partition: int = 0) -> TopicPartition:
    return TopicPartition(TopicName(topic), PartitionIndex(partition))


def producer(producer_id: int, epoch: int) -> ProducerIdentity:
    return ProducerIdentity(ProducerId(producer_id), ProducerEpoch(epoch))


def ignore(_: Reply) -> None:
    """In the place of the callback that the driver gives every command."""


class Driver:
    """A host with a log that never fails, which gives out producer ids from 1000 on."""

    def __init__(
        self, options: TransactionOptions | None = None, facts: Iterable[Fact] = (), now_ms: int = 0
    ) -> None:
        self.options = options
        self.machine = TransactionCoordinator(options)
        self.now_ms = now_ms
        self.log: list[Fact] = []
        self.events: list[Event] = []
        self.next_id = 1_000
        for fact in facts:
            self.machine.apply(fact)
            self.log.append(fact)
        self._take(self.machine.resume(self.now))

    @property
    def now(self) -> Now:
        return Now(Instant(self.now_ms * MILLISECOND), Timestamp(WALL_START_MS + self.now_ms))

    def failover(self) -> "Driver":
        """Another node takes over what is in the log."""
        successor = Driver(self.options, self.log, self.now_ms)
        successor.next_id = self.next_id
        return successor

    def _take(self, outcome: TransactionOutcome) -> dict[Any, Reply]:
        for fact in outcome.facts:
            self.machine.apply(fact)
            self.log.append(fact)
        self.events += outcome.events
        for on_reply, reply in outcome.responses:
            on_reply(reply)
        return dict(outcome.responses)

    def ask(self, command: type[Any], **fields: Any) -> Reply:
        def on_reply(_: Reply) -> None:
            """Identifies the command."""

        made: Command = command(on_reply=on_reply, **{"transactional_id": ID, **fields})
        return self._take(self.machine.decide(made, self.now))[on_reply]

    def ask_with_id(self, command: type[Any], **fields: Any) -> Reply:
        """As the service does it: with a new producer id where one is needed."""
        reply = self.ask(command, **fields)
        if not isinstance(reply, ProducerIdNeeded):
            return reply
        self.next_id += 1
        return self.ask(command, new_producer_id=ProducerId(self.next_id - 1), **fields)

    def init(self, expected: ProducerIdentity | None = None, **fields: Any) -> Reply:
        return self.ask_with_id(InitProducer, expected=expected, **{"timeout_ms": TIMEOUT_MS, **fields})

    def begin(self, **fields: Any) -> ProducerIdentity:
        reply = self.init(**fields)
        assert isinstance(reply, ProducerGranted), reply
        return reply.producer

    def add(self, who: ProducerIdentity, *partitions: TopicPartition, version: int = NEW) -> Reply:
        return self.ask(
            AddPartitions, producer=who, partitions=partitions or (at("t"),), client_version=version
        )

    def add_later(
        self, who: ProducerIdentity, *partitions: TopicPartition, version: int = NEW
    ) -> list[Reply]:
        """Add partitions; the list gets the reply when there is one."""
        replies: list[Reply] = []
        command = AddPartitions(
            on_reply=replies.append,
            transactional_id=ID,
            producer=who,
            partitions=partitions,
            client_version=version,
        )
        self._take(self.machine.decide(command, self.now))
        return replies

    def verify(self, who: ProducerIdentity, *partitions: TopicPartition) -> Reply:
        return self.ask(VerifyPartitions, producer=who, partitions=partitions)

    def end(self, who: ProducerIdentity, *, commit: bool = True, version: int = NEW) -> Reply:
        return self.ask_with_id(EndTransaction, producer=who, is_commit=commit, client_version=version)

    def prepared(self) -> TransactionStored | None:
        reply = self.ask(FindPrepared)
        assert isinstance(reply, PreparedTransaction)
        return reply.transaction

    def complete(self) -> None:
        """Every partition has its marker."""
        found = self.prepared()
        assert found is not None
        self.ask(CompleteTransaction, producer=producer(found.producer_id, found.producer_epoch))

    def run(self, who: ProducerIdentity, *, commit: bool = True, version: int = NEW) -> ProducerIdentity:
        """A whole transaction; returns what the producer goes on with."""
        self.add(who, version=version)
        reply = self.end(who, commit=commit, version=version)
        assert isinstance(reply, ProducerGranted), reply
        self.complete()
        return reply.producer

    def pass_ms(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        while (deadline := self.machine.next_deadline()) is not None and deadline <= self.now.instant:
            self._take(self.machine.expire(self.now))

    def stored(self) -> TransactionStored:
        return self.machine.image.transactions[ID]
