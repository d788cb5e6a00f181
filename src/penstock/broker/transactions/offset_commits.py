"""Commits of groups' positions inside transactions.

The partition of `__consumer_offsets` that keeps the group takes part in the transaction like any other: its
leader, which is the group's coordinator, asks the transaction's coordinator before the first commit.
"""

from functools import partial
from typing import Protocol

from penstock.broker.partitions import LeaderPartition
from penstock.broker.transactions.verification import (
    ENDED,
    FENCED,
    TransactionalRequest,
    TransactionVerification,
    TransactionWriter,
    is_open,
    offsets_error,
)
from penstock.core.groups import Command, CommitTransactionOffsets
from penstock.core.model import ApiError, ErrorKind

# About what a position takes in memory while its commit waits, besides its metadata.
OFFSET_BYTES = 300
MOVED = ApiError(ErrorKind.NOT_COORDINATOR, "the group has moved; look up its coordinator again")


class GroupCoordinators(Protocol):
    """The groups of this node."""

    def partition_of(self, group_id: str) -> LeaderPartition | ApiError: ...

    def submit(self, command: Command) -> None: ...


class TransactionalOffsetCommits:
    """Serves commits inside transactions, once the transaction's coordinator knows of them."""

    def __init__(self, groups: GroupCoordinators, verification: TransactionVerification) -> None:
        self._groups = groups
        self._verification = verification

    def commit(self, command: CommitTransactionOffsets, request: TransactionalRequest) -> None:
        """The command's callback gets the reply, perhaps at once."""
        partition = self._groups.partition_of(command.group_id)
        if isinstance(partition, ApiError):
            command.on_reply(partition)
            return
        known = partition.log.producers.get(command.producer_id)
        if known is not None and known.epoch > command.producer_epoch:
            command.on_reply(FENCED)
            return
        if self._verification.admits_now(partition, command.producer_id, command.producer_epoch):
            self._submit(partition, command)
            return
        producer = TransactionWriter(request, command.producer_id, command.producer_epoch)
        refused = self._verification.park(
            partition,
            producer,
            partial(self._turn, partition, command, request),
            size_bytes=OFFSET_BYTES + sum(OFFSET_BYTES + len(each.metadata) for each in command.offsets),
        )
        if refused is not None:
            command.on_reply(offsets_error(refused, request))

    def _turn(
        self,
        partition: LeaderPartition,
        command: CommitTransactionOffsets,
        request: TransactionalRequest,
        error: ApiError | None,
    ) -> None:
        is_verified = self._verification.admits(partition, command.producer_id, command.producer_epoch)
        if error is None and is_verified:
            self._submit(partition, command)
        else:
            command.on_reply(offsets_error(error or ENDED, request))

    def _submit(self, partition: LeaderPartition, command: CommitTransactionOffsets) -> None:
        if self._groups.partition_of(command.group_id) is not partition:
            # It moved meanwhile, perhaps away and back: nothing was verified in its new leader epoch.
            command.on_reply(MOVED)
            return
        self._groups.submit(command)
        if is_open(partition, command.producer_id, command.producer_epoch):
            self._verification.appended(partition, command.producer_id, command.producer_epoch)
