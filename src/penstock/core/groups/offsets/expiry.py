"""Positions that nobody has come back for.

They are kept for the retention time after the group became empty, or after the commit
where there never was a member; in a stable consumer group, those in topics it has
unsubscribed from age as well. A group with nothing left is deleted.
"""

from collections.abc import Callable

from penstock.core.groups.classic import ClassicGroup, ClassicGroups
from penstock.core.groups.facts import GroupDeleted, OffsetCommitted, OffsetDeleted
from penstock.core.groups.image import GroupImage
from penstock.core.groups.outcome import Turn
from penstock.core.groups.replies import GroupState
from penstock.core.model import MILLISECOND, Instant, Timestamp


class OffsetSweep:
    """Goes through all groups once per interval, a few at a time."""

    def __init__(self, image: GroupImage, classic: ClassicGroups) -> None:
        self._image = image
        self._classic = classic
        self._left: list[str] = []
        self.deadline: Instant | None = None

    def plan(self, turn: Turn) -> None:
        interval_ms = turn.options.offsets_retention_check_interval_ms
        self.deadline = Instant(turn.now.instant + interval_ms * MILLISECOND)

    def run_if_due(self, turn: Turn) -> None:
        if self.deadline is None or self.deadline > turn.now.instant:
            return
        if not self._left:
            self._left = sorted(self._image.group_ids(), reverse=True)
        for _ in range(min(len(self._left), turn.options.groups_expired_per_turn_max)):
            self._sweep(self._left.pop(), turn)
        if not self._left:
            self.plan(turn)

    def _sweep(self, group_id: str, turn: Turn) -> None:
        group = self._classic.find(group_id)
        if group is None:
            return
        offsets = self._image.offsets_of(group_id)
        expired = [offset for offset in offsets.values() if _is_expired(offset, group, turn)]
        for offset in expired:
            turn.record(OffsetDeleted(group_id, offset.partition))
        if len(expired) == len(offsets) and group.is_idle and group_id in self._image.groups:
            turn.record(GroupDeleted(group_id))


def _is_expired(offset: OffsetCommitted, group: ClassicGroup, turn: Turn) -> bool:
    since = _aging_since(group)
    if since is None or group.is_subscribed_to(offset.partition.topic):
        return False
    if offset.expires_at is not None:
        return turn.now.wall >= offset.expires_at
    return turn.now.wall - since(offset) >= turn.options.offsets_retention_ms


def _aging_since(group: ClassicGroup) -> Callable[[OffsetCommitted], Timestamp] | None:
    """From when on an offset of this group ages; None while none of them does."""
    if group.protocol_type is None:
        return _committed_at
    if group.is_empty:
        empty_since = group.state_since
        return _committed_at if empty_since is None else lambda _: empty_since
    if group.state is GroupState.STABLE and group.subscribed is not None:
        return _committed_at
    return None


def _committed_at(offset: OffsetCommitted) -> Timestamp:
    return offset.committed_at
