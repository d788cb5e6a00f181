"""How many records groups have consumed, as far as their commits tell.

A commit counts the records between the position before and the new one. A group's first
commit in a partition has none before it: there, counting begins where a member was told to
begin, by the lookup that every stock client without a position makes. Who never asked (a
reader that chose its own offset) is counted from the first commit on.
"""

from typing import NamedTuple

from penstock.core.groups import GroupImage, OffsetCommitted
from penstock.core.model import Offset, TopicPartition
from penstock.services.groups.metrics import GroupMetrics

REMEMBERED_MAX = 10_000


class Reader(NamedTuple):
    """A client as lookups and members have it in common."""

    client_id: str
    client_host: str


class Consumption:
    """Counts advances of committed positions, by group and topic."""

    def __init__(self, metrics: GroupMetrics) -> None:
        self._consumed = metrics.consumed
        # The oldest go first; they are forgotten too late at worst, and cost one figure's beginning.
        self._begins: dict[tuple[Reader, TopicPartition], Offset] = {}

    def __len__(self) -> int:
        return len(self._begins)

    def looked_up(self, reader: Reader, partition: TopicPartition, offset: Offset) -> None:
        """A client asked where to begin, and was told."""
        key = (reader, partition)
        self._begins.pop(key, None)
        self._begins[key] = offset
        if len(self._begins) > REMEMBERED_MAX:
            del self._begins[next(iter(self._begins))]

    def commits(self, image: GroupImage, fact: OffsetCommitted) -> None:
        """A position is about to become part of the state."""
        before = image.offsets_of(fact.group_id).get(fact.partition)
        begin = before.offset if before is not None else self._begin(image, fact)
        tally = self._consumed.of(fact.group_id, fact.partition.topic)
        tally.count += max(0, fact.offset - begin)

    def _begin(self, image: GroupImage, fact: OffsetCommitted) -> Offset:
        group = image.groups.get(fact.group_id)
        for member in group.members if group is not None else ():
            reader = Reader(member.client_id, member.client_host)
            begin = self._begins.pop((reader, fact.partition), None)
            if begin is not None:
                return begin
        return fact.offset

    def deleted(self, image: GroupImage, group_id: str, topic: str) -> None:
        """A position is gone; with the last one of a topic, the figure goes too."""
        if all(partition.topic != topic for partition in image.offsets_of(group_id)):
            self._consumed.forget(group_id, topic)
