"""The durable state of a coordinator partition: what its log says and nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import assert_never

from penstock.core.groups.facts import Fact, GroupDeleted, GroupStored, OffsetCommitted, OffsetDeleted
from penstock.core.model import TopicPartition

_NOTHING: Mapping[TopicPartition, OffsetCommitted] = {}


@dataclass(slots=True)
class GroupImage:
    """The last record of every key, as a compacted log would hold them."""

    groups: dict[str, GroupStored] = field(default_factory=dict)
    offsets: dict[str, dict[TopicPartition, OffsetCommitted]] = field(default_factory=dict)

    def apply(self, fact: Fact) -> None:
        """Total: any fact may follow any other, a tombstone of nothing included."""
        match fact:
            case GroupStored():
                self.groups[fact.group_id] = fact
            case GroupDeleted():
                self.groups.pop(fact.group_id, None)
            case OffsetCommitted():
                self.offsets.setdefault(fact.group_id, {})[fact.partition] = fact
            case OffsetDeleted():
                self._delete_offset(fact)
            case _:
                assert_never(fact)

    def offsets_of(self, group_id: str) -> Mapping[TopicPartition, OffsetCommitted]:
        return self.offsets.get(group_id, _NOTHING)

    def is_unstable(self, group_id: str, partition: TopicPartition) -> bool:  # noqa: ARG002
        """Whether a transaction may still move this position; none can before transactions exist."""
        return False

    def knows(self, group_id: str) -> bool:
        return group_id in self.groups or group_id in self.offsets

    def group_ids(self) -> list[str]:
        return list(self.groups | self.offsets)

    def _delete_offset(self, fact: OffsetDeleted) -> None:
        offsets = self.offsets.get(fact.group_id)
        if offsets is None:
            return
        offsets.pop(fact.partition, None)
        if not offsets:
            del self.offsets[fact.group_id]
