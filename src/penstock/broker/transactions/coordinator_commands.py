"""Commands to coordinators of this node that are part of a transaction: acknowledgements, and ends of delays.

The coordinator's partition takes part in the transaction like any other: its leader, which is this node, asks
the transaction's coordinator before the first command. Without that, one could come behind the transaction's
marker, and nobody would ever decide on it.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from penstock.broker.partitions import LeaderPartition
from penstock.broker.transactions.verification import (
    ENDED,
    FENCED,
    TransactionalRequest,
    TransactionVerification,
    TransactionWriter,
    is_open,
)
from penstock.core.model import ApiError, ErrorKind
from penstock.core.queues import TransactionProducer
from penstock.core.values import dataclass
from penstock.runtime import Callback

MOVED = ApiError(ErrorKind.NOT_COORDINATOR, "the coordinator has moved; look it up again")
FindPartition: TypeAlias = Callable[[], LeaderPartition | ApiError]


@dataclass(frozen=True, slots=True)
class TransactionalCommand:
    """A command that waits for its transaction to be known: how to submit it, and whom to refuse it to."""

    producer: TransactionProducer
    transactional_id: str
    # The partition of its coordinator, if that is on this node and serves.
    find: FindPartition
    submit: Callback
    refuse: Callable[[ApiError], None]
    # About what it takes in memory.
    size_bytes: int


class TransactionalCommands:
    """Submits commands once the transaction's coordinator knows of their partition."""

    def __init__(self, verification: TransactionVerification) -> None:
        self._verification = verification

    def submit(self, command: TransactionalCommand) -> None:
        """The command is submitted or refused once, perhaps at once."""
        partition, producer = command.find(), command.producer
        if isinstance(partition, ApiError):
            command.refuse(partition)
            return
        known = partition.log.producers.get(producer.producer_id)
        if known is not None and known.epoch > producer.epoch:
            command.refuse(FENCED)
            return
        if self._verification.admits_now(partition, producer.producer_id, producer.epoch):
            self._submit(partition, command)
            return
        request = TransactionalRequest(command.transactional_id, True, True)
        refused = self._verification.park(
            partition,
            TransactionWriter(request, producer.producer_id, producer.epoch),
            partial(self._turn, partition, command),
            size_bytes=command.size_bytes,
        )
        if refused is not None:
            command.refuse(refused)

    def expect(
        self, partition: LeaderPartition, producer: TransactionProducer, transactional_id: str
    ) -> None:
        """Have the transaction's coordinator know of the partition ahead of what will be written to it.

        Should that fail, whatever is written asks again.
        """
        if not self._verification.admits_now(partition, producer.producer_id, producer.epoch):
            request = TransactionalRequest(transactional_id, True, True)
            writer = TransactionWriter(request, producer.producer_id, producer.epoch)
            self._verification.park(partition, writer, _ignore)

    def _turn(
        self, partition: LeaderPartition, command: TransactionalCommand, error: ApiError | None
    ) -> None:
        producer_id, epoch = command.producer
        is_verified = self._verification.admits(partition, producer_id, epoch)
        if error is None and is_verified:
            self._submit(partition, command)
        else:
            command.refuse(error or ENDED)

    def _submit(self, partition: LeaderPartition, command: TransactionalCommand) -> None:
        if command.find() is not partition:
            # It moved meanwhile, perhaps away and back: nothing was verified in its new leader epoch.
            command.refuse(MOVED)
            return
        command.submit()
        producer_id, epoch = command.producer
        if is_open(partition, producer_id, epoch):
            self._verification.appended(partition, producer_id, epoch)


def _ignore(_: ApiError | None) -> None:
    """Nothing waits for the answer."""
