"""OffsetCommit: who may move a group's positions."""

from penstock.core.groups.classic import ClassicGroup
from penstock.core.groups.classic.rebalance import keep_alive
from penstock.core.groups.commands import CommitOffsets, OffsetToCommit
from penstock.core.groups.facts import OffsetCommitted
from penstock.core.groups.outcome import Turn
from penstock.core.groups.replies import CommitResults, GroupState, PartitionResult
from penstock.core.model import Timestamp, Why


def commit(group: ClassicGroup | None, command: CommitOffsets, turn: Turn) -> None:
    """Accept the positions as they are: a client may well move one back."""
    why = _why_not(group, command)
    if why is not None:
        turn.refuse(command.ticket, why)
        return
    if group is not None and command.member_id in group.members:
        # A commit shows that the member is alive.
        keep_alive(group, group.members[command.member_id], turn)
    results = tuple(_commit_one(offset, command, turn) for offset in command.offsets)
    turn.answer(command.ticket, CommitResults(results))


def _why_not(group: ClassicGroup | None, command: CommitOffsets) -> Why | None:
    if group is None:
        # A consumer that assigns itself needs no group; one that names a generation has lost its own.
        return None if command.generation < 0 else Why.UNKNOWN_GROUP
    if command.generation < 0 and group.is_empty:
        return None
    why = group.why_not_member(command.member_id, command.instance_id)
    if why is not None:
        return why
    if command.generation != group.generation:
        return Why.ILLEGAL_GENERATION
    if group.state is GroupState.COMPLETING_REBALANCE:
        # Between generations nobody owns anything: what was read before the rebalance should have
        # been committed while the group was preparing it.
        return Why.REBALANCE_IN_PROGRESS
    return None


def _commit_one(offset: OffsetToCommit, command: CommitOffsets, turn: Turn) -> PartitionResult:
    if len(offset.metadata) > turn.options.offset_metadata_chars_max:
        return PartitionResult(offset.partition, Why.OFFSET_METADATA_TOO_LARGE)
    expires_at = None
    if command.retention_ms is not None:
        expires_at = Timestamp(turn.now.wall + command.retention_ms)
    turn.record(
        OffsetCommitted(
            command.group_id,
            offset.partition,
            offset.offset,
            offset.leader_epoch,
            offset.metadata,
            turn.now.wall,
            expires_at,
            offset.topic_id,
        )
    )
    return PartitionResult(offset.partition)
