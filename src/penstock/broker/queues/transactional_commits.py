"""Acknowledgements inside transactions: the partition of `__queue_state` that keeps the queue takes part."""

from functools import partial
from typing import Protocol

from penstock.broker.partitions import LeaderPartition
from penstock.broker.transactions.coordinator_commands import TransactionalCommand, TransactionalCommands
from penstock.broker.transactions.verification import TransactionVerification
from penstock.core.model import ApiError, ErrorKind
from penstock.core.queues import AcknowledgeRecords, FinishMoves, QueueCommand, QueueId, claims_count

# About what one of its offsets takes in memory while a command waits.
OFFSET_BYTES = 100
COMMAND_BYTES = 500
NO_TRANSACTIONAL_ID = ApiError(
    ErrorKind.INVALID_REQUEST, "an acknowledgement in a transaction names a transactional id and a producer"
)


class LocalQueues(Protocol):
    """The queues of this node."""

    def partition_of(self, queue: QueueId) -> LeaderPartition | ApiError: ...

    def submit(self, command: QueueCommand) -> None: ...


class TransactionalQueueCommits:
    """Serves commands to queues of this node; those in transactions once the coordinator knows of them."""

    def __init__(self, queues: LocalQueues, verification: TransactionVerification) -> None:
        self._queues = queues
        self._commands = TransactionalCommands(verification)

    def submit(self, command: QueueCommand, transactional_id: str | None) -> None:
        """The command's callback gets the reply, perhaps at once."""
        producer = command.producer if isinstance(command, AcknowledgeRecords | FinishMoves) else None
        if (producer is None) != (transactional_id is None):
            command.on_reply(NO_TRANSACTIONAL_ID)
        elif producer is None or transactional_id is None:
            self._queues.submit(command)
        else:
            assert isinstance(command, AcknowledgeRecords | FinishMoves)
            count = len(command.offsets) if isinstance(command, FinishMoves) else claims_count(command.claims)
            self._commands.submit(
                TransactionalCommand(
                    producer,
                    transactional_id,
                    partial(self._queues.partition_of, command.queue),
                    partial(self._queues.submit, command),
                    command.on_reply,
                    COMMAND_BYTES + OFFSET_BYTES * count,
                )
            )
