"""What a follower does with an answer for one of its partitions."""

import enum

from penstock.core.model import CorruptionError, LeaderEpoch, Offset, PenstockError, StorageError
from penstock.core.records import BatchHeader, CorruptBatch, check_batches
from penstock.core.replica import DivergingEpoch, truncation_offset
from penstock.observability import log as events
from penstock.services.partitions import Followed
from penstock.services.replication.codec import AnswerRow, Status
from penstock.storage.log import OffsetsNotIncreasing


class Outcome(enum.Enum):
    """How a partition fares after an answer."""

    QUIET = enum.auto()
    # Its position is another one: the leader must be told.
    MOVED = enum.auto()
    # Likewise, and some of what it had is gone.
    WENT_BACK = enum.auto()
    # As before, and not as the leader thinks: it must be told again.
    STALE = enum.auto()
    # Something is wrong here or there: better to wait a while.
    TROUBLE = enum.auto()
    # What came was damaged, on the leader's disk most likely, since links check what they carry.
    DAMAGED = enum.auto()


def apply(followed: Followed, answer: AnswerRow, batches: memoryview) -> Outcome:
    """Bring the log where the leader's answer says."""
    if answer.leader_epoch != followed.leader_epoch or answer.position != followed.log.end:
        # Sent before the leader knew where we are by now, which it was told, or is about to be. To tell
        # it once more would bring another such answer, and so on.
        return Outcome.QUIET
    if answer.status == Status.FENCED:
        # Our metadata will say so too, before long.
        return Outcome.QUIET
    try:
        return _obey(followed, answer, batches)
    except StorageError as error:
        events.error("replica.not_written", partition=str(followed.name), error=error)
    except (CorruptionError, OffsetsNotIncreasing) as error:
        events.warning("replica.received_damage", partition=str(followed.name), error=error)
        return Outcome.DAMAGED
    except PenstockError as error:
        # The role is over, say.
        events.warning("replica.not_taken", partition=str(followed.name), error=error)
    return Outcome.TROUBLE


def _obey(followed: Followed, answer: AnswerRow, batches: memoryview) -> Outcome:
    match answer.status:
        case Status.OK:
            outcome = _append(followed, answer, batches) if len(batches) else Outcome.QUIET
            followed.advance_high_watermark(Offset(answer.high_watermark))
            followed.advance_start(Offset(answer.log_start))
            return outcome
        case Status.DIVERGED:
            return _cut(followed, answer)
        case Status.OUT_OF_RANGE:
            return _begin_anew(followed, answer)
        case Status.DAMAGED:
            events.error(
                "replica.leader_damaged",
                partition=str(followed.name),
                offset=answer.position,
                leader=followed.leader,
            )
            return Outcome.TROUBLE
        case _:
            events.warning("replica.unknown_status", partition=str(followed.name), status=answer.status)
            return Outcome.TROUBLE


def _append(followed: Followed, answer: AnswerRow, batches: memoryview) -> Outcome:
    # The leader has checked them when they came in; since then they were on its disk and on the wire.
    headers = check_batches(batches, compacted=True)
    last = headers[-1]
    if last.next_offset > answer.end or last.leader_epoch > answer.leader_epoch:
        # Both stand outside the CRC, and there may be holes between offsets: this is all that is certain.
        raise CorruptBatch(
            f"offset {last.last_offset} of epoch {last.leader_epoch} is not in the leader's log"
        )
    _make_room(followed, headers)
    followed.append(batches, headers)
    return Outcome.MOVED


def _make_room(followed: Followed, headers: list[BatchHeader]) -> None:
    """An empty log that begins within the leader's first batch begins with that batch instead.

    Only the leader's log start can be in the middle of a batch, after a deletion by offset.
    """
    first, log = Offset(headers[0].base_offset), followed.log
    if first < log.end and log.start == log.end:
        followed.restart_at(first)


def _cut(followed: Followed, answer: AnswerRow) -> Outcome:
    log = followed.log
    cut = truncation_offset(
        log.epochs, log.end, DivergingEpoch(LeaderEpoch(answer.epoch), Offset(answer.end))
    )
    end, high_watermark = log.end, log.high_watermark
    if cut >= end:
        # Never true of two logs that have a beginning in common.
        events.error("replica.nothing_to_truncate", partition=str(followed.name), end=end, epoch=answer.epoch)
        return Outcome.TROUBLE
    followed.truncate_to(cut)
    tell = events.warning if cut < high_watermark else events.info
    tell(
        "replica.truncated",
        partition=str(followed.name),
        end=end,
        to=cut,
        epoch=answer.epoch,
        high_watermark=high_watermark,
    )
    return Outcome.WENT_BACK


def _begin_anew(followed: Followed, answer: AnswerRow) -> Outcome:
    log = followed.log
    start, end = log.start, log.end
    if answer.log_start <= end <= answer.end:
        # It is in range by now.
        return Outcome.STALE
    followed.restart_at(Offset(answer.log_start))
    events.warning(
        "replica.began_anew",
        partition=str(followed.name),
        start=start,
        end=end,
        leader_start=answer.log_start,
        leader_end=answer.end,
    )
    return Outcome.WENT_BACK
